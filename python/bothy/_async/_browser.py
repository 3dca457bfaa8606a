"""The browser in a sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._sandbox import AsyncSandbox

PORT = 9222


class AsyncBrowser:
    """Chromium in a sandbox of the template ``browser``, for clients of the DevTools protocol."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self._sandbox.id}>"

    async def cdp_url(self, *, expires_seconds: int | None = None) -> str:
        """Return an address for Playwright and other clients, of the form ``http://…``.

        Anyone who has it can control the browser, without a key, until it ends.
        :class:`ConflictError` says that no browser runs in the sandbox.

        Args:
            expires_seconds: For how long it can be used; one hour by default.
        """
        link = await self._sandbox.create_link(PORT, kind="cdp", expires_seconds=expires_seconds)
        return link.url

    async def ws_url(self, *, expires_seconds: int | None = None) -> str:
        """Return the same address as that of a WebSocket, of the form ``ws://…``.

        It is for clients that take no other, and stays valid when the browser is started again.

        Args:
            expires_seconds: For how long it can be used; one hour by default.
        """
        url = await self.cdp_url(expires_seconds=expires_seconds)
        return "ws" + url.removeprefix("http")
