"""Bothy sandboxes for OpenEnv: ``provider=BothyProvider()``."""

from .provider import BothyProvider

__all__ = ["BothyProvider"]
