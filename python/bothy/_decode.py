"""JSON to dataclasses: tolerant of fields that a newer server adds."""

from __future__ import annotations

import base64
import functools
import re
import types
import typing
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timezone
from typing import Any, TypeVar

T = TypeVar("T")

_FRACTION = re.compile(r"\.(\d+)")


def decode(cls: type[T], data: Mapping[str, Any]) -> T:
    """Return a ``cls`` (a dataclass) with the fields of ``data`` that it knows."""
    values = {
        name: _convert(hint, data[name])
        for name, hint in _field_types(typing.cast(Hashable, cls))
        if data.get(name) is not None
    }
    return cls(**values)


def output_bytes(wire: Mapping[str, Any]) -> bytes:
    """Return the bytes of a piece of output, which come as text or in base64."""
    data = str(wire.get("data") or "")
    if wire.get("encoding") == "base64":
        return base64.b64decode(data)
    return data.encode("utf-8", "surrogatepass")


def format_time(seconds: float) -> str:
    """Return the RFC 3339 time, in UTC, of so many seconds since 1970."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_time(text: str) -> datetime:
    """Return an aware UTC datetime for an RFC 3339 time of any precision."""
    text = _FRACTION.sub(lambda m: "." + m.group(1)[:6].ljust(6, "0"), text, count=1)
    if text.endswith(("Z", "z")):
        text = text[:-1] + "+00:00"
    return datetime.fromisoformat(text).astimezone(timezone.utc)


@functools.cache
def _field_types(cls: Hashable) -> tuple[tuple[str, Any], ...]:
    return tuple((f.name, f.type) for f in fields(cls))  # type: ignore[arg-type]


def _convert(hint: Any, value: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _convert(next(a for a in typing.get_args(hint) if a is not type(None)), value)
    if origin is list:
        (item,) = typing.get_args(hint)
        return [_convert(item, v) for v in value]
    if origin is tuple:
        item = typing.get_args(hint)[0]
        return tuple(_convert(item, v) for v in value)
    if hint is datetime:
        return parse_time(value)
    if hint is float:
        return float(value)
    if isinstance(hint, type) and is_dataclass(hint):
        from_wire = getattr(hint, "_from_wire", None)
        return from_wire(value) if from_wire else decode(hint, value)
    return value
