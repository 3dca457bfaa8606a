"""The errors that every call may raise, and how a server's answer becomes one.

Everything raised on purpose is a :class:`BothyError`. Match on the class, or on
the stable ``code``; show ``str(error)`` to people: it holds the hint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._hints import in_python

if TYPE_CHECKING:
    from ._types import CodeResult, ExecResult


class BothyError(Exception):
    """Any failure that this package reports.

    Attributes:
        detail: One sentence that says what is wrong.
        code: The stable name of this kind of failure, such as ``sandbox_paused``.
        hint: One sentence that says what to do about it; may be empty.
        status: The HTTP status of the server's answer, or ``None`` if there was none.
        request_id: The id under which the server's log has the details, if one was sent.
        retry_after: Seconds after which a retry can succeed, if the server said so.
    """

    default_code = "error"

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        hint: str = "",
        status: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or self.default_code
        self.hint = hint
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after

    @property
    def infrastructure(self) -> bool:
        """Whether the server, its host or the way to it failed or was full, not the task.

        A training run leaves such an episode out instead of counting it as a failure.
        """
        if self.code in _INFRASTRUCTURE:
            return True
        return self.code not in _BY_CODE and self.status is not None and self.status >= 500

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed if it is made again later."""
        return self.retry_after is not None or self.code in _RETRYABLE

    def __str__(self) -> str:
        text = f"{self.detail} [{self.code}]"
        return f"{text} {self.hint}" if self.hint else text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.detail!r}, code={self.code!r}, status={self.status!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # The keyword arguments live in __dict__, which pickle restores after this call.
        return (_rebuild, (type(self), self.detail), self.__dict__)


def _rebuild(cls: type[BothyError], detail: str) -> BothyError:
    error = cls.__new__(cls, detail)
    error.args = (detail,)
    return error


class AuthenticationError(BothyError):
    """The API key is missing, unknown or expired (401)."""

    default_code = "unauthenticated"


class CredentialsError(AuthenticationError):
    """No URL or API key was given and none was found on this machine."""

    default_code = "no_credentials"


class ForbiddenError(BothyError):
    """The API key lacks the scope that this call needs (403)."""

    default_code = "missing_scope"


class InvalidArgumentError(BothyError):
    """An argument has an invalid value (400, 422)."""

    default_code = "invalid_argument"


class NotFoundError(BothyError):
    """The object does not exist, or belongs to another project (404)."""

    default_code = "not_found"


class SandboxNotFoundError(NotFoundError):
    """There is no sandbox with this id in the caller's project."""

    default_code = "sandbox_not_found"


class SnapshotNotFoundError(NotFoundError):
    """There is no snapshot with this id in the caller's project."""

    default_code = "snapshot_not_found"


class TemplateNotFoundError(NotFoundError):
    """There is no template with this name; the detail lists those that exist."""

    default_code = "template_not_found"


class ProjectNotFoundError(NotFoundError):
    """There is no project with this name, or it is not the caller's to see."""

    default_code = "project_not_found"


class ProcessNotFoundError(NotFoundError):
    """No process with this pid was started through the API, or it has been forgotten."""

    default_code = "process_not_found"


class ContextNotFoundError(NotFoundError):
    """There is no code context with this id in the sandbox."""

    default_code = "context_not_found"


class CommandNotFoundError(InvalidArgumentError):
    """The program of an argument list does not exist in the sandbox."""

    default_code = "command_not_found"


class ConflictError(BothyError):
    """The object is in a state that does not allow this call (409)."""

    default_code = "conflict"


class CloneFailedError(BothyError):
    """The repository of a new sandbox was not cloned; the detail is git's last line (422)."""

    default_code = "clone_failed"


class CommandCancelledError(ConflictError):
    """The command was killed because the request for it was given up."""

    default_code = "command_cancelled"


class OutcomeUnknownError(ConflictError):
    """The call has begun, and was cut off before its outcome was known; it is not done twice."""

    default_code = "outcome_unknown"


class SandboxPausedError(ConflictError):
    """The sandbox is paused; resume it first."""

    default_code = "sandbox_paused"


class SandboxEndedError(ConflictError):
    """The sandbox has ended; the detail says why."""

    default_code = "sandbox_ended"


class SandboxNotReadyError(ConflictError):
    """The sandbox is between two states; try again in a moment."""

    default_code = "sandbox_not_ready"


class QuotaExceededError(BothyError):
    """The project's plan does not allow more of this."""

    default_code = "quota_exceeded"


class BudgetExceededError(QuotaExceededError):
    """The budget of the project, or of the sandbox and its forks, is used up (402).

    What ran is paused, with its memory. Raise the budget and resume it.
    """

    default_code = "budget_exceeded"


class CapacityError(BothyError):
    """The host has no room for this now (503)."""

    default_code = "capacity"


class RateLimitedError(BothyError):
    """Too many calls in too short a time (429); see ``retry_after``."""

    default_code = "rate_limited"


class TooLargeError(BothyError):
    """The request is larger than the server takes (413)."""

    default_code = "too_large"


class UnsupportedError(BothyError):
    """The server, or the sandbox's engine, cannot do this."""

    default_code = "unsupported"


class FileError(BothyError):
    """A file operation inside the sandbox failed."""

    default_code = "path_invalid"


class FileNotFoundInSandboxError(FileError, NotFoundError):
    """There is no such file or folder in the sandbox."""

    default_code = "file_not_found"


class FileExistsInSandboxError(FileError, ConflictError):
    """There is already something at this path in the sandbox."""

    default_code = "file_exists"


class NotADirectoryInSandboxError(FileError):
    """A folder is needed, and the path is something else."""

    default_code = "not_a_directory"


class IsADirectoryInSandboxError(FileError):
    """A file is needed, and the path is a folder."""

    default_code = "is_a_directory"


class NotTextError(FileError, UnicodeDecodeError):
    """A file's bytes are not text in the encoding that was asked for."""

    default_code = "not_text"

    def __init__(self, detail: str, cause: UnicodeDecodeError | None = None, **more: Any) -> None:
        if cause is not None:
            fields = (cause.encoding, cause.object, cause.start, cause.end, cause.reason)
            UnicodeDecodeError.__init__(self, *fields)
        self.detail = detail
        self.code = more.get("code") or self.default_code
        self.hint = more.get("hint", "")
        self.status = self.request_id = self.retry_after = None

    def __str__(self) -> str:
        return BothyError.__str__(self)

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.encoding, self.object, self.start, self.end, self.reason)
        return (_not_text, (self.detail, self.hint, fields))


