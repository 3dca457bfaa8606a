"""Templates described in code: each step becomes a line of a Dockerfile."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union

from ._errors import InvalidArgumentError

Ready = Union[int, str, Mapping[str, Any]]
"""When a started program is ready: a port that it listens on; a URL that answers; the absolute
path of a file; any other text is a command that succeeds. A mapping says which: ``port``,
``url``, ``file`` or ``command``."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Steps:
    """Steps that lead from one template to another. Each returns a new recipe."""

    __slots__ = ()

    def _begun(self) -> TemplateRecipe:
        raise NotImplementedError

    def apt(self, *packages: str) -> TemplateRecipe:
        """Install Debian's or Ubuntu's packages, such as ``"ffmpeg"`` or ``"git=1:2.39*"``."""
        names = " ".join(shlex.quote(p) for p in packages)
        command = (
            "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y "
            f"--no-install-recommends {names} && rm -rf /var/lib/apt/lists/*"
        )
        return self._begun()._as_root(_run("/bin/sh", "-c", command), packages)

    def pip(self, *packages: str) -> TemplateRecipe:
        """Install Python packages, such as ``"pandas==2.*"``, for all users."""
        cache = "--mount=type=cache,target=/root/.cache/pip"
        return self._begun()._as_root(_run("pip", "install", *packages, options=cache), packages)

    def npm(self, *packages: str) -> TemplateRecipe:
        """Install Node's packages, such as ``"typescript@5"``, for all users."""
        cache = "--mount=type=cache,target=/root/.npm"
        line = _run("npm", "install", "--global", *packages, options=cache)
        return self._begun()._as_root(line, packages)

    def copy(
        self,
        source: str | Sequence[str],
        target: str,
        *,
        user: str | None = None,
        mode: int | None = None,
    ) -> TemplateRecipe:
        """Copy files or folders of the build's context.

        Args:
            source: Paths in the context, with ``*``, ``?`` and ``[…]`` as in Dockerfiles.
            target: Where to; a folder where it ends with ``/`` or there are several sources.
            user: Who owns them, such as ``"user"`` or ``"1000:1000"``; root by default.
            mode: Their permissions, such as ``0o755``; unchanged by default.
        """
        sources = [source] if isinstance(source, str) else list(source)
        if not sources or not target:
            raise InvalidArgumentError("copy wants a source and a target")
        options = [f"--chown={_word(user)}"] if user else []
        options += [f"--chmod={mode:o}"] if mode is not None else []
        recipe = self._begun()._line(" ".join(["COPY", *options, _json(*sources, target)]))
        return replace(recipe, sources=(*recipe.sources, *sources))

    def run(self, command: str) -> TemplateRecipe:
        """Run a command with ``sh``. One that fails ends the build.

        It runs as root, or as who :meth:`user` has named.
        """
        if not command:
            raise InvalidArgumentError("run wants a command")
        return self._begun()._line(_run("/bin/sh", "-c", command))

    def workdir(self, path: str) -> TemplateRecipe:
        """Make a folder, and have later steps and commands in sandboxes start there."""
        return self._begun()._line(f"WORKDIR {_one_line(path, 'a folder')}")

    def user(self, name: str) -> TemplateRecipe:
        """Have later steps and commands in sandboxes run as this user."""
        return replace(self._begun()._line(f"USER {_word(name)}"), runs_as=name)

    def start(
        self,
        command: str,
        *,
        ready: Ready | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout_seconds: int | None = None,
        cpu: float | None = None,
        memory_mb: int | None = None,
        disk_mb: int | None = None,
    ) -> TemplateRecipe:
        """Have a program already running when a sandbox starts.

        It is started when the template is built, and new sandboxes wake up with it running.

        Args:
            command: What ``sh`` runs in the background.
            ready: When it may be used; at once by default.
            user: Who runs it; by default the user who runs commands in sandboxes.
            cwd: Where it starts.
            timeout_seconds: How long it may take to be ready; 60 by default.
            cpu: The processors of sandboxes that do not request any; 1 by default.
            memory_mb: The memory of sandboxes with it; 512 MiB by default.
            disk_mb: Their disk; 2048 MiB by default.
        """
        if not command:
            raise InvalidArgumentError("start wants a command")
        wish: dict[str, Any] = {"command": command}
        if ready is not None:
            wish["ready"] = _ready(ready)
        options: dict[str, Any] = {
            "user": user,
            "cwd": cwd,
            "timeout_seconds": timeout_seconds,
            "cpu": cpu,
            "memory_mb": memory_mb,
            "disk_mb": disk_mb,
        }
        wish |= {name: value for name, value in options.items() if value is not None}
        return replace(self._begun(), started=wish)


@dataclass(frozen=True, slots=True)
class TemplateRecipe(Steps):
    """A template to be built, described step by step.

    It never changes: each step returns another recipe, so that one can be the beginning of
    several. :meth:`Client.build_template` builds it.

    Attributes:
        base: The template, or the image in a registry, that it begins with.
        lines: The lines of the Dockerfile that it has become.
        sources: What it copies from the build's context.
        started: The program that is already running in new sandboxes, as the API takes it.
        runs_as: Who runs the next step; ``""`` stands for root.
    """

    base: str
    lines: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    started: dict[str, Any] | None = field(default=None)
    runs_as: str = ""

    def env(self, variables: Mapping[str, str] | None = None, /, **more: str) -> TemplateRecipe:
        """Set environment variables, for later steps and for commands in sandboxes."""
        recipe = self
        for name, value in {**(variables or {}), **more}.items():
            if not _NAME.fullmatch(name):
                raise InvalidArgumentError(f"{name!r} cannot be the name of a variable")
            value = _one_line(value, f"the variable {name}", may_be_empty=True)
            for sign in '\\"$':
                value = value.replace(sign, "\\" + sign)
            recipe = recipe._line(f'ENV {name}="{value}"')
        return recipe

    @property
    def dockerfile(self) -> str:
        """The text of the Dockerfile that is built."""
        return "\n".join([f"FROM {_word(self.base)}", *self.lines]) + "\n"

    def _begun(self) -> TemplateRecipe:
        return self

    def _line(self, text: str) -> TemplateRecipe:
        return replace(self, lines=(*self.lines, text))

    def _as_root(self, line: str, packages: Sequence[str]) -> TemplateRecipe:
        if not packages or not all(packages):
            raise InvalidArgumentError("name the packages to install")
        if self.runs_as in ("", "root"):
            return self._line(line)
        return self._line("USER root")._line(line)._line(f"USER {self.runs_as}")


def _json(*words: str) -> str:
    return json.dumps(words, ensure_ascii=False)


def _run(*words: str, options: str = "") -> str:
    return " ".join(["RUN", *([options] if options else []), _json(*words)])


def _one_line(text: str, what: str, *, may_be_empty: bool = False) -> str:
    if "\n" in text or "\r" in text or not (text or may_be_empty):
        raise InvalidArgumentError(f"{what} wants one line of text, not {text!r}")
    return text


def _word(text: str) -> str:
    if not text or any(c.isspace() for c in text):
        raise InvalidArgumentError(f"{text!r} must be one word")
    return text


def _ready(ready: Ready) -> dict[str, Any]:
    if isinstance(ready, Mapping):
        return dict(ready)
    if isinstance(ready, int):
        return {"port": ready}
    if ready.startswith(("http://", "https://")):
        return {"url": ready}
    return {"file" if ready.startswith("/") and " " not in ready else "command": ready}
