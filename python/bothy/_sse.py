"""Server-sent events, without any input or output of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ._errors import BothyError, ConnectionFailedError, error_from_problem


class EventParser:
    """Turns the bytes of a ``text/event-stream`` into JSON objects."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._name = ""
        self._data: list[bytes] = []
        self.last_id = ""

    def feed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """Yield the objects that ``chunk`` completes.

        Raises:
            BothyError: The server sent an event named ``error``.
        """
        searched = len(self._buffer)
        self._buffer += chunk
        start = 0
        while (end := self._buffer.find(b"\n", max(start, searched))) >= 0:
            line = bytes(self._buffer[start:end]).rstrip(b"\r")
            start = end + 1
            event = self._line(line)
            if event is not None:
                yield event
        del self._buffer[:start]

    def _line(self, line: bytes) -> dict[str, Any] | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if name == b"data":
            self._data.append(value)
        elif name == b"id":
            self.last_id = value.decode("utf-8", "replace")
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> dict[str, Any] | None:
        data, name = self._data, self._name
        self._data, self._name = [], ""
        if not data:
            return None
        event = json.loads(b"\n".join(data))
        if not isinstance(event, dict):
            return None
        if name == "error":
            raise _error(event)
        return event


def _error(event: dict[str, Any]) -> BothyError:
    error = error_from_problem(event)
    if error.code != "shutting_down":
        return error
    # The connection ends, and what it showed does not: one may join it again.
    return ConnectionFailedError(error.detail, code=error.code, hint=error.hint)
