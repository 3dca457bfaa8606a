"""Bothy's errors as those of the framework."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agents.sandbox.errors import (
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.types import User
from bothy import (
    BothyError,
    CapacityError,
    ConnectionFailedError,
    FileNotFoundInSandboxError,
    RateLimitedError,
    RequestTimeoutError,
)

PASSING = (CapacityError, ConnectionFailedError, RateLimitedError, RequestTimeoutError)


def user_name(user: str | User | None) -> str | None:
    """Return the name of a user."""
    return user.name if isinstance(user, User) else user


def transport(command: Sequence[str | Path], error: BothyError) -> ExecTransportError:
    """Return the error of a command that could not be run."""
    return ExecTransportError(command=command, cause=error, **_about(error), message=str(error))


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise what the framework expects when a file cannot be read."""
    try:
        yield
    except FileNotFoundInSandboxError as error:
        raise WorkspaceReadNotFoundError(path=path, cause=error) from error
    except BothyError as error:
        raise WorkspaceArchiveReadError(path=path, cause=error, **_about(error)) from error


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise what the framework expects when a file cannot be written."""
    try:
        yield
    except BothyError as error:
        about = {**_about(error), "message": str(error)}
        raise WorkspaceArchiveWriteError(path=path, cause=error, **about) from error


def _about(error: BothyError) -> dict[str, Any]:
    context = {"backend": "bothy", "reason": error.code, "provider_error": str(error)}
    return {"context": context, "retryable": isinstance(error, PASSING)}
