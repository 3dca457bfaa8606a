"""What only asyncio has: cancellation, and many calls at once."""

from __future__ import annotations

import asyncio
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_server import Answer, Exchange, FakeServer, as_json, final, out, problem

from bothy import AsyncClient, AsyncSandbox


def forever(exchange: Exchange) -> Iterator[dict[str, Any]]:
    yield out("tick")
    exchange.wait_until_client_leaves()


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelling_exec_kills_the_command(fake: FakeServer) -> None:
    fake.scripts["forever"] = forever
    async with AsyncSandbox.create() as sbx:
        ticked = asyncio.Event()
        task = asyncio.create_task(sbx.exec("forever", on_stdout=lambda _: ticked.set()))
        await ticked.wait()
        await cancel(task)
        assert await asyncio.to_thread(fake.killed.wait, 10)
        fake.scripts["true"] = lambda _: iter([final()])
        assert (await sbx.exec("true")).ok


async def test_cancelling_the_block_terminates(fake: FakeServer) -> None:
    entered = asyncio.Event()

    async def work() -> None:
        async with AsyncSandbox.create():
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await entered.wait()
    await cancel(task)
    assert fake.sandboxes["sbx-0001"]["state"] == "stopped"


def slow_creation(fake: FakeServer) -> tuple[threading.Event, threading.Event]:
    """Have the answer to a first creation get lost, and say when that was, and when it ended."""
    made: dict[str, dict[str, Any]] = {}
    asked, ended = threading.Event(), threading.Event()

    def create(exchange: Exchange) -> Answer:
        key = exchange.request_seen.headers["idempotency-key"]
        if key not in made:
            made[key] = fake.add_sandbox()
            asked.set()
            exchange.wait_until_client_leaves()
        return as_json(made[key], 201)

    def end(exchange: Exchange) -> Answer:
        fake.api("DELETE", "/v1/sandboxes/sbx-0001")
        ended.set()
        return Answer(204)

    fake.routes["POST", "/v1/sandboxes"] = create
    fake.routes["DELETE", "/v1/sandboxes/sbx-0001"] = end
    return asked, ended


async def cancel_creation(asked: threading.Event, client: AsyncClient | None = None) -> None:
    task = asyncio.ensure_future(AsyncSandbox.create(client=client))
    assert await asyncio.to_thread(asked.wait, 10)
    await cancel(task)


async def test_what_a_cancelled_creation_has_made_is_ended(fake: FakeServer) -> None:
    asked, ended = slow_creation(fake)
    await cancel_creation(asked)
    assert await asyncio.to_thread(ended.wait, 10)
    assert list(fake.sandboxes) == ["sbx-0001"]


async def test_a_client_is_closed_when_nothing_is_left_of_a_cancelled_creation(
    fake: FakeServer,
) -> None:
    asked, ended = slow_creation(fake)
    async with AsyncClient() as client:
        await cancel_creation(asked, client)
        assert not ended.is_set()
    assert ended.is_set()


async def test_a_cancelled_creation_that_made_nothing(fake: FakeServer) -> None:
    asked = threading.Event()

    def refuse(exchange: Exchange) -> Answer:
        if not asked.is_set():
            asked.set()
            exchange.wait_until_client_leaves()
        return problem(403, "quota_exceeded", "there are too many")

    fake.routes["POST", "/v1/sandboxes"] = refuse
    async with AsyncClient() as client:
        await cancel_creation(asked, client)
    assert [s.method for s in fake.seen] == ["POST", "POST"]


async def test_many_at_once_over_one_client(fake: FakeServer) -> None:
    together = threading.Barrier(20)

    def script(_: Exchange) -> Iterator[dict[str, Any]]:
        together.wait(60)
        yield out("done")
        yield final()

    fake.scripts["meet"] = script
    async with AsyncClient() as client, AsyncSandbox.create(client=client) as sbx:
        results = await asyncio.gather(*(sbx.exec("meet") for _ in range(20)))
    assert [r.stdout for r in results] == ["done"] * 20


async def test_cancelling_a_folder_download(fake: FakeServer, tmp_path: Path) -> None:
    sent = threading.Event()

    def endless(exchange: Exchange) -> None:
        info = tarfile.TarInfo("f")
        info.size = 1 << 40
        exchange.start_stream()
        exchange.send_chunk(info.tobuf() + b"x" * (2 << 20))
        sent.set()
        try:
            exchange.wait_until_client_leaves()
        except OSError:
            exchange.fake.killed.set()

    async with AsyncSandbox.create() as sbx:
        await sbx.files.mkdir("/d")
        fake.routes["GET", f"/v1/sandboxes/{sbx.id}/files/archive"] = endless
        task = asyncio.create_task(sbx.files.download("/d", tmp_path / "d"))
        assert await asyncio.to_thread(sent.wait, 10)
        await cancel(task)
        assert await asyncio.to_thread(fake.killed.wait, 10)


async def test_create_can_be_awaited_or_entered(fake: FakeServer) -> None:
    sbx = await AsyncSandbox.create()
    async with sbx as same:
        assert same is sbx
    async with AsyncSandbox.get(sbx.id) as again:
        assert again.id == sbx.id
    assert AsyncSandbox.create.__doc__ and "TemplateNotFoundError" in AsyncSandbox.create.__doc__


async def test_uploading_does_not_hold_up_other_tasks(fake: FakeServer) -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert turned.wait(60)
            return super().read(size)

    turned = threading.Event()
    async with AsyncSandbox.create() as sbx:
        upload = asyncio.create_task(sbx.files.upload(Slow(b"content"), "/f"))
        await asyncio.sleep(0)
        await sbx.refresh()
        turned.set()
        await upload
    assert fake.calls("PUT", "/files")[-1].body == b"content"
