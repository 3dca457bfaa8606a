"""A sandbox, from its creation to its end."""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import shlex
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .._decode import decode, format_time
from .._errors import BothyError, InvalidArgumentError, RequestTimeoutError, SandboxPausedError
from .._io import aio as io
from .._types import (
    CodeContext,
    CodeResult,
    Command,
    CreateOptions,
    Durable,
    Endpoint,
    Event,
    ExecResult,
    Language,
    Limits,
    Link,
    LinkKind,
    Logs,
    Metrics,
    NetworkArg,
    NetworkDecision,
    OnHostLoss,
    OnTimeout,
    ProcessInfo,
    SandboxInfo,
    Secret,
    Size,
    Snapshot,
    State,
    Template,
    UsageReport,
    network_to_wire,
    secret_to_wire,
)
from ._browser import AsyncBrowser
from ._client import AsyncClient, Patience, Request, borrowed, new_key, without_none
from ._code import AsyncContexts, context_id, follow_code
from ._files import AsyncFiles
from ._forward import AsyncForward
from ._process import AsyncProcess, collect
from ._shell import AsyncShell
from ._socket import AsyncWebSocket
from ._stream import AsyncEventStream, AsyncExecStream, decoder, stream_request
from ._terminal import AsyncTerminal

if TYPE_CHECKING:
    from typing_extensions import Unpack

LIVE_STATES: Sequence[State] = (
    "starting",
    "running",
    "pausing",
    "paused",
    "resuming",
    "stopping",
)
"""The states of sandboxes that have not ended."""

START_SECONDS = 300.0
"""How long the server may take to make, wake or copy a sandbox."""

CLONE_SECONDS = 240.0
"""How much longer it may take with a repository."""

WAIT_SECONDS = 60.0
"""How long to wait for something in a sandbox, unless told otherwise."""

AT_ONCE = 16
"""How many calls for many sandboxes are made at the same time."""

UNDO_SECONDS = 30.0
"""How long it may take to say what it has made for a caller who did not wait for it."""


