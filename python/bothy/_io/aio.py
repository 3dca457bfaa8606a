"""Waiting, threads, sockets and callbacks, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import ssl
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
)
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Union

import httpx

from .._connect import SOCKET_OPTIONS

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

Callback = Callable[[T], Union[Awaitable[None], None]]
"""A function, or a coroutine function, that is called with one value."""

CHUNK = 1 << 16

sleep = asyncio.sleep
run = asyncio.to_thread


async def call(callback: Callback[T], value: T) -> None:
    """Call ``callback`` and wait for it where it is a coroutine function."""
    waiting = callback(value)
    if inspect.isawaitable(waiting):
        await waiting


async def both(
    first: Callable[[], Coroutine[Any, Any, None]], second: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Run two functions at the same time and return when both have."""
    await asyncio.gather(first(), second())


async def each(
    items: Iterable[T], limit: int, do: Callable[[T], Coroutine[Any, Any, R]]
) -> list[R]:
    """Call a function for each item, at most ``limit`` at once; return the results in order."""
    slots = asyncio.Semaphore(max(limit, 1))

    async def one(item: T) -> R:
        async with slots:
            return await do(item)

    return list(await asyncio.gather(*map(one, items)))


async def chunks(make: Callable[[], Iterator[bytes]]) -> AsyncIterator[bytes]:
    """Yield what the iterator that ``make`` returns yields, read in a thread."""
    source = await run(make)
    while (chunk := await run(next, source, None)) is not None:
        yield chunk


class Reader:
    """A file-like object for a worker thread that reads from an asynchronous iterator."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._pending: Future[bytes] | None = None
        self._closed = False

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, or fewer at the end. To be called in another thread."""
        parts = [self._buffer]
        have = len(self._buffer)
        while have < size and (chunk := self._next()):
            parts.append(chunk)
            have += len(chunk)
        whole = b"".join(parts)
        self._buffer = whole[size:]
        return whole[:size]

    def _next(self) -> bytes:
        if self._closed:
            raise EOFError("the reader is closed")
        self._pending = asyncio.run_coroutine_threadsafe(self._pull(), self._loop)
        return self._pending.result()

    async def _pull(self) -> bytes:
        return await anext(self._source, b"")

    async def close(self) -> None:
        """Make a waiting :meth:`read`, and every later one, fail."""
        self._closed = True
        if self._pending is not None and not self._pending.done():
            self._pending.cancel()
            # The cancelled pull lets go of the source in the loop's next turns.
            await asyncio.sleep(0)
            await asyncio.sleep(0)


class ByteStream:
    """A TCP connection, with TLS where asked for."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(
        cls, host: str, port: int, tls: ssl.SSLContext | None, timeout: float
    ) -> ByteStream:
        """Connect, in at most ``timeout`` seconds.

        Raises:
            OSError: It cannot be reached, or not in time.
        """
        opening = asyncio.open_connection(host, port, ssl=tls)
        try:
            reader, writer = await asyncio.wait_for(opening, timeout)
        except asyncio.TimeoutError as error:
            raise TimeoutError(f"no connection after {timeout} seconds") from error
        for option in SOCKET_OPTIONS:
            writer.get_extra_info("socket").setsockopt(*option)
        return cls(reader, writer)

    async def read(self, timeout: float | None = None) -> bytes:
        """Return some bytes as soon as there are any, and none at the end.

        Raises:
            TimeoutError: There are none for ``timeout`` seconds.
        """
        try:
            return await asyncio.wait_for(self._reader.read(CHUNK), timeout)
        except asyncio.TimeoutError as error:  # another class before Python 3.11
            raise TimeoutError("nothing came in time") from error

    async def write(self, data: bytes) -> None:
        """Send all of ``data``; two writers do not mix theirs."""
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        """Close it in both directions; a waiting :meth:`read` returns."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Listener:
    """Accepts local connections and gives each to a handler of its own task."""

    def __init__(self, server: asyncio.Server, tasks: set[asyncio.Task[None]]) -> None:
        self._server = server
        self._tasks = tasks

    @classmethod
    async def open(
        cls, host: str, port: int, handle: Callable[[ByteStream], Coroutine[Any, Any, None]]
    ) -> Listener:
        """Listen on ``port``, 0 for any that is free."""
        tasks: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            stream = ByteStream(reader, writer)
            try:
                await handle(stream)
            except asyncio.CancelledError:
                # Only close() cancels; asyncio would report it as an unhandled error.
                pass
            finally:
                tasks.discard(task)
                writer.close()

        return cls(await asyncio.start_server(accept, host, port), tasks)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and end all connections."""
        self._server.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Leftovers:
    """What is still to be done for calls whose tasks were cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def of_cancelled(
        self, undo: Callable[[], Coroutine[Any, Any, None]]
    ) -> AsyncIterator[None]:
        """Begin to ``undo`` the block where it is cancelled, and do not wait for that."""
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.create_task(undo())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            raise

    async def wait(self) -> None:
        """Wait until nothing is left to be done."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


def close_with(owner: object, connections: httpx.AsyncClient) -> None:
    """Do nothing: connections can be closed only in their event loop, by ``aclose``."""


class _Managed(Protocol):
    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> Any: ...


M = TypeVar("M", bound=_Managed)


class Opening(Generic[M]):
    """A call that can be awaited, or entered directly with ``async with``."""

    def __init__(self, start: Coroutine[Any, Any, M]) -> None:
        self._start = start

    def __await__(self) -> Generator[Any, Any, M]:
        return self._start.__await__()

    async def __aenter__(self) -> M:
        self._opened = await self._start
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)


def opens(method: Callable[P, Coroutine[Any, Any, M]]) -> Callable[P, Opening[M]]:
    """Let the result of a coroutine function be used with ``async with`` and no ``await``."""

    def opening(*args: P.args, **kwargs: P.kwargs) -> Opening[M]:
        return Opening(method(*args, **kwargs))

    opening.__doc__ = method.__doc__
    opening.__name__ = method.__name__
    opening.__wrapped__ = method  # type: ignore[attr-defined]
    return opening
