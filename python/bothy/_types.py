"""The values that calls take and return. All of them are immutable."""

# The decoder reads the fields' types at run time, so annotations here are not postponed.

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypedDict, Union

from ._decode import decode, output_bytes
from ._errors import CodeFailedError, CommandError
from ._recipe import Steps, TemplateRecipe

State = Literal[
    "starting", "running", "pausing", "paused", "resuming", "stopping", "stopped", "failed"
]
"""The state of a sandbox."""

EndReason = Literal[
    "terminated",
    "timeout",
    "out_of_memory",
    "disk_full",
    "exited",
    "host_restart",
    "host_lost",
    "error",
]
"""Why a sandbox ended."""

NetworkMode = Literal["off", "restricted", "open"]
"""What a sandbox may reach, from nothing to everything that is not forbidden."""

OnTimeout = Literal["terminate", "pause"]
"""What happens to a sandbox when its time is up."""

OnHostLoss = Literal["pause", "resume", "fail"]
HealthStatus = Literal[
    "out_of_memory",
    "disk_full",
    "too_many_processes",
    "no_shell",
    "no_such_user",
    "no_working_directory",
]
"""What becomes of a sandbox that runs when its host is lost."""

Size = Literal["small", "medium", "large"]
"""A named choice of CPU, memory and disk."""

SnapshotKind = Literal["memory", "files"]
Durable = Literal["host", "store"]
"""How much a snapshot holds."""

FileType = Literal["file", "directory", "symlink", "other"]
"""The kind of a file system entry."""

Language = Literal["python", "javascript", "bash"]
"""The languages that code can be run in, where the template has them."""

Stream = Literal["stdout", "stderr"]
"""Where a piece of output was written to."""

Scope = Literal[
    "sandboxes:read",
    "sandboxes:write",
    "templates:read",
    "templates:write",
    "metrics:read",
    "admin",
]
"""What a key may do."""

Command = Union[str, Sequence[str]]
"""What to run: a line for ``bash -lc``, or a list of arguments that is run as it is."""


