"""The connection to one server: requests, retries and errors."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, Union
from urllib.parse import SplitResult, quote, urlsplit

import httpx

from .._archive import read_chunks, replaced
from .._build import build_error, described
from .._connect import SOCKET_OPTIONS, tls_for, uses_proxy
from .._context import pack_context
from .._credentials import find_credentials
from .._decode import decode, format_time
from .._errors import (
    BothyError,
    ConnectionFailedError,
    InvalidArgumentError,
    ServerError,
    error_from_response,
)
from .._io import aio as io
from .._recipe import TemplateRecipe
from .._retry import (
    REFUSED_PATIENCE,
    RETRIES,
    failure_of,
    pause_after_answer,
    pause_after_break,
    was_refused,
)
from .._sse import EventParser
from .._types import (
    AgentAttachment,
    AuditCheck,
    AuditRecord,
    Build,
    BuildEvent,
    Event,
    Limits,
    NetworkArg,
    Project,
    PushedTemplate,
    SandboxMetrics,
    Scope,
    Snapshot,
    SnapshotChanges,
    Template,
    Token,
    UsageReport,
    Webhook,
    WebhookTest,
    network_to_wire,
    secret_to_wire,
)
from .._version import VERSION

if TYPE_CHECKING:
    from ._stream import AsyncEventStream

Local = Union[str, "os.PathLike[str]", IO[bytes]]
"""A file or folder of this computer: its path, or an open file object."""

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
        repeat: Whether the call is sent again where it may have been worked on.
        key: The key, if the call may be repeated later; if empty, a new one is made.
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
    repeat: bool = True
    key: str = ""
    once: bool = False


class AsyncClient:
    """A server and a key, with a connection pool.

    Every method of :class:`AsyncSandbox` that creates or finds sandboxes takes a client;
    without one it makes its own, which is closed with the sandbox. One client may be
    used by many tasks at once, in one event loop.

    Args:
        url: The server's address; otherwise ``BOTHY_URL`` or the file of ``bothy up``.
        api_key: The key; otherwise ``BOTHY_API_KEY`` or the file of ``bothy up``.
        timeout_seconds: How long the server may take to answer an ordinary call.
        max_retries: How often a call that is safe to repeat is retried, by default 4 times, and
            where nothing listens at the address for up to 25 seconds: a server may be restarting.
        transport: Another way to send requests, for tests and proxies.

    Raises:
        CredentialsError: No URL or no key was found.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_seconds: float = 60.0,
        max_retries: int | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._credentials = find_credentials(url, api_key)
        self._timeout_seconds = timeout_seconds
        self._max_retries = RETRIES if max_retries is None else max_retries
        self._refused_patience = REFUSED_PATIENCE if max_retries is None else 0.0
        self._transport = transport
        self._connections: httpx.AsyncClient | None = self._connect()
        self._closed = False
        # The sandboxes that share a client which no user made; the last one closes it.
        self._users: int | None = None
        self._leftovers = io.Leftovers()

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
        if self._users is None:
            await self._leftovers.wait()
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

    async def limits(self) -> Limits:
        """Return what the project's plan allows, and how much of it is in use."""
        return decode(Limits, await self._call(Request("GET", "/v1/limits")))

    async def usage(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        *,
        group_by: str | Sequence[str] = "day",
        project: str | None = None,
        sandbox: str | None = None,
        template: str | None = None,
    ) -> UsageReport:
        """Return usage, and what it costs.

        Args:
            start: From when, with a time zone; the first of this month by default.
            end: Until when, exclusive; now by default.
            group_by: ``day`` or ``hour``, ``project``, ``template``, ``sandbox``, and
                ``label:KEY`` for a key of the metadata: one of them, or several.
            project: Only this project. Only the operator sees projects other than their own.
            sandbox: Only this sandbox and its snapshots.
            template: Only sandboxes of this template.

        Raises:
            InvalidArgumentError: It cannot be grouped like that, or the times are invalid.
            ProjectNotFoundError: There is no such project, or it belongs to someone else.
        """
        params: dict[str, Any] = {
            "from": start and format_time(start.timestamp()),
            "to": end and format_time(end.timestamp()),
            "group_by": group_by if isinstance(group_by, str) else ",".join(group_by),
            "project": project,
            "sandbox": sandbox,
            "template": template,
            "limit": 10_000,
        }
        items: list[Any] = []
        while True:
            wire = await self._call(Request("GET", "/v1/usage", params=without_none(params)))
            items += wire["items"]
            if not wire.get("next_cursor"):
                break
            # The pages that follow are of the same time.
            params |= {"from": wire["from"], "to": wire["to"], "cursor": wire["next_cursor"]}
        whole = {**wire, "items": items, "start": wire["from"], "end": wire["to"]}
        return decode(UsageReport, whole)

    async def templates(self) -> list[Template]:
        """Return the templates that sandboxes can start from, by name."""
        wire = await self._call(Request("GET", "/v1/templates"))
        return [decode(Template, item) for item in wire["items"]]

    async def template(self, name: str) -> Template:
        """Return a template, by its name or by the digest of its image.

        Raises:
            TemplateNotFoundError: There is no such template.
        """
        return decode(Template, await self._call(Request("GET", named("templates", name))))

    async def build_template(
        self,
        name: str,
        *,
        image: str | None = None,
        force: bool = False,
        on_progress: io.Callback[BuildEvent] | None = None,
        recipe: TemplateRecipe | None = None,
        dockerfile: str | None = None,
        context: str | os.PathLike[str] | None = None,
        file: str | None = None,
        args: Mapping[str, str] | None = None,
        target: str | None = None,
        secrets: Mapping[str, str] | None = None,
        registries: Sequence[Mapping[str, str]] = (),
        network: NetworkArg | None = None,
        engine: str | None = None,
        cpu: float | None = None,
        memory_mb: int | None = None,
        disk_mb: int | None = None,
        timeout_seconds: int | None = None,
        shell_on_failure: bool = False,
    ) -> Template:
        """Build a template, and return it when sandboxes can start from it.

        Args:
            name: Its name, with a tag or without. With neither an image, a recipe nor a
                Dockerfile it is that of a built-in template.
            image: An OCI image to make it from.
            force: Build it again although it is there; with a recipe or a Dockerfile, run
                every step again.
            on_progress: Called with each step.
            recipe: What it is made from, such as ``Template("python-3.12").pip("pandas")``.
            dockerfile: The text of a Dockerfile that it is made from; that of the context,
                where only a context is given.
            context: The folder that ``copy`` and COPY take files from. What its
                ``.dockerignore`` names is left out. For a recipe it is the current one.
            file: The path of the Dockerfile in the context, instead of ``Dockerfile``.
            args: Values of the Dockerfile's ARGs.
            target: The stage to make, instead of the last.
            secrets: What ``RUN --mount=type=secret`` shows, by id. They stay in no layer, no
                cache and no log.
            registries: Logins for the images that FROM and COPY --from name: ``host``,
                ``username`` and ``password`` of each. They are in no record and no log.
            network: What commands may reach; ``"restricted"`` with all presets by default.
            engine: The engine that runs commands; the server's by default.
            cpu: The number of processors for commands; 1 by default.
            memory_mb: Their memory; 2048 MiB, or what the plan allows, by default.
            disk_mb: Their disk; 16384 MiB, or what the plan allows, by default.
            timeout_seconds: How long each command may take; 3600 by default.
            shell_on_failure: Where a command fails, leave a sandbox for half an hour with
                what there was before it. The error's hint names it.

        Raises:
            BothyError: The build failed (``template_invalid`` and others).
        """
        if recipe is not None or dockerfile is not None or context is not None:
            if image is not None:
                raise InvalidArgumentError("give an image, a recipe or a Dockerfile; not two")
            build = await self.start_build(
                name,
                recipe=recipe,
                dockerfile=dockerfile,
                context=context,
                file=file,
                args=args,
                target=target,
                secrets=secrets,
                registries=registries,
                network=network,
                engine=engine,
                cpu=cpu,
                memory_mb=memory_mb,
                disk_mb=disk_mb,
                timeout_seconds=timeout_seconds,
                no_cache=force,
                shell_on_failure=shell_on_failure,
            )
            return await self.wait_for_build(build, on_progress=on_progress)
        body = {"name": name, "image": image, "force": force or None}
        headers = {"Accept": "text/event-stream"}
        request = Request(
            "POST", "/v1/templates", json=without_none(body), headers=headers, keyed=False
        )
        response = await self._open(request)
        parser = EventParser()
        try:
            async for chunk in response.aiter_bytes():
                for wire in parser.feed(chunk):
                    event = decode(BuildEvent, wire)
                    if on_progress is not None:
                        await io.call(on_progress, event)
                    if event.template is not None:
                        return event.template
        except httpx.TransportError as error:
            raise failure_of(error, self.url) from error
        finally:
            await response.aclose()
            await self._close_unused()
        raise ConnectionFailedError("the stream of the build's progress broke off")

    async def start_build(
        self,
        name: str,
        *,
        recipe: TemplateRecipe | None = None,
        dockerfile: str | None = None,
        context: str | os.PathLike[str] | None = None,
        file: str | None = None,
        args: Mapping[str, str] | None = None,
        target: str | None = None,
        secrets: Mapping[str, str] | None = None,
        registries: Sequence[Mapping[str, str]] = (),
        network: NetworkArg | None = None,
        engine: str | None = None,
        cpu: float | None = None,
        memory_mb: int | None = None,
        disk_mb: int | None = None,
        timeout_seconds: int | None = None,
        no_cache: bool = False,
        shell_on_failure: bool = False,
    ) -> Build:
        """Start to build a template, and return at once. The build runs on the server.

        The arguments are those of :meth:`build_template`, with ``no_cache`` to run every step
        again. A request that is the same as that of a build under way gets that one.
        """
        options = {
            "file": file,
            "args": args,
            "target": target,
            "engine": engine,
            "cpu": cpu,
            "memory_mb": memory_mb,
            "disk_mb": disk_mb,
            "timeout_seconds": timeout_seconds,
            "no_cache": no_cache or None,
            "shell_on_failure": shell_on_failure or None,
            "network": network_to_wire(network),
            "registries": [dict(login) for login in registries] or None,
            "secrets": secrets and [{"id": i, "value": v} for i, v in secrets.items()],
        }
        body = {**without_none(options), **described(name, recipe, dockerfile)}
        if context is not None or (recipe is not None and recipe.sources):
            folder, ignoring = Path(context or "."), file or "Dockerfile"
            only = None if recipe is None else recipe.sources
            request = Request(
                "POST",
                "/v1/templates/contexts",
                content=lambda: io.chunks(lambda: pack_context(folder, ignoring, only)),
                headers={"Content-Type": "application/x-tar"},
                patience=None,
                keyed=False,
            )
            body["context_id"] = (await self._call(request))["id"]
        return decode(Build, await self._call(Request("POST", "/v1/templates/builds", json=body)))

    async def wait_for_build(
        self, build: Build | str, *, on_progress: io.Callback[BuildEvent] | None = None
    ) -> Template:
        """Follow a build from its beginning to its end, and return what it has made.

        Raises:
            BothyError: The build failed or was cancelled.
        """
        path = named("templates/builds", build if isinstance(build, str) else build.id)
        seen, failures = 0, 0
        while True:
            try:
                async for number, event in self._build_log(path, seen):
                    seen, failures = number + 1, 0
                    if on_progress is not None:
                        await io.call(on_progress, event)
                    if event.template is not None:
                        return event.template
                ended = decode(Build, await self._call(Request("GET", path)))
                if ended.state in ("failed", "cancelled"):
                    raise build_error(ended)
            except ConnectionFailedError:
                if failures >= self._max_retries:
                    raise
            await io.sleep(0.1 * 2**failures)
            failures += 1

    async def _build_log(
        self, path: str, start: int
    ) -> AsyncGenerator[tuple[int, BuildEvent], None]:
        headers = {"Accept": "text/event-stream"}
        request = Request("GET", f"{path}/logs", params={"from": start}, headers=headers)
        response = await self._open(request)
        parser = EventParser()
        try:
            async for chunk in response.aiter_bytes():
                for wire in parser.feed(chunk):
                    yield int(parser.last_id), decode(BuildEvent, wire)
        except httpx.TransportError as error:
            raise failure_of(error, self.url) from error
        finally:
            await response.aclose()

    async def builds(self) -> list[Build]:
        """Return the project's builds from recipes and Dockerfiles, newest first."""
        wire = await self._call(Request("GET", "/v1/templates/builds"))
        return [decode(Build, item) for item in wire["items"]]

    async def build(self, build: str) -> Build:
        """Return a build by its id.

        Raises:
            NotFoundError: There is no such build.
        """
        return decode(Build, await self._call(Request("GET", named("templates/builds", build))))

    async def cancel_build(self, build: Build | str) -> Build:
        """End a build in progress. Only its log is left."""
        path = named("templates/builds", build if isinstance(build, str) else build.id)
        return decode(Build, await self._call(Request("DELETE", path)))

    async def tag_template(self, name: str, *tags: str) -> list[Template]:
        """Give a template of the project more tags, and return the template for each.

        A tag moves from the image that had it before; sandboxes started from that one stay as
        they are.

        Args:
            name: NAME, NAME:TAG or NAME@DIGEST.
            tags: Such as ``"stable"``.

        Raises:
            TemplateNotFoundError: There is no such template.
            ForbiddenError: It is for all projects, and the key is not the operator's.
        """
        answer = await self._call(
            Request("POST", named("templates", name) + "/tags", json={"tags": list(tags)})
        )
        return [decode(Template, item) for item in answer["items"]]

    async def template_sbom(
        self, name: str, format: Literal["spdx", "cyclonedx"] = "spdx"
    ) -> dict[str, Any]:
        """Return what package managers installed in a template, for scanners.

        Args:
            name: The template.
            format: ``"spdx"`` for SPDX 2.3, or ``"cyclonedx"`` for CycloneDX 1.6.

        Raises:
            TemplateNotFoundError: There is no such template.
        """
        path = named("sboms", name)
        sbom: dict[str, Any] = await self._call(Request("GET", path, params={"format": format}))
        return sbom

    async def template_provenance(self, name: str) -> dict[str, Any]:
        """Return how a template was made, and from what.

        It is an in-toto statement with SLSA provenance 1.0, as the server recorded it.

        Args:
            name: The template.

        Raises:
            TemplateNotFoundError: There is no such template.
            NotFoundError: An earlier version of the server made it, and recorded nothing.
        """
        statement: dict[str, Any] = await self._call(Request("GET", named("provenance", name)))
        return statement

    async def push_template(
        self, name: str, reference: str, *, registries: Sequence[Mapping[str, str]] = ()
    ) -> PushedTemplate:
        """Write a template to a registry, as an image that any container engine can run.

        Args:
            name: The template.
            reference: The destination, such as ``"registry.example.com/team/app:v3"``.
            registries: The login for that registry: ``host``, ``username`` and ``password``.

        Raises:
            TemplateNotFoundError: There is no such template.
            InvalidArgumentError: The registry does not accept it.
        """
        body: dict[str, Any] = {"reference": reference}
        if registries:
            body["registries"] = [dict(login) for login in registries]
        path = named("templates", name) + "/push"
        request = Request("POST", path, json=body, patience=None, keyed=False)
        return decode(PushedTemplate, await self._call(request))

    async def delete_template(self, name: str) -> None:
        """Delete a template.

        Raises:
            ConflictError: A sandbox or a snapshot needs it (``template_in_use``).
        """
        await self._call(Request("DELETE", named("templates", name)))

    async def snapshots(
        self, *, sandbox_id: str | None = None, name: str | None = None, limit: int | None = None
    ) -> list[Snapshot]:
        """Return the project's snapshots, newest first.

        Args:
            sandbox_id: Only those of this sandbox.
            name: Only those with this name.
            limit: At most this many; all by default.
        """
        params = {"sandbox_id": sandbox_id, "name": name}
        return [decode(Snapshot, s) for s in await self._pages("/v1/snapshots", params, limit)]

    async def snapshot(self, snapshot_id: str) -> Snapshot:
        """Return a snapshot by its id.

        Raises:
            SnapshotNotFoundError: There is none with this id.
        """
        return decode(Snapshot, await self._call(Request("GET", named("snapshots", snapshot_id))))

    async def snapshot_changes(
        self, snapshot: Snapshot | str, since: Snapshot | str, *, limit: int = 1000
    ) -> SnapshotChanges:
        """Return the files that were added, changed or removed from one snapshot to another.

        Args:
            snapshot: The later snapshot or its id.
            since: The earlier one or its id.
            limit: At most this many, up to 10000.

        Raises:
            SnapshotNotFoundError: There is none with one of the ids.
        """
        path = named("snapshots", snapshot_id_of(snapshot)) + "/changes"
        params = {"since": snapshot_id_of(since), "limit": limit}
        return decode(SnapshotChanges, await self._call(Request("GET", path, params=params)))

    async def export_snapshot(
        self, snapshot: Snapshot | str, target: Local, *, passphrase: str | None = None
    ) -> None:
        """Write a snapshot to one file, of any size, to be imported on another server.

        Args:
            snapshot: The snapshot or its id.
            target: The path of the file, which is there when it is whole and not before, or a
                file object.
            passphrase: Encrypts the file, which holds all memory and files of the sandbox.
        """
        path = named("snapshots", snapshot_id_of(snapshot)) + "/export"
        request = Request("GET", path, headers=sealed(passphrase), patience=None)
        response = await self._open(request)
        try:
            if isinstance(target, (str, os.PathLike)):
                with replaced(Path(target)) as file:
                    await self._copy(response, file)
            else:
                await self._copy(response, target)
        finally:
            await response.aclose()
            await self._close_unused()

    async def import_snapshot(
        self, source: Local, *, name: str | None = None, passphrase: str | None = None
    ) -> Snapshot:
        """Read a file that :meth:`export_snapshot` wrote, and return it as a new snapshot.

        Every byte is checked before the snapshot is there. Memory and processes are kept
        only of a file that this server signed, or one that its operator trusts; of any
        other, ``kind`` is ``"files"`` and ``detail`` says why.

        Args:
            source: The path of the file, or a file object.
            name: A name for the snapshot, instead of the one that it had.
            passphrase: The one that it was exported with.

        Raises:
            BothyError: It is damaged, not such a file, or the passphrase is another's; there
                is no room for it (``quota_exceeded``, ``disk_full``); or too many are under way
                (``rate_limited``, ``capacity``).
        """

        def read() -> Iterator[bytes]:
            if not isinstance(source, (str, os.PathLike)):
                yield from read_chunks(source)
                return
            with Path(source).open("rb") as file:
                yield from read_chunks(file)

        headers = {"Content-Type": "application/octet-stream", **sealed(passphrase)}
        request = Request(
            "POST",
            "/v1/snapshots/import",
            params={"name": name},
            content=lambda: io.chunks(read),
            headers=headers,
            patience=None,
            keyed=False,
            once=True,
        )
        return decode(Snapshot, await self._call(request))

    async def delete_snapshot(self, snapshot: Snapshot | str) -> None:
        """Delete a snapshot, given itself or its id.

        Raises:
            ConflictError: A paused sandbox needs it (``snapshot_in_use``).
        """
        await self._call(Request("DELETE", named("snapshots", snapshot_id_of(snapshot))))

    async def tokens(self) -> list[Token]:
        """Return the keys of the server, without their secrets. For administrators."""
        wire = await self._call(Request("GET", "/v1/tokens"))
        return [decode(Token, item) for item in wire["items"]]

    async def create_token(
        self,
        name: str | None = None,
        *,
        project: str | None = None,
        scopes: Sequence[Scope] | None = None,
        expires_at: datetime | None = None,
    ) -> Token:
        """Create a key, and return it with its secret, which is shown only here.

        Args:
            name: A name to recognise it by.
            project: The project that it is for; the caller's by default.
            scopes: What it may do; by default everything that has to do with sandboxes.
            expires_at: When it becomes invalid, which must have a time zone; never where
                not given.

        Raises:
            ForbiddenError: The client's own key is not an administrator's.
        """
        body = {
            "name": name,
            "project": project,
            "scopes": scopes and list(scopes),
            "expires_at": expires_at and format_time(expires_at.timestamp()),
        }
        wire = await self._call(Request("POST", "/v1/tokens", json=without_none(body)))
        return decode(Token, wire)

    async def delete_token(self, token: Token | str) -> None:
        """Revoke a key immediately, given itself or its id (not its secret)."""
        token_id = token if isinstance(token, str) else token.id
        await self._call(Request("DELETE", named("tokens", token_id)))

    async def projects(self) -> list[Project]:
        """Return the server's projects: all for the operator, and their own for others."""
        wire = await self._call(Request("GET", "/v1/projects"))
        return [decode(Project, item) for item in wire["items"]]

    async def project(self, project_id: str) -> Project:
        """Return a project by its id.

        Raises:
            ProjectNotFoundError: There is no such project, or it belongs to someone else.
        """
        return decode(Project, await self._call(Request("GET", named("projects", project_id))))

    async def create_project(
        self, project_id: str, *, plan: str | None = None, budget: float | None = None
    ) -> Project:
        """Create a project. For the operator.

        Args:
            project_id: Its name.
            plan: The plan that limits it: ``starter`` by default, ``pro``, ``team`` or
                ``unlimited``.
            budget: What it may spend in a month, in the currency of the server's rates; no
                limit by default.

        Raises:
            ConflictError: There is one with this name.
            ForbiddenError: The client's own key is not the operator's.
        """
        body = without_none({"id": project_id, "plan": plan, "budget": budget})
        return decode(Project, await self._call(Request("POST", "/v1/projects", json=body)))

    async def update_project(
        self, project_id: str, *, plan: str | None = None, budget: float | None = None
    ) -> Project:
        """Change a project, and return it. For the operator.

        A smaller plan leaves running sandboxes alone; it only refuses more.

        Args:
            project_id: Its name.
            plan: Another plan.
            budget: What it may spend in a month; 0 removes the limit.

        Raises:
            ProjectNotFoundError: There is no such project.
            ForbiddenError: The client's own key is not the operator's.
        """
        body = without_none({"plan": plan, "budget": budget})
        request = Request("PATCH", named("projects", project_id), json=body)
        return decode(Project, await self._call(request))

    async def attach_agents(
        self,
        environment: str,
        key: str,
        *,
        tools: Mapping[str, str] | None = None,
        max_sessions: int | None = None,
        agents_url: str | None = None,
        **sandbox: Any,
    ) -> AgentAttachment:
        """Have the server work for a self-hosted environment of Claude Managed Agents.

        Each session gets a sandbox, in which its tools run. An environment that is attached
        gets the new key and choices, and its sessions continue.

        Args:
            environment: Its id.
            key: Its key. The server keeps it encrypted, and shows it to no one.
            tools: Tools of the agent's own: for each name the command in the sandbox, which
                gets the input as JSON and prints the result.
            max_sessions: How many sessions are served at once; 10 by default.
            agents_url: The service, if it is not Anthropic's.
            **sandbox: What a session's sandbox is made from, as for :meth:`AsyncSandbox.create`.

        Raises:
            InvalidArgumentError: A value is invalid.
            TemplateNotFoundError: There is no such template.
            ForbiddenError: The client's own key lacks the scope ``admin``.
        """
        made = dict(sandbox)
        if "network" in made:
            made["network"] = network_to_wire(made["network"])
        if made.get("secrets"):
            made["secrets"] = [secret_to_wire(s) for s in made["secrets"]]
        commands = (tools or {}).items()
        body = {
            "environment": environment,
            "key": key,
            "url": agents_url,
            "tools": [{"name": n, "command": c} for n, c in commands] or None,
            "max_sessions": max_sessions,
            "sandbox": without_none(made) or None,
        }
        wire = await self._call(Request("POST", "/v1/agents", json=without_none(body)))
        return decode(AgentAttachment, wire)

    async def agent_attachments(self) -> list[AgentAttachment]:
        """Return the environments that the server works for, oldest first."""
        wire = await self._call(Request("GET", "/v1/agents"))
        return [decode(AgentAttachment, item) for item in wire["items"]]

    async def agent_attachment(self, attachment_id: str) -> AgentAttachment:
        """Return an attached environment, by its attachment's id or its own.

        Raises:
            NotFoundError: It is not attached.
        """
        wire = await self._call(Request("GET", named("agents", attachment_id)))
        return decode(AgentAttachment, wire)

    async def detach_agents(self, attachment: AgentAttachment | str) -> None:
        """Stop working for an environment, given the attachment or its id.

        The key is deleted, and the sandboxes of its sessions are paused.
        """
        found = attachment if isinstance(attachment, str) else attachment.id
        await self._call(Request("DELETE", named("agents", found)))

    async def webhooks(self) -> list[Webhook]:
        """Return the project's webhooks, oldest first."""
        wire = await self._call(Request("GET", "/v1/webhooks"))
        return [decode(Webhook, item) for item in wire["items"]]

    async def webhook(self, webhook_id: str) -> Webhook:
        """Return a webhook by its id, with the state of its deliveries.

        Raises:
            NotFoundError: There is no such webhook.
        """
        return decode(Webhook, await self._call(Request("GET", named("webhooks", webhook_id))))

    async def create_webhook(
        self,
        url: str,
        *,
        events: Sequence[str] = (),
        name: str = "",
        secret: str = "",
        disabled: bool = False,
    ) -> Webhook:
        """Make a webhook, to which the project's events from now on are sent, and return it.

        Only here does it have its secret. For administrators.

        Args:
            url: Where to send events, by http or https.
            events: The types to send, such as ``sandbox.ended``; all where empty.
            name: A name for people.
            secret: What requests are signed with, 8 to 512 characters; generated by default.
            disabled: Send nothing until it is enabled.

        Raises:
            InvalidArgumentError: The address, or an event type, is invalid.
            ForbiddenError: The client's own key is not an administrator's.
        """
        body = {"url": url, "events": list(events), "name": name, "secret": secret}
        wire = await self._call(
            Request("POST", "/v1/webhooks", json={**body, "disabled": disabled})
        )
        return decode(Webhook, wire)

    async def update_webhook(
        self,
        webhook: Webhook | str,
        *,
        url: str | None = None,
        events: Sequence[str] | None = None,
        name: str | None = None,
        secret: str | None = None,
        enabled: bool | None = None,
    ) -> Webhook:
        """Change a webhook, given itself or its id, and return it.

        Pending events are retried at once; an enabled webhook continues where it stopped.

        Args:
            webhook: The webhook.
            url: Another address.
            events: The types to send; all where empty.
            name: Another name.
            secret: Another secret.
            enabled: Whether to send events.

        Raises:
            NotFoundError: There is no such webhook.
        """
        types = None if events is None else list(events)
        body = {"url": url, "events": types, "name": name, "secret": secret, "enabled": enabled}
        request = Request("PATCH", _webhook_path(webhook), json=without_none(body))
        return decode(Webhook, await self._call(request))

    async def delete_webhook(self, webhook: Webhook | str) -> None:
        """Delete a webhook, given itself or its id."""
        await self._call(Request("DELETE", _webhook_path(webhook)))

    async def test_webhook(self, webhook: Webhook | str) -> WebhookTest:
        """Send an event of the type ``webhook.test``, once, and return the receiver's answer."""
        wire = await self._call(Request("POST", _webhook_path(webhook) + "/test"))
        return decode(WebhookTest, wire)

    async def audit(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        *,
        action: str | None = None,
        token: Token | str | None = None,
        sandbox: str | None = None,
        project: str | None = None,
        refused: bool = False,
        oldest: bool = False,
        after: int | None = None,
        limit: int | None = None,
    ) -> list[AuditRecord]:
        """Return who did what, newest first. For administrators.

        The operator sees all projects, and what no key was recognised for; others see their
        own project.

        Args:
            start: Only from this time on, which must have a time zone.
            end: Only before this time.
            action: Only this action, such as ``exec`` or ``mcp:run_shell``.
            token: Only what this key did, given itself or its id.
            sandbox: Only what was done to the sandbox with this id.
            project: Only this project.
            refused: Only requests answered with 401, 403 or 404.
            oldest: The oldest first.
            after: Continue after the record with this id, in the requested order.
            limit: At most this many; all by default.

        Raises:
            ForbiddenError: The client's own key is not an administrator's.
        """
        params = {
            "since": start and format_time(start.timestamp()),
            "until": end and format_time(end.timestamp()),
            "action": action,
            "token": token.id if isinstance(token, Token) else token,
            "sandbox": sandbox,
            "project": project,
            "refused": "true" if refused else None,
            "order": "oldest" if oldest else None,
            "cursor": after,
        }
        pages = self._pages("/v1/audit", params, limit)
        return [decode(AuditRecord, item) for item in await pages]

    async def check_audit(self, *, at: int = 0, head: str | None = None) -> AuditCheck:
        """Check that the audit was not altered. For the operator.

        Args:
            at: The id of a record whose hash was kept elsewhere.
            head: That hash: nothing up to there may have been rewritten.

        Raises:
            ForbiddenError: The client's own key is not the operator's.
        """
        params = {"at": at, "head": head} if head else None
        return decode(
            AuditCheck, await self._call(Request("GET", "/v1/audit/verify", params=params))
        )

    async def metrics(self) -> list[SandboxMetrics]:
        """Return the latest measurement of every running sandbox.

        They are measured every ten seconds.
        """
        wire = await self._call(Request("GET", "/v1/metrics"))
        return [decode(SandboxMetrics, item) for item in wire["items"]]

    async def last_event(self) -> int:
        """Return an id above which are only events that happen from now on."""
        wire = await self._call(Request("GET", "/v1/events", params={"new": "true"}))
        return int(wire["next_cursor"])

    async def events(self, since: int = 0, *, sandbox: str | None = None) -> list[Event]:
        """Return what happened in the project, oldest first.

        Args:
            since: Only events with an id above this one.
            sandbox: Only events of the sandbox with this id.
        """
        params = {"since": since, "sandbox_id": sandbox}
        pages = self._pages("/v1/events", params, None, cursor_name="since")
        return [decode(Event, item) for item in await pages]

    def watch_events(
        self, since: int = 0, *, sandbox: str | None = None
    ) -> AsyncEventStream[Event]:
        """Iterate over the project's events, past and new.

        Args:
            since: Only events with an id above this one.
            sandbox: Only events of the sandbox with this id.
        """
        from ._stream import AsyncEventStream, decoder, stream_request  # needs this module itself

        params = {"since": since, "sandbox_id": sandbox}
        request = stream_request("GET", "/v1/events", params=params)
        return AsyncEventStream(self, request, decoder(Event))

    async def _copy(self, response: httpx.Response, file: IO[bytes]) -> None:
        try:
            async for chunk in response.aiter_bytes():
                await io.run(file.write, chunk)
        except httpx.TransportError as error:
            raise failure_of(error, self.url) from error

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
        keyed = request.keyed and request.method in _KEYED
        key = (request.key or new_key()) if keyed else None
        safe = request.method in _REPEATABLE or key is not None
        repeatable = safe and request.repeat and not request.once
        attempt, waited = 0, 0.0
        seconds = self._seconds(request.patience)
        most = self._refused_patience if seconds is None else min(self._refused_patience, seconds)
        while True:
            refused = False
            try:
                response = await self._send(request, key)
            except httpx.TransportError as error:
                refused = was_refused(error)
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
            if pause is None:
                raise failure from cause
            if attempt >= self._max_retries and not (refused and waited + pause <= most):
                raise failure from cause
            await io.sleep(pause)
            attempt += 1
            waited += pause

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
            headers=httpx.Headers(headers, encoding="utf-8"),
            timeout=self._limits(request.patience),
        )
        return await connections.send(built, stream=True)

    def _seconds(self, patience: Patience) -> float | None:
        return self._timeout_seconds if patience == "default" else patience

    def _limits(self, patience: Patience) -> httpx.Timeout:
        return httpx.Timeout(self._seconds(patience), connect=CONNECT_TIMEOUT_SECONDS, pool=None)

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


def new_key() -> str:
    """Return a unique idempotency key."""
    return uuid.uuid4().hex


def parse_json(body: bytes) -> Any:
    """Return the value of a JSON answer.

    Raises:
        ServerError: It is not JSON, so it does not come from a Bothy server.
    """
    try:
        return json.loads(body)
    except ValueError as error:
        text = body[:100].decode("utf-8", "replace")
        hint = "Does BOTHY_URL name a Bothy server?"
        raise ServerError(f"the answer is not JSON: {text!r}", hint=hint) from error


def named(kind: str, name: str) -> str:
    """Return the path of one thing of a kind, such as ``snapshots``."""
    return f"/v1/{kind}/{quote(name, safe='')}"


def snapshot_id_of(snapshot: Snapshot | str) -> str:
    """Return the id of a snapshot that is given by itself or by its id."""
    return snapshot if isinstance(snapshot, str) else snapshot.id


def _webhook_path(webhook: Webhook | str) -> str:
    return named("webhooks", webhook if isinstance(webhook, str) else webhook.id)


def sealed(passphrase: str | None) -> dict[str, str]:
    """Return the header that encrypts a snapshot's file, or opens an encrypted one."""
    return {} if passphrase is None else {"X-Bothy-Passphrase": passphrase}


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