class AsyncSandbox:
    """A disposable, isolated Linux machine.

    Make one with :meth:`create`, or find one with :meth:`get`, :meth:`list` and
    :meth:`resume`. Used with ``async with``, it is terminated at the end of the block,
    also when the block raises.

    Attributes:
        files: The files of the sandbox.
        contexts: Where code runs and variables stay.
        browser: The browser of a sandbox from the template ``browser``.
    """

    def __init__(self, client: AsyncClient, info: SandboxInfo) -> None:
        self._client = client._join()
        self._left = False
        self._info = info
        self.files = AsyncFiles(self)
        self.contexts = AsyncContexts(self)
        self.browser = AsyncBrowser(self)

    @classmethod
    @io.opens
    async def create(
        cls,
        template: str | None = None,
        *,
        snapshot_id: str | None = None,
        name: str | None = None,
        size: Size | None = None,
        cpu: float | None = None,
        memory_mb: int | None = None,
        disk_mb: int | None = None,
        network: NetworkArg | None = None,
        timeout_seconds: int | None = None,
        on_timeout: OnTimeout | None = None,
        idle_seconds: int | None = None,
        auto_resume: bool | None = None,
        checkpoint_seconds: int | None = None,
        on_host_loss: OnHostLoss | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Sequence[Secret | Mapping[str, Any]] | None = None,
        metadata: Mapping[str, str] | None = None,
        engine: str | None = None,
        require_acceleration: bool | None = None,
        budget: float | None = None,
        host_labels: Mapping[str, str] | None = None,
        repo: str | None = None,
        repo_token: str | None = None,
        tag: str | None = None,
        url: str | None = None,
        api_key: str | None = None,
        client: AsyncClient | None = None,
    ) -> AsyncSandbox:
        """Create a sandbox and return it when it is running.

        A sandbox created by a cancelled call is ended.

        The server's defaults are: template ``python-3.12``, 1 CPU,
        512 MiB of memory, no network, terminated after 600 seconds.

        Args:
            template: What it starts from, such as ``python-3.12`` or ``node-22``.
            snapshot_id: A snapshot to start from, instead of a template.
            name: A name, to find it again.
            size: ``small``, ``medium`` or ``large``, instead of the three numbers.
            cpu: How many CPUs it may use, such as 0.5.
            memory_mb: Its memory, in MiB.
            disk_mb: How much it may write to its disk, in MiB.
            network: ``"off"``, ``"restricted"``, ``"open"``, or a :class:`Network`.
            timeout_seconds: After how many seconds its time is up; 0 for never.
            on_timeout: What happens then: ``terminate`` or ``pause``.
            idle_seconds: Pause it after this many seconds without work.
            auto_resume: Wake it by the next call when it is paused.
            checkpoint_seconds: How often a checkpoint is taken while it runs, in seconds, 10 or
                more: the loss of its host takes no more with it than what happened since; 0,
                the default, for never.
            on_host_loss: What becomes of it, where it runs, when its host is lost: ``pause``, the
                default, at its last snapshot that is not lost as well, ``resume`` from that on
                another host at once, or ``fail``.
            env: Environment variables for every command.
            secrets: Credentials that the gateway inserts and that never enter it.
            metadata: Your own labels, to list by.
            engine: What gives it its kernel: ``gvisor``, ``microvm``, or ``auto``, which
                leaves it to the server's policy.
            require_acceleration: Refuse a virtual machine that would be emulated.
            budget: What it and its forks may spend, in the currency of the server's rates,
                before they are paused.
            host_labels: Only on a host of the cluster with these labels, all of them.
            repo: A git repository to clone below ``/workspace`` before this returns, as
                ``URL#REF``. The network must allow its host.
            repo_token: The token of a private one. The gateway adds it to requests to the
                repository's host; it never enters the sandbox.
            tag: Your name for this call. For a day, a call with the same tag and arguments
                returns the same sandbox.
            url: The server's address, where no ``client`` is given.
            api_key: The key, where no ``client`` is given.
            client: A client to use and leave open.

        Raises:
            InvalidArgumentError: A value is invalid.
            TemplateNotFoundError: There is no such template.
            QuotaExceededError: The project's plan does not allow another.
            BudgetExceededError: The project's budget is used up.
            CapacityError: The host has no room, even after some retries.
            UnsupportedError: Acceleration is required, and the server has none.
            CloneFailedError: The repository was not cloned; nothing is left.
        """
        body = {
            "template": template,
            "snapshot_id": snapshot_id,
            "name": name,
            "size": size,
            "cpu": cpu,
            "memory_mb": memory_mb,
            "disk_mb": disk_mb,
            "network": network_to_wire(network),
            "timeout_seconds": timeout_seconds,
            "on_timeout": on_timeout,
            "idle_seconds": idle_seconds,
            "auto_resume": auto_resume,
            "checkpoint_seconds": checkpoint_seconds,
            "on_host_loss": on_host_loss,
            "env": env and dict(env),
            "secrets": secrets and [secret_to_wire(s) for s in secrets],
            "metadata": metadata and dict(metadata),
            "engine": engine,
            "require_acceleration": require_acceleration,
            "budget": budget,
            "host_labels": host_labels and dict(host_labels),
            "repo": repo,
            "repo_token": repo_token,
        }
        request = Request(
            "POST",
            "/v1/sandboxes",
            json=without_none(body),
            patience=START_SECONDS + (CLONE_SECONDS if repo else 0),
            key=key_of(tag) or new_key(),
        )
        async with borrowed(client, url, api_key) as used:
            async with used._leftovers.of_cancelled(lambda: _undo(used._join(), request)):
                wire = await used._call(request)
            return cls(used, decode(SandboxInfo, wire))

    @classmethod
    async def create_many(
        cls,
        count: int,
        *,
        tag: str | None = None,
        concurrency: int = AT_ONCE,
        url: str | None = None,
        api_key: str | None = None,
        client: AsyncClient | None = None,
        **options: Unpack[CreateOptions],
    ) -> builtins.list[AsyncSandbox | BothyError]:
        """Create many sandboxes, and return for each the sandbox or its error, in order.

        Args:
            count: How many.
            tag: Your name for this fleet. For a day, a call with the same tag and options, also
                by another program, returns the same sandboxes, tries again those that failed,
                and adds what a larger ``count`` asks for.
            concurrency: How many are created at the same time.
            url: The server's address, where no ``client`` is given.
            api_key: The key, where no ``client`` is given.
            client: A client to use and leave open.
            options: Those of :meth:`create`, for each of them.
        """
        async with borrowed(client, url, api_key) as used:

            async def one(index: int) -> AsyncSandbox | BothyError:
                own = None if tag is None else f"{tag}/{index}"
                try:
                    return await cls.create(client=used, tag=own, **options)
                except BothyError as error:
                    return error

            return await io.each(range(count), concurrency, one)

    @classmethod
    async def terminate_many(
        cls,
        sandboxes: Iterable[AsyncSandbox | str] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        concurrency: int = AT_ONCE,
        url: str | None = None,
        api_key: str | None = None,
        client: AsyncClient | None = None,
    ) -> dict[str, BothyError | None]:
        """End many sandboxes, and return for each id its error, or ``None``.

        Args:
            sandboxes: Sandboxes or their ids.
            metadata: Instead of these: all that have not ended and have all these labels.
            concurrency: How many are ended at the same time.
            url: The server's address, where no ``client`` is given.
            api_key: The key, where no ``client`` is given.
            client: A client to use and leave open.

        Raises:
            InvalidArgumentError: Neither is given, or both.
        """
        if (sandboxes is None) == (not metadata):
            raise InvalidArgumentError("give sandboxes, or the metadata that they have")
        async with borrowed(client, url, api_key) as used:

            async def one(sandbox_id: str) -> BothyError | None:
                try:
                    await used._call(Request("DELETE", sandbox_path(sandbox_id)))
                except BothyError as error:
                    return error
                return None

            if sandboxes is None:
                params = {f"metadata.{key}": value for key, value in (metadata or {}).items()}
                params["state"] = joined(LIVE_STATES) or ""
                ids = [str(item["id"]) for item in await used._pages("/v1/sandboxes", params, None)]
            else:
                ids = [s if isinstance(s, str) else s.id for s in sandboxes]
            return dict(zip(ids, await io.each(ids, concurrency, one), strict=True))

    @classmethod
    @io.opens
    async def get(
        cls,
        sandbox_id: str,
        *,
        url: str | None = None,
        api_key: str | None = None,
        client: AsyncClient | None = None,
    ) -> AsyncSandbox:
        """Find a sandbox by its id, in any state, including ended ones.

        Raises:
            SandboxNotFoundError: There is none with this id.
        """
        async with borrowed(client, url, api_key) as used:
            wire = await used._call(Request("GET", sandbox_path(sandbox_id)))
            return cls(used, decode(SandboxInfo, wire))

    @classmethod
    async def list(
        cls,
        *,
        state: State | Sequence[State] | None = None,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int | None = None,
        live: bool = False,
        url: str | None = None,
        api_key: str | None = None,
        client: AsyncClient | None = None,
    ) -> builtins.list[AsyncSandbox]:
        """Return the project's sandboxes, newest first, and ended ones, too.

        Args:
            state: Only those in this state, or in one of these.
            name: Only those with this name.
            metadata: Only those with all these labels.
            limit: At most this many; all by default.
            live: Only those that have not ended, as ``bothy ls`` shows them; unless ``state``
                says otherwise.
            url: The server's address, where no ``client`` is given.
            api_key: The key, where no ``client`` is given.
            client: A client to use and leave open.
        """
        wanted = LIVE_STATES if live and state is None else state
        params: dict[str, Any] = {"state": joined(wanted), "name": name}
        params |= {f"metadata.{key}": value for key, value in (metadata or {}).items()}
        async with borrowed(client, url, api_key) as used:
            items = await used._pages("/v1/sandboxes", params, limit)
            return [cls(used, decode(SandboxInfo, item)) for item in items]

    @classmethod
    @io.opens
    async def resume(
        cls,
        snapshot_or_sandbox_id: str,
        *,
        memory: bool = True,
        url: str | None = None,
        api_key: str | None = None,
        client: AsyncClient | None = None,
    ) -> AsyncSandbox:
        """Wake a paused sandbox, exactly where it was and under its old id.

        Args:
            snapshot_or_sandbox_id: What :meth:`pause` returned, or the sandbox's own id.
            memory: Bring memory and processes back; if false, it restarts with its files.
            url: The server's address, where no ``client`` is given.
            api_key: The key, where no ``client`` is given.
            client: A client to use and leave open.

        Raises:
            NotFoundError: There is neither a sandbox nor a snapshot with this id.
            CapacityError: The host has no room, even after some retries.
        """
        async with borrowed(client, url, api_key) as used:
            path = f"{sandbox_path(snapshot_or_sandbox_id)}/resume"
            body = None if memory else {"memory": False}
            wire = await used._call(Request("POST", path, json=body, patience=START_SECONDS))
            return cls(used, decode(SandboxInfo, wire))

    @classmethod
    async def restart(
        cls,
        sandbox_id: str,
        *,
        url: str | None = None,
        api_key: str | None = None,
        client: AsyncClient | None = None,
    ) -> AsyncSandbox:
        """Start a sandbox that has failed again, under its id and with its settings.

        It starts from the snapshot that it was made from, if that is still there, or from its
        template. What it did until then is lost.

        Args:
            sandbox_id: The id of a sandbox whose state is ``failed``, as of one that ended with
                ``host_lost``.
            url: The server's address, where no ``client`` is given.
            api_key: The key, where no ``client`` is given.
            client: A client to use and leave open.

        Raises:
            NotFoundError: There is no sandbox with this id.
            ConflictError: It has not failed.
            CapacityError: The host has no room, also after some tries.
        """
        async with borrowed(client, url, api_key) as used:
            path = f"{sandbox_path(sandbox_id)}/restart"
            wire = await used._call(Request("POST", path, patience=START_SECONDS, key=new_key()))
            return cls(used, decode(SandboxInfo, wire))

    @classmethod
    async def limits(
        cls,
        *,
        url: str | None = None,
        api_key: str | None = None,
        client: AsyncClient | None = None,
    ) -> Limits:
        """Return what the project's plan allows, and how much of it is in use."""
        async with borrowed(client, url, api_key) as used:
            return await used.limits()

    @classmethod
    async def usage(
        cls,
        start: datetime | None = None,
        end: datetime | None = None,
        *,
        group_by: str | Sequence[str] = "day",
        sandbox: str | None = None,
        url: str | None = None,
        api_key: str | None = None,
        client: AsyncClient | None = None,
    ) -> UsageReport:
        """Return what the project has used, and what it costs: see :meth:`AsyncClient.usage`."""
        async with borrowed(client, url, api_key) as used:
            return await used.usage(start, end, group_by=group_by, sandbox=sandbox)

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self._info.id

    @property
    def info(self) -> SandboxInfo:
        """The sandbox as the server described it last; see :meth:`refresh`."""
        return self._info

    @property
    def state(self) -> State:
        """The state as the server described it last; see :meth:`refresh`."""
        return self._info.state

    @property
    def metadata(self) -> Mapping[str, str]:
        """The labels as the server described them last; see :meth:`refresh`."""
        return self._info.metadata

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self._info.state}>"

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.terminate()
        except BothyError:
            # What went wrong in the block matters more; the server's time-out cleans up.
            if error is None:
                raise
        finally:
            await self.close()

    async def refresh(self) -> SandboxInfo:
        """Ask the server how the sandbox is now, and return and keep the answer."""
        return self._learn(await self._client._call(Request("GET", self._path)))

    async def terminate(self) -> None:
        """End the sandbox and free its resources. Ending an ended one does nothing."""
        await self._client._call(Request("DELETE", self._path))
        if self._info.state not in ("stopped", "failed"):
            self._info = dataclasses.replace(self._info, state="stopped")
        await self.close()

    async def close(self) -> None:
        """Close the connections and leave the sandbox running."""
        if not self._left:
            self._left = True
            await self._client._leave()

    async def exec(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout_seconds: float | None = None,
        stdin: str | bytes | None = None,
        merge_stderr: bool = False,
        keep_running: bool = False,
        on_stdout: io.Callback[str] | None = None,
        on_stderr: io.Callback[str] | None = None,
    ) -> ExecResult:
        """Run a command to its end and return its result.

        A non-zero exit code is not an error; ``result.check()`` makes it one. Giving up
        waiting (an interrupt, a cancelled task, a callback that raises, a lost connection)
        kills the command with everything it started, unless ``keep_running`` is set.

        Args:
            command: A line for ``bash -lc`` (``sh -lc`` where the image has no bash), or a
                list of arguments that is run as it is.
            cwd: Where to run it; ``/workspace`` by default.
            env: More environment variables.
            user: Who runs it, such as ``root``; ``user`` by default.
            timeout_seconds: Kill it, and everything it started, after this many seconds.
            stdin: What it reads from standard input.
            merge_stderr: Write standard error into ``stdout``, in the order of writing.
            keep_running: Let it run on when the caller stops waiting for it.
            on_stdout: Called with each piece of standard output as it is written.
            on_stderr: Called with each piece of standard error as it is written.

        Raises:
            SandboxPausedError: The sandbox is paused.
            SandboxEndedError: The sandbox has ended.
            CommandNotFoundError: The program of an argument list does not exist.
        """
        body = exec_body(command, cwd, env, user, timeout_seconds, stdin, merge_stderr)
        body["keep_running"] = keep_running or None
        if on_stdout is not None or on_stderr is not None:
            async with self._stream(body) as events:
                return await collect(events, on_stdout, on_stderr)
        request = self._post("/exec", body, patience=patience_for(timeout_seconds), repeat=False)
        return decode(ExecResult, await self._client._call(request))

    def exec_stream(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout_seconds: float | None = None,
        stdin: str | bytes | None = None,
        merge_stderr: bool = False,
        keep_running: bool = False,
    ) -> AsyncExecStream:
        """Run a command and iterate over its output as it is written.

        The arguments and errors are those of :meth:`exec`. The last event has ``is_final``
        and the exit code. Leaving before that kills the command, unless ``keep_running`` is
        set.
        """
        body = exec_body(command, cwd, env, user, timeout_seconds, stdin, merge_stderr)
        return self._stream({**body, "keep_running": keep_running or None})

    async def spawn(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout_seconds: float | None = None,
        stdin: str | bytes | None = None,
        merge_stderr: bool = False,
    ) -> AsyncProcess:
        """Start a command in the background and return a handle to it.

        The arguments and errors are those of :meth:`exec`. Without ``stdin`` its standard
        input stays open for :meth:`AsyncProcess.write`.
        """
        body = exec_body(command, cwd, env, user, timeout_seconds, stdin, merge_stderr)
        request = self._post("/exec", {**body, "background": True}, repeat=False)
        return AsyncProcess(self, (await self._client._call(request))["pid"])

    def process(self, pid: int) -> AsyncProcess:
        """Return a handle to a process that was started before, maybe by another program."""
        return AsyncProcess(self, pid)

    async def processes(self, *, all: bool = False) -> builtins.list[ProcessInfo]:
        """Return what was started through the API and runs, or ended with output still held.

        Args:
            all: Return every other process that runs, too, and what each uses.
        """
        params = {"all": "true"} if all else None
        wire = await self._client._call(Request("GET", f"{self._path}/processes", params=params))
        return [decode(ProcessInfo, item) for item in wire["items"]]

    @io.opens
    async def terminal(
        self,
        command: Command | None = None,
        *,
        cols: int = 80,
        rows: int = 24,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        keep: bool = False,
    ) -> AsyncTerminal:
        """Open a terminal (PTY).

        Args:
            command: What runs in it; a login shell by default.
            cols: The width of its window, in characters.
            rows: The height of its window, in lines.
            cwd: Where to run it; ``/workspace`` by default.
            env: More environment variables.
            user: Who runs it; ``user`` by default.
            keep: Leave it running when the terminal is closed, for :meth:`join_terminal`.
                Its process then has the tag ``kept``; a signal ends it.
        """
        line = command if command is None or isinstance(command, str) else shlex.join(command)
        params = {"command": line, "cols": cols, "rows": rows, "cwd": cwd, "user": user}
        if keep:
            params["keep"] = "true"
        params |= {f"env.{name}": value for name, value in (env or {}).items()}
        path = f"{self._path}/terminal"
        return AsyncTerminal(await AsyncWebSocket.connect(self._client, path, params))

    @io.opens
    async def join_terminal(
        self, pid: int, *, from_offset: int = 0, keep: bool = False
    ) -> AsyncTerminal:
        """Open a terminal again that was kept, or whose connection broke within the last minute.

        Args:
            pid: Its process: :attr:`AsyncTerminal.pid`.
            from_offset: How many bytes of its output have arrived; the server sends those
                behind it that it still holds.
            keep: Leave it running when this terminal is closed.

        Raises:
            ProcessNotFoundError: It has been hung up, and is forgotten.
            ConflictError: The process has no terminal.
        """
        params = {"process": pid, "from": from_offset} | ({"keep": "true"} if keep else {})
        path = f"{self._path}/terminal"
        return AsyncTerminal(await AsyncWebSocket.connect(self._client, path, params))

    @io.opens
    async def shell(self, *, cwd: str | None = None) -> AsyncShell:
        """Make a shell whose directory and variables persist from command to command.

        Args:
            cwd: Where it starts; ``/workspace`` by default.
        """
        wire = await self._client._call(self._post("/shells", {"cwd": cwd}))
        return AsyncShell(self, wire["id"])

    def get_shell(self, shell_id: str = "default") -> AsyncShell:
        """Return an existing shell, or the one that every sandbox has."""
        return AsyncShell(self, shell_id)

    async def run_code(
        self,
        code: str,
        language: Language | None = None,
        *,
        context: CodeContext | str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        on_stdout: io.Callback[str] | None = None,
        on_stderr: io.Callback[str] | None = None,
        on_result: io.Callback[dict[str, str]] | None = None,
    ) -> CodeResult:
        """Run a piece of code where the variables of earlier pieces still are.

        An exception in the code is not raised here: see ``result.error`` and
        ``result.check()``.

        Args:
            code: The code.
            language: ``python`` (the default), ``javascript`` or ``bash``.
            context: Where to run it; one for each language by default.
            env: Environment variables that are set while it runs.
            timeout_seconds: Interrupt it after this many seconds.
            on_stdout: Called with each piece of standard output as it is written.
            on_stderr: Called with each piece of standard error as it is written.
            on_result: Called with each thing that is displayed, by MIME type.

        Raises:
            ContextNotFoundError: There is no such context.
            UnsupportedError: The template does not have the language.
        """
        body = {
            "code": code,
            "language": language,
            "context_id": None if context is None else context_id(context),
            "env": env and dict(env),
            "timeout_seconds": timeout_seconds,
        }
        if on_stdout or on_stderr or on_result:
            request = self._stream_request("/code", body)
            return await follow_code(self._client, request, on_stdout, on_stderr, on_result)
        request = self._post("/code", body, patience=patience_for(timeout_seconds), repeat=False)
        return decode(CodeResult, await self._client._call(request))

    async def wait_for_port(
        self,
        port: int,
        *,
        process: AsyncProcess | int | None = None,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> None:
        """Wait until a server in the sandbox accepts connections on a port.

        Args:
            port: The port, on the sandbox's loopback.
            process: Give up as soon as this process ends.
            timeout_seconds: How long to wait, at most 600 seconds.

        Raises:
            RequestTimeoutError: The time was up first.
            ConflictError: The process ended first; the error names its exit code.
        """
        await self._wait_for({"port": port}, process, timeout_seconds)

    async def wait_for_url(
        self,
        url: str,
        *,
        status: int | None = None,
        process: AsyncProcess | int | None = None,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> int:
        """Wait until a URL, as seen from inside, is answered, and return the status.

        Args:
            url: Such as ``http://localhost:8000/health``.
            status: The status to wait for; by default any from 200 to 399.
            process: Give up as soon as this process ends.
            timeout_seconds: How long to wait, at most 600 seconds.

        Raises:
            RequestTimeoutError: The time was up first.
            ConflictError: The process ended first; the error names its exit code.
        """
        what = {"url": url, "status": status}
        return int((await self._wait_for(what, process, timeout_seconds))["status"])

    async def wait_for_log(
        self,
        text: str,
        *,
        process: AsyncProcess | int | None = None,
        path: str | None = None,
        regex: bool = False,
        user: str | None = None,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> str:
        """Wait for a line of a process's output, or of a file, and return it.

        Args:
            text: What the line contains.
            process: The process. Of its output, what is still held is searched, too.
            path: Instead of that, a file, which need not exist yet.
            regex: ``text`` is a regular expression, as in RE2.
            user: Who reads the file.
            timeout_seconds: How long to wait, at most 600 seconds.

        Raises:
            RequestTimeoutError: The time was up first.
            ConflictError: The process ended first; the error names its exit code.
        """
        what = {"log": text, "path": path, "regex": regex or None, "user": user}
        return str((await self._wait_for(what, process, timeout_seconds)).get("line", ""))

    async def wait_for_exit(
        self, process: AsyncProcess | int, *, timeout_seconds: float = WAIT_SECONDS
    ) -> int | None:
        """Wait for the end of a process, and return its exit code.

        That is ``None`` if it was not started through the API.

        Args:
            process: Any process of the sandbox.
            timeout_seconds: How long to wait, at most 600 seconds.

        Raises:
            RequestTimeoutError: The time was up first.
        """
        code = (await self._wait_for({}, process, timeout_seconds)).get("exit_code")
        return None if code is None else int(code)

    async def _wait_for(
        self, what: dict[str, Any], process: AsyncProcess | int | None, timeout_seconds: float
    ) -> dict[str, Any]:
        pid = process.pid if isinstance(process, AsyncProcess) else process
        body = {**what, "pid": pid, "timeout_seconds": timeout_seconds}
        patience = patience_for(timeout_seconds)
        wire = await self._client._call(self._post("/wait", body, patience=patience, keyed=False))
        if wire["timed_out"]:
            raise RequestTimeoutError(
                f"what is waited for has not come in {timeout_seconds:g} seconds"
            )
        return dict(wire)

    async def update(
        self,
        *,
        timeout_seconds: int | None = None,
        on_timeout: OnTimeout | None = None,
        idle_seconds: int | None = None,
        checkpoint_seconds: int | None = None,
        on_host_loss: OnHostLoss | None = None,
        metadata: Mapping[str, str] | None = None,
        name: str | None = None,
        network: NetworkArg | None = None,
        secrets: Sequence[Secret] | None = None,
        budget: float | None = None,
    ) -> SandboxInfo:
        """Change what is given and leave the rest; return the sandbox as it is then.

        The arguments are those of :meth:`create`; ``timeout_seconds`` counts from now, a
        ``budget`` of 0 lifts the bound, and ``secrets`` are all that it has from then on.
        """
        body = {
            "timeout_seconds": timeout_seconds,
            "on_timeout": on_timeout,
            "idle_seconds": idle_seconds,
            "checkpoint_seconds": checkpoint_seconds,
            "on_host_loss": on_host_loss,
            "metadata": metadata and dict(metadata),
            "name": name,
            "network": network_to_wire(network),
            "secrets": None if secrets is None else [secret.to_wire() for secret in secrets],
            "budget": budget,
        }
        request = Request("PATCH", self._path, json=without_none(body))
        return self._learn(await self._client._call(request))

    async def set_timeout(self, timeout_seconds: int) -> SandboxInfo:
        """Set its time-out to this many seconds from now; 0 for none.

        Raises:
            SandboxPausedError: It is paused, and no call resumes it. The time-out is kept, and
                begins when it is resumed.
        """
        info = await self.update(timeout_seconds=timeout_seconds)
        if info.state in ("pausing", "paused") and not info.auto_resume:
            raise SandboxPausedError(
                f"sandbox {self.id} is paused, so its new time-out has not begun.",
                hint="Resume it, and it lives that long from then; or create it with auto_resume.",
            )
        return info

    async def set_network(self, network: NetworkArg) -> SandboxInfo:
        """Change what it may reach, immediately, for open connections too."""
        return await self.update(network=network)

    async def pause(
        self, *, memory: bool = True, name: str | None = None, wait: Durable | None = None
    ) -> str:
        """Freeze it to disk and return the id of the snapshot; see :meth:`resume`.

        While paused, it takes no CPU and no memory.

        Args:
            memory: Keep memory and processes; if false, only the files are kept.
            name: A name for the snapshot.
            wait: ``"store"`` returns when the snapshot is in the server's object storage as
                well, or after four minutes; its ``durable`` says which.
        """
        body = {"memory": None if memory else False, "name": name, "wait": wait}
        wire = await self._client._call(self._post("/pause", body, patience=START_SECONDS))
        self._info = dataclasses.replace(self._info, state="paused")
        return str(wire["snapshot_id"])

    async def snapshot(
        self, name: str | None = None, *, memory: bool = True, wait: Durable | None = None
    ) -> Snapshot:
        """Take a snapshot of memory, processes and files while it runs on.

        Args:
            name: A name for the snapshot.
            memory: Keep memory and processes; if false, only the files are kept.
            wait: ``"store"`` returns when the snapshot is in the server's object storage as
                well, or after four minutes; its ``durable`` says which.
        """
        body = {"memory": None if memory else False, "name": name, "wait": wait}
        request = self._post("/snapshots", body, patience=START_SECONDS)
        return decode(Snapshot, await self._client._call(request))

    async def create_template(
        self, name: str, *, memory: bool = False, description: str | None = None
    ) -> Template:
        """Make a template from the sandbox's files, from which new sandboxes start.

        Args:
            name: The template's name, with or without a tag: ``team/app:v3``.
            memory: Keep the running processes, too. New sandboxes start with them, in the
                size of this one.
            description: What the template is for.

        Raises:
            QuotaExceededError: The project's quota for templates or snapshots is used up.
        """
        body = without_none({"name": name, "memory": memory or None, "description": description})
        request = self._post("/template", body, patience=START_SECONDS)
        return decode(Template, await self._client._call(request))

    async def snapshots(self) -> builtins.list[Snapshot]:
        """Return the sandbox's snapshots, newest first; ``parent_id`` makes them a tree."""
        return await self._client.snapshots(sandbox_id=self.id)

    async def fork(
        self,
        n: int = 1,
        *,
        name: str | None = None,
        timeout_seconds: int | None = None,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        network: NetworkArg | None = None,
        secrets: bool = False,
        tag: str | None = None,
    ) -> builtins.list[AsyncSandbox]:
        """Make ``n`` running copies, including memory, and return them; this one runs on.

        What is not given is taken over from this one, but for its secrets: those the copies
        have only with ``secrets``. For a day, a call with the same ``tag`` and arguments
        returns the same copies.
        """
        body = {
            "count": n,
            "name": name,
            "timeout_seconds": timeout_seconds,
            "env": env and dict(env),
            "metadata": metadata and dict(metadata),
            "network": network_to_wire(network),
            "secrets": secrets or None,
        }
        request = self._post("/fork", body, patience=START_SECONDS, key=key_of(tag))
        wire = await self._client._call(request)
        return [type(self)(self._client, decode(SandboxInfo, item)) for item in wire["items"]]

    async def rollback(self, snapshot: Snapshot | str) -> SandboxInfo:
        """Return it to its state at a snapshot; its state until now is kept as another.

        Raises:
            SnapshotNotFoundError: There is no such snapshot.
        """
        snapshot_id = snapshot if isinstance(snapshot, str) else snapshot.id
        body = {"snapshot_id": snapshot_id}
        request = self._post("/rollback", body, patience=START_SECONDS)
        return self._learn(await self._client._call(request))

    async def network_log(self, since: datetime | None = None) -> builtins.list[NetworkDecision]:
        """Return what it tried to reach, and the decision, oldest first.

        Args:
            since: Only from this time on, which must have a time zone.
        """
        request = Request("GET", f"{self._path}/network/log", params=since_param(since))
        wire = await self._client._call(request)
        return [decode(NetworkDecision, item) for item in wire["items"]]

    def watch_network(self, since: datetime | None = None) -> AsyncEventStream[NetworkDecision]:
        """Iterate over what it tried to reach, then follow new attempts."""
        request = stream_request("GET", f"{self._path}/network/log", params=since_param(since))
        return AsyncEventStream(self._client, request, decoder(NetworkDecision))

    async def metrics(self) -> Metrics:
        """Return what it uses now."""
        return decode(Metrics, await self._client._call(Request("GET", f"{self._path}/metrics")))

    async def metrics_history(
        self, start: datetime | None = None, end: datetime | None = None
    ) -> builtins.list[Metrics]:
        """Return the measurements taken every ten seconds, oldest first.

        At most the last half hour is kept, since it was last started or resumed.

        Args:
            start: Only measurements from then on.
            end: Only measurements until then.
        """
        params = {name: at and at.isoformat() for name, at in (("from", start), ("to", end))}
        request = Request("GET", f"{self._path}/metrics/history", params=params)
        wire = await self._client._call(request)
        return [decode(Metrics, item) for item in wire["items"]]

    async def logs(self, pid: int | None = None) -> Logs:
        """Return the output of its commands that is still buffered.

        Args:
            pid: Only that of this process.
        """
        request = Request("GET", f"{self._path}/logs", params={"pid": pid})
        return decode(Logs, await self._client._call(request))

    async def events(self, since: int = 0) -> builtins.list[Event]:
        """Return what happened to it, oldest first.

        Args:
            since: Only events with an id above this one.
        """
        events = await self._client.events(since, sandbox=self.id)
        return [event for event in events if event.sandbox_id == self.id]  # an older server's

    def watch_events(self, since: int = 0) -> AsyncEventStream[Event]:
        """Iterate over events about it, past and new."""

        def mine(wire: dict[str, Any]) -> Event | None:  # an older server sends all
            return decode(Event, wire) if wire.get("sandbox_id") == self.id else None

        params = {"since": since, "sandbox_id": self.id}
        request = stream_request("GET", "/v1/events", params=params)
        return AsyncEventStream(self._client, request, mine)

    def endpoint(self, port: int) -> Endpoint:
        """Return how this program reaches the HTTP server on a port through the server's API.

        WebSockets are included. Nothing is opened or made by that. For others, who get no
        key, see :meth:`create_link`.

        Args:
            port: The port inside the sandbox.

        Raises:
            InvalidArgumentError: That is not a port.
        """
        if not 1 <= port <= 65535:
            raise InvalidArgumentError(f"{port} is not a port: give a number from 1 to 65535")
        url = f"{self._client.url}{self._path}/ports/{port}/"
        headers = {"Authorization": self._client._headers()["Authorization"]}
        return Endpoint(url, "ws" + url.removeprefix("http"), headers)

    async def url(self, port: int, *, expires_seconds: int | None = None) -> str:
        """Return a link to the HTTP server on a port of the sandbox, for a browser.

        Anyone who has the link can use it, without a key, until it ends. For a webhook see
        :meth:`create_link`. Where it ends with ``.localhost``, browsers and curl find it, and
        other programs often do not: for those there are :meth:`endpoint` and :meth:`forward`.

        Args:
            port: The port inside the sandbox.
            expires_seconds: For how long it can be used; one hour by default.
        """
        return (await self.create_link(port, expires_seconds=expires_seconds)).url

    async def create_link(
        self,
        port: int,
        *,
        kind: LinkKind = "browser",
        keep_host: bool = False,
        expires_seconds: int | None = None,
    ) -> Link:
        """Create a link to the HTTP server on a port of the sandbox, which works without a key.

        It ends when it expires or is deleted, with the sandbox, and with the key that
        this client uses.

        Args:
            port: The port inside the sandbox.
            kind: ``browser`` is opened in a browser; after that only the sandbox's own pages
                may send what changes something. ``webhook`` is for programs: append the
                path that they call to its ``url``. Requests by any method pass through.
                ``cdp`` is the address of a browser, see :attr:`browser`.
            keep_host: Let the server see the link's host name in ``Host``. By default it sees
                ``localhost`` and its port, since many development servers refuse other names.
            expires_seconds: For how long it can be used; one hour by default.
        """
        given = None if kind == "browser" else kind
        body = {
            "port": port,
            "kind": given,
            "keep_host": keep_host or None,
            "expires_seconds": expires_seconds,
        }
        return decode(Link, await self._client._call(self._post("/links", body)))

    async def links(self) -> builtins.list[Link]:
        """Return the links to the sandbox's ports that can be used, newest first."""
        wire = await self._client._call(Request("GET", self._path + "/links"))
        return [decode(Link, item) for item in wire["items"]]

    async def delete_link(self, link_id: str) -> None:
        """Revoke a link. Connections made through it end within a second."""
        await self._client._call(Request("DELETE", f"{self._path}/links/{link_id}"))

    @io.opens
    async def forward(
        self, port: int, *, local_port: int = 0, local_host: str = "127.0.0.1"
    ) -> AsyncForward:
        """Listen on a port of this computer that leads to ``port`` of the sandbox.

        Args:
            port: The port inside the sandbox.
            local_port: Where to listen; any free port by default, see ``forward.port``.
            local_host: The address to listen on.
        """
        path = f"{self._path}/ports/{port}"
        return await AsyncForward.open(self._client, path, local_host, local_port)

    def _stream(self, body: dict[str, Any]) -> AsyncExecStream:
        return AsyncExecStream(self._client, self._stream_request("/exec", body))

    def _stream_request(self, part: str, body: dict[str, Any]) -> Request:
        path = self._path + part
        return stream_request("POST", path, json=without_none(body), repeat=False)

    @property
    def _path(self) -> str:
        return sandbox_path(self.id)

    def _post(self, part: str, body: dict[str, Any], **more: Any) -> Request:
        return Request("POST", self._path + part, json=without_none(body), **more)

    def _learn(self, wire: dict[str, Any]) -> SandboxInfo:
        self._info = decode(SandboxInfo, wire)
        return self._info


async def _undo(client: AsyncClient, request: Request) -> None:
    """End what a cancelled create has made: its answer was already on the way.

    It is asked for again by its key. Where nothing was made, or the server does not answer, there
    is nothing to be done: the sandbox ends when its time is up.
    """
    try:
        with contextlib.suppress(Exception):
            again = dataclasses.replace(request, patience=UNDO_SECONDS)
            wire = await client._call(again)
            await client._call(Request("DELETE", sandbox_path(wire["id"])))
    finally:
        await client._leave()


def sandbox_path(sandbox_id: str) -> str:
    """Return the path of a sandbox in the REST API."""
    return f"/v1/sandboxes/{quote(sandbox_id, safe='')}"


def exec_body(
    command: Command,
    cwd: str | None,
    env: Mapping[str, str] | None,
    user: str | None,
    timeout_seconds: float | None,
    stdin: str | bytes | None,
    merge_stderr: bool = False,
) -> dict[str, Any]:
    """Return the JSON object that runs a command."""
    return {
        "command": command if isinstance(command, str) else [str(part) for part in command],
        "cwd": cwd,
        "env": env and dict(env),
        "user": user,
        "timeout_seconds": timeout_seconds,
        "stdin": stdin if stdin is None or isinstance(stdin, str) else b64encode(stdin).decode(),
        "stdin_encoding": None if stdin is None or isinstance(stdin, str) else "base64",
        "merge_stderr": merge_stderr or None,
    }


def key_of(tag: str | None) -> str:
    """Return the idempotency key of a caller's tag; empty without one."""
    return "" if tag is None else "tag-" + quote(tag, safe="")


def patience_for(timeout_seconds: float | None) -> Patience:
    """Return how long to wait for a command that the server ends after ``timeout_seconds``."""
    return timeout_seconds + 30.0 if timeout_seconds else None


def since_param(since: datetime | None) -> dict[str, Any]:
    """Return a point in time as a query parameter."""
    return {"since": None if since is None else format_time(since.timestamp())}


def joined(state: State | Sequence[State] | None) -> str | None:
    """Return the states as one query parameter."""
    return state if state is None or isinstance(state, str) else ",".join(state)
