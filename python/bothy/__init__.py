"""Disposable, isolated Linux sandboxes for AI agents.

    from bothy import Sandbox

    with Sandbox.create(template="python-3.12") as sbx:
        sbx.files.write("/workspace/main.py", "print(sum(range(1_000_000)))")
        result = sbx.exec("python /workspace/main.py")
        print(result.stdout, result.duration_ms)

:class:`AsyncSandbox` has the same names for asyncio. Everything raised on purpose is a
:class:`BothyError` with a stable ``code`` and a ``hint``.
"""

from ._async._client import AsyncClient
from ._async._code import AsyncContexts
from ._async._files import AsyncFiles
from ._async._forward import AsyncForward
from ._async._process import AsyncProcess, AsyncProcessStream
from ._async._sandbox import AsyncSandbox
from ._async._shell import AsyncShell
from ._async._stream import AsyncEventStream, AsyncExecStream
from ._async._terminal import AsyncTerminal
from ._errors import (
    AuthenticationError,
    BothyError,
    BudgetExceededError,
    CapacityError,
    CodeFailedError,
    CommandCancelledError,
    CommandError,
    CommandNotFoundError,
    ConflictError,
    ConnectionFailedError,
    ContextNotFoundError,
    CredentialsError,
    DiskFullError,
    FileError,
    FileExistsInSandboxError,
    FileNotFoundInSandboxError,
    ForbiddenError,
    InvalidArgumentError,
    IsADirectoryInSandboxError,
    NotADirectoryInSandboxError,
    NotFoundError,
    NotTextError,
    OutcomeUnknownError,
    PermissionDeniedError,
    ProcessNotFoundError,
    ProjectNotFoundError,
    QuotaExceededError,
    RateLimitedError,
    RequestTimeoutError,
    SandboxEndedError,
    SandboxNotFoundError,
    SandboxNotReadyError,
    SandboxPausedError,
    ServerError,
    SnapshotNotFoundError,
    TemplateNotFoundError,
    TooLargeError,
    UnsupportedError,
)
from ._recipe import TemplateRecipe
from ._sync._client import Client
from ._sync._code import Contexts
from ._sync._files import Files
from ._sync._forward import Forward
from ._sync._process import Process, ProcessStream
from ._sync._sandbox import Sandbox
from ._sync._shell import Shell
from ._sync._stream import EventStream, ExecStream
from ._sync._terminal import Terminal
from ._types import (
    AgentAttachment,
    AgentSession,
    AuditCheck,
    AuditRecord,
    Budget,
    Build,
    BuildEvent,
    CodeContext,
    CodeError,
    CodeResult,
    Command,
    CountLimit,
    Durable,
    Ended,
    Endpoint,
    EndReason,
    Event,
    ExecEvent,
    ExecResult,
    FileChange,
    FileEvent,
    FileInfo,
    FileType,
    HostLoss,
    Language,
    Limits,
    Link,
    LinkKind,
    LogEntry,
    Logs,
    Metrics,
    Network,
    NetworkArg,
    NetworkDecision,
    NetworkMode,
    OnHostLoss,
    OnTimeout,
    ProcessInfo,
    Project,
    PushedTemplate,
    Resumed,
    SandboxInfo,
    SandboxLimits,
    SandboxMetrics,
    Scope,
    Secret,
    ShellResult,
    Size,
    Snapshot,
    SnapshotChanges,
    SnapshotKind,
    State,
    StorageLimit,
    Stream,
    Template,
    TemplateMemory,
    Token,
    Usage,
    UsageItem,
    UsageReport,
    Webhook,
    WebhookTest,
)
from ._version import VERSION as __version__

__all__ = [
    "AgentAttachment",
    "AgentSession",
    "AsyncClient",
    "AsyncContexts",
    "AsyncEventStream",
    "AsyncExecStream",
    "AsyncFiles",
    "AsyncForward",
    "AsyncProcess",
    "AsyncProcessStream",
    "AsyncSandbox",
    "AsyncShell",
    "AsyncTerminal",
    "AuditCheck",
    "AuditRecord",
    "AuthenticationError",
    "BothyError",
    "Budget",
    "BudgetExceededError",
    "Build",
    "BuildEvent",
    "CapacityError",
    "Client",
    "CodeContext",
    "CodeError",
    "CodeFailedError",
    "CodeResult",
    "Command",
    "CommandCancelledError",
    "CommandError",
    "CommandNotFoundError",
    "ConflictError",
    "ConnectionFailedError",
    "ContextNotFoundError",
    "Contexts",
    "CountLimit",
    "CredentialsError",
    "DiskFullError",
    "Durable",
    "EndReason",
    "Ended",
    "Endpoint",
    "Event",
    "EventStream",
    "ExecEvent",
    "ExecResult",
    "ExecStream",
    "FileError",
    "FileChange",
    "FileEvent",
    "FileExistsInSandboxError",
    "FileInfo",
    "FileNotFoundInSandboxError",
    "FileType",
    "Files",
    "ForbiddenError",
    "Forward",
    "HostLoss",
    "InvalidArgumentError",
    "IsADirectoryInSandboxError",
    "Language",
    "Limits",
    "Link",
    "LinkKind",
    "LogEntry",
    "Logs",
    "Metrics",
    "Network",
    "NetworkArg",
    "NetworkDecision",
    "NetworkMode",
    "NotADirectoryInSandboxError",
    "NotFoundError",
    "NotTextError",
    "OnHostLoss",
    "OnTimeout",
    "OutcomeUnknownError",
    "PermissionDeniedError",
    "Process",
    "ProcessInfo",
    "ProcessNotFoundError",
    "ProcessStream",
    "Project",
    "ProjectNotFoundError",
    "PushedTemplate",
    "QuotaExceededError",
    "RateLimitedError",
    "RequestTimeoutError",
    "Resumed",
    "Sandbox",
    "SandboxEndedError",
    "SandboxInfo",
    "SandboxLimits",
    "SandboxMetrics",
    "SandboxNotFoundError",
    "SandboxNotReadyError",
    "SandboxPausedError",
    "Scope",
    "Secret",
    "ServerError",
    "Shell",
    "ShellResult",
    "Size",
    "Snapshot",
    "SnapshotChanges",
    "SnapshotKind",
    "SnapshotNotFoundError",
    "State",
    "StorageLimit",
    "Stream",
    "Template",
    "TemplateMemory",
    "TemplateNotFoundError",
    "TemplateRecipe",
    "Terminal",
    "Token",
    "TooLargeError",
    "UnsupportedError",
    "Usage",
    "UsageItem",
    "UsageReport",
    "Webhook",
    "WebhookTest",
    "__version__",
]


def _show_one_package() -> None:
    # Tracebacks and help() name bothy.Sandbox, wherever it is written.
    for name in __all__:
        thing = globals()[name]
        if isinstance(thing, type):
            thing.__module__ = __name__
            for member in vars(thing).values():
                function = getattr(member, "__func__", member)
                if callable(function) and hasattr(function, "__code__"):
                    function.__module__ = __name__


_show_one_package()
