"""The connection to one server: requests, retries and errors."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Union
from urllib.parse import SplitResult, quote, urlsplit

import httpx

from .._connect import SOCKET_OPTIONS, tls_for, uses_proxy
from .._credentials import find_credentials
from .._decode import decode
from .._errors import BothyError, ServerError, error_from_response
from .._io import aio as io
from .._retry import failure_of, pause_after_answer, pause_after_break
from .._types import Event, Snapshot, Template
from .._version import VERSION

Content = Union[bytes, Callable[[], AsyncIterator[bytes]], None]
"""A request's body: bytes, or a function that starts to read it from the beginning."""

Patience = Union[float, None, Literal["default"]]
"""Seconds of silence to bear: a number, ``None`` for ever, or what the client is set to."""

CONNECT_TIMEOUT_SECONDS = 10.0
PAGE_SIZE = 1000

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=60.0)

_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_KEYED = frozenset({"POST", "PATCH"})


@dataclass(frozen=True, slots=True)
class Request:
    """One call of the REST API, before it is sent.

    Attributes:
        patience: How long the server may be silent.
        keyed: Whether an idempotency key makes the call safe to repeat.
        once: The body cannot be read twice.
    """

    method: str
    path: str
    params: Mapping[str, Any] | None = None
    json: Any = field(default=None, repr=False)
    content: Content = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    patience: Patience = "default"
    keyed: bool = True
    once: bool = False


