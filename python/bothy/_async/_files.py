"""The files of a sandbox."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Union, cast

import httpx

from .._archive import pack, read_chunks, replaced, unpack
from .._decode import decode, format_time
from .._errors import (
    FileNotFoundInSandboxError,
    IsADirectoryInSandboxError,
    NotADirectoryInSandboxError,
    NotTextError,
)
from .._io import aio as io
from .._retry import failure_of
from .._types import FileEvent, FileInfo
from ._client import Content, Local, Request, parse_json, without_none
from ._stream import AsyncEventStream, decoder, stream_request

if TYPE_CHECKING:
    from ._sandbox import AsyncSandbox

Text = Union[str, bytes, bytearray, memoryview]
"""What a file can be written from at once."""


WRITTEN_WHOLE = 1 << 20
PIECE = 256 << 10
"""Bytes of content that are sent at once, and in how large pieces more of it is."""


class AsyncFiles:
    """The files of one sandbox. Relative paths start at ``/workspace``.

    Every method takes ``user``, the user inside who does it (``user`` by default), and
    raises :class:`FileNotFoundInSandboxError`, :class:`PermissionDeniedError` and the other
    children of :class:`FileError`.
    """

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def read(self, path: str, *, encoding: str = "utf-8", user: str | None = None) -> str:
        """Return a file's content as text.

        Raises:
            NotTextError: The content is not text in ``encoding``; see :meth:`read_bytes`. It is
                a ``UnicodeDecodeError``, too.
        """
        raw = await self.read_bytes(path, user=user)
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError as error:
            hint = "Use files.read_bytes, or give the encoding that it has."
            detail = f"{path} is not {encoding} text: byte {error.start} does not fit"
            raise NotTextError(detail, error, hint=hint) from None

    async def read_bytes(
        self, path: str, *, offset: int = 0, length: int | None = None, user: str | None = None
    ) -> bytes:
        """Return a file's content. Use :meth:`download` for what does not fit in memory.

        Args:
            path: The file.
            offset: Where to begin, in bytes. Beyond the end there is nothing: ``b""``.
            length: How many bytes to return; fewer where the file ends before.
            user: Who reads it.

        Raises:
            IsADirectoryInSandboxError: It is a folder.
            ValueError: ``offset`` or ``length`` is negative.
        """
        response = await self._open(path, user, headers=range_header(offset, length))
        info = file_info(response)
        if info is None:
            await response.aclose()
            raise IsADirectoryInSandboxError(f"{path} is a folder", hint="Use files.list.")
        if length == 0 or (response.status_code != 206 and 0 < info.size <= offset):
            await response.aclose()
            return b""
        content = await self._sandbox._client._read(response)
        # The kernel's files, which have no size, always come whole.
        start = 0 if response.status_code == 206 else offset
        return content[start : None if length is None else start + length]

    async def write(
        self,
        path: str,
        content: Text,
        *,
        mode: int | None = None,
        user: str | None = None,
        atomic: bool = False,
    ) -> FileInfo:
        """Write a file, and create the folders above it.

        A file that is there is written in place, as by an editor, once all of the content
        has arrived: it keeps its owner, its mode and its other names, and programs that watch
        it or have it open see the change. A reader may for a moment see old and new content
        mixed; with ``atomic`` it sees one or the other.

        Args:
            path: Where to write it.
            content: Text (stored as UTF-8) or bytes.
            mode: Permission bits such as ``0o755``; by default those that it has, or
                ``0o644``.
            user: Who writes it, and owns a new one.
            atomic: Put a new file of the user's in the place of any that is there, in one
                step, also of one that the user may not write.

        Raises:
            PermissionDeniedError: The user may not write the file, or not in its folder.
        """
        raw = content.encode() if isinstance(content, str) else content
        whole = memoryview(raw).cast("B")
        if len(whole) <= WRITTEN_WHOLE:
            return await self._put(path, bytes(whole), mode=mode, user=user, atomic=atomic)

        # In pieces: the connection would copy all that is left for each that it sends.
        def read() -> Iterator[bytes]:
            for start in range(0, len(whole), PIECE):
                yield bytes(whole[start : start + PIECE])

        headers = {"Content-Length": str(len(whole))}
        return await self._put(
            path, lambda: io.chunks(read), mode=mode, user=user, atomic=atomic, headers=headers
        )

    async def list(
        self, path: str = ".", *, depth: int = 1, user: str | None = None
    ) -> list[FileInfo]:
        """Return what is in a folder, ``depth`` levels deep.

        Raises:
            NotADirectoryInSandboxError: It is not a folder.
        """
        response = await self._open(path, user, depth=depth)
        if file_info(response) is not None:
            await response.aclose()
            raise NotADirectoryInSandboxError(f"{path} is not a folder", hint="Use files.stat.")
        wire = parse_json(await self._sandbox._client._read(response))
        return [decode(FileInfo, item) for item in wire["items"]]

    async def stat(self, path: str, *, user: str | None = None) -> FileInfo:
        """Describe one entry."""
        return decode(FileInfo, await self._call("GET", "/stat", {"path": path, "user": user}))

    async def exists(self, path: str, *, user: str | None = None) -> bool:
        """Tell whether there is anything at ``path``."""
        try:
            await self.stat(path, user=user)
        except (FileNotFoundInSandboxError, NotADirectoryInSandboxError):
            return False
        return True

    async def mkdir(self, path: str, *, user: str | None = None) -> FileInfo:
        """Create a folder and those above it. It may exist already."""
        body = without_none({"path": path, "user": user})
        return decode(FileInfo, await self._call("POST", "/mkdir", json=body))

    async def move(self, source: str, target: str, *, user: str | None = None) -> FileInfo:
        """Move or rename a file or a folder."""
        body = without_none({"from": source, "to": target, "user": user})
        return decode(FileInfo, await self._call("POST", "/move", json=body))

    async def remove(self, path: str, *, user: str | None = None) -> None:
        """Delete a file, or a folder with everything in it."""
        await self._call("DELETE", "", {"path": path, "user": user})

    def watch(
        self, path: str, *, recursive: bool = False, user: str | None = None
    ) -> AsyncEventStream[FileEvent]:
        """Iterate over the changes in a folder, until the stream is closed.

        Changes are seen from entering the stream with ``async with`` on.
        """
        params = {"path": path, "recursive": recursive or None, "user": user}
        request = stream_request("GET", f"{self._path}/watch", params=params)
        return AsyncEventStream(self._sandbox._client, request, decoder(FileEvent))

    async def upload(
        self,
        source: Local,
        path: str,
        *,
        mode: int | None = None,
        user: str | None = None,
    ) -> None:
        """Copy a file or folder of this computer into the sandbox, in pieces, of any size.

        Modes and modification times are kept. A folder is put into the folder ``path``,
        which is made where it is missing; what is there stays.

        Args:
            source: A path, or a file object that is open for reading bytes.
            path: Where to put it in the sandbox.
            mode: Permission bits of a file, instead of those it has here.
            user: Who owns it.
        """
        if not isinstance(source, (str, os.PathLike)):
            await self._upload_object(source, path, mode, user)
        elif await io.run(Path(source).is_dir):
            await self._upload_folder(Path(source), path, user)
        else:
            await self._upload_file(Path(source), path, mode, user)

    async def download(
        self,
        path: str,
        target: Local,
        *,
        user: str | None = None,
    ) -> None:
        """Copy a file or folder of the sandbox to this computer, in pieces, of any size.

        Modes and modification times are kept. A file is there when it is whole, and not
        before. Of a folder nothing is written outside of ``target``; links that lead out of
        it are left out with a warning.

        Args:
            path: What to copy.
            target: The path that it gets here, or for a file a file object to write to.
            user: Who reads it.

        Raises:
            BothyError: The sandbox sent an archive that is damaged (``archive_damaged``) or
                that would write elsewhere (``archive_unsafe``).
        """
        response = await self._open(path, user)
        try:
            info = file_info(response)
            if info is not None:
                await self._download_file(response, info, target)
        finally:
            await response.aclose()
        if info is None:
            await self._download_folder(path, target, user)

    async def read_archive(
        self,
        path: str,
        target: IO[bytes] | None = None,
        *,
        gzip: bool = False,
        exclude: Sequence[str] = (),
        user: str | None = None,
    ) -> bytes:
        """Return a folder, or one file, as a tar, with modes, times and links as they are.

        The archive was made by a sandbox that you may not trust: unpack it with
        ``tarfile``'s filter ``data``, or let :meth:`download` do it.

        Args:
            path: What to pack. The names in the tar are relative to it.
            target: A file object to write the tar to, in pieces, of any size. Then nothing
                is returned but ``b""``.
            gzip: Compress it.
            exclude: What to leave out, as a ``.gitignore`` names it, without negation:
                ``node_modules`` and ``*.log`` at any depth, ``/build`` and ``src/gen`` below
                the folder itself, ``cache/`` only folders, ``src/**/test``.
            user: Who reads it.
        """
        if isinstance(exclude, str):
            raise TypeError("exclude is a list of patterns, not one")
        params: dict[str, Any] = {"path": path, "user": user, "exclude": list(exclude) or None}
        params["gzip"] = "true" if gzip else None
        client = self._sandbox._client
        response = await client._open(self._request("GET", "/archive", params, patience=None))
        if target is None:
            return await client._read(response)
        try:
            await client._copy(response, target)
        finally:
            await response.aclose()
        return b""

    async def write_archive(
        self,
        path: str,
        data: bytes | IO[bytes] | Iterable[bytes],
        *,
        user: str | None = None,
    ) -> None:
        """Unpack a tar, as it is or compressed with gzip, into a folder.

        The folder is made where it is missing. What is there is replaced entry by entry, and
        hard links stay links.

        Args:
            path: The folder.
            data: The tar: bytes, a file object that is open for reading bytes, or pieces.
            user: Who owns what is unpacked.

        Raises:
            FileError: An entry, or a link on its way, leads out of the folder.
            InvalidArgumentError: It is no tar, or damaged.
        """

        def read() -> Iterator[bytes]:
            if isinstance(data, (bytes, bytearray, memoryview)):
                whole = memoryview(data).cast("B")
                return (bytes(whole[at : at + PIECE]) for at in range(0, len(whole), PIECE))
            if hasattr(data, "read"):
                return read_chunks(cast("IO[bytes]", data))
            return iter(data)

        await self._call(
            "PUT",
            "/archive",
            {"path": path, "user": user},
            content=lambda: io.chunks(read),
            headers={"Content-Type": "application/x-tar"},
            patience=None,
            once=not isinstance(data, (bytes, bytearray, memoryview)),
        )

    async def _upload_file(
        self, source: Path, path: str, mode: int | None, user: str | None
    ) -> None:
        found = await io.run(source.stat)

        def read() -> Iterator[bytes]:
            with source.open("rb") as file:
                yield from read_chunks(file, found.st_size)

        await self._put(
            path,
            lambda: io.chunks(read),
            mode=found.st_mode if mode is None else mode,
            user=user,
            modified_at=found.st_mtime,
            headers={"Content-Length": str(found.st_size)},
        )

    async def _upload_object(
        self, source: IO[bytes], path: str, mode: int | None, user: str | None
    ) -> None:
        def read() -> Iterator[bytes]:
            return read_chunks(source)

        await self._put(path, lambda: io.chunks(read), mode=mode, user=user, once=True)

    async def _upload_folder(self, source: Path, path: str, user: str | None) -> None:
        def read() -> Iterator[bytes]:
            return pack(source)

        await self._call(
            "PUT",
            "/archive",
            {"path": path, "user": user},
            content=lambda: io.chunks(read),
            headers={"Content-Type": "application/x-tar"},
            patience=None,
        )

    async def _download_file(self, response: httpx.Response, info: FileInfo, target: Local) -> None:
        if not isinstance(target, (str, os.PathLike)):
            return await self._sandbox._client._copy(response, target)
        with replaced(Path(target)) as file:
            await self._sandbox._client._copy(response, file)
            set_attributes(file, info)

    async def _download_folder(self, path: str, target: Local, user: str | None) -> None:
        if not isinstance(target, (str, os.PathLike)):
            hint = "Give the path of a folder to copy it to."
            raise IsADirectoryInSandboxError(f"{path} is a folder", hint=hint)
        client = self._sandbox._client
        params = {"path": path, "user": user}
        response = await client._open(self._request("GET", "/archive", params, patience=None))
        reader = io.Reader(response.aiter_bytes())
        try:
            await io.run(unpack, reader, Path(target))
        except httpx.TransportError as error:
            raise failure_of(error, client.url) from error
        finally:
            await reader.close()
            await response.aclose()

    async def _open(
        self, path: str, user: str | None, *, headers: dict[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        params = {"path": path, "user": user, **more}
        request = self._request("GET", "", params, patience=None, headers=headers or {})
        return await self._sandbox._client._open(request)

    async def _put(
        self,
        path: str,
        content: Content,
        *,
        mode: int | None,
        user: str | None,
        modified_at: float | None = None,
        atomic: bool = False,
        **more: Any,
    ) -> FileInfo:
        params = {
            "path": path,
            "mode": None if mode is None else f"{mode & 0o7777:04o}",
            "user": user,
            "atomic": "true" if atomic else None,
            "modified_at": None if modified_at is None else format_time(modified_at),
        }
        return decode(FileInfo, await self._call("PUT", "", params, content=content, **more))

    async def _call(
        self, method: str, part: str, params: dict[str, Any] | None = None, **more: Any
    ) -> Any:
        return await self._sandbox._client._call(self._request(method, part, params, **more))

    def _request(
        self, method: str, part: str, params: dict[str, Any] | None = None, **more: Any
    ) -> Request:
        return Request(method, f"{self._path}{part}", params=params, **more)

    @property
    def _path(self) -> str:
        return f"{self._sandbox._path}/files"


def file_info(response: httpx.Response) -> FileInfo | None:
    """Return the file info in the answer with a file's bytes; for a folder, nothing."""
    header = response.headers.get("x-file-info")
    return decode(FileInfo, parse_json(header.encode())) if header else None


def range_header(offset: int, length: int | None) -> dict[str, str] | None:
    """Return the header that asks for a part of a file; for all of it, none."""
    if offset < 0 or (length is not None and length < 0):
        raise ValueError("offset and length cannot be negative")
    if not offset and length is None:
        return None
    last = "" if length is None else str(offset + max(length, 1) - 1)
    return {"Range": f"bytes={offset}-{last}"}


def set_attributes(file: IO[bytes], info: FileInfo) -> None:
    """Give a file of this computer the mode and the time of one in a sandbox."""
    file.flush()
    if hasattr(os, "fchmod") and info.mode:
        os.fchmod(file.fileno(), int(info.mode, 8) & 0o777)
    if info.modified_at is not None and os.utime in os.supports_fd:
        stamp = info.modified_at.timestamp()
        os.utime(file.fileno(), (stamp, stamp))