def _not_text(detail: str, hint: str, fields: tuple[Any, ...]) -> NotTextError:
    return NotTextError(detail, UnicodeDecodeError(*fields), hint=hint)


class PermissionDeniedError(FileError):
    """The user inside the sandbox may not do this with this file."""

    default_code = "permission_denied"


class DiskFullError(FileError):
    """The sandbox's disk is full."""

    default_code = "disk_full"


class RequestTimeoutError(BothyError, TimeoutError):
    """The server did not answer in the time allowed for the call."""

    default_code = "timeout"


class ConnectionFailedError(BothyError, ConnectionError):
    """The server could not be reached, or the connection broke."""

    default_code = "connection_failed"


class ServerError(BothyError):
    """Something failed inside the server (5xx)."""

    default_code = "internal"


class CommandError(BothyError):
    """A command ended with a non-zero exit code and was checked.

    Attributes:
        result: The whole :class:`ExecResult`.
    """

    default_code = "command_failed"

    def __init__(self, result: ExecResult) -> None:
        said = (result.stderr or result.stdout).strip()[-500:]
        text = f"the command ended with exit code {result.exit_code}"
        super().__init__(f"{text}: {said}" if said else text, hint=result.hint)
        self.result = result


class CodeFailedError(BothyError):
    """A piece of code ended with an exception and was checked.

    Attributes:
        result: The whole :class:`CodeResult`.
    """

    default_code = "code_failed"

    def __init__(self, result: CodeResult) -> None:
        assert result.error is not None
        super().__init__(f"the code ended with {result.error.name}: {result.error.value}")
        self.result = result


