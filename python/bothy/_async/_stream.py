"""Streams of events from the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Generic, TypeVar

import httpx

from .._decode import decode
from .._errors import ConnectionFailedError
from .._output import EventDecoder
from .._retry import failure_of
from .._sse import EventParser
from .._types import ExecEvent
from ._client import AsyncClient, Request

T = TypeVar("T")

STREAM_PATIENCE = 60.0
"""Seconds of silence to bear; the server shows every 15 seconds that it lives."""


class AsyncEventStream(Generic[T]):
    """Events as they arrive. Iterate over it once; close it, or use ``async with``, to leave.

    The call to the server is made on entering it or on the first event.
    """

    def __init__(
        self, client: AsyncClient, request: Request, convert: Callable[[dict[str, Any]], T | None]
    ) -> None:
        self._client = client
        self._request = request
        self._convert = convert
        self._response: httpx.Response | None = None
        self._events: AsyncGenerator[T, None] | None = None

    def __aiter__(self) -> AsyncIterator[T]:
        # A plain loop alone holds its events: when it is left they are closed. If this
        # held them too, that would wait for the garbage collector, which comes at any
        # moment, also while the connections are locked that closing wants to lock.
        return self._receive() if self._events is None else self

    async def __anext__(self) -> T:
        if self._events is None:
            self._events = self._receive()
        return await self._events.__anext__()

    async def __aenter__(self) -> AsyncEventStream[T]:
        await self._start()
        self._events = self._receive()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the stream. Closing it twice does nothing."""
        if self._events is not None:
            await self._events.aclose()
        if self._response is not None:
            await self._response.aclose()

    async def _start(self) -> httpx.Response:
        if self._response is None:
            self._response = await self._client._open(self._request)
        return self._response

    async def _receive(self) -> AsyncGenerator[T, None]:
        response = await self._start()
        try:
            async with aclosing(self._wire_events(response)) as events:
                async for wire in events:
                    event = self._convert(wire)
                    if event is not None:
                        yield event
        finally:
            await response.aclose()

    async def _wire_events(self, response: httpx.Response) -> AsyncGenerator[dict[str, Any], None]:
        parser = EventParser()
        try:
            async for chunk in response.aiter_bytes():
                for event in parser.feed(chunk):
                    yield event
                self._alive()
        except httpx.TransportError as error:
            raise failure_of(error, self._client.url) from error

    def _alive(self) -> None:
        """Called whenever something has arrived, be it a sign of life."""


class AsyncExecStream(AsyncEventStream[ExecEvent]):
    """The output of a running command as it is written, and then its end.

    The command starts on entering the stream or on the first event. Leaving the stream
    before its end kills the command.
    """

    def __init__(self, client: AsyncClient, request: Request) -> None:
        super().__init__(client, request, EventDecoder().decode)

    async def __aenter__(self) -> AsyncExecStream:
        await super().__aenter__()
        return self

    async def _receive(self) -> AsyncGenerator[ExecEvent, None]:
        ended = False
        async with aclosing(super()._receive()) as events:
            async for event in events:
                ended = event.is_final
                yield event
        if not ended:
            raise ConnectionFailedError("the stream of the command's output broke off")


def stream_request(method: str, path: str, **more: Any) -> Request:
    """Return a request that is answered with events, and sent once only."""
    headers = {"Accept": "text/event-stream"}
    return Request(method, path, headers=headers, **{"patience": STREAM_PATIENCE} | more)


def decoder(cls: type[T]) -> Callable[[dict[str, Any]], T]:
    """Return a function that makes a ``cls`` of a JSON object."""

    def convert(wire: dict[str, Any]) -> T:
        return decode(cls, wire)

    return convert
