"""Output that comes while a command runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fake_server import Exchange, FakeServer, final, out

from bothy import AsyncSandbox, ConnectionFailedError, SandboxEndedError


async def test_first_chunk_arrives_while_the_command_runs(
    fake: FakeServer, sbx: AsyncSandbox
) -> None:
    seen_by_client = threading.Event()

    def script(_: Exchange) -> Iterator[dict[str, Any]]:
        yield out("one", 0, pid=9)
        assert seen_by_client.wait(60)
        yield out("two", 3, "stderr")
        yield final(4, timed_out=True, hint="Give it more time.")

    fake.scripts["slow"] = script
    async with sbx.exec_stream("slow") as stream:
        events = []
        async for event in stream:
            events.append(event)
            seen_by_client.set()
    assert [(e.stream, e.data, e.offset) for e in events[:2]] == [
        ("stdout", "one", 0),
        ("stderr", "two", 3),
    ]
    last = events[-1]
    assert (last.is_final, last.exit_code, last.timed_out) == (True, 4, True)
    assert last.hint == "Give it more time."


async def test_leaving_the_stream_kills_the_command(fake: FakeServer, sbx: AsyncSandbox) -> None:
    def script(exchange: Exchange) -> Iterator[dict[str, Any]]:
        yield out("tick")
        exchange.wait_until_client_leaves()

    fake.scripts["forever"] = script
    async with sbx.exec_stream("forever") as stream:
        async for event in stream:
            assert event.data == "tick"
            break
    assert fake.killed.wait(60)


async def test_stream_without_a_block(fake: FakeServer, sbx: AsyncSandbox) -> None:
    fake.scripts["x"] = lambda _: iter([out("a"), final()])
    data = [event.data async for event in sbx.exec_stream("x")]
    assert data == ["a", ""]


async def test_callbacks(fake: FakeServer, sbx: AsyncSandbox) -> None:
    def script(_: Exchange) -> Iterator[dict[str, Any]]:
        yield out("a\n", 0)
        yield out("oops", 2, "stderr")
        yield out("b\n", 6)
        yield final(1)

    fake.scripts["x"] = script
    stdout: list[str] = []
    stderr: list[str] = []

    async def on_stderr(text: str) -> None:
        stderr.append(text)

    result = await sbx.exec("x", on_stdout=stdout.append, on_stderr=on_stderr)
    assert (stdout, stderr) == (["a\n", "b\n"], ["oops"])
    assert (result.stdout, result.stderr, result.exit_code) == ("a\nb\n", "oops", 1)


async def test_callback_that_raises_kills_the_command(fake: FakeServer, sbx: AsyncSandbox) -> None:
    def script(exchange: Exchange) -> Iterator[dict[str, Any]]:
        yield out("tick")
        exchange.wait_until_client_leaves()

    def fail(text: str) -> None:
        raise LookupError(text)

    fake.scripts["forever"] = script
    with pytest.raises(LookupError, match="tick"):
        await sbx.exec("forever", on_stdout=fail)
    assert fake.killed.wait(60)


async def test_failure_in_the_middle_of_a_stream(fake: FakeServer, sbx: AsyncSandbox) -> None:
    problem = {"status": 409, "code": "sandbox_ended", "detail": "it is gone", "hint": "Make one."}
    fake.scripts["x"] = lambda _: iter([out("a"), {"_event": "error", **problem}])
    with pytest.raises(SandboxEndedError, match="it is gone") as caught:
        await sbx.exec("x", on_stdout=lambda _: None)
    assert caught.value.hint == "Make one."


async def test_stream_that_breaks_off(fake: FakeServer, sbx: AsyncSandbox) -> None:
    def script(exchange: Exchange) -> Iterator[dict[str, Any]]:
        yield out("a")
        exchange.cut()

    fake.scripts["cut"] = script
    fake.scripts["short"] = lambda _: iter([out("a")])
    for command in ("cut", "short"):
        with pytest.raises(ConnectionFailedError):
            await sbx.exec(command, on_stdout=lambda _: None)


async def test_closing_before_the_start_sends_nothing(fake: FakeServer, sbx: AsyncSandbox) -> None:
    stream = sbx.exec_stream("x")
    await stream.close()
    await stream.close()
    assert fake.calls("POST", "/exec") == []