@dataclass(frozen=True, slots=True)
class Network:
    """Which destinations a sandbox may reach.

    Attributes:
        mode: ``"off"``, ``"restricted"`` (only what the other fields allow) or ``"open"``.
        presets: Names of allow-lists that the server knows, such as ``"pypi"`` or ``"github"``.
        allow_domains: Host names; a leading ``*.`` stands for any number of labels.
        allow_cidrs: Address ranges, such as ``"192.0.2.0/24"``.
        allow_ports: TCP ports; empty means the server's default.
        deny_cidrs: Address ranges that are closed in mode ``"open"``, but for what the lists
            above allow.
    """

    mode: NetworkMode = "restricted"
    presets: tuple[str, ...] = ()
    allow_domains: tuple[str, ...] = ()
    allow_cidrs: tuple[str, ...] = ()
    allow_ports: tuple[int, ...] = ()
    deny_cidrs: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object that the REST API takes."""
        lists = {
            "presets": self.presets,
            "allow_domains": self.allow_domains,
            "allow_cidrs": self.allow_cidrs,
            "allow_ports": self.allow_ports,
            "deny_cidrs": self.deny_cidrs,
        }
        return {"mode": self.mode, **{k: list(v) for k, v in lists.items() if v}}

    @classmethod
    def _from_wire(cls, value: Any) -> "Network":
        return decode(cls, {"mode": value} if isinstance(value, str) else value)


NetworkArg = Union[NetworkMode, Network, Mapping[str, Any]]
"""A network policy as callers may give it: a mode, a :class:`Network`, or its JSON object."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A credential that the gateway inserts into requests and that never enters the sandbox.

    Attributes:
        name: What it is called; inside, the environment variable of this name holds a placeholder.
        value: The credential. It is not shown by ``repr``.
        hosts: The host names to which it may be sent.
        header: The only HTTP header that carries it; where empty, ``Authorization`` and other
            usual headers for credentials.
        override: Set the header in every request to the hosts, whatever the request has there;
            nothing stands for the value inside.
        allow_echo: The value need not be hidden: a host may send it back.
    """

    name: str
    value: str = field(repr=False)
    hosts: tuple[str, ...] = ()
    header: str = ""
    override: bool = False
    allow_echo: bool = False

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object that the REST API takes."""
        wire = {"name": self.name, "value": self.value, "hosts": list(self.hosts)}
        more = {"header": self.header, "override": self.override, "allow_echo": self.allow_echo}
        return wire | {key: value for key, value in more.items() if value}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a sandbox ended: the reason, a sentence about it, and the time (UTC)."""

    reason: EndReason
    detail: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a resume brought back.

    Attributes:
        kind: ``"memory"`` when everything continued where it was, ``"files"`` when the
            processes are gone; ``detail`` says why.
    """

    snapshot_id: str
    kind: SnapshotKind = "memory"
    detail: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """What the last command met that was wrong with the sandbox itself.

    Attributes:
        status: What is wrong, in a word.
        detail: What the caller of that command was told.
        hint: What to do about it, or ``""``.
        at: When it was met (UTC).
    """

    status: HealthStatus
    detail: str = ""
    hint: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class HostLoss:
    """How a sandbox lost its host, and what has been done about it.

    Attributes:
        snapshot_id: The snapshot that it was paused at.
        host: The host that was lost; ``""`` where the server is alone.
        at: When it was given up, or was back (UTC).
        age_seconds: How old the snapshot was then: what happened in that time is lost.
        resume_attempts: How many attempts to resume it have failed.
        next_resume_at: When the next attempt is made; ``None`` when none is.
        problem: Why the last attempt failed, or ``""``.
    """

    snapshot_id: str
    host: str = ""
    at: datetime | None = None
    age_seconds: int = 0
    resume_attempts: int = 0
    next_resume_at: datetime | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """A sandbox as the server described it last. Sizes are MiB, times are UTC.

    Attributes:
        expires_at: When its time is up; ``None`` if it has no limit.
        timeout_seconds: Its time-out, in seconds; 0 means none.
        idle_seconds: After how many idle seconds it is paused; 0 means never.
        checkpoint_seconds: How often a checkpoint is taken of it while it runs; 0 means never.
        checkpoint_at: When the last checkpoint was taken, or ``None``.
        on_host_loss: What becomes of it, where it runs, when its host is lost.
        secret_names: The names of its secrets. Their values are never shown.
        parent_snapshot_id: The snapshot that it was started from, or ``""``. Of a fork, the last
            one of its parent's state.
        parent_sandbox_id: The sandbox that it was forked from, or whose snapshot it was made from,
            or ``""``.
        forked_at: When the state that it began with was its parent's, or ``None``.
        budget: What it and its forks may spend; 0 means no limit.
        budget_root: The sandbox that the budget was set on, or ``""``.
        host_labels: The labels that its host must have, if any.
        acceleration: What runs its virtual machine, ``kvm`` or ``emulated``; ``""`` where it
            is none.
        kernel: The version that its kernel reports, or ``""`` until it has run.
        resumed: What came back when it was last resumed, or ``None`` if it never was.
        host_loss: The last time that it lost its host and was paused, or ``None``.
        health: What is wrong with the sandbox itself, as the last command met it, or ``None``.
        ended: How it ended, or ``None`` if it has not.
    """

    id: str
    state: State = "running"
    name: str = ""
    template: str = ""
    engine: str = ""
    acceleration: str = ""
    kernel: str = ""
    cpu: float = 0.0
    memory_mb: int = 0
    disk_mb: int = 0
    network: Network = Network(mode="off")
    created_at: datetime | None = None
    started_at: datetime | None = None
    expires_at: datetime | None = None
    timeout_seconds: int = 0
    on_timeout: OnTimeout = "terminate"
    idle_seconds: int = 0
    auto_resume: bool = False
    checkpoint_seconds: int = 0
    checkpoint_at: datetime | None = None
    on_host_loss: OnHostLoss = "pause"
    env: dict[str, str] = field(default_factory=dict)
    secret_names: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    parent_snapshot_id: str = ""
    parent_sandbox_id: str = ""
    forked_at: datetime | None = None
    budget: float = 0.0
    budget_root: str = ""
    host_labels: dict[str, str] = field(default_factory=dict)
    resumed: Resumed | None = None
    host_loss: HostLoss | None = None
    health: Health | None = None
    ended: Ended | None = None


