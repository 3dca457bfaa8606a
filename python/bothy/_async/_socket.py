"""WebSockets to the server."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from .. import _websocket as protocol
from .._connect import tls_for
from .._errors import ConnectionFailedError, error_from_response
from .._io import aio as io
from ._client import CONNECT_TIMEOUT_SECONDS, AsyncClient, present


class AsyncWebSocket:
    """An open WebSocket. One task may receive while others send.

    Attributes:
        headers: The headers of the server's answer; their names are in lower case.
        reason: What the server said when it closed.
    """

    def __init__(self, stream: io.ByteStream, headers: dict[str, str], rest: bytes) -> None:
        self.headers = headers
        self.reason = ""
        self._stream = stream
        self._parser = protocol.FrameParser()
        self._ready = list(self._parser.feed(rest))
        self._closed = False

    @classmethod
    async def connect(
        cls, client: AsyncClient, path: str, params: Mapping[str, Any] | None = None
    ) -> AsyncWebSocket:
        """Open a WebSocket at a path of the REST API.

        Raises:
            BothyError: The child that the server's refusal stands for.
            ConnectionFailedError: The server cannot be reached.
        """
        parts = urlsplit(client.url)
        target = parts.path + path
        if query := urlencode(present(params) or {}, doseq=True):
            target += "?" + query
        tls = tls_for(parts)
        port = parts.port or (443 if tls else 80)
        try:
            stream = await io.ByteStream.connect(
                parts.hostname or "", port, tls, CONNECT_TIMEOUT_SECONDS
            )
        except OSError as error:
            raise ConnectionFailedError(f"{client.url} cannot be reached: {error}") from error
        try:
            key = protocol.new_key()
            await stream.write(protocol.handshake(parts.netloc, target, key, client._headers()))
            return cls(stream, *await _opened(stream, key))
        except BaseException:
            await stream.close()
            raise

    async def send(self, data: bytes | str) -> None:
        """Send one message: bytes as binary, a string as text."""
        text = isinstance(data, str)
        raw = data.encode() if isinstance(data, str) else data
        await self._write(protocol.encode("text" if text else "binary", raw))

    async def receive(self, timeout: float | None = None) -> bytes | str | None:
        """Return the next message, or ``None`` when the other side has closed.

        Raises:
            ConnectionFailedError: The connection broke.
            TimeoutError: Nothing came for ``timeout`` seconds.
        """
        while True:
            while self._ready:
                message = self._ready.pop(0)
                if message.kind == "binary":
                    return message.data
                if message.kind == "text":
                    return message.data.decode("utf-8", "replace")
                if message.kind == "close":
                    await self._end(message)
                    return None
                if message.kind == "ping":
                    await self._write(protocol.encode("pong", message.data))
            if not await self._fill(timeout):
                return None

    async def close(self) -> None:
        """Close the connection. Closing it twice does nothing."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError):
            await self._stream.write(protocol.encode_close())
        await self._stream.close()

    async def _fill(self, timeout: float | None) -> bool:
        try:
            received = await self._stream.read(timeout)
        except TimeoutError:
            raise
        except OSError as error:
            if self._closed:
                return False
            raise ConnectionFailedError(f"the connection broke: {error}") from error
        if not received and not self._closed:
            raise ConnectionFailedError("the server ended the connection in mid-air")
        self._ready += self._parser.feed(received)
        return bool(received)

    async def _end(self, message: protocol.Message) -> None:
        self.reason = message.data.decode("utf-8", "replace")
        await self.close()
        # 1000: done; 1001: going away; 1005: no code was given.
        if message.code not in (1000, 1001, 1005):
            reason = self.reason or f"code {message.code}"
            raise ConnectionFailedError(f"the server closed the connection: {reason}")

    async def _write(self, frame: bytes) -> None:
        if self._closed:
            raise ConnectionFailedError("the connection is closed")
        try:
            await self._stream.write(frame)
        except OSError as error:
            raise ConnectionFailedError(f"the connection broke: {error}") from error


async def _opened(stream: io.ByteStream, key: str) -> tuple[dict[str, str], bytes]:
    received = b""
    while (parsed := protocol.parse_head(received)) is None:
        received += await _some(stream)
    head, rest = parsed
    if head.accepts(key):
        return head.headers, rest
    length = head.headers.get("content-length", "0")
    while len(rest) < min(int(length) if length.isdecimal() else 0, protocol.MAX_HEAD):
        rest += await _some(stream)
    if head.status >= 400:
        raise error_from_response(head.status, head.headers, rest)
    raise ConnectionFailedError(f"the server answered {head.status} and opened no WebSocket")


async def _some(stream: io.ByteStream) -> bytes:
    try:
        received = await stream.read()
    except OSError as error:
        raise ConnectionFailedError(f"the connection broke: {error}") from error
    if not received:
        raise ConnectionFailedError("the server ended the connection before it answered")
    return received
