"""Archives from a sandbox are trusted with nothing."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from bothy import BothyError
from bothy._archive import pack, unpack


class Archive:
    """Builds a tar, entry by entry."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")

    def add(
        self, name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b""
    ) -> Archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, link, len(data)
        info.mode = 0o4755 if kind == tarfile.REGTYPE else 0o777
        info.mtime = 1_500_000_000
        self._tar.addfile(info, io.BytesIO(data))
        return self

    def file(self, name: str, data: bytes = b"x") -> Archive:
        return self.add(name, data=data)

    def link(self, name: str, target: str) -> Archive:
        return self.add(name, tarfile.SYMTYPE, target)

    def unpack(self, folder: Path) -> None:
        self._tar.close()
        unpack(io.BytesIO(self._buffer.getvalue()), folder)


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("untouched")
    return tmp_path / "inside"


def nothing_outside(inside: Path) -> None:
    assert (inside.parent / "secret").read_text() == "untouched"
    assert sorted(p.name for p in inside.parent.iterdir()) == ["inside", "secret"]


@pytest.mark.parametrize("name", ["../secret", "/secret", "a/../../secret", "a/..", "."])
def test_names_that_lead_out(inside: Path, name: str) -> None:
    with pytest.raises(BothyError, match="leads out"):
        Archive().file(name).unpack(inside)
    nothing_outside(inside)


def test_links_that_lead_out_are_left_out(inside: Path) -> None:
    archive = Archive().file("sub/real").link("good", "sub/real").link("sub/up", "../good")
    for number, target in enumerate(["/etc/passwd", "../secret", "sub/../../secret"]):
        archive.link(f"bad{number}", target)
    with pytest.warns(UserWarning, match="leads out") as warned:
        archive.unpack(inside)
    assert len(warned) == 3
    assert sorted(p.name for p in inside.iterdir()) == ["good", "sub"]
    assert (inside / "sub" / "up").read_text() == "x"
    nothing_outside(inside)


def test_link_that_another_link_leads_out(inside: Path) -> None:
    # Lexically v is inside; through u it is not.
    archive = Archive().file("x/y/f").link("x/y/u", "../..").link("v", "x/y/u/../secret")
    with pytest.warns(UserWarning, match="leads out"):
        archive.unpack(inside)
    assert not (inside / "v").is_symlink() and (inside / "x/y/u").is_symlink()


@pytest.mark.parametrize("folder", [False, True])
def test_link_that_a_later_copy_would_lead_out(inside: Path, folder: bool) -> None:
    first = Archive().link("tricky", "d/../secret").link("a/fine", "../a/./../b")
    if folder:  # which a link can replace
        first.add("d", tarfile.DIRTYPE)
    with pytest.warns(UserWarning, match="leads out") as warned:
        first.unpack(inside)
    assert len(warned) == 2
    Archive().link("d", ".").unpack(inside)
    assert (inside / "d").is_symlink() and not (inside / "tricky").is_symlink()
    nothing_outside(inside)


def test_writing_through_a_link(inside: Path) -> None:
    archive = Archive().link("d", "..").file("d/secret", b"evil")
    archive.unpack(inside)
    assert (inside / "d" / "secret").read_bytes() == b"evil"
    nothing_outside(inside)


def test_link_below_a_link(inside: Path) -> None:
    archive = Archive().link("d/secret", "x").link("d", "..")
    with pytest.raises(BothyError, match="leads out"):
        archive.unpack(inside)
    nothing_outside(inside)


def test_link_that_is_there_already_is_not_followed(inside: Path) -> None:
    inside.mkdir()
    (inside / "secret").symlink_to("../secret")
    (inside / "d").symlink_to("..")
    Archive().file("secret", b"new").file("d/secret", b"new").unpack(inside)
    assert (inside / "secret").read_bytes() == (inside / "d/secret").read_bytes() == b"new"
    nothing_outside(inside)


def test_hard_links(inside: Path) -> None:
    Archive().file("a", b"1").add("b", tarfile.LNKTYPE, "a").unpack(inside)
    assert (inside / "b").read_bytes() == b"1"
    for target in ("../secret", "/etc/passwd", "missing"):
        with pytest.raises(BothyError):
            Archive().add("c", tarfile.LNKTYPE, target).unpack(inside)
    with pytest.raises(BothyError):
        Archive().link("l", "../secret").add("c", tarfile.LNKTYPE, "l").unpack(inside)
    nothing_outside(inside)


def test_devices_and_special_bits_are_left_out(inside: Path) -> None:
    archive = Archive().add("fifo", tarfile.FIFOTYPE).add("null", tarfile.CHRTYPE).file("f")
    archive.unpack(inside)
    assert [p.name for p in inside.iterdir()] == ["f"]
    assert (inside / "f").stat().st_mode & 0o7777 == 0o755


def test_entries_that_replace_each_other(inside: Path) -> None:
    archive = Archive().file("a").file("a/b").add("c", tarfile.DIRTYPE).file("c/d").file("c")
    archive.add("e", tarfile.DIRTYPE).file("e/f").link("e", "a/b")
    archive.unpack(inside)
    assert (inside / "a/b").read_bytes() == b"x" and (inside / "c").is_file()
    assert os.readlink(inside / "e") == "a/b"


def test_damaged_archive(inside: Path) -> None:
    for data in (b"\x01" * 1024, tarfile.TarInfo("f").tobuf()[:300]):
        with pytest.raises(BothyError, match="damaged") as caught:
            unpack(io.BytesIO(data), inside)
        assert caught.value.code == "archive_damaged"


def test_there_and_back(tmp_path: Path) -> None:
    source = tmp_path / "source"
    deep = source / ("long" * 30) / ("näme" * 30)
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(os.urandom(1_300_000))
    (source / "empty").touch(0o600)
    os.utime(source / "empty", (1.5, 1_234_567_890.25))
    os.utime(deep.parent, (5, 5))
    (source / "loop").symlink_to("loop")
    os.mkfifo(source / "pipe")
    data = b"".join(pack(source))
    assert len(data) % 512 == 0
    target = tmp_path / "a" / "target"
    unpack(io.BytesIO(data), target)
    twin = target / deep.relative_to(source)
    assert (twin / "file").read_bytes() == (deep / "file").read_bytes()
    assert twin.parent.stat().st_mtime == 5
    assert (target / "empty").stat().st_mtime == 1_234_567_890.25
    assert (target / "empty").stat().st_mode & 0o777 == 0o600
    assert os.readlink(target / "loop") == "loop" and not (target / "pipe").exists()


def test_file_that_shrinks_while_it_is_packed(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 5000)
    pieces = pack(tmp_path)
    next(pieces)
    os.truncate(tmp_path / "f", 10)
    with pytest.raises(OSError, match="shorter"):
        list(pieces)