@dataclass(frozen=True, slots=True)
class ExecResult:
    """A command that ran to its end. A non-zero exit code is not an error: see :meth:`check`.

    Attributes:
        exit_code: The command's own, or 128 plus the signal that killed it.
        stdout: What it wrote to standard output, as text.
        stderr: What it wrote to standard error, as text.
        stdout_bytes: What it wrote to standard output, byte for byte.
        stderr_bytes: What it wrote to standard error, byte for byte.
        duration_ms: How long it ran, in milliseconds.
        timed_out: It was killed because ``timeout_seconds`` had passed.
        oom_killed: It was killed because the sandbox's memory was used up.
        truncated: Output over the server's limit was dropped from the middle.
        pid: Its process id inside the sandbox.
        hint: What to do when a limit killed it, or how much it wrote where output was dropped;
            otherwise empty.
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    duration_ms: int = 0
    timed_out: bool = False
    oom_killed: bool = False
    truncated: bool = False
    pid: int = 0
    hint: str = ""
    stdout_base64: str = field(default="", repr=False)
    stderr_base64: str = field(default="", repr=False)

    @property
    def stdout_bytes(self) -> bytes:
        """Standard output as it was written, also where it is not UTF-8."""
        return base64.b64decode(self.stdout_base64) or self.stdout.encode()

    @property
    def stderr_bytes(self) -> bytes:
        """Standard error as it was written, also where it is not UTF-8."""
        return base64.b64decode(self.stderr_base64) or self.stderr.encode()

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0

    def check(self) -> "ExecResult":
        """Return this result, or raise :class:`CommandError` where the exit code is not 0."""
        if not self.ok:
            raise CommandError(self)
        return self


@dataclass(frozen=True, slots=True)
class ShellResult(ExecResult):
    """A command that ended in a kept shell: see :meth:`Shell.exec`.

    Attributes:
        ended: The shell itself has ended, as by ``exit``. The next command gets a new one.
    """

    ended: bool = False


@dataclass(frozen=True, slots=True)
class ExecEvent:
    """One piece of a running command's output or, with ``is_final``, its end.

    Attributes:
        stream: ``"stdout"`` or ``"stderr"``; ``None`` on the last event.
        data: The output as text; a character cut in two by the transport arrives whole.
        raw: The output's exact bytes.
        offset: Where ``raw`` begins in the whole output, in bytes, both streams together.
        exit_code: On the last event, the exit code as in :class:`ExecResult`; before, ``None``.
        duration_ms: On the last event, how long the command ran, in milliseconds.
    """

    stream: Stream | None = None
    data: str = ""
    raw: bytes = b""
    offset: int = 0
    pid: int = 0
    is_final: bool = False
    exit_code: int | None = None
    duration_ms: int = 0
    timed_out: bool = False
    oom_killed: bool = False
    truncated: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process: one that was started through the API or, where all are listed, any.

    Attributes:
        exit_code: ``None`` while it runs.
        terminal: It has a terminal, which :meth:`Sandbox.join_terminal` joins.
        output_start: The byte offset of the oldest output that the server still holds.
        output_end: The byte offset after the newest.
        unmanaged: It was not started through the API: nothing is known of its output and end.
        parent_pid: What it belongs to. This and what follows are set where all are listed.
        started_at: When it was started.
        cpu_seconds: The CPU time that it has used.
        memory_bytes: The memory that it uses.
        ports: The TCP ports on which it listens.
    """

    pid: int
    command: tuple[str, ...] = ()
    cwd: str = ""
    env: dict[str, str] = field(default_factory=dict)
    user: str = ""
    tag: str = ""
    terminal: bool = False
    running: bool = False
    exit_code: int | None = None
    timed_out: bool = False
    oom_killed: bool = False
    output_start: int = 0
    output_end: int = 0
    unmanaged: bool = False
    parent_pid: int = 0
    started_at: datetime | None = None
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a sandbox's file system.

    Attributes:
        size: In bytes.
        mode: Permissions as the server writes them, such as ``"0644"``.
        modified_at: When its content changed last (UTC).
        link_target: Where a symbolic link points to; otherwise empty.
    """

    name: str
    path: str
    type: FileType = "file"
    size: int = 0
    mode: str = ""
    uid: int = 0
    gid: int = 0
    owner: str = ""
    group: str = ""
    modified_at: datetime | None = None
    link_target: str = ""

    @property
    def is_dir(self) -> bool:
        """Whether it is a folder."""
        return self.type == "directory"


@dataclass(frozen=True, slots=True)
class FileEvent:
    """One change under a watched folder.

    Attributes:
        type: ``create``, ``write``, ``remove``, ``rename`` or ``chmod``.
        path: The whole path of what changed.
        name: The same, seen from the watched folder.
    """

    type: str
    path: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A frozen sandbox.

    Attributes:
        kind: ``"memory"`` (memory, processes and files) or ``"files"``.
        parent_id: The snapshot before it in the sandbox's history, or ``""``.
        size_bytes: Its size on the server's disk, in bytes.
        durable: ``"host"`` while its files are on the disk of the server's host alone, and
            ``"store"`` when they are in object storage as well.
        checkpoint: The server took it by itself, and deletes it once there is a newer one.
        detail: Why it holds only files although memory was requested or imported, or ``""``.
    """

    id: str
    sandbox_id: str = ""
    parent_id: str = ""
    name: str = ""
    template: str = ""
    kind: SnapshotKind = "memory"
    size_bytes: int = 0
    created_at: datetime | None = None
    detail: str = ""
    durable: Durable = "host"
    checkpoint: bool = False


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that differs between two snapshots, in more than its times.

    Attributes:
        change: ``"added"``, ``"changed"`` or ``"removed"``.
        type: What it is, or was before it was removed.
        size: The bytes of its content.
    """

    path: str
    change: Literal["added", "changed", "removed"] = "changed"
    type: FileType = "file"
    size: int = 0


@dataclass(frozen=True, slots=True)
class SnapshotChanges:
    """The files that differ between two snapshots, in the order of their paths.

    Attributes:
        truncated: There are more than the limit.
    """

    items: list[FileChange] = field(default_factory=list)
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class TemplateMemory:
    """A template's running processes: they start with this size, on this engine."""

    snapshot_id: str = ""
    size_bytes: int = 0
    engine: str = ""
    cpu: float = 0.0
    memory_mb: int = 0
    disk_mb: int = 0


