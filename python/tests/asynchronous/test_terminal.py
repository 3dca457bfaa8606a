"""Terminals, and ports that are forwarded."""

from __future__ import annotations

import json
import threading

import pytest
from fake_server import Exchange, FakeServer, problem

from bothy import AsyncSandbox, ConnectionFailedError, RequestTimeoutError, SandboxPausedError
from bothy._io import aio as io


async def test_terminal(fake: FakeServer, sbx: AsyncSandbox) -> None:
    got: list[tuple[int, bytes]] = []
    ended = threading.Event()

    def shell(exchange: Exchange) -> None:
        exchange.send_frame(2, b"$ ")
        exchange.send_frame(9, b"are you there")
        got.append(exchange.read_frame())
        got.append(exchange.read_frame())
        got.append(exchange.read_frame())
        exchange.send_frame(2, b"split ", final=False)
        exchange.send_frame(0, b"x" * 70_000)
        exchange.send_frame(8, (1000).to_bytes(2, "big") + b'{"exit_code":3}')
        got.append(exchange.read_frame())
        ended.set()

    fake.sockets["terminal"] = shell
    async with sbx.terminal(["echo", "a b"], cols=100, rows=30, env={"A": "1"}) as terminal:
        assert await terminal.read() == b"$ "
        await terminal.resize(120, 40)
        await terminal.write("exit 3\n")
        rest = [chunk async for chunk in terminal]
    assert rest == [b"split " + b"x" * 70_000]
    assert (terminal.pid, terminal.exit_code) == (77, 3)
    assert sorted(got[:3]) == sorted(
        [
            (1, json.dumps({"resize": {"cols": 120, "rows": 40}}).encode()),
            (2, b"exit 3\n"),
            (10, b"are you there"),
        ]
    )
    assert ended.wait(60) and got[3] == (8, (1000).to_bytes(2, "big"))
    query = fake.calls("GET", "/terminal")[0].query
    assert query == {"command": "echo 'a b'", "cols": "100", "rows": "30", "env.A": "1"}
    assert fake.calls("GET", "/terminal")[0].headers["authorization"].startswith("Bearer ")


async def test_wait_for_the_end_of_a_terminal(fake: FakeServer, sbx: AsyncSandbox) -> None:
    def quick(exchange: Exchange) -> None:
        exchange.send_frame(2, b"bye")
        exchange.send_frame(8, (1000).to_bytes(2, "big") + b'{"exit_code":0}')

    def lost(exchange: Exchange) -> None:
        exchange.send_frame(8, (1011).to_bytes(2, "big") + b"the terminal was lost")

    fake.sockets["terminal"] = quick
    async with sbx.terminal(keep=True) as terminal:
        assert await terminal.wait() == 0
    fake.sockets["terminal"] = lost
    assert fake.calls("GET", "/terminal")[0].query["keep"] == "true"
    async with sbx.terminal() as terminal:
        with pytest.raises(ConnectionFailedError, match="the terminal was lost"):
            await terminal.wait()
    with pytest.raises(ConnectionFailedError, match="closed"):
        await terminal.write("x")


async def test_connection_that_ends_in_mid_air(fake: FakeServer, sbx: AsyncSandbox) -> None:
    fake.sockets["terminal"] = lambda exchange: exchange.send_frame(2, b"x")
    async with sbx.terminal() as terminal:
        assert await terminal.read() == b"x"
        with pytest.raises(ConnectionFailedError, match="mid-air"):
            await terminal.read()


async def test_refused_terminal(fake: FakeServer, sbx: AsyncSandbox) -> None:
    fake.next_answers = [problem(409, "sandbox_paused", "it is paused", "Resume it.")]
    with pytest.raises(SandboxPausedError, match="Resume it"):
        await sbx.terminal()


async def test_forward(fake: FakeServer, sbx: AsyncSandbox) -> None:
    def echo(exchange: Exchange) -> None:
        while True:
            opcode, data = exchange.read_frame()
            if opcode != 2:
                break
            exchange.send_frame(2, data.upper())
        exchange.send_frame(8, b"")

    fake.sockets["ports/8000"] = echo
    async with sbx.forward(8000) as forward:
        assert forward.url == f"http://127.0.0.1:{forward.port}"
        one = await io.ByteStream.connect("127.0.0.1", forward.port, None, 5)
        two = await io.ByteStream.connect("127.0.0.1", forward.port, None, 5)
        await one.write(b"one")
        await two.write(b"two")
        assert await two.read() == b"TWO"
        assert await one.read() == b"ONE"
        await one.close()
        await two.write(b"more")
        assert await two.read() == b"MORE"
    assert await two.read() == b""
    await two.close()


async def test_forward_to_a_port_that_refuses(fake: FakeServer, sbx: AsyncSandbox) -> None:
    async with sbx.forward(8001) as forward:
        fake.next_answers = [problem(502, "guest_unreachable", "nothing listens there")]
        assert forward.error is None
        stream = await io.ByteStream.connect("127.0.0.1", forward.port, None, 5)
        assert await stream.read() == b""
        await stream.close()
        assert "nothing listens there" in str(forward.error)


async def test_read_until_a_prompt(fake: FakeServer, sbx: AsyncSandbox) -> None:
    asked = threading.Event()

    def shell(exchange: Exchange) -> None:
        for piece in (b"\x1b[?2004h", b"bothy:~", b"$ ls\r\na.txt\r\nbothy:~$ "):
            exchange.send_frame(2, piece)
        asked.wait(60)
        exchange.send_frame(2, b"bye")
        exchange.send_frame(8, (1000).to_bytes(2, "big") + b'{"exit_code":0}')

    fake.sockets["terminal"] = shell
    async with sbx.terminal() as terminal:
        assert await terminal.read_until("$ ") == b"\x1b[?2004hbothy:~$ "
        with pytest.raises(RequestTimeoutError):
            await terminal.read_until("never", timeout_seconds=0.2)
        assert await terminal.read_until(b"\r\n") == b"ls\r\n"
        assert await terminal.read() == b"a.txt\r\nbothy:~$ "
        with pytest.raises(RequestTimeoutError):
            await terminal.read(timeout_seconds=0.05)
        asked.set()
        assert await terminal.read_until("$ ") == b"bye"
        assert await terminal.wait() == 0
