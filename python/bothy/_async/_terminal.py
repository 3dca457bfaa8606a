"""A terminal in a sandbox."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator
from types import TracebackType

from .._errors import ConnectionFailedError, RequestTimeoutError
from ._socket import AsyncWebSocket

MAX_TYPED = 256 << 10
"""Bytes in one message; the server takes a little more."""


class AsyncTerminal:
    """An open terminal (PTY). Iterate over it for what it prints; close it to hang up.

    One task may read while another writes.
    """

    def __init__(self, socket: AsyncWebSocket) -> None:
        self._socket = socket
        self._unread = b""

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

    async def read(self, timeout_seconds: float | None = None) -> bytes:
        """Return what is printed next, as soon as there is something; nothing at the end.

        That may be a piece of a line: :meth:`read_until` waits for more.

        Raises:
            ConnectionFailedError: The connection broke.
            RequestTimeoutError: Nothing was printed for ``timeout_seconds``.
        """
        if self._unread:
            data, self._unread = self._unread, b""
            return data
        try:
            while (message := await self._socket.receive(timeout_seconds)) is not None:
                if isinstance(message, bytes) and message:
                    return message
        except TimeoutError as error:
            raise RequestTimeoutError("the terminal printed nothing in time") from error
        return b""

    async def read_until(self, marker: str | bytes, timeout_seconds: float | None = 60.0) -> bytes:
        """Return what is printed up to ``marker``, such as the prompt of a shell, and with it.

        What comes behind it is left for the next call. At the end of the output all of the
        rest is returned, without the marker.

        Args:
            marker: What to wait for.
            timeout_seconds: Give up after this long; what has been printed is kept. ``None``
                waits for ever.

        Raises:
            ConnectionFailedError: The connection broke.
            RequestTimeoutError: It was not printed in time.
        """
        wanted = marker.encode() if isinstance(marker, str) else bytes(marker)
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        seen = b""
        try:
            while wanted not in seen:
                left = None if deadline is None else max(deadline - time.monotonic(), 0.001)
                data = await self.read(left)
                if not data:
                    return seen
                seen += data
        except BaseException:
            self._unread = seen
            raise
        end = seen.index(wanted) + len(wanted)
        self._unread = seen[end:]
        return seen[:end]

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
