"""How connections are made."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fake_server import FakeServer

from bothy import Client, InvalidArgumentError, Sandbox
from bothy._connect import SOCKET_OPTIONS, tls_for, uses_proxy


def test_proxies_are_not_for_this_machine(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert not uses_proxy(urlsplit(fake.url)) and not uses_proxy(urlsplit("http://localhost:1"))
    assert uses_proxy(urlsplit("http://bothy.example.org"))
    with Sandbox.create() as sbx:
        assert sbx.refresh().state == "running"


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def proxy() -> None:
        connection, _ = listening.accept()
        with connection:
            asked.append(connection.recv(4096))
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"items":[]}')

    thread = threading.Thread(target=proxy)
    thread.start()
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{listening.getsockname()[1]}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with Client("http://bothy.example.org", "key", max_retries=0) as client:
        assert client.request("GET", "/v1/x") == {"items": []}
    thread.join(10)
    listening.close()
    assert asked[0].startswith(b"GET http://bothy.example.org/v1/x HTTP/1.1")


def test_authorities_are_loaded_for_https_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert tls_for(urlsplit("http://x")) is None
    context = tls_for(urlsplit("https://x"))
    assert context is not None and context is tls_for(urlsplit("https://y"))
    assert context.check_hostname


def test_a_server_that_vanishes_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with socket.create_connection(listening.getsockname()) as connection:
            for option in SOCKET_OPTIONS:
                connection.setsockopt(*option)
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0


def test_an_authority_of_ones_own_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    before = tls_for(urlsplit("https://x"))
    monkeypatch.setenv("BOTHY_CA_FILE", str(Path(__file__).parent / "localhost.pem"))
    after = tls_for(urlsplit("https://x"))
    assert before is not None and after is not None
    assert len(after.get_ca_certs()) == len(before.get_ca_certs()) + 1


def test_an_authority_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOTHY_CA_FILE", "/no/such/file.pem")
    with pytest.raises(InvalidArgumentError, match="no/such/file") as caught:
        tls_for(urlsplit("https://x"))
    assert "BOTHY_CA_FILE" in caught.value.hint
