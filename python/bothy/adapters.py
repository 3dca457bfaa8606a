"""What adapters to agent frameworks share. For those who write one."""

from __future__ import annotations

import functools
import importlib.metadata
import re
import warnings

from ._types import ExecResult


class UntestedVersionWarning(UserWarning):
    """A framework's version is outside the range that an adapter was tested with."""


@functools.cache
def check_version(adapter: str, package: str, oldest: str, below: str) -> bool:
    """Warn once where the installed version of a package was never tested.

    Args:
        adapter: The adapter's name, for the message.
        package: The framework's distribution.
        oldest: The oldest version that was tested.
        below: The first version that was not.
    """
    version = importlib.metadata.version(package)
    if _parts(oldest) <= _parts(version) < _parts(below):
        return True
    warnings.warn(
        f"{adapter} was tested with {package} from {oldest} to below {below}, and this is "
        f"{version}. It may work; if it does not, install a tested version.",
        UntestedVersionWarning,
        stacklevel=3,
    )
    return False


def notes_on(result: ExecResult) -> str:
    """Return what its output does not tell of a command, for a model to read behind it."""
    cut = "\n[output was dropped here: it was too large]\n" if result.truncated else ""
    return cut + result.hint


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.match(r"[\d.]*", version)[0].strip(".").split("."))  # type: ignore[index]
