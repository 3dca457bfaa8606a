"""A server behind TLS, with an authority of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_server import KEY, Exchange, FakeServer, final, out

from bothy import AsyncClient, AsyncSandbox, ConnectionFailedError

CERTIFICATE = Path(__file__).resolve().parent.parent / "localhost.pem"


@pytest.fixture
def secure() -> Iterator[FakeServer]:
    """A fake server that speaks https."""
    server = FakeServer(CERTIFICATE)
    yield server
    server.close()


async def test_everything_over_tls(secure: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def shell(exchange: Exchange) -> None:
        exchange.send_frame(2, b"$ ")
        while (frame := exchange.read_frame())[0] == 2:
            exchange.send_frame(2, frame[1])

    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    secure.scripts["x"] = lambda _: iter([out("hi"), final()])
    secure.sockets["terminal"] = shell
    async with AsyncClient(secure.url, KEY) as client, AsyncSandbox.create(client=client) as sbx:
        assert (await sbx.exec("x")).stdout == "hi"
        assert [event.data async for event in sbx.exec_stream("x")] == ["hi", ""]
        data = bytes(range(256)) * 800
        async with sbx.terminal() as terminal:
            assert await terminal.read() == b"$ "
            await terminal.write(data)
            seen = b""
            while len(seen) < len(data):
                seen += await terminal.read()
        assert seen == data


async def test_unknown_authority(secure: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    async with AsyncClient(secure.url, KEY, max_retries=0) as client:
        with pytest.raises(ConnectionFailedError, match="certificate"):
            await AsyncSandbox.create(client=client)
    assert secure.seen == []
