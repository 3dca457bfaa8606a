"""Bothy sandboxes as backends of LangChain's deepagents."""

from .backend import BothySandbox

__all__ = ["BothySandbox"]
