"""A session: one sandbox."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from pathlib import Path
from typing import cast

from agents.sandbox.errors import (
    ExecNonZeroError,
    ExecTimeoutError,
    ExposedPortUnavailableError,
    WorkspaceArchiveReadError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.session.mount_lifecycle import with_ephemeral_mounts_removed
from agents.sandbox.session.runtime_helpers import (
    RESOLVE_WORKSPACE_PATH_HELPER,
    RuntimeHelperScript,
)
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
from agents.sandbox.workspace_paths import coerce_posix_path, posix_path_as_path, sandbox_path_str
from bothy import (
    AsyncForward,
    AsyncSandbox,
    BothyError,
    CommandNotFoundError,
    SandboxEndedError,
    SandboxNotFoundError,
    SandboxPausedError,
)
from bothy.adapters import notes_on, tolerant

from .errors import reading, transport, user_name, writing
from .options import BothySandboxSessionState
from .pty import BothyProcesses

IN_MEMORY = 16 << 20
"""Bytes of a workspace's archive that are held in memory; a larger one is in a file."""

AS_ROOT = ("groupadd", "useradd", "usermod", "chgrp")
"""What the framework runs to set up the accounts of a manifest."""

MAKE_ROOT = '[ -d "$1" ] || { mkdir -p -- "$1" && chown user -- "$1"; }'


@tolerant
class BothySandboxSession(BothyProcesses):
    """A session of the Agents SDK in a Bothy sandbox."""

    state: BothySandboxSessionState

    def __init__(self, *, state: BothySandboxSessionState, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self.state = state
        self.sandbox = sandbox
        self._forwards: dict[int, AsyncForward] = {}
        self._left = False

    async def running(self) -> bool:
        """Tell whether the sandbox runs."""
        try:
            return not self._left and (await self.sandbox.refresh()).state == "running"
        except BothyError:
            return False

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    async def _prepare_backend_workspace(self) -> None:
        command = ["sh", "-c", MAKE_ROOT, "sh", self.state.manifest.root]
        (await self.sandbox.exec(command, cwd="/", user="root")).check()

    async def _shutdown_backend(self) -> None:
        for forward in self._forwards.values():
            await forward.close()
        self._forwards.clear()
        if self._left:
            return
        with contextlib.suppress(SandboxPausedError, SandboxEndedError, SandboxNotFoundError):
            if self.state.options.pause_on_exit:
                await self.sandbox.pause()
            else:
                await self.sandbox.terminate()
        await self.sandbox.close()
        self._left = True

    async def exec(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
    ) -> ExecResult:
        """Run a command; a time-out ends it with all that it started."""
        line = self._prepare_exec_command(*command, shell=shell, user=None)
        return await self._run(line, timeout, user_name(user))

    async def _exec_internal(
        self, *command: str | Path, timeout: float | None = None
    ) -> ExecResult:
        return await self._run([str(part) for part in command], timeout, None)

    async def _exec_checked_nonzero(self, *command: str | Path) -> ExecResult:
        user = "root" if command[0] in AS_ROOT else None
        result = await self._run([str(part) for part in command], None, user)
        if not result.ok():
            raise ExecNonZeroError(result, command=command)
        return result

    async def _run(self, line: list[str], timeout: float | None, user: str | None) -> ExecResult:
        seconds = None if timeout is None else max(timeout, 0.001)
        try:
            ran = await self.sandbox.exec(
                line,
                cwd=self.state.manifest.root,
                env=await self._environment(),
                user=user,
                timeout_seconds=seconds,
            )
        except CommandNotFoundError as error:
            return ExecResult(stdout=b"", stderr=str(error).encode(), exit_code=127)
        except BothyError as error:
            raise transport(line, error) from error
        if ran.timed_out:
            raise ExecTimeoutError(command=line, timeout_s=timeout)
        stderr = ran.stderr_bytes + notes_on(ran).encode()
        return ExecResult(stdout=ran.stdout_bytes, stderr=stderr, exit_code=ran.exit_code)

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        try:
            if port not in self._forwards:
                self._forwards[port] = await self.sandbox.forward(port)
        except (BothyError, OSError) as error:
            raise ExposedPortUnavailableError(
                port=port,
                exposed_ports=self.state.exposed_ports,
                reason="backend_unavailable",
                context={"backend": "bothy", "detail": str(error)},
                cause=error,
            ) from error
        forward = self._forwards[port]
        return ExposedPortEndpoint(host=forward.host, port=forward.port)

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    async def read(self, path: Path | str, *, user: str | User | None = None) -> io.IOBase:
        """Read a file, byte for byte."""
        return io.BytesIO(await self._content(path, None, user))

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        return await self._content(path, max_bytes, None)

    async def _content(
        self, path: Path | str, length: int | None, user: str | User | None
    ) -> bytes:
        inside = sandbox_path_str(await self._validate_path_access(path))
        with reading(_shown(path)):
            content: bytes = await self.sandbox.files.read_bytes(
                inside, length=length, user=user_name(user)
            )
        return content

    async def write(
        self, path: Path | str, data: io.IOBase, *, user: str | User | None = None
    ) -> None:
        """Write a file, and the folders that it needs."""
        content = data.read()
        if isinstance(content, str):
            content = content.encode()
        if not isinstance(content, (bytes, bytearray)):
            raise WorkspaceWriteTypeError(path=_shown(path), actual_type=type(content).__name__)
        inside = sandbox_path_str(await self._validate_path_access(path, for_write=True))
        with writing(_shown(path)):
            await self.sandbox.files.write(inside, content, user=user_name(user))

    async def persist_workspace(self) -> io.IOBase:
        """Return the workspace as a tar, without what the manifest calls ephemeral."""
        root = self._workspace_root_path()
        return await with_ephemeral_mounts_removed(
            self,
            self._pack,
            error_path=root,
            error_cls=WorkspaceArchiveReadError,
            operation_error_context_key="snapshot_error_before_remount_corruption",
        )

    async def _pack(self) -> io.IOBase:
        root = self._workspace_root_path()
        skipped = sorted(path.as_posix() for path in self._persist_workspace_skip_relpaths())
        exclude = ["/" + re.sub(r"([\\*?\[])", r"\\\1", path) for path in skipped if path != "."]
        archive = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)
        with reading(root):
            await self.sandbox.files.read_archive(
                root.as_posix(), archive, exclude=exclude, user="root"
            )
        archive.seek(0)
        return cast(io.IOBase, archive)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpack a tar into the workspace. No entry of it leads out of there."""
        root = self._workspace_root_path()
        with writing(root):
            await self.sandbox.files.write_archive(root.as_posix(), data)


def _shown(path: Path | str) -> Path:
    return posix_path_as_path(coerce_posix_path(path))
