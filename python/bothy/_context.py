"""The folder that a build takes files from, less what ``.dockerignore`` names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ._archive import pack_files, walk
from ._errors import InvalidArgumentError


def pack_context(
    folder: Path, dockerfile: str = "", only: Sequence[str] | None = None
) -> Iterator[bytes]:
    """Yield a tar of a build's context.

    Args:
        folder: The context.
        dockerfile: The path of the Dockerfile in it, which may have a ``.dockerignore`` of its own.
        only: What is copied, with wildcards; all of it where this is left out.
    """
    if not folder.is_dir():
        raise InvalidArgumentError(f"{folder} cannot be the context: it is not a folder")
    ignored = Ignored(_ignore_file(folder, dockerfile))
    roots = [""] if only is None else [_fixed_part(pattern) for pattern in only]

    def needed(name: str) -> bool:
        return any(_above(root, name) or _above(name, root) for root in roots)

    def wanted(name: str) -> bool:
        # The server reads what is ignored, too.
        return name.endswith(".dockerignore") or (needed(name) and not ignored(name))

    def enter(name: str) -> bool:
        return needed(name) and (ignored.excepts or not ignored(name))

    return pack_files(folder, (path for path, name in walk(folder, enter) if wanted(name)))


def _ignore_file(folder: Path, dockerfile: str) -> str:
    for name in (f"{dockerfile}.dockerignore", ".dockerignore"):
        try:
            return (folder / name).read_text("utf-8", "surrogateescape")
        except FileNotFoundError:
            continue
    return ""


def _fixed_part(pattern: str) -> str:
    """Return the folder or file that a pattern of COPY begins with, without wildcards."""
    parts = []
    for part in posixpath.normpath("/" + pattern).strip("/").split("/"):
        if any(sign in part for sign in "*?[\\"):
            break
        parts.append(part)
    return "/".join(parts)


def _above(folder: str, name: str) -> bool:
    return folder == "" or name == folder or name.startswith(folder + "/")


class Ignored:
    """What the lines of a ``.dockerignore`` name: the last line that fits decides."""

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[bool, re.Pattern[str]]] = []
        for line in text.removeprefix("\ufeff").splitlines():
            pattern = line.strip()
            if line.startswith("#") or not pattern:
                continue
            out = not pattern.startswith("!")
            pattern = pattern.removeprefix("!").strip()
            if pattern:
                pattern = posixpath.normpath(pattern)
                pattern = pattern.lstrip("/") if len(pattern) > 1 else pattern
                self._rules.append((out, _compile(pattern)))

    @property
    def excepts(self) -> bool:
        """Whether something inside of an ignored folder may be kept."""
        return any(not out for out, _ in self._rules)

    def __call__(self, name: str) -> bool:
        """Tell whether a path is ignored, by itself or with a folder above it."""
        parts = name.split("/")
        above = ["/".join(parts[: i + 1]) for i in range(len(parts))]
        ignored = False
        for out, rule in self._rules:
            if out != ignored and any(rule.fullmatch(path) for path in above):
                ignored = out
        return ignored


def _compile(pattern: str) -> re.Pattern[str]:
    out, i = [], 0
    while i < len(pattern):
        sign = pattern[i]
        i += 1
        if sign == "*" and pattern[i : i + 1] == "*":
            i += 1
            slash = pattern[i : i + 1] == "/"
            i += slash
            rest = pattern[i:]
            plain_end = i == 2 and not slash and not any(sign in rest for sign in "*?[]\\")
            out.append(".*" if not rest or plain_end else "(.*/)?")
        elif sign == "*":
            out.append("[^/]*")
        elif sign == "?":
            out.append("[^/]")
        elif sign == "\\" and i < len(pattern):
            out.append(re.escape(pattern[i]))
            i += 1
        else:
            out.append("\\" + sign if sign in ".+()|{}$" else sign)
    try:
        return re.compile("".join(out), re.DOTALL)
    except re.error as error:
        raise InvalidArgumentError(
            f".dockerignore has a pattern that cannot be read: {pattern!r}: {error}"
        ) from error
