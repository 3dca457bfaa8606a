"""Programs that were written for Daytona's SDK, with only their import line changed.

    from bothy_daytona import Daytona

    sandbox = Daytona().create()
    print(sandbox.process.exec("echo hello").result)
    sandbox.delete()

This is the part that small programs use: making and deleting sandboxes, running commands
and code, and moving files. New programs are better off with :class:`bothy.Sandbox`, which
``sandbox.bothy`` is.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import overload

from bothy import Client, FileInfo, Sandbox

__all__ = ["Daytona", "DaytonaSandbox", "ExecuteResponse", "FileSystem", "Process"]


@dataclass(frozen=True, slots=True)
class ExecuteResponse:
    """What came of a command: its exit code, and both of its outputs as one text."""

    exit_code: int
    result: str


class Process:
    """Runs commands and code in a sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        """Wrap a sandbox."""
        self._sandbox = sandbox

    def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> ExecuteResponse:
        """Run a line by the shell, and return when it has ended.

        Args:
            command: The line.
            cwd: Where to run it; ``/workspace`` where not given.
            env: More environment variables.
            timeout: Kill it after so many seconds; 0 or ``None`` for never.

        Raises:
            BothyError: It could not be run. A non-zero exit code is not an error.
        """
        output: list[str] = []
        result = self._sandbox.exec(
            command,
            cwd=cwd,
            env=env,
            timeout_seconds=timeout or None,
            on_stdout=output.append,
            on_stderr=output.append,
        )
        return ExecuteResponse(result.exit_code, "".join(output))

    def code_run(self, code: str, timeout: float | None = None) -> ExecuteResponse:
        """Run Python code in an interpreter of its own.

        Args:
            code: The code.
            timeout: Kill it after so many seconds; 0 or ``None`` for never.
        """
        output: list[str] = []
        result = self._sandbox.exec(
            ["python3", "-c", code],
            timeout_seconds=timeout or None,
            on_stdout=output.append,
            on_stderr=output.append,
        )
        return ExecuteResponse(result.exit_code, "".join(output))


class FileSystem:
    """Moves files into and out of a sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        """Wrap a sandbox."""
        self._sandbox = sandbox

    def upload_file(self, file: bytes | str | PathLike[str], remote_path: str) -> None:
        """Write bytes, or a file of this computer, to a file of the sandbox."""
        if isinstance(file, bytes):
            self._sandbox.files.write(remote_path, file)
        else:
            self._sandbox.files.upload(file, remote_path)

    @overload
    def download_file(self, remote_path: str) -> bytes: ...
    @overload
    def download_file(self, remote_path: str, local_path: str | PathLike[str]) -> None: ...
    def download_file(
        self, remote_path: str, local_path: str | PathLike[str] | None = None
    ) -> bytes | None:
        """Return a file's bytes, or copy it to a path of this computer."""
        if local_path is None:
            return self._sandbox.files.read_bytes(remote_path)
        self._sandbox.files.download(remote_path, Path(local_path))
        return None

    def list_files(self, path: str) -> list[FileInfo]:
        """Return the entries of a folder."""
        return self._sandbox.files.list(path)

    def create_folder(self, path: str, mode: str = "755") -> None:
        """Make a folder and those above it, with permissions in octal."""
        self._sandbox.files.mkdir(path)
        self._sandbox.exec(["chmod", mode, path]).check()

    def delete_file(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it."""
        self._sandbox.files.remove(path)


class DaytonaSandbox:
    """A sandbox, with the names that it has in Daytona's SDK.

    Attributes:
        bothy: The sandbox itself, with all that it can do.
        process: Runs commands in it.
        fs: Moves files into and out of it.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        """Wrap a sandbox."""
        self.bothy = sandbox
        self.process = Process(sandbox)
        self.fs = FileSystem(sandbox)

    @property
    def id(self) -> str:
        """Its id."""
        return self.bothy.id

    def delete(self) -> None:
        """End it and free all that it held."""
        self.bothy.terminate()


class Daytona:
    """Makes and finds sandboxes."""

    def __init__(self, client: Client | None = None) -> None:
        """Use a client, or the server that :class:`bothy.Client` finds."""
        self._client = client or Client()

    def create(self, template: str | None = None) -> DaytonaSandbox:
        """Make a sandbox from a template, ``python-3.12`` where not given."""
        return DaytonaSandbox(Sandbox.create(template, client=self._client))

    def get(self, sandbox_id: str) -> DaytonaSandbox:
        """Find a sandbox by its id."""
        return DaytonaSandbox(Sandbox.get(sandbox_id, client=self._client))

    def list(self) -> builtins.list[DaytonaSandbox]:
        """Return the sandboxes that have not ended, newest first."""
        found = Sandbox.list(state=["starting", "running", "paused"], client=self._client)
        return [DaytonaSandbox(sandbox) for sandbox in found]

    def delete(self, sandbox: DaytonaSandbox) -> None:
        """End a sandbox."""
        sandbox.delete()
