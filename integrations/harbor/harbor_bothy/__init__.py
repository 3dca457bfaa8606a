"""Bothy sandboxes for Harbor: ``--env harbor_bothy:BothyEnvironment``."""

from .environment import BothyEnvironment

__all__ = ["BothyEnvironment"]