@dataclass(frozen=True, slots=True)
class Template(Steps):
    """What sandboxes start from, and what a recipe for another one can begin with.

        recipe = Template("python-3.12").apt("ffmpeg").pip("pandas==2.*").env(MODE="fast")
        client.build_template("tools", recipe=recipe)

    Attributes:
        size_bytes: The size of its image.
        tag: The tag of its name; ``""`` stands for ``latest``.
        project: The project that owns it; ``""`` if it is for all.
        memory: Its running processes, if any.
    """

    name: str
    description: str = ""
    digest: str = ""
    size_bytes: int = 0
    created_at: datetime | None = None
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    source: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    languages: tuple[str, ...] = ()
    tag: str = ""
    project: str = ""
    memory: TemplateMemory | None = None

    def _begun(self) -> TemplateRecipe:
        return TemplateRecipe(f"{self.name}:{self.tag}" if self.tag else self.name)


@dataclass(frozen=True, slots=True)
class PushedTemplate:
    """An image in a registry that was made from a template.

    Attributes:
        reference: Where it is, with its digest.
        digest: The digest of the image's manifest.
        size_bytes: The compressed size of the image.
    """

    reference: str
    digest: str = ""
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Build:
    """One build of a template from a recipe or a Dockerfile.

    Attributes:
        state: ``queued``, ``running``, ``succeeded``, ``failed`` or ``cancelled``.
        steps: How many steps it has.
        done: How many of them are done.
        cached: How many of those were taken from an earlier build.
        warnings: About the Dockerfile.
        digest: The digest of the template's image, if it succeeded.
        code: The kind of error, if it failed.
        error: Why it failed.
        hint: What to do about it.
        sandbox_id: The sandbox left by ``shell_on_failure``.
    """

    id: str
    name: str = ""
    state: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    steps: int = 0
    done: int = 0
    cached: int = 0
    warnings: tuple[str, ...] = ()
    digest: str = ""
    code: str = ""
    error: str = ""
    hint: str = ""
    sandbox_id: str = ""


