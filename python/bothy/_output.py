"""The output of commands: events from the wire, and their sum."""

from __future__ import annotations

import base64
import codecs
from collections import deque
from collections.abc import Mapping
from typing import Any

from ._decode import output_bytes
from ._types import ExecEvent, ExecResult, Stream

OUTPUT_LIMIT = 10 << 20
"""Bytes of each stream that a result keeps, as the server does."""


class EventDecoder:
    """Turns the server's JSON events into :class:`ExecEvent`.

    It joins characters that were cut in two, and drops what was delivered before, so
    that a stream can be joined again at an offset with nothing lost or doubled.
    """

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self._text = {name: _utf8() for name in ("stdout", "stderr")}

    def decode(self, wire: Mapping[str, Any]) -> ExecEvent | None:
        """Return the event, or ``None`` where it holds nothing new."""
        if wire.get("is_final"):
            return _final(wire, self.offset)
        stream = wire.get("stream")
        if stream == "pty":  # a terminal has one output
            stream = "stdout"
        if stream not in ("stdout", "stderr"):
            return None
        return self._output(stream, wire)

    def _output(self, stream: Stream, wire: Mapping[str, Any]) -> ExecEvent | None:
        raw = output_bytes(wire)
        offset = int(wire.get("offset") or 0) if "offset" in wire else self.offset
        if offset < self.offset:
            raw, offset = raw[self.offset - offset :], self.offset
        if not raw:
            return None
        self.offset = offset + len(raw)
        text = self._text[stream].decode(raw)
        return ExecEvent(stream, text, raw, offset, pid=int(wire.get("pid") or 0))


class OutputCollector:
    """Adds up events to an :class:`ExecResult`, in bounded memory."""

    def __init__(self, limit: int = OUTPUT_LIMIT) -> None:
        self._kept: dict[str, _Bounded] = {"stdout": _Bounded(limit), "stderr": _Bounded(limit)}
        self._pid = 0
        self._next = 0
        self._gap = False

    def add(self, event: ExecEvent) -> None:
        """Add a piece of output."""
        self._pid = event.pid or self._pid
        # The server no longer holds what is missing here.
        self._gap = self._gap or event.offset > self._next
        self._next = event.offset + len(event.raw)
        if event.stream:
            self._kept[event.stream].add(event.raw)

    def result(self, final: ExecEvent) -> ExecResult:
        """Return the whole, given the last event."""
        out, err = self._kept["stdout"], self._kept["stderr"]
        return ExecResult(
            exit_code=final.exit_code if final.exit_code is not None else -1,
            stdout=out.text(),
            stderr=err.text(),
            stdout_base64=out.encoded(),
            stderr_base64=err.encoded(),
            duration_ms=final.duration_ms,
            timed_out=final.timed_out,
            oom_killed=final.oom_killed,
            truncated=final.truncated or self._gap or out.dropped > 0 or err.dropped > 0,
            pid=final.pid or self._pid,
            hint=final.hint,
        )


class _Bounded:
    """The first and the last bytes of something long."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.dropped = 0

    def add(self, data: bytes) -> None:
        room = self._half - len(self._head)
        self._head += data[:room] if room > 0 else b""
        rest = data[max(room, 0) :]
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
        excess = self._tail_size - self._half
        while excess > 0:
            excess -= self._drop(excess)

    def _drop(self, count: int) -> int:
        first = self._tail.popleft()
        if count < len(first):
            self._tail.appendleft(first[count:])
        gone = min(count, len(first))
        self._tail_size -= gone
        self.dropped += gone
        return gone

    def text(self) -> str:
        tail = b"".join(self._tail)
        if not self.dropped:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        notice = f"\n… {self.dropped} bytes dropped …\n"
        return self._head.decode("utf-8", "replace") + notice + tail.decode("utf-8", "replace")

    def encoded(self) -> str:
        """Return the bytes in base64 where they are not UTF-8."""
        raw = bytes(self._head) + b"".join(self._tail)
        try:
            raw.decode()
        except UnicodeDecodeError:
            return base64.b64encode(raw).decode()
        return ""


def _final(wire: Mapping[str, Any], offset: int) -> ExecEvent:
    return ExecEvent(
        offset=offset,
        pid=int(wire.get("pid") or 0),
        is_final=True,
        exit_code=int(wire.get("exit_code") or 0),
        duration_ms=int(wire.get("duration_ms") or 0),
        timed_out=bool(wire.get("timed_out")),
        oom_killed=bool(wire.get("oom_killed")),
        truncated=bool(wire.get("truncated")),
        hint=str(wire.get("hint") or ""),
    )


def _utf8() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")
