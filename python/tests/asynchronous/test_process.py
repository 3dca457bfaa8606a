"""Processes in the background."""

from __future__ import annotations

import base64
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from fake_server import Exchange, FakeServer, as_json, final, out

from bothy import (
    AsyncSandbox,
    ConnectionFailedError,
    ProcessNotFoundError,
    RequestTimeoutError,
    SandboxPausedError,
)
from bothy._io import aio as io


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(seconds: float) -> None:
        pass

    monkeypatch.setattr(io, "sleep", sleep)


def froms(fake: FakeServer) -> list[str]:
    return [seen.query["from"] for seen in fake.calls("GET", "/output")]


async def test_spawn_and_wait(fake: FakeServer, sbx: AsyncSandbox) -> None:
    fake.outputs = [lambda _: iter([out("hel"), out("lo", 3), final(2, duration_ms=5)])]
    process = await sbx.spawn(["sleep", "1"], cwd="/tmp")
    body = fake.calls("POST", "/exec")[0].json
    assert body == {"command": ["sleep", "1"], "cwd": "/tmp", "background": True}
    result = await process.wait()
    assert (process.pid, result.stdout, result.exit_code) == (100, "hello", 2)
    assert not result.truncated
    assert await process.wait() is result


@pytest.mark.usefixtures("no_pause")
async def test_dropped_stream_is_joined_with_nothing_lost_or_doubled(
    fake: FakeServer, sbx: AsyncSandbox
) -> None:
    def first(exchange: Exchange) -> Iterator[dict[str, Any]]:
        yield out("héllo", 0)
        exchange.cut()

    def second(_: Exchange) -> Iterator[dict[str, Any]]:
        # The server may send again what it had sent before.
        yield out("llo wor", 3)
        yield out("ld", 10)

    fake.outputs = [first, second, lambda _: iter([out("!", 12), final()])]
    process = sbx.process(42)
    events = [event async for event in process.stream()]
    assert "".join(event.data for event in events) == "héllo world!"
    assert b"".join(event.raw for event in events) == "héllo world!".encode()
    assert froms(fake) == ["0", "6", "12"]


@pytest.mark.usefixtures("no_pause")
async def test_output_is_joined_again_at_the_next_server(
    fake: FakeServer, sbx: AsyncSandbox
) -> None:
    closing = {"_event": "error", "status": 503, "code": "shutting_down", "detail": "it stops"}
    fake.outputs = [
        lambda _: iter([out("a"), closing]),
        lambda _: iter([out("b", 1), final()]),
    ]
    events = [event async for event in sbx.process(42).stream()]
    assert "".join(event.data for event in events) == "ab"


@pytest.mark.usefixtures("no_pause")
async def test_character_that_is_cut_by_a_drop(fake: FakeServer, sbx: AsyncSandbox) -> None:
    euro = "€".encode()

    def piece(data: bytes, offset: int) -> dict[str, Any]:
        return out(base64.b64encode(data).decode(), offset, encoding="base64")

    def first(exchange: Exchange) -> Iterator[dict[str, Any]]:
        yield piece(euro[:1], 0)
        exchange.cut()

    fake.outputs = [first, lambda _: iter([piece(euro[1:], 1), final()])]
    result = await sbx.process(42).wait()
    assert result.stdout == "€"


