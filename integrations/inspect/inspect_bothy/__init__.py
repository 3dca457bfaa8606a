"""Bothy sandboxes for Inspect: ``sandbox="bothy"``."""

from .environment import BothySandboxConfig, BothySandboxEnvironment

__all__ = ["BothySandboxConfig", "BothySandboxEnvironment"]
