"""The WebSocket protocol (RFC 6455), client side, without any input or output of its own."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ._errors import ConnectionFailedError

Kind = Literal["text", "binary", "close", "ping", "pong"]

MAX_HEAD = 64 << 10
MAX_MESSAGE = 64 << 20
"""Bytes; a longer message is refused. The server sends small ones."""

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION = 0
_OPCODES: dict[Kind, int] = {"text": 1, "binary": 2, "close": 8, "ping": 9, "pong": 10}
_KINDS: dict[int, Kind] = {code: kind for kind, code in _OPCODES.items()}
_FIN = 0x80
_MASKED = 0x80


@dataclass(frozen=True, slots=True)
class Message:
    """A whole message, or a control frame. ``code`` is that of a close."""

    kind: Kind
    data: bytes = b""
    code: int = 0


def new_key() -> str:
    """Return a random key for a handshake."""
    return base64.b64encode(os.urandom(16)).decode()


def handshake(host: str, target: str, key: str, headers: Mapping[str, str]) -> bytes:
    """Return the request that opens a WebSocket."""
    lines = [
        f"GET {target} HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header or the address holds a line break")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


@dataclass(frozen=True, slots=True)
class Head:
    """The head of the server's answer. The names of ``headers`` are in lower case."""

    status: int
    headers: dict[str, str]

    def accepts(self, key: str) -> bool:
        """Whether the answer opens the WebSocket that ``key`` asked for."""
        digest = hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()
        return (
            self.status == 101
            and self.headers.get("upgrade", "").lower() == "websocket"
            and self.headers.get("sec-websocket-accept") == base64.b64encode(digest).decode()
        )


def parse_head(received: bytes) -> tuple[Head, bytes] | None:
    """Return the head and the bytes behind it, or ``None`` where it is not whole yet."""
    text, end, rest = received.partition(b"\r\n\r\n")
    if not end:
        if len(received) > MAX_HEAD:
            raise ConnectionFailedError("the server's answer has no end to its head")
        return None
    first, *lines = text.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
        raise ConnectionFailedError(f"the server does not speak HTTP/1.1: {first[:80]!r}")
    pairs = (line.partition(":") for line in lines)
    return Head(int(words[1]), {name.strip().lower(): v.strip() for name, _, v in pairs}), rest


def encode(kind: Kind, data: bytes = b"", mask: bytes | None = None) -> bytes:
    """Return one whole message as a masked frame."""
    size = len(data)
    if size < 126:
        length = bytes([_MASKED | size])
    elif size < 1 << 16:
        length = bytes([_MASKED | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([_MASKED | 127]) + size.to_bytes(8, "big")
    mask = os.urandom(4) if mask is None else mask
    return bytes([_FIN | _OPCODES[kind]]) + length + mask + apply_mask(data, mask)


def encode_close(code: int = 1000) -> bytes:
    """Return a close frame."""
    return encode("close", code.to_bytes(2, "big"))


def apply_mask(data: bytes, mask: bytes) -> bytes:
    """Return ``data`` with the repeated ``mask`` over it; twice gives ``data`` again."""
    size = len(data)
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")


class FrameParser:
    """Turns the bytes that a server sends into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._kind: Kind | None = None
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, received: bytes) -> Iterator[Message]:
        """Yield the messages that ``received`` completes.

        Raises:
            ConnectionFailedError: The server breaks the protocol.
        """
        self._buffer += received
        while (frame := self._frame()) is not None:
            message = self._message(*frame)
            if message is not None:
                yield message

    def _frame(self) -> tuple[bool, int, bytes] | None:
        if len(self._buffer) < 2:
            return None
        first, second = self._buffer[0], self._buffer[1]
        if first & 0x70 or second & _MASKED:
            raise _broken("a frame with reserved bits or a mask")
        size, start = second & 0x7F, 2
        if size >= 126:
            start = 4 if size == 126 else 10
            if len(self._buffer) < start:
                return None
            size = int.from_bytes(self._buffer[2:start], "big")
        if self._size + size > MAX_MESSAGE:
            raise _broken(f"a message of more than {MAX_MESSAGE} bytes")
        if len(self._buffer) < start + size:
            return None
        data = bytes(self._buffer[start : start + size])
        del self._buffer[: start + size]
        return bool(first & _FIN), first & 0x0F, data

    def _message(self, final: bool, opcode: int, data: bytes) -> Message | None:
        if opcode >= 8:
            return _control(final, opcode, data)
        if (opcode == _CONTINUATION) == (self._kind is None):
            raise _broken("a message in the middle of another")
        if opcode != _CONTINUATION:
            if opcode not in _KINDS:
                raise _broken(f"a frame of the unknown kind {opcode}")
            self._kind = _KINDS[opcode]
        self._parts.append(data)
        self._size += len(data)
        if not final or self._kind is None:
            return None
        message = Message(self._kind, b"".join(self._parts))
        self._kind, self._parts, self._size = None, [], 0
        return message


def _control(final: bool, opcode: int, data: bytes) -> Message:
    if not final or len(data) > 125 or opcode not in _KINDS:
        raise _broken("a control frame that cannot be")
    if opcode == _OPCODES["close"]:
        code = int.from_bytes(data[:2], "big") if len(data) >= 2 else 1005
        return Message("close", data[2:], code)
    return Message(_KINDS[opcode], data)


def _broken(what: str) -> ConnectionFailedError:
    return ConnectionFailedError(f"the server broke the WebSocket protocol: {what}")
