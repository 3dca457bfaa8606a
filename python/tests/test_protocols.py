"""Server-sent events, WebSocket frames, JSON and output, byte by byte."""

from __future__ import annotations

import base64
import os
from datetime import datetime, timezone
from typing import Any

import pytest

from bothy import ConnectionFailedError, ExecEvent, RateLimitedError, SandboxInfo
from bothy import _websocket as ws
from bothy._decode import decode, format_time, parse_time
from bothy._output import EventDecoder, OutputCollector
from bothy._sse import EventParser


def split(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_in_pieces_of_any_size(size: int) -> None:
    stream = (
        b":\n\n"
        b'data: {"a": "\xc3\xa4"}\n\n'
        b'id: 7\r\ndata:{"b":\r\ndata: 2}\r\n\r\n'
        b"retry: 5\n\n"
        b"data: [1]\n\n"
        b'data: {"c": 3}\n\ndata: {"unfinished": true}\n'
    )
    parser = EventParser()
    events = [event for piece in split(stream, size) for event in parser.feed(piece)]
    assert events == [{"a": "ä"}, {"b": 2}, {"c": 3}]


def test_event_that_is_an_error() -> None:
    parser = EventParser()
    with pytest.raises(RateLimitedError, match="slow"):
        list(parser.feed(b'event: error\ndata: {"code":"rate_limited","detail":"slow"}\n\n'))


def server_frame(opcode: int, data: bytes, final: bool = True) -> bytes:
    masked = ws.encode("binary", data, mask=b"\0\0\0\0")
    head_size = len(masked) - len(data) - 4
    head = bytes([(0x80 if final else 0) | opcode, masked[1] & 0x7F]) + masked[2:head_size]
    return head + data


def test_the_example_of_the_standard() -> None:
    # RFC 6455, sections 1.3 and 5.7.
    head = ws.Head(
        101,
        {"upgrade": "websocket", "sec-websocket-accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="},
    )
    assert head.accepts("dGhlIHNhbXBsZSBub25jZQ==")
    assert not head.accepts(ws.new_key())
    masked = bytes.fromhex("818537fa213d7f9f4d5158")
    assert ws.encode("text", b"Hello", mask=bytes.fromhex("37fa213d")) == masked


@pytest.mark.parametrize("size", [0, 1, 3, 125, 126, 65535, 65536, 200_001])
def test_frames_of_any_size(size: int) -> None:
    data = os.urandom(size)
    mask = os.urandom(4)
    assert ws.apply_mask(ws.apply_mask(data, mask), mask) == data
    assert ws.apply_mask(data[:9], mask) == bytes(b ^ mask[i % 4] for i, b in enumerate(data[:9]))
    parser = ws.FrameParser()
    messages = list(parser.feed(server_frame(2, data) + server_frame(1, b"next")))
    assert messages == [ws.Message("binary", data), ws.Message("text", b"next")]


@pytest.mark.parametrize("size", [1, 2, 5, 64])
def test_fragments_with_a_ping_between(size: int) -> None:
    stream = (
        server_frame(1, b"one ", final=False)
        + server_frame(9, b"?")
        + server_frame(0, b"", final=False)
        + server_frame(0, b"two" * 60)
        + server_frame(8, (1001).to_bytes(2, "big") + b"bye")
        + server_frame(8, b"")
    )
    parser = ws.FrameParser()
    messages = [message for piece in split(stream, size) for message in parser.feed(piece)]
    assert messages == [
        ws.Message("ping", b"?"),
        ws.Message("text", b"one " + b"two" * 60),
        ws.Message("close", b"bye", 1001),
        ws.Message("close", b"", 1005),
    ]


@pytest.mark.parametrize(
    "stream",
    [
        b"\xc1\x00",  # reserved bits
        b"\x81\x80\0\0\0\0",  # masked by the server
        b"\x80\x00",  # a continuation of nothing
        b"\x01\x00\x81\x00",  # a message in another
        b"\x83\x00",  # an unknown kind
        b"\x8b\x00",  # an unknown control frame
        b"\x09\x00",  # a control frame in pieces
        b"\x89\x7e\x00\x7e" + bytes(126),  # a control frame that is too long
        b"\x82\x7f" + (1 << 40).to_bytes(8, "big"),  # too long
    ],
)
def test_frames_that_break_the_protocol(stream: bytes) -> None:
    with pytest.raises(ConnectionFailedError):
        list(ws.FrameParser().feed(stream))


def test_handshake() -> None:
    request = ws.handshake("h:1", "/p?q=1", "k", {"Authorization": "Bearer x"})
    assert request.startswith(b"GET /p?q=1 HTTP/1.1\r\nHost: h:1\r\n")
    assert request.endswith(b"Authorization: Bearer x\r\n\r\n")
    with pytest.raises(ValueError, match="line break"):
        ws.handshake("h", "/", "k", {"A": "x\r\nB: y"})
    assert len(base64.b64decode(ws.new_key())) == 16


def test_head_of_the_answer() -> None:
    whole = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nX-A:  b \r\n\r\n{}"
    for end in range(len(whole) - 2):
        assert ws.parse_head(whole[:end]) is None
    assert ws.parse_head(whole) == (ws.Head(403, {"content-length": "2", "x-a": "b"}), b"{}")
    for nonsense in (b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"x" * 70_000):
        with pytest.raises(ConnectionFailedError):
            ws.parse_head(nonsense)


@pytest.mark.parametrize(
    ("text", "microsecond"),
    [
        ("2026-03-04T05:06:07Z", 0),
        ("2026-03-04T05:06:07.1Z", 100_000),
        ("2026-03-04T05:06:07.123456789Z", 123_456),
        ("2026-03-04T06:06:07.25+01:00", 250_000),
    ],
)
def test_times(text: str, microsecond: int) -> None:
    expected = datetime(2026, 3, 4, 5, 6, 7, microsecond, tzinfo=timezone.utc)
    assert parse_time(text) == expected
    assert parse_time(format_time(expected.timestamp())) == expected


def test_null_is_the_default() -> None:
    info = decode(SandboxInfo, {"id": "x", "env": None, "ended": None, "name": None})
    assert info == SandboxInfo(id="x")


def piece(raw: bytes, offset: int, stream: str = "stdout") -> dict[str, Any]:
    data = base64.b64encode(raw).decode()
    return {"stream": stream, "data": data, "encoding": "base64", "offset": offset}


def test_characters_cut_in_two_in_both_streams() -> None:
    decoder = EventDecoder()
    euro = "€".encode()
    events = [
        decoder.decode(piece(euro[:2], 0)),
        decoder.decode(piece(euro[:1], 2, "stderr")),
        decoder.decode(piece(euro[2:] + b"!", 3)),
        decoder.decode(piece(euro[1:], 5, "stderr")),
    ]
    assert [e.data for e in events if e] == ["", "", "€!", "€"]
    assert b"".join(e.raw for e in events if e and e.stream == "stdout") == euro + b"!"


def test_what_was_delivered_is_dropped() -> None:
    decoder = EventDecoder(offset=4)
    assert decoder.decode(piece(b"abc", 0)) is None
    event = decoder.decode(piece(b"abcdef", 0))
    assert event is not None and (event.raw, event.offset) == (b"ef", 4)
    assert decoder.decode({"stream": "noise", "data": "x"}) is None
    final = decoder.decode({"is_final": True, "exit_code": 137, "oom_killed": True})
    assert final is not None and final.oom_killed and final.exit_code == 137


def test_output_is_kept_in_bounded_memory() -> None:
    collector = OutputCollector(limit=100)
    for number in range(1000):
        collector.add(ExecEvent("stdout", raw=b"%03d\n" % number, offset=4 * number))
    collector.add(ExecEvent("stderr", raw=b"e" * 100, offset=4000))
    result = collector.result(ExecEvent(is_final=True, exit_code=0, pid=5))
    assert result.truncated and result.pid == 5
    assert result.stdout.startswith("000\n001\n") and result.stdout.endswith("998\n999\n")
    assert "3900 bytes dropped" in result.stdout and result.stderr == "e" * 100


def test_output_up_to_the_bound_is_whole() -> None:
    collector = OutputCollector(limit=10)
    collector.add(ExecEvent("stdout", raw=b"0123456"))
    collector.add(ExecEvent("stdout", raw=b"789", offset=7))
    result = collector.result(ExecEvent(is_final=True, exit_code=0))
    assert (result.stdout, result.truncated) == ("0123456789", False)
