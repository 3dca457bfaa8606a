"""Waiting, threads, sockets and callbacks, for blocking code."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

import httpx

from .._connect import SOCKET_OPTIONS

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

Callback = Callable[[T], None]
"""A function that is called with one value."""

CHUNK = 1 << 16

sleep = time.sleep


def run(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``function``: blocking code may block."""
    return function(*args, **kwargs)


def call(callback: Callback[T], value: T) -> None:
    """Call ``callback``."""
    callback(value)


def each(items: Iterable[T], limit: int, do: Callable[[T], R]) -> list[R]:
    """Call a function for each item, at most ``limit`` at once; return the results in order."""
    pool = ThreadPoolExecutor(max(limit, 1))
    try:
        return list(pool.map(do, items))
    finally:
        pool.shutdown(cancel_futures=True)


def both(first: Callable[[], None], second: Callable[[], None]) -> None:
    """Run two functions at the same time and return when both have."""
    thread = threading.Thread(target=first, daemon=True)
    thread.start()
    try:
        second()
    finally:
        thread.join()


def chunks(make: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
    """Return the iterator that ``make`` returns."""
    return make()


class Reader:
    """A file-like object that reads from an iterator."""

    def __init__(self, source: Iterator[bytes]) -> None:
        self._source = source
        self._buffer = b""

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, or fewer at the end."""
        parts = [self._buffer]
        have = len(self._buffer)
        while have < size and (chunk := next(self._source, b"")):
            parts.append(chunk)
            have += len(chunk)
        whole = b"".join(parts)
        self._buffer = whole[size:]
        return whole[:size]

    def close(self) -> None:
        """Do nothing: there is no other reader."""


class ByteStream:
    """A TCP connection, with TLS where asked for.

    One thread may read while another writes and a third closes: a lock guards each step,
    no step blocks, and waiting for the socket happens outside the lock.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._step = threading.Lock()
        self._writing = threading.Lock()
        self._waiting = 0
        self._closed = False

    @classmethod
    def connect(
        cls, host: str, port: int, tls: ssl.SSLContext | None, timeout: float
    ) -> ByteStream:
        """Connect, in at most ``timeout`` seconds.

        Raises:
            OSError: It cannot be reached, or not in time.
        """
        connection = socket.create_connection((host, port), timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option in SOCKET_OPTIONS:
                connection.setsockopt(*option)
            return cls(tls.wrap_socket(connection, server_hostname=host) if tls else connection)
        except BaseException:
            connection.close()
            raise

    def read(self, timeout: float | None = None) -> bytes:
        """Return some bytes as soon as there are any, and none at the end.

        Raises:
            TimeoutError: There are none for ``timeout`` seconds.
        """
        try:
            return self._do(lambda: self._socket.recv(CHUNK), selectors.EVENT_READ, timeout)
        except OSError:
            if self._closed:
                return b""
            raise

    def write(self, data: bytes) -> None:
        """Send all of ``data``; two writers do not mix theirs."""
        rest = memoryview(data)
        with self._writing:
            while rest:
                rest = rest[self._do(partial(self._socket.send, rest), selectors.EVENT_WRITE) :]

    def close(self) -> None:
        """Close it in both directions; a waiting :meth:`read` returns."""
        with self._step:
            if self._closed:
                return
            self._closed = True
            # Waiters for the socket wake up; the last one frees it.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._free()

    def _do(self, step: Callable[[], T], event: int, timeout: float | None = None) -> T:
        while True:
            with self._step:
                if self._closed:
                    raise ConnectionAbortedError("the connection is closed")
                try:
                    return step()
                except ssl.SSLWantReadError:
                    event = selectors.EVENT_READ
                except ssl.SSLWantWriteError:
                    event = selectors.EVENT_WRITE
                except BlockingIOError:
                    pass
                self._waiting += 1
            try:
                if not wait_until_ready((self._socket,), event, timeout):
                    raise TimeoutError("nothing came in time")
            finally:
                with self._step:
                    self._waiting -= 1
                    self._free()

    def _free(self) -> None:
        if self._closed and self._waiting == 0:
            self._socket.close()


class Listener:
    """Accepts local connections and gives each to a handler of its own thread."""

    def __init__(self, listening: socket.socket, handle: Callable[[ByteStream], None]) -> None:
        self._socket = listening
        self._handle = handle
        self._wake, self._woken = socket.socketpair()
        self._lock = threading.Lock()
        self._served: dict[threading.Thread, ByteStream] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, host: str, port: int, handle: Callable[[ByteStream], None]) -> Listener:
        """Listen on ``port``, 0 for any that is free."""
        return cls(socket.create_server((host, port)), handle)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Stop listening and end all connections."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            served = dict(self._served)
        self._wake.send(b"x")
        self._thread.join()
        for stream in served.values():
            stream.close()
        for thread in served:
            thread.join()
        for end in (self._socket, self._wake, self._woken):
            end.close()

    def _accept(self) -> None:
        while self._woken not in wait_until_ready(
            (self._socket, self._woken), selectors.EVENT_READ
        ):
            with contextlib.suppress(OSError):
                self._start(ByteStream(self._socket.accept()[0]))

    def _start(self, stream: ByteStream) -> None:
        thread = threading.Thread(target=self._serve, args=(stream,), daemon=True)
        with self._lock:
            if self._closed:
                stream.close()
                return
            self._served[thread] = stream
        thread.start()

    def _serve(self, stream: ByteStream) -> None:
        try:
            self._handle(stream)
        finally:
            stream.close()
            with self._lock:
                self._served.pop(threading.current_thread(), None)


def wait_until_ready(
    sockets: Sequence[socket.socket], event: int, timeout: float | None = None
) -> list[Any]:
    """Wait until one of ``sockets`` is ready, and return those that are by then."""
    with _Selector() as selector:
        for each in sockets:
            selector.register(each, event)
        return [key.fileobj for key, _ in selector.select(timeout)]


class Leftovers:
    """Nothing: a thread is never cancelled."""

    @contextlib.contextmanager
    def of_cancelled(self, undo: Callable[[], None]) -> Iterator[None]:
        """Run the block."""
        yield

    def wait(self) -> None:
        """Return at once."""


def close_with(owner: object, connections: httpx.Client) -> None:
    """Close the sockets of ``connections`` when ``owner`` is no more; nothing is sent."""
    weakref.finalize(owner, connections.close)


def opens(method: F) -> F:
    """Return ``method``: what it returns can be used with ``with`` as it is."""
    return method


# poll() has no limit on the number of a descriptor and needs none of its own.
_Selector: Any = getattr(selectors, "PollSelector", selectors.SelectSelector)
