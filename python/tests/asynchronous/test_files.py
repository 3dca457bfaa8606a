"""The files of a sandbox."""

from __future__ import annotations

import io as memory
import os
import pickle
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_server import Answer, Exchange, FakeServer

from bothy import (
    AsyncSandbox,
    BothyError,
    ConnectionFailedError,
    FileEvent,
    FileNotFoundInSandboxError,
    IsADirectoryInSandboxError,
    NotADirectoryInSandboxError,
    NotTextError,
)


async def test_write_and_read(fake: FakeServer, sbx: AsyncSandbox) -> None:
    info = await sbx.files.write("/w/ä b&c.txt", "grüß", mode=0o755, user="root")
    assert (info.name, info.size, info.mode) == ("ä b&c.txt", 6, "0755")
    assert fake.seen[-1].query == {"path": "/w/ä b&c.txt", "mode": "0755", "user": "root"}
    assert await sbx.files.read("/w/ä b&c.txt") == "grüß"
    assert await sbx.files.read("/w/ä b&c.txt", encoding="latin-1") == "grÃ¼Ã\x9f"
    await sbx.files.write("/bytes", bytearray(b"\x00\xff"))
    assert await sbx.files.read_bytes("/bytes") == b"\x00\xff"
    with pytest.raises(NotTextError, match="read_bytes") as raised:
        await sbx.files.read("/bytes")
    assert isinstance(raised.value, UnicodeDecodeError) and isinstance(raised.value, BothyError)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.object, again.hint) == (
        str(raised.value),
        b"\x00\xff",
        raised.value.hint,
    )
    large = bytes(range(256)) * 8192
    await sbx.files.write("/large", memoryview(large))
    assert await sbx.files.read_bytes("/large") == large
    assert fake.calls("PUT", "/files")[-1].headers["content-length"] == str(len(large))


async def test_missing_file(fake: FakeServer, sbx: AsyncSandbox) -> None:
    with pytest.raises(FileNotFoundInSandboxError, match="/nope"):
        await sbx.files.read("/nope")
    assert not await sbx.files.exists("/nope")


async def test_folders(fake: FakeServer, sbx: AsyncSandbox) -> None:
    assert (await sbx.files.mkdir("/d")).is_dir
    await sbx.files.write("/d/a", "1")
    assert [entry.path for entry in await sbx.files.list("/d", depth=2)] == ["/d/a"]
    assert fake.seen[-1].query == {"path": "/d", "depth": "2"}
    with pytest.raises(IsADirectoryInSandboxError):
        await sbx.files.read("/d")
    with pytest.raises(NotADirectoryInSandboxError):
        await sbx.files.list("/d/a")


async def test_stat_move_remove(fake: FakeServer, sbx: AsyncSandbox) -> None:
    await sbx.files.write("/a", "1")
    assert (await sbx.files.stat("/a")).size == 1
    await sbx.files.move("/a", "/b")
    assert await sbx.files.exists("/b") and not await sbx.files.exists("/a")
    await sbx.files.remove("/b")
    assert not await sbx.files.exists("/b")


async def test_watch(fake: FakeServer, sbx: AsyncSandbox) -> None:
    def script(exchange: Exchange) -> Iterator[dict[str, Any]]:
        yield {"type": "create", "path": "/d/x", "name": "x"}
        exchange.wait_until_client_leaves()

    fake.scripts["watch"] = script
    async with sbx.files.watch("/d", recursive=True) as changes:
        async for change in changes:
            assert change == FileEvent("create", "/d/x", "x")
            break
    assert fake.killed.wait(60)
    assert fake.calls("GET", "/watch")[0].query == {"path": "/d", "recursive": "true"}


async def test_watch_ends_with_the_server(fake: FakeServer, sbx: AsyncSandbox) -> None:
    def script(exchange: Exchange) -> Iterator[dict[str, Any]]:
        yield {"type": "create", "path": "/d/x", "name": "x"}
        yield {"_event": "error", "status": 503, "code": "shutting_down", "detail": "it stops"}

    fake.scripts["watch"] = script
    seen = []
    with pytest.raises(ConnectionFailedError, match="it stops") as caught:
        async for change in sbx.files.watch("/d"):
            seen.append(change.name)
    assert seen == ["x"] and caught.value.code == "shutting_down"


