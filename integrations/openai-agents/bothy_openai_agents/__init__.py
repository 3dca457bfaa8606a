"""Bothy sandboxes for the OpenAI Agents SDK."""

from .client import BothySandboxClient
from .options import BothySandboxClientOptions, BothySandboxSessionState
from .session import BothySandboxSession

__all__ = [
    "BothySandboxClient",
    "BothySandboxClientOptions",
    "BothySandboxSession",
    "BothySandboxSessionState",
]
