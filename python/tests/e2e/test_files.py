"""The files of real sandboxes."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import tarfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bothy import (
    FileNotFoundInSandboxError,
    InvalidArgumentError,
    IsADirectoryInSandboxError,
    NotADirectoryInSandboxError,
    PermissionDeniedError,
    Sandbox,
)


def test_round_trip(sbx: Sandbox) -> None:
    info = sbx.files.write("deep/er/ä b.sh", "#!/bin/sh\necho grüß\n", mode=0o755)
    assert info.path == "/workspace/deep/er/ä b.sh" and info.owner == "user"
    assert sbx.exec(["/workspace/deep/er/ä b.sh"]).stdout == "grüß\n"
    assert sbx.files.read("deep/er/ä b.sh").startswith("#!")
    raw = bytes(range(256)) * 10
    sbx.files.write("/tmp/raw", raw)
    assert sbx.files.read_bytes("/tmp/raw") == raw
    sbx.files.write("/tmp/empty", b"")
    assert sbx.files.read_bytes("/tmp/empty") == b""


def test_tree(sbx: Sandbox) -> None:
    sbx.files.mkdir("a/b")
    sbx.files.mkdir("a/b")
    sbx.files.write("a/b/c", "1")
    assert [e.name for e in sbx.files.list("a")] == ["b"]
    assert sorted(e.name for e in sbx.files.list("a", depth=2)) == ["b", "c"]
    sbx.files.move("a/b/c", "a/d")
    assert sbx.files.exists("a/d") and not sbx.files.exists("a/b/c")
    assert sbx.files.stat("a").is_dir and sbx.files.stat("a/d").size == 1
    sbx.files.remove("a")
    assert not sbx.files.exists("a")


def test_parts(sbx: Sandbox) -> None:
    sbx.files.write("digits", "0123456789")
    for offset, length, want in [
        (3, None, b"3456789"),
        (3, 4, b"3456"),
        (0, 2, b"01"),
        (8, 9, b"89"),
        (10, None, b""),
        (99, 1, b""),
        (2, 0, b""),
    ]:
        assert sbx.files.read_bytes("digits", offset=offset, length=length) == want
    assert sbx.files.read_bytes("/proc/version", offset=1, length=4) == b"inux"
    with pytest.raises(ValueError, match="negative"):
        sbx.files.read_bytes("digits", offset=-1)


def test_archives(sbx: Sandbox) -> None:
    sbx.exec(
        "mkdir -p t/node_modules && cd t && echo one >a && ln a b && touch node_modules/x y.log"
    )
    out = io.BytesIO()
    assert sbx.files.read_archive("t", out, exclude=["node_modules", "*.log"]) == b""
    packed = sbx.files.read_archive("t", gzip=True, exclude=["node_modules", "*.log"])
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        assert [(m.name, m.islnk()) for m in archive] == [("a", False), ("b", True)]
    pieces = (packed[at : at + 100] for at in range(0, len(packed), 100))
    for target, data in (("1", packed), ("2", io.BytesIO(out.getvalue())), ("3", pieces)):
        sbx.files.write_archive(target, data)
        assert sbx.exec(f"cd {target} && ls && [ a -ef b ]").stdout == "a\nb\n"
    with pytest.raises(InvalidArgumentError):
        sbx.files.write_archive("4", b"no tar" * 500)
    with pytest.raises(InvalidArgumentError):
        sbx.files.read_archive("t", exclude=["["])


def test_refusals(sbx: Sandbox) -> None:
    with pytest.raises(FileNotFoundInSandboxError):
        sbx.files.read("missing")
    with pytest.raises(IsADirectoryInSandboxError):
        sbx.files.read("/workspace")
    with pytest.raises(NotADirectoryInSandboxError):
        sbx.files.list("/etc/passwd")
    with pytest.raises(PermissionDeniedError):
        sbx.files.write("/etc/passwd", "x")
    sbx.files.write("/etc/mine", "x", user="root")


def test_watch(sbx: Sandbox) -> None:
    with sbx.files.watch("/workspace", recursive=True) as changes:
        sbx.files.mkdir("sub")
        sbx.exec("sleep 0.2; echo x > sub/new")
        for change in changes:
            if change.name == "sub/new":
                assert change.path == "/workspace/sub/new"
                break


def test_large_file_there_and_back(sbx: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "large"
    digest = hashlib.sha256()
    with source.open("wb") as file:
        for _ in range(64):
            block = os.urandom(1 << 20)
            digest.update(block)
            file.write(block)
    os.utime(source, (1_500_000_000, 1_500_000_000))
    source.chmod(0o600)
    sbx.files.upload(source, "/workspace/large")
    assert sbx.exec("sha256sum large").stdout.split()[0] == digest.hexdigest()
    info = sbx.files.stat("/workspace/large")
    assert info.modified_at is not None and info.modified_at.timestamp() == 1_500_000_000
    target = tmp_path / "back"
    sbx.files.download("/workspace/large", target)
    assert hashlib.sha256(target.read_bytes()).digest() == digest.digest()
    assert target.stat().st_mtime == 1_500_000_000
    assert target.stat().st_mode & 0o777 == 0o600


def test_folder_there_and_back(sbx: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "run").write_text("#!/bin/sh\necho ran\n")
    (source / "sub" / "run").chmod(0o755)
    (source / "link").symlink_to("sub/run")
    os.utime(source / "sub" / "run", (1_400_000_000, 1_400_000_000))
    sbx.files.upload(source, "/workspace/there")
    assert sbx.exec("there/link").stdout == "ran\n"
    assert sbx.exec("ln -s /etc/passwd there/out && echo more > there/more").ok
    with pytest.warns(UserWarning, match="leads out"):
        sbx.files.download("/workspace/there", tmp_path / "target")
    target = tmp_path / "target"
    assert sorted(p.name for p in target.iterdir()) == ["link", "more", "sub"]
    assert (target / "sub" / "run").stat().st_mtime == 1_400_000_000
    assert os.access(target / "link", os.X_OK)


def test_an_upload_that_breaks_off_leaves_what_was_there(
    sbx: Sandbox, environment: dict[str, str]
) -> None:
    sbx.files.write("data/whole", "before")
    server = urlsplit(environment["BOTHY_URL"])
    assert server.port is not None

    def begin(connection: socket.socket, query: str) -> None:
        request = (
            f"PUT /v1/sandboxes/{sbx.id}/files?path=data/whole{query} HTTP/1.1\r\n"
            f"Host: {server.netloc}\r\n"
            f"Authorization: Bearer {environment['BOTHY_API_KEY']}\r\n"
            "Content-Type: application/octet-stream\r\nContent-Length: 100000000\r\n\r\n"
        )
        connection.sendall(request.encode() + b"x" * 5_000_000)

    with socket.create_connection((server.hostname, server.port)) as connection:
        begin(connection, "")
        assert sbx.files.read("data/whole") == "before"
    with socket.create_connection((server.hostname, server.port)) as connection:
        begin(connection, "&atomic=true")
        while len(sbx.files.list("data")) == 1:  # until it is being written, beside
            time.sleep(0.05)
    while len(sbx.files.list("data")) > 1:  # until it has been given up
        time.sleep(0.05)
    assert sbx.files.read("data/whole") == "before"