_CLASSES: tuple[type[BothyError], ...] = (
    AuthenticationError,
    ForbiddenError,
    InvalidArgumentError,
    NotFoundError,
    SandboxNotFoundError,
    SnapshotNotFoundError,
    TemplateNotFoundError,
    ProjectNotFoundError,
    ProcessNotFoundError,
    ContextNotFoundError,
    CloneFailedError,
    CommandCancelledError,
    OutcomeUnknownError,
    CommandNotFoundError,
    ConflictError,
    SandboxPausedError,
    SandboxEndedError,
    SandboxNotReadyError,
    QuotaExceededError,
    BudgetExceededError,
    CapacityError,
    RateLimitedError,
    TooLargeError,
    UnsupportedError,
    FileError,
    FileNotFoundInSandboxError,
    FileExistsInSandboxError,
    NotADirectoryInSandboxError,
    IsADirectoryInSandboxError,
    PermissionDeniedError,
    DiskFullError,
    RequestTimeoutError,
    ServerError,
)

_BY_CODE: dict[str, type[BothyError]] = {cls.default_code: cls for cls in _CLASSES} | {
    "token_expired": AuthenticationError,
    "template_invalid": InvalidArgumentError,
    "command_invalid": InvalidArgumentError,
    "user_not_found": InvalidArgumentError,
    "template_in_use": ConflictError,
    "snapshot_in_use": ConflictError,
    "idempotency_mismatch": ConflictError,
    "snapshot_damaged": ServerError,
    "engine_failed": ServerError,
    "engine_unavailable": ServerError,
    "acceleration_unavailable": UnsupportedError,
    "shutting_down": CapacityError,
    "store_unavailable": CapacityError,
    "guest_unreachable": ServerError,
}

_RETRYABLE = frozenset(
    {
        "capacity",
        "connection_failed",
        "engine_failed",
        "guest_unreachable",
        "internal",
        "rate_limited",
        "sandbox_not_ready",
        "shutting_down",
        "store_unavailable",
        "timeout",
    }
)

_INFRASTRUCTURE = (_RETRYABLE - {"sandbox_not_ready"}) | {
    "engine_unavailable",
    "misdirected_request",
    "outcome_unknown",
    "snapshot_damaged",
}

_BY_STATUS: dict[int, type[BothyError]] = {
    400: InvalidArgumentError,
    401: AuthenticationError,
    403: ForbiddenError,
    404: NotFoundError,
    408: RequestTimeoutError,
    409: ConflictError,
    405: UnsupportedError,
    413: TooLargeError,
    415: InvalidArgumentError,
    421: InvalidArgumentError,
    422: InvalidArgumentError,
    429: RateLimitedError,
    501: UnsupportedError,
    503: CapacityError,
    504: RequestTimeoutError,
}


def error_from_problem(
    problem: Mapping[str, Any],
    *,
    status: int | None = None,
    request_id: str | None = None,
    retry_after: float | None = None,
) -> BothyError:
    """Return the error that an ``application/problem+json`` object describes."""
    status = _int(problem.get("status")) or status
    code = str(problem.get("code") or "")
    cls = _BY_CODE.get(code) or _class_for_status(status)
    return cls(
        str(problem.get("detail") or problem.get("title") or f"the server answered {status}"),
        code=code or None,
        hint=in_python(str(problem.get("hint") or "")),
        status=status,
        request_id=str(problem.get("request_id") or request_id or "") or None,
        retry_after=retry_after,
    )


def error_from_response(status: int, headers: Mapping[str, str], body: bytes) -> BothyError:
    """Return the error for an answer with a status of 400 or more."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        text = body.decode("utf-8", "replace").strip()[:200]
        problem = {"detail": f"the server answered {status}" + (f": {text}" if text else "")}
    return error_from_problem(
        problem,
        status=status,
        request_id=headers.get("x-request-id"),
        retry_after=parse_retry_after(headers.get("retry-after")),
    )


def parse_retry_after(value: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header; dates are not used by the server."""
    try:
        return max(0.0, float(value)) if value else None
    except ValueError:
        return None


def _class_for_status(status: int | None) -> type[BothyError]:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return ServerError if status is not None and status >= 500 else BothyError


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
