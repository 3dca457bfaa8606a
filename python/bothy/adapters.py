"""What adapters to agent frameworks share. For those who write one."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from ._types import ExecResult

_Class = TypeVar("_Class", bound=type)


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


def tolerant(cls: _Class) -> _Class:
    """Let the methods through which a framework calls a class ignore new keyword arguments.

    A framework's newer version may give more to a method that the class overrides. Each such
    argument is told once, as an :class:`UntestedVersionWarning`. Decorates the class.
    """
    for name in overriding(cls):
        member = vars(cls)[name]
        function = getattr(member, "__func__", member)
        taken = inspect.signature(function).parameters
        if any(p.kind is p.VAR_KEYWORD for p in taken.values()):
            continue
        wrapped = _ignoring(function, frozenset(taken))
        if isinstance(member, (classmethod, staticmethod)):
            setattr(cls, name, type(member)(wrapped))
        else:
            setattr(cls, name, wrapped)
    return cls


def overriding(cls: type) -> list[str]:
    """Return the names of a class's methods that override those of its bases."""
    return [
        name
        for name, member in vars(cls).items()
        if not name.startswith("__")
        and inspect.isfunction(getattr(member, "__func__", member))
        and any(name in vars(base) for base in cls.__mro__[1:])
    ]


def _ignoring(function: Callable[..., Any], taken: frozenset[str]) -> Callable[..., Any]:
    def known(arguments: dict[str, Any]) -> dict[str, Any]:
        for name in arguments.keys() - taken:
            _tell_ignored(function.__qualname__, name)
        return {name: value for name, value in arguments.items() if name in taken}

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **known(kwargs))

        return call

    @functools.wraps(function)
    def call_at_once(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **known(kwargs))

    return call_at_once


@functools.cache
def _tell_ignored(method: str, argument: str) -> None:
    warnings.warn(
        f"{method} does not know the argument {argument}, and ignores it: the framework is newer "
        "than the adapter. If something is missing, install a tested version.",
        UntestedVersionWarning,
        stacklevel=4,
    )


def notes_on(result: ExecResult) -> str:
    """Return what its output does not tell of a command, for a model to read behind it."""
    cut = "\n[output was dropped here: it was too large]\n" if result.truncated else ""
    return cut + result.hint


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.match(r"[\d.]*", version)[0].strip(".").split("."))  # type: ignore[index]
