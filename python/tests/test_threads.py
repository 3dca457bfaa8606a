"""What only blocking code has: threads, and objects that are dropped."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from typing import Any

from fake_server import Exchange, FakeServer, final, out

from bothy import Client, Sandbox
from bothy._io import blocking


def test_one_client_in_many_threads(fake: FakeServer) -> None:
    together = threading.Barrier(10)

    def script(_: Exchange) -> Iterator[dict[str, Any]]:
        together.wait(60)
        yield out("done")
        yield final()

    fake.scripts["meet"] = script
    results: list[str] = []
    with Client() as client, Sandbox.create(client=client) as sbx:
        threads = [
            threading.Thread(target=lambda: results.append(sbx.exec("meet").stdout))
            for _ in range(10)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == ["done"] * 10


def test_loop_that_is_left_kills_the_command_at_once(fake: FakeServer) -> None:
    def forever(exchange: Exchange) -> Iterator[dict[str, Any]]:
        yield out("tick")
        exchange.wait_until_client_leaves()

    fake.scripts["forever"] = forever
    with Sandbox.create() as sbx:
        # The garbage collector would do it in the middle of anything.
        gc.disable()
        try:
            for event in sbx.exec_stream("forever"):
                assert event.data == "tick"
                break
            assert fake.killed.wait(60)
        finally:
            gc.enable()


def test_sandbox_that_is_dropped_says_nothing_to_the_server(fake: FakeServer) -> None:
    sbx = Sandbox.create()
    sent = len(fake.seen)
    del sbx
    gc.collect()
    assert len(fake.seen) == sent and fake.sandboxes["sbx-0001"]["state"] == "running"


def test_closing_a_stream_wakes_its_reader() -> None:
    near, far = socket.socketpair()
    stream = blocking.ByteStream(near)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(stream.read()))
    reader.start()
    stream.close()
    reader.join(10)
    assert got == [b""] and near.fileno() == -1
    far.close()


def test_both_directions_of_a_stream_at_once() -> None:
    near, far = socket.socketpair()
    stream = blocking.ByteStream(near)
    data = bytes(range(256)) * 20_000
    received = bytearray()

    def echo() -> None:
        left = len(data)
        while left:
            piece = far.recv(1 << 16)
            left -= len(piece)
            far.sendall(piece)

    def read() -> None:
        while len(received) < len(data):
            received.extend(stream.read())

    threads = [threading.Thread(target=echo), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    stream.write(data)
    for thread in threads:
        thread.join(30)
    assert bytes(received) == data
    stream.close()
    far.close()