@dataclass(frozen=True, slots=True)
class BuildEvent:
    """One step of the build of a template.

    Attributes:
        percent: How far the build is, from 0 to 100.
        template: What was built, on the last event.
    """

    step: str = ""
    message: str = ""
    percent: float = 0.0
    template: Template | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Token:
    """An API key of the server.

    Attributes:
        expires_at: When it becomes invalid, or ``None`` for never.
        last_used_at: When it was used last, or ``None`` if it never was.
        key: The secret itself, only if it was just created; not shown by ``repr``.
    """

    id: str
    name: str = ""
    project: str = ""
    scopes: tuple[Scope, ...] = ()
    created_at: datetime | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class NetworkDecision:
    """One line of a sandbox's network log: what it tried to reach, and the decision.

    Attributes:
        protocol: ``tcp``, ``udp``, ``dns``, ``icmp``, ``tls``, ``http`` or ``quic``.
        rule: The rule that allowed it, such as ``preset:pypi``.
        reason: Why it was refused.
        bytes_out: Payload that the sandbox sent, in bytes.
        bytes_in: Payload that it received, in bytes.
        closed: This line reports the end of a connection.
        repeated: How many identical decisions were folded into this line.
    """

    time: datetime
    protocol: str = ""
    name: str = ""
    address: str = ""
    port: int = 0
    allowed: bool = False
    rule: str = ""
    reason: str = ""
    bytes_out: int = 0
    bytes_in: int = 0
    closed: bool = False
    repeated: int = 0


