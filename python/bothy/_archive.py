"""Folders as tar archives, packed as a stream and unpacked with distrust."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from ._errors import BothyError

CHUNK = 1 << 20


class Readable(Protocol):
    """Something to read an archive from."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes."""


def pack(folder: Path) -> Iterator[bytes]:
    """Yield a tar of what is in ``folder``: files, folders and links, with modes and times."""
    return pack_files(folder, (path for path, _ in walk(folder)))


def pack_files(folder: Path, paths: Iterable[Path]) -> Iterator[bytes]:
    """Yield a tar of some of what is in ``folder``."""
    for path in paths:
        name = path.relative_to(folder).as_posix()
        info = _describe(path, name)
        if info is None:
            continue
        if info.isreg():
            with path.open("rb") as file:
                yield info.tobuf(tarfile.PAX_FORMAT)
                yield from _padded(file, info.size, path)
        else:
            yield info.tobuf(tarfile.PAX_FORMAT)
    yield tarfile.NUL * (2 * tarfile.BLOCKSIZE)


def read_chunks(file: IO[bytes], limit: int | None = None) -> Iterator[bytes]:
    """Yield the content of ``file``, at most ``limit`` bytes of it."""
    left = limit
    while left is None or left > 0:
        chunk = file.read(CHUNK if left is None else min(CHUNK, left))
        if not chunk:
            return
        left = None if left is None else left - len(chunk)
        yield chunk


def unpack(source: Readable, folder: Path) -> None:
    """Unpack a tar into ``folder``, which is made where it is missing.

    The archive comes from a sandbox, so it is trusted with nothing: no entry is written
    outside of ``folder`` or through a link, devices are left out, links that lead out of
    ``folder`` are left out with a warning, and of the permissions only the usual bits count.

    Raises:
        BothyError: An entry would lie outside of ``folder`` (``archive_unsafe``), or the
            archive is damaged (``archive_damaged``).
    """
    folder.mkdir(parents=True, exist_ok=True)
    unpacker = _Unpacker(folder.resolve())
    try:
        with tarfile.open(fileobj=source, mode="r|", bufsize=CHUNK) as archive:  # type: ignore[call-overload]
            for member in archive:
                unpacker.add(archive, member)
    except tarfile.TarError as error:
        raise BothyError(f"the archive is damaged: {error}", code="archive_damaged") from error
    unpacker.finish()


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file that takes the place of ``path`` when it is whole."""
    descriptor, name = tempfile.mkstemp(prefix=".bothy-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


class _Unpacker:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: dict[Path, tarfile.TarInfo] = {}
        self._links: dict[Path, str] = {}
        self._known = {root}

    def add(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = self._place(member.name)
        if member.isdir():
            self._make_folder(path)
            self._folders[path] = member
        elif path == self._root:
            raise _unsafe(member.name)
        elif member.issym():
            self._clear(path)
            self._links[path] = member.linkname
        elif member.islnk():
            self._copy(self._place(member.linkname), path)
        elif member.isreg():
            self._write(archive, member, path)

    def finish(self) -> None:
        """Make the links, when all they can point to is there, and date the folders."""
        made = [path for path, target in self._links.items() if self._link(path, target)]
        # A later link can change where an earlier one leads.
        for path in made:
            if not self._inside(path):
                path.unlink()
                _warn_of(path.relative_to(self._root), self._links[path])
        for path, member in reversed(self._folders.items()):
            if path not in self._known:
                continue
            path.chmod(member.mode & 0o777 | stat.S_IRWXU)
            os.utime(path, (member.mtime, member.mtime))

    def _place(self, name: str) -> Path:
        parts = [part for part in PurePosixPath(name).parts if part != "."]
        foreign = os.name == "nt" and any("\\" in part or ":" in part for part in parts)
        if foreign or name.startswith("/") or ".." in parts:
            raise _unsafe(name)
        return self._root.joinpath(*parts)

    def _make_folder(self, path: Path) -> None:
        if path in self._known:
            return
        self._make_folder(path.parent)
        self._links.pop(path, None)
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            path.unlink()
        path.mkdir(exist_ok=True)
        self._known.add(path)

    def _write(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
        self._clear(path)
        content = archive.extractfile(member)
        assert content is not None
        with replaced(path) as file:
            shutil.copyfileobj(content, file, CHUNK)
        path.chmod(member.mode & 0o777)
        os.utime(path, (member.mtime, member.mtime))

    def _copy(self, source: Path, path: Path) -> None:
        if source in self._links or not self._inside(source) or not source.is_file():
            raise _unsafe(str(path.relative_to(self._root)))
        self._clear(path)
        shutil.copy2(source, path, follow_symlinks=False)

    def _clear(self, path: Path) -> None:
        self._make_folder(path.parent)
        self._links.pop(path, None)
        if path.is_symlink():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
            self._known = {known for known in self._known if not known.is_relative_to(path)}

    def _link(self, path: Path, target: str) -> bool:
        if not self._links.keys().isdisjoint(path.parents):
            raise _unsafe(str(path.relative_to(self._root)))
        if os.path.isabs(target) or _climbs(target):
            _warn_of(path.relative_to(self._root), target)
            return False
        path.unlink(missing_ok=True)
        path.symlink_to(target)
        return True

    def _inside(self, path: Path) -> bool:
        # realpath takes what does not exist as it is written, and stops in a circle.
        return Path(os.path.realpath(path)).is_relative_to(self._root)


def _climbs(target: str) -> bool:
    """Tell whether a link goes up after it has gone down.

    Where that leads depends on what the folder on the way is, and a later copy may put a link
    there. A link that only begins by going up starts at the folder that holds it.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    return ".." in parts[next((i for i, part in enumerate(parts) if part != ".."), len(parts)) :]


def walk(
    folder: Path, enter: Callable[[str], bool] = lambda _: True, below: str = ""
) -> Iterator[tuple[Path, str]]:
    """Yield what is in ``folder`` with its path in it, and what is in the folders to enter."""
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        path, name = Path(entry.path), below + entry.name
        yield path, name
        if entry.is_dir(follow_symlinks=False) and enter(name):
            yield from walk(path, enter, name + "/")


def _describe(path: Path, name: str) -> tarfile.TarInfo | None:
    found = path.lstat()
    info = tarfile.TarInfo(name)
    info.mode = stat.S_IMODE(found.st_mode)
    info.mtime = found.st_mtime
    if stat.S_ISREG(found.st_mode):
        info.size = found.st_size
    elif stat.S_ISDIR(found.st_mode):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(found.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
    else:
        return None  # sockets, pipes and devices mean nothing elsewhere
    return info


def _padded(file: IO[bytes], size: int, path: Path) -> Iterator[bytes]:
    sent = 0
    for chunk in read_chunks(file, size):
        sent += len(chunk)
        yield chunk
    if sent < size:
        raise OSError(f"{path} became shorter while it was read")
    yield tarfile.NUL * (-size % tarfile.BLOCKSIZE)


def _unsafe(name: str) -> BothyError:
    return BothyError(f"the archive has an entry that leads out: {name!r}", code="archive_unsafe")


def _warn_of(name: Path, target: str) -> None:
    warnings.warn(
        f"the link {name} to {target} leads out of the folder and was left out", stacklevel=2
    )