async def test_stream_goes_on_after_a_pause(
    fake: FakeServer, sbx: AsyncSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first(exchange: Exchange) -> Iterator[dict[str, Any]]:
        yield out("before ", 0)
        fake.api("POST", f"/v1/sandboxes/{sbx.id}/pause")
        exchange.cut()

    looks = 0

    async def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 20:
            fake.api("POST", f"/v1/sandboxes/{sbx.id}/resume")

    monkeypatch.setattr(io, "sleep", sleep)
    fake.outputs = [first, lambda _: iter([out("after", 7), final()])]
    assert (await sbx.process(42).wait()).stdout == "before after"
    assert froms(fake)[-1] == "7"


async def test_process_of_a_paused_sandbox(fake: FakeServer, sbx: AsyncSandbox) -> None:
    fake.api("POST", f"/v1/sandboxes/{sbx.id}/pause")
    with pytest.raises(SandboxPausedError):
        await sbx.process(42).wait()


@pytest.mark.usefixtures("no_pause")
async def test_joining_again_is_bounded(fake: FakeServer, sbx: AsyncSandbox) -> None:
    def nothing(_: Exchange) -> Iterator[dict[str, Any]]:
        return iter([])

    fake.outputs = [nothing for _ in range(9)]
    with pytest.raises(ConnectionFailedError):
        await sbx.process(42).wait()
    assert len(froms(fake)) == 7


async def test_stream_from_an_offset_with_a_gap(fake: FakeServer, sbx: AsyncSandbox) -> None:
    fake.outputs = [lambda _: iter([out("late", 900), final()])]
    async with sbx.process(42).stream(100) as stream:
        events = [event async for event in stream]
    assert froms(fake) == ["100"] and events[0].offset == 900


async def test_output_that_is_no_longer_held(fake: FakeServer, sbx: AsyncSandbox) -> None:
    fake.outputs = [lambda _: iter([out("late", 900), final()])]
    result = await sbx.process(42).wait()
    assert (result.stdout, result.truncated) == ("late", True)


async def test_output_so_far(fake: FakeServer, sbx: AsyncSandbox) -> None:
    def output(exchange: Exchange) -> Iterator[dict[str, Any]]:
        yield out("abc", 0)
        yield out("def", 3, "stderr")
        exchange.wait_until_client_leaves()

    running = {"items": [{"pid": 42, "running": True, "output_start": 0, "output_end": 6}]}
    fake.routes["GET", f"/v1/sandboxes/{sbx.id}/processes"] = lambda _: as_json(running)
    fake.outputs = [output]
    process = sbx.process(42)
    events = await process.output()
    assert [(e.stream, e.data) for e in events] == [("stdout", "abc"), ("stderr", "def")]
    assert await process.output(6) == []
    assert fake.killed.wait(60)


async def test_waiting_ends_in_time(fake: FakeServer, sbx: AsyncSandbox) -> None:
    def quiet(exchange: Exchange) -> Iterator[dict[str, Any]]:
        exchange.send_chunk(b":\n\n")
        exchange.wait_until_client_leaves()
        yield {}

    fake.outputs = [quiet] * 9
    with pytest.raises(RequestTimeoutError) as caught:
        await sbx.process(42).wait(timeout_seconds=0.05)
    assert isinstance(caught.value, TimeoutError)


async def test_input_signals_and_end(fake: FakeServer, sbx: AsyncSandbox) -> None:
    process = await sbx.spawn("cat")
    await process.write("häl")
    await process.write(b"\xff", eof=True)
    await process.close_stdin()
    bodies = [seen.json for seen in fake.calls("POST", "/stdin")]
    assert bodies == [
        {"data": base64.b64encode("häl".encode()).decode(), "encoding": "base64"},
        {"data": "/w==", "encoding": "base64", "eof": True},
        {"eof": True},
    ]
    await process.write(b"x" * (1 << 20) + b"y", eof=True)
    pieces = [seen.json for seen in fake.calls("POST", "/stdin")[3:]]
    assert [base64.b64decode(piece["data"])[-1:] for piece in pieces] == [b"x", b"y"]
    assert ["eof" in piece for piece in pieces] == [False, True]
    for name in ("SIGINT", "int", 2, signal.SIGINT):
        await process.signal(name)
    assert [seen.json for seen in fake.calls("POST", "/signal")] == [{"signal": 2}] * 4
    with pytest.raises(ValueError, match="SIGFOO"):
        await process.signal("SIGFOO")
    await process.kill()
    assert fake.calls("DELETE")[0].path == f"/v1/sandboxes/{sbx.id}/processes/{process.pid}"


async def test_list_and_info(fake: FakeServer, sbx: AsyncSandbox) -> None:
    running = {"items": [{"pid": 42, "command": ["sleep", "9"], "running": False, "exit_code": 0}]}
    fake.routes["GET", f"/v1/sandboxes/{sbx.id}/processes"] = lambda _: as_json(running)
    (info,) = await sbx.processes()
    assert info == await sbx.process(42).info()
    assert info.command == ("sleep", "9") and info.exit_code == 0 and not info.running
    with pytest.raises(ProcessNotFoundError):
        await sbx.process(43).info()


async def test_bytes_in_and_out(fake: FakeServer, sbx: AsyncSandbox) -> None:
    raw = b"a\x00\xff"
    fake.outputs = [
        lambda _: iter([out(base64.b64encode(raw).decode(), encoding="base64"), final()])
    ]
    process = await sbx.spawn("cat", stdin=raw, merge_stderr=True)
    body = fake.calls("POST", "/exec")[0].json
    assert body["stdin"] == base64.b64encode(raw).decode()
    assert (body["stdin_encoding"], body["merge_stderr"]) == ("base64", True)
    result = await process.wait()
    assert (result.stdout, result.stdout_bytes) == ("a\x00\ufffd", raw)
    assert result.stderr_bytes == b""


async def test_output_of_a_terminal(fake: FakeServer, sbx: AsyncSandbox) -> None:
    running = {"items": [{"pid": 42, "terminal": True, "running": True, "output_end": 5}]}
    fake.routes["GET", f"/v1/sandboxes/{sbx.id}/processes"] = lambda _: as_json(running)
    piece = {"stream": "pty", "data": "hello", "offset": 0}
    fake.outputs = [lambda _: iter([piece])]
    events = await sbx.process(42).output()
    assert [(event.stream, event.data) for event in events] == [("stdout", "hello")]