LinkKind = Literal["browser", "webhook", "cdp"]
"""How a link is used: opened in a browser, or called by programs."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How programs that have the key reach the HTTP server on a port of a sandbox.

    Attributes:
        url: The address; paths are appended to it. It ends with a slash.
        websocket_url: The same for WebSockets.
        headers: What each request must carry. They hold the key, which does not arrive
            inside: keep them secret.
    """

    url: str
    websocket_url: str
    headers: dict[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Link:
    """The right to use one port of a sandbox without a key.

    Attributes:
        id: Its id, by which it is revoked.
        url: The link, only if it was just created. To a webhook's, the path that is called
            is appended.
        keep_host: The server sees the link's host name, instead of ``localhost`` and its port.
        token_id: The key that created it, and with which it ends.
        token_name: That key's name at the time.
        expires_at: When it expires.
    """

    id: str = ""
    sandbox_id: str = ""
    port: int = 0
    kind: LinkKind = "browser"
    keep_host: bool = False
    url: str = ""
    token_id: str = ""
    token_name: str = ""
    created_at: datetime | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a sandbox uses. Sizes are in bytes.

    Attributes:
        cpu_count: How many processors it may use.
        cpu_seconds: CPU time since it was started or last resumed, in seconds.
        egress_bytes: What it sent over its network.
        ingress_bytes: What it received.
        held_awake_by: What keeps it from being paused as idle: ``command``, ``request``,
            ``connection`` or ``cpu``. Empty when it is idle.
        idle_for_seconds: For how long it has been idle.
    """

    time: datetime | None = None
    cpu_count: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    memory_limit_bytes: int = 0
    disk_bytes: int = 0
    disk_limit_bytes: int = 0
    processes: int = 0
    egress_bytes: int = 0
    ingress_bytes: int = 0
    held_awake_by: tuple[str, ...] = ()
    idle_for_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SandboxMetrics(Metrics):
    """The latest measurement of a running sandbox.

    Attributes:
        sandbox_id: The sandbox.
        cpu_used: How many processors it has used on average since it was measured before;
            ``None`` at its first measurement.
    """

    sandbox_id: str = ""
    cpu_used: float | None = None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A piece of output of a command that was started in a sandbox.

    Attributes:
        stream: ``stdout``, ``stderr``, or ``pty`` for a terminal.
        data: The output as text.
        raw: The output's exact bytes.
        offset: Where ``raw`` begins in the whole output of the command, in bytes.
    """

    pid: int
    stream: Literal["stdout", "stderr", "pty"] = "stdout"
    data: str = ""
    raw: bytes = b""
    offset: int = 0

    @classmethod
    def _from_wire(cls, wire: Mapping[str, Any]) -> "LogEntry":
        raw = output_bytes(wire)
        text = raw.decode("utf-8", "replace")
        return cls(wire["pid"], wire["stream"], text, raw, wire.get("offset") or 0)


@dataclass(frozen=True, slots=True)
class Logs:
    """The output that a sandbox still buffers, by process in the order of their start.

    Attributes:
        truncated: Output was dropped, by the sandbox or to keep the answer short.
    """

    items: tuple[LogEntry, ...] = ()
    truncated: bool = False

    @property
    def text(self) -> str:
        """All of it as one text."""
        return b"".join(entry.raw for entry in self.items).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class CountLimit:
    """How many there may be, ``None`` for any number, and how many there are."""

    limit: int | None = None
    used: int = 0


@dataclass(frozen=True, slots=True)
class StorageLimit:
    """How much there may be, ``None`` for any amount, and how much there is, in MiB."""

    limit_mb: int | None = None
    used_mb: int = 0


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one sandbox may have at most. Sizes are in MiB; a time of 0 means no limit."""

    cpu: float = 0.0
    memory_mb: int = 0
    disk_mb: int = 0
    timeout_seconds: int = 0
    networks: tuple[NetworkMode, ...] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent, and what has been. ``resets_at`` is when that starts again."""

    limit: float = 0.0
    used: float = 0.0
    currency: str = ""
    resets_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """A project, which owns sandboxes, snapshots and keys.

    Attributes:
        id: Its name.
        plan: The plan that limits what it may use.
        budget: What it may spend in a month, or ``None`` if there is no limit.
    """

    id: str
    plan: str = ""
    created_at: datetime | None = None
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class AgentSession:
    """A session of managed agents that the server has worked for.

    Attributes:
        sandbox_id: Its sandbox; ``""`` until a tool is first called.
        working: A piece of its work is claimed.
        last_error: Why its work last failed.
    """

    id: str
    sandbox_id: str = ""
    working: bool = False
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class AgentAttachment:
    """An environment of Claude Managed Agents that the server works for.

    Attributes:
        environment: The environment's id.
        url: The service that it belongs to.
        sandbox: What each session's sandbox is made from, without the values of secrets.
        tools: The tools of the agent's own, with ``name`` and ``command``.
        state: ``waiting``, ``working`` or ``failing``.
        last_error: Why it fails.
    """

    id: str
    environment: str = ""
    url: str = ""
    sandbox: dict[str, Any] = field(default_factory=dict)
    tools: tuple[dict[str, str], ...] = ()
    max_sessions: int = 0
    created_at: datetime | None = None
    state: str = "waiting"
    last_error: str = ""
    sessions: tuple[AgentSession, ...] = ()


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where the project's events are sent.

    Attributes:
        url: Where they are sent.
        events: The types that are sent; empty if all are.
        format: What requests look like: ``standard``, or ``e2b`` for one that was made by E2B's
            API.
        secret: What requests are signed with, only in the answer that makes the webhook.
        last_event_id: The last event that was processed.
        delivered_at: When the receiver last accepted one.
        failing_since: Since when deliveries have been failing, or ``None``.
        last_error: Why the last attempt failed.
        next_attempt_at: When it is tried again.
        disabled_reason: Why the server has disabled it.
        refused: How many events the receiver refused, and were given up.
    """

    id: str
    url: str = ""
    name: str = ""
    events: list[str] = field(default_factory=list)
    enabled: bool = True
    format: str = "standard"
    secret: str = field(default="", repr=False)
    created_at: datetime | None = None
    last_event_id: int = 0
    delivered_at: datetime | None = None
    failing_since: datetime | None = None
    last_error: str = ""
    next_attempt_at: datetime | None = None
    disabled_reason: str = ""
    refused: int = 0


@dataclass(frozen=True, slots=True)
class WebhookTest:
    """The result of testing a webhook.

    Attributes:
        status: The HTTP status of the receiver's answer, or 0.
        error: Why the event counts as not delivered; empty if it was delivered.
        milliseconds: How long it took.
    """

    status: int = 0
    error: str = ""
    milliseconds: float = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """What the project's plan allows, and how much of it is in use.

    Attributes:
        creates_per_minute: How many sandboxes may be made in a minute; 0 where there is no
            limit.
        budget: What it may spend in a month, or ``None`` if there is no limit.
        templates: The size of the project's own templates.
    """

    plan: str = ""
    sandboxes: CountLimit = CountLimit()
    snapshots: StorageLimit = StorageLimit()
    sandbox: SandboxLimits = SandboxLimits()
    creates_per_minute: int = 0
    budget: Budget | None = None
    templates: StorageLimit = StorageLimit()


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage, and what it costs.

    Attributes:
        vcpu_seconds: CPUs that sandboxes had, times the seconds for which they ran.
        cpu_seconds: CPU time that they actually used.
        memory_mb_seconds: MiB of memory that they had, times the seconds for which they ran.
        egress_bytes: What they sent.
        ingress_bytes: What they received.
        snapshot_mb_seconds: Size of snapshots in MiB, times seconds.
        template_mb_seconds: Size of templates in MiB, times seconds.
        cost: The cost of all this, by the server's rates.
    """

    vcpu_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_mb_seconds: float = 0.0
    egress_bytes: int = 0
    ingress_bytes: int = 0
    snapshot_mb_seconds: float = 0.0
    template_mb_seconds: float = 0.0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class UsageItem(Usage):
    """The usage of one group. What it was not grouped by is empty.

    Attributes:
        day: The day, in UTC, as ``2026-01-31``.
        hour: When the hour begins, or ``None``.
        labels: The metadata that was grouped by; an empty value stands for none.
    """

    day: str = ""
    hour: datetime | None = None
    project: str = ""
    template: str = ""
    sandbox: str = ""
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UsageReport:
    """What was used from a time on, until another, in groups.

    Attributes:
        start: From when, at a whole hour.
        end: Until when, at a whole hour that is not included.
        as_of: Up to when everything is counted.
        currency: The currency of every cost.
        items: The groups.
        total: Their sum.
    """

    start: datetime
    end: datetime
    as_of: datetime
    currency: str = ""
    items: tuple[UsageItem, ...] = ()
    total: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, such as ``sandbox.created``. ``id`` grows with time."""

    id: int
    time: datetime
    type: str
    sandbox_id: str = ""
    data: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """An action that someone performed or attempted. Unknown fields are empty.

    Attributes:
        id: Grows by one from record to record.
        project: The project of the caller.
        token_id: The key that was used.
        token_name: That key's name at the time.
        action: What was done: an operation of the API, such as ``create-sandbox``, or
            ``mcp:`` and the name of a tool.
        sandbox_id: The sandbox that it was done to, or that it made.
        object: What else it was about: a file, process, snapshot, token, project or template.
        command: What was run, shortened, without what looks like a key.
        remote: The address that the request came from.
        request_id: The request's id, as in the server's log.
        status: The HTTP status of the answer.
        code: Why it failed or was refused; empty if it succeeded.
        duration_ms: How long it took, in milliseconds.
        count: How many refused attempts, or requests to ports, this record stands for,
            where they came too quickly for one each.
        link_id: The port link that was used, which the key created.
        hash: The hash of this record and the previous one.
    """

    id: int
    time: datetime
    action: str
    status: int = 0
    duration_ms: int = 0
    project: str = ""
    token_id: str = ""
    token_name: str = ""
    sandbox_id: str = ""
    object: str = ""
    command: str = ""
    remote: str = ""
    request_id: str = ""
    code: str = ""
    count: int = 0
    hash: str = ""
    link_id: str = ""


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """The result of checking that the audit was not altered.

    Attributes:
        ok: Whether it is.
        records: How many records were checked.
        first: The id of the first of them.
        last: The id of the last.
        head: The hash of the last record, to keep elsewhere and check against later.
        broken: The first record that was altered; 0 if none was.
        detail: What is wrong with it.
    """

    ok: bool = False
    records: int = 0
    first: int = 0
    last: int = 0
    head: str = ""
    broken: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CodeError:
    """The exception that ended a piece of code."""

    name: str
    value: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class CodeResult:
    """The result of a piece of code.

    Attributes:
        results: What it displayed, in order: each a mapping from MIME type to data
            (text for ``text/*``, base64 for images).
        stdout: What it wrote to standard output.
        stderr: What it wrote to standard error.
        error: The exception that ended it, or ``None``.
        execution_count: The number of this execution in its context, from 1.
        duration_ms: How long it ran, in milliseconds.
        timed_out: It was interrupted because ``timeout_seconds`` had passed.
        oom_killed: Its process was killed because the sandbox's memory was used up.
        truncated: Output over the server's limit was dropped.
        context_id: The context that it ran in.
        hint: What to do when a limit ended it; otherwise empty.
        exit_code: For code in bash, what its last command ended with, or, after ``exit``,
            the shell; otherwise ``None``.
    """

    results: tuple[dict[str, str], ...] = ()
    stdout: str = ""
    stderr: str = ""
    error: CodeError | None = None
    execution_count: int = 0
    duration_ms: int = 0
    timed_out: bool = False
    oom_killed: bool = False
    truncated: bool = False
    context_id: str = ""
    hint: str = ""
    exit_code: int | None = None

    @property
    def ok(self) -> bool:
        """Whether it ended without an exception."""
        return self.error is None

    def check(self) -> "CodeResult":
        """Return this result, or raise :class:`CodeFailedError` where there was an exception."""
        if self.error is not None:
            raise CodeFailedError(self)
        return self

    @property
    def text(self) -> str | None:
        """The plain text of the last result that has one, as a notebook would show it."""
        texts = [r["text/plain"] for r in self.results if "text/plain" in r]
        return texts[-1] if texts else None


@dataclass(frozen=True, slots=True)
class CodeContext:
    """A place where code runs and variables persist."""

    id: str
    language: str = "python"
    cwd: str = ""
    created_at: datetime | None = None


def network_to_wire(network: NetworkArg | None) -> Any:
    """Return the JSON of a network policy in any of the forms that callers may use."""
    if isinstance(network, Network):
        return network.to_wire()
    return network if network is None or isinstance(network, str) else dict(network)


def secret_to_wire(secret: Secret | Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object of a secret."""
    return secret.to_wire() if isinstance(secret, Secret) else dict(secret)


class CreateOptions(TypedDict, total=False):
    """What the sandboxes of one ``create_many`` are to be: see ``create``."""

    template: str | None
    snapshot_id: str | None
    name: str | None
    size: Size | None
    cpu: float | None
    memory_mb: int | None
    disk_mb: int | None
    network: NetworkArg | None
    timeout_seconds: int | None
    on_timeout: OnTimeout | None
    idle_seconds: int | None
    auto_resume: bool | None
    checkpoint_seconds: int | None
    on_host_loss: OnHostLoss | None
    env: Mapping[str, str] | None
    secrets: Sequence[Secret | Mapping[str, Any]] | None
    metadata: Mapping[str, str] | None
    engine: str | None
    require_acceleration: bool | None
    budget: float | None
    host_labels: Mapping[str, str] | None
    repo: str | None
    repo_token: str | None
