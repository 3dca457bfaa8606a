"""A terminal in a sandbox."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from types import TracebackType

from .._errors import ConnectionFailedError
from ._socket import AsyncWebSocket

MAX_TYPED = 256 << 10
"""Bytes in one message; the server takes a little more."""


class AsyncTerminal:
    """An open terminal (PTY). Iterate over it for what it prints; close it to hang up.

    One task may read while another writes.
    """

    def __init__(self, socket: AsyncWebSocket) -> None:
        self._socket = socket

    @property
    def pid(self) -> int:
        """The process that it runs."""
        return int(self._socket.headers.get("x-process-id", 0))

    @property
    def exit_code(self) -> int | None:
        """The exit code of that process, once all of the output has been read."""
        with contextlib.suppress(ValueError, TypeError, KeyError):
            return int(json.loads(self._socket.reason)["exit_code"])
        return None

    async def __aenter__(self) -> AsyncTerminal:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        data = await self.read()
        if not data:
            raise StopAsyncIteration
        return data

    async def read(self) -> bytes:
        """Return what is printed next, as soon as there is something; nothing at the end.

        Raises:
            ConnectionFailedError: The connection broke.
        """
        while (message := await self._socket.receive()) is not None:
            if isinstance(message, bytes) and message:
                return message
        return b""

    async def write(self, data: str | bytes) -> None:
        """Type something."""
        raw = data.encode() if isinstance(data, str) else data
        for start in range(0, len(raw), MAX_TYPED):
            await self._socket.send(raw[start : start + MAX_TYPED])

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of the window, in characters."""
        await self._socket.send(json.dumps({"resize": {"cols": cols, "rows": rows}}))

    async def wait(self) -> int:
        """Discard what is printed until the process ends, and return its exit code.

        Raises:
            ConnectionFailedError: The terminal was closed before that.
        """
        async for _ in self:
            pass
        if self.exit_code is None:
            raise ConnectionFailedError("the terminal was closed before its process ended")
        return self.exit_code

    async def close(self) -> None:
        """Hang up. Closing it twice does nothing."""
        await self._socket.close()