class AsyncClient:
    """A server and a key, with connections that are used again.

    Every method of :class:`AsyncSandbox` that makes or finds sandboxes takes a client;
    without one it makes its own, which is closed with the sandbox. One client may be
    used by many tasks at once, in one event loop.

    Args:
        url: The server's address; otherwise ``BOTHY_URL`` or the file of ``bothy up``.
        api_key: The key; otherwise ``BOTHY_API_KEY`` or the file of ``bothy up``.
        timeout_seconds: How long the server may take to answer an ordinary call.
        max_retries: How often a call that is safe to repeat is repeated.
        transport: Another way to send requests, for tests and proxies.

    Raises:
        CredentialsError: The URL or the key was found nowhere.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_seconds: float = 60.0,
        max_retries: int = 4,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._credentials = find_credentials(url, api_key)
        self._timeout_seconds = timeout_seconds
        self._max_retries = max_retries
        self._transport = transport
        self._connections: httpx.AsyncClient | None = self._connect()
        self._closed = False
        # The sandboxes that share a client which no user made; the last one closes it.
        self._users: int | None = None

    @property
    def url(self) -> str:
        """The server's address, without a slash at the end."""
        return self._credentials.url

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Sandboxes are left as they are."""
        self._closed = self._users is None
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
    ) -> Any:
        """Call the REST API directly and return the decoded JSON, or ``None`` for no content.

        Args:
            method: The HTTP method.
            path: The path with its version, such as ``/v1/usage``.
            params: Query parameters; those that are ``None`` are left out.
            json: What to send as the body.

        Raises:
            BothyError: The child that the server's answer stands for.
        """
        return await self._call(Request(method, path, params=params, json=json))

    async def templates(self) -> list[Template]:
        """Return the templates that sandboxes can start from, by name."""
        wire = await self._call(Request("GET", "/v1/templates"))
        return [decode(Template, item) for item in wire["items"]]

    async def snapshots(
        self, *, sandbox_id: str | None = None, name: str | None = None, limit: int | None = None
    ) -> list[Snapshot]:
        """Return the project's snapshots, newest first.

        Args:
            sandbox_id: Only those of this sandbox.
            name: Only those with this name.
            limit: At most so many; all where not given.
        """
        params = {"sandbox_id": sandbox_id, "name": name}
        return [decode(Snapshot, s) for s in await self._pages("/v1/snapshots", params, limit)]

    async def delete_snapshot(self, snapshot: Snapshot | str) -> None:
        """Delete a snapshot, given itself or its id.

        Raises:
            ConflictError: A paused sandbox sleeps in it (``snapshot_in_use``).
        """
        snapshot_id = snapshot if isinstance(snapshot, str) else snapshot.id
        await self._call(Request("DELETE", f"/v1/snapshots/{quote(snapshot_id, safe='')}"))

    async def events(self, since: int = 0) -> list[Event]:
        """Return what happened in the project, oldest first.

        Args:
            since: Only events with an id above this one.
        """
        pages = self._pages("/v1/events", {"since": since}, None, cursor_name="since")
        return [decode(Event, item) for item in await pages]

    async def _call(self, request: Request) -> Any:
        try:
            body = await self._read(await self._open(request))
        finally:
            await self._close_unused()
        return parse_json(body) if body else None

    async def _read(self, response: httpx.Response) -> bytes:
        try:
            return await response.aread()
        except httpx.TransportError as error:
            raise failure_of(error, self.url) from error
        finally:
            await response.aclose()

    async def _pages(
        self, path: str, params: Mapping[str, Any], limit: int | None, cursor_name: str = "cursor"
    ) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        asked = dict(params)
        while limit is None or len(items) < limit:
            asked["limit"] = PAGE_SIZE if limit is None else min(limit - len(items), PAGE_SIZE)
            page = await self._call(Request("GET", path, params=asked))
            items += page.get("items") or []
            asked[cursor_name] = page.get("next_cursor")
            if not asked[cursor_name]:
                break
        return items

    async def _open(self, request: Request) -> httpx.Response:
        """Send ``request`` and return the answer with its body unread; the caller closes it."""
        key = uuid.uuid4().hex if request.keyed and request.method in _KEYED else None
        repeatable = (request.method in _REPEATABLE or key is not None) and not request.once
        attempt = 0
        while True:
            try:
                response = await self._send(request, key)
            except httpx.TransportError as error:
                failure = failure_of(error, self.url)
                pause = pause_after_break(error, attempt, repeatable=repeatable)
                cause: Exception | None = error
            else:
                if response.status_code < 400:
                    return response
                failure = await _failure(response)
                pause = pause_after_answer(
                    failure, attempt, repeatable=repeatable, once=request.once
                )
                cause = None
            if pause is None or attempt >= self._max_retries:
                raise failure from cause
            await io.sleep(pause)
            attempt += 1

    async def _send(self, request: Request, key: str | None) -> httpx.Response:
        connections = self._connected()
        headers = {**request.headers, **({"Idempotency-Key": key} if key else {})}
        body = request.content() if callable(request.content) else request.content
        built = connections.build_request(
            request.method,
            self.url + request.path,
            params=present(request.params),
            json=request.json,
            content=body,
            headers=headers,
            timeout=self._limits(request.patience),
        )
        return await connections.send(built, stream=True)

    def _limits(self, patience: Patience) -> httpx.Timeout:
        seconds = self._timeout_seconds if patience == "default" else patience
        return httpx.Timeout(seconds, connect=CONNECT_TIMEOUT_SECONDS, pool=None)

    def _connected(self) -> httpx.AsyncClient:
        if self._closed:
            raise BothyError("the client is closed", code="client_closed")
        if self._connections is None:
            self._connections = self._connect()
        return self._connections

    def _connect(self) -> httpx.AsyncClient:
        url = urlsplit(self.url)
        connections = httpx.AsyncClient(
            headers=self._headers(),
            verify=tls_for(url) or False,
            limits=LIMITS,
            trust_env=uses_proxy(url),
            transport=self._transport or direct_transport(url),
        )
        io.close_with(self, connections)
        return connections

    def _headers(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self._credentials.api_key}",
            "User-Agent": f"bothy-python/{VERSION}",
        }

    def _join(self) -> AsyncClient:
        if self._users is not None:
            self._users += 1
        return self

    async def _leave(self) -> None:
        if self._users is not None:
            self._users -= 1
            await self._close_unused()

    async def _close_unused(self) -> None:
        # A sandbox can still be asked how it is after its end: that opens a connection again.
        if self._users is not None and self._users <= 0:
            await self.close()


@asynccontextmanager
async def borrowed(
    client: AsyncClient | None, url: str | None, api_key: str | None
) -> AsyncIterator[AsyncClient]:
    """Lend ``client``, or a new one that the sandboxes made in the block own together."""
    if client is not None:
        yield client
        return
    client = AsyncClient(url, api_key)
    client._users = 1
    try:
        yield client
    finally:
        await client._leave()


async def _failure(response: httpx.Response) -> BothyError:
    try:
        body = await response.aread()
    except httpx.TransportError:
        body = b""
    finally:
        await response.aclose()
    return error_from_response(response.status_code, response.headers, body)


def direct_transport(url: SplitResult) -> httpx.AsyncHTTPTransport | None:
    """Return a way to the server without a proxy, or ``None`` where there may be one."""
    if uses_proxy(url):
        return None
    verify = tls_for(url) or False
    return httpx.AsyncHTTPTransport(verify=verify, limits=LIMITS, socket_options=SOCKET_OPTIONS)


def parse_json(body: bytes) -> Any:
    """Return the value of a JSON answer.

    Raises:
        ServerError: It is not JSON, so it does not come from the server that was meant.
    """
    try:
        return json.loads(body)
    except ValueError as error:
        text = body[:100].decode("utf-8", "replace")
        hint = "Does BOTHY_URL name a Bothy server?"
        raise ServerError(f"the answer is not JSON: {text!r}", hint=hint) from error


def without_none(body: dict[str, Any]) -> dict[str, Any]:
    """Return ``body`` without what was not given."""
    return {key: value for key, value in body.items() if value is not None}


def present(params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the query parameters that were given, as text."""
    if params is None:
        return None
    return {name: _text(value) for name, value in params.items() if value is not None}


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
