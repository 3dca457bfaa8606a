"""Ports of a sandbox on this computer."""

from __future__ import annotations

import contextlib
import logging
from types import TracebackType

from .._errors import BothyError
from .._io import aio as io
from ._client import AsyncClient
from ._socket import AsyncWebSocket

_log = logging.getLogger("bothy")


class AsyncForward:
    """A port of this computer that leads to a port of a sandbox. Close it to stop."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._listener: io.Listener
        self._error: BothyError | None = None

    @classmethod
    async def open(cls, client: AsyncClient, path: str, host: str, port: int) -> AsyncForward:
        """Listen, and lead every connection to ``path``. Use :meth:`AsyncSandbox.forward`."""

        forward = cls(host)

        async def handle(local: io.ByteStream) -> None:
            try:
                await carry(client, path, local)
            except BothyError as error:
                forward._error = error
                _log.warning("a connection to the forwarded port was closed: %s", error)
                await local.close()

        forward._listener = await io.Listener.open(host, port, handle)
        return forward

    @property
    def host(self) -> str:
        """The address of this computer that it listens on."""
        return self._host

    @property
    def port(self) -> int:
        """The port of this computer that it listens on."""
        return self._listener.port

    @property
    def url(self) -> str:
        """The address as a URL for HTTP."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    @property
    def error(self) -> BothyError | None:
        """Why the last connection that was closed at once could not be made, if there was one.

        It is also logged, as a warning of the logger ``bothy``.
        """
        return self._error

    async def __aenter__(self) -> AsyncForward:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop listening and end the connections."""
        await self._listener.close()


async def carry(client: AsyncClient, path: str, local: io.ByteStream) -> None:
    """Carry the bytes of one connection both ways until one side is done.

    Raises:
        BothyError: There is no connection to the sandbox's port.
    """
    socket = await AsyncWebSocket.connect(client, path)

    async def outward() -> None:
        with contextlib.suppress(BothyError, OSError):
            while data := await local.read():
                await socket.send(data)
        await socket.close()

    async def inward() -> None:
        with contextlib.suppress(BothyError, OSError):
            while (data := await socket.receive()) is not None:
                if isinstance(data, bytes):
                    await local.write(data)
        await local.close()

    try:
        await io.both(outward, inward)
    finally:
        await socket.close()
        await local.close()