async def test_upload_and_download_a_file(
    fake: FakeServer, sbx: AsyncSandbox, tmp_path: Path
) -> None:
    content = os.urandom(3 << 20)
    source = tmp_path / "source"
    source.write_bytes(content)
    source.chmod(0o751)
    os.utime(source, (1_600_000_000.5, 1_600_000_000.5))
    await sbx.files.upload(source, "/up")
    seen = fake.seen[-1]
    assert seen.body == content and seen.headers["content-length"] == str(3 << 20)
    assert seen.query["mode"] == "0751"
    assert seen.query["modified_at"] == "2020-09-13T12:26:40.500000Z"

    target = tmp_path / "target"
    await sbx.files.download("/up", str(target))
    assert target.read_bytes() == content
    assert target.stat().st_mode & 0o777 == 0o751
    assert target.stat().st_mtime == 1_600_000_000.5
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "home") == ["source", "target"]


async def test_upload_and_download_file_objects(fake: FakeServer, sbx: AsyncSandbox) -> None:
    await sbx.files.upload(memory.BytesIO(b"x" * 70_000), "/up", mode=0o600)
    assert fake.seen[-1].body == b"x" * 70_000
    sink = memory.BytesIO()
    await sbx.files.download("/up", sink)
    assert sink.getvalue() == b"x" * 70_000
    await sbx.files.mkdir("/d")
    with pytest.raises(IsADirectoryInSandboxError):
        await sbx.files.download("/d", sink)


async def test_download_that_breaks_leaves_nothing(
    fake: FakeServer, sbx: AsyncSandbox, tmp_path: Path
) -> None:
    def half(exchange: Exchange) -> None:
        info = '{"name":"f","path":"/f","type":"file","size":99}'
        exchange.start(200, {"X-File-Info": info, "Content-Length": "99"})
        exchange.send_chunk(b"half")
        exchange.cut()

    fake.routes["GET", f"/v1/sandboxes/{sbx.id}/files"] = half
    target = tmp_path / "t"
    target.write_text("old")
    with pytest.raises(ConnectionFailedError):
        await sbx.files.download("/f", target)
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir() if p.name != "home"] == ["t"]


async def test_folder_there_and_back(fake: FakeServer, sbx: AsyncSandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (source / "sub" / "run.sh").chmod(0o755)
    (source / "big").write_bytes(os.urandom(2_500_000))
    (source / "link").symlink_to("sub/run.sh")
    os.utime(source / "big", (1_500_000_000, 1_500_000_000))
    await sbx.files.upload(str(source), "/there")
    sent = fake.calls("PUT", "/archive")[0]
    assert sent.query["path"] == "/there"
    with tarfile.open(fileobj=memory.BytesIO(sent.body)) as archive:
        assert archive.getnames() == ["big", "link", "sub", "sub/empty", "sub/run.sh"]

    download = f"/v1/sandboxes/{sbx.id}/files/archive"
    fake.routes["GET", download] = lambda _: Answer(200, sent.body)
    target = tmp_path / "target"
    await sbx.files.download("/there", target)
    assert (target / "big").read_bytes() == (source / "big").read_bytes()
    assert (target / "big").stat().st_mtime == 1_500_000_000
    assert (target / "sub" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert os.readlink(target / "link") == "sub/run.sh"
    assert (target / "sub" / "empty").is_dir()


async def test_archive_from_a_hostile_sandbox(
    fake: FakeServer, sbx: AsyncSandbox, tmp_path: Path
) -> None:
    buffer = memory.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../evil"))
    await sbx.files.mkdir("/d")
    download = f"/v1/sandboxes/{sbx.id}/files/archive"
    fake.routes["GET", download] = lambda _: Answer(200, buffer.getvalue())
    with pytest.raises(BothyError, match="leads out") as caught:
        await sbx.files.download("/d", tmp_path / "in")
    assert caught.value.code == "archive_unsafe"
    assert not (tmp_path / "evil").exists()
    fake.routes["GET", download] = lambda _: Answer(200, b"\x01" * 2000)
    with pytest.raises(BothyError, match="damaged"):
        await sbx.files.download("/d", tmp_path / "in")
