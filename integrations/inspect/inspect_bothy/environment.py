"""The sandbox environment."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, overload
from weakref import WeakKeyDictionary

from bothy import (
    AsyncSandbox,
    BothyError,
    CommandNotFoundError,
    ConnectionFailedError,
    FileNotFoundInSandboxError,
    InvalidArgumentError,
    IsADirectoryInSandboxError,
    PermissionDeniedError,
    RequestTimeoutError,
    Sandbox,
    SandboxEndedError,
    SandboxNotFoundError,
    SandboxNotReadyError,
    SandboxPausedError,
)
from bothy import ExecResult as BothyResult
from bothy.adapters import check_version, tolerant
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel

WORKSPACE = "/workspace"
MAX_STDIN = 4 << 20  # characters: a request holds 16 MiB
STARTS = 8  # sandboxes that start at once: more would only share the host's processors
GONE = (
    "The server went away during the evaluation. When it runs again, `inspect sandbox cleanup bothy` ends the sandboxes "
    "that are left, and `inspect eval-retry` with the log repeats the samples that failed."
)
DEAD = (SandboxEndedError, SandboxNotFoundError, SandboxNotReadyError, SandboxPausedError)

_starting: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class BothySandboxConfig(BaseModel, frozen=True):
    """What a sample's sandbox is: the options of ``Sandbox.create``.

    With ``snapshot_id`` every sample starts as a copy of one prepared sandbox.
    """

    template: str | None = None
    snapshot_id: str | None = None
    cpu: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    network: Literal["off", "restricted", "open"] | None = None
    timeout_seconds: int = 6 * 3600
    env: dict[str, str] | None = None
    engine: str | None = None


def template_name(config: str) -> str:
    """Return the template that a task or ``--sandbox bothy:NAME`` names.

    Inspect takes a text for the name of a file, and makes it absolute, below the folder of the task or the data set.
    """
    path = Path(config)
    if not path.is_absolute():
        return config
    above = next(folder for folder in path.parents if folder.is_dir())
    return path.relative_to(above).as_posix()


@contextlib.contextmanager
def translated(path: str | None = None) -> Iterator[None]:
    """Raise what Inspect expects where Bothy raises its own."""
    try:
        yield
    except DEAD as error:
        raise SandboxUnavailableError(str(error)) from error
    except ConnectionFailedError as error:
        raise SandboxUnavailableError(str(error)) from error
    except RequestTimeoutError as error:
        raise TimeoutError(str(error)) from error
    except FileNotFoundInSandboxError as error:
        raise FileNotFoundError(2, str(error), path) from error
    except PermissionDeniedError as error:
        raise PermissionError(13, str(error), path) from error
    except IsADirectoryInSandboxError as error:
        raise IsADirectoryError(21, str(error), path) from error


@sandboxenv(name="bothy")
@tolerant
class BothySandboxEnvironment(SandboxEnvironment):
    """One Bothy sandbox for each sample."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self.sandbox = sandbox

    @classmethod
    async def sample_init(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        metadata: dict[str, str],
    ) -> dict[str, SandboxEnvironment]:
        """Start the sample's sandbox."""
        check_version("inspect-bothy", "inspect_ai", "0.3.280", "0.3.300")
        if isinstance(config, str):
            config = BothySandboxConfig(template=template_name(config))
        options = config.model_dump(exclude_none=True) if config else BothySandboxConfig().model_dump(exclude_none=True)
        async with _starting.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(STARTS)):
            sandbox = await AsyncSandbox.create(**options, metadata={"inspect_task": task_name[:200]})
        from inspect_ai.log import transcript

        transcript().info({"sandbox_id": sandbox.id}, source="bothy")
        return {"default": cls(sandbox)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """End the sample's sandbox, also where the sample was interrupted."""
        for environment in environments.values():
            if isinstance(environment, cls):
                try:
                    await environment.sandbox.terminate()
                except SandboxNotFoundError:
                    pass
                except ConnectionFailedError as error:
                    raise SandboxUnavailableError(f"{error} {GONE}") from None

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """End sandboxes that an evaluation left behind: one, or all of Inspect's."""
        for sandbox in [Sandbox.get(id)] if id else Sandbox.list(live=True):
            if "inspect_task" in sandbox.info.metadata:
                sandbox.terminate()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Read a configuration out of a log."""
        return BothySandboxConfig(**config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command; what its time-out ends is ended with all that it started."""
        options: dict[str, Any] = {"stdin": input, "env": env, "user": user, "timeout_seconds": timeout}
        options["cwd"] = posixpath.join(WORKSPACE, cwd or "")
        try:
            with translated():
                if input is not None and len(input) > MAX_STDIN:
                    ran = await self._exec_with_file(cmd, options)
                else:
                    ran = await self.sandbox.exec(cmd, **options)
        except CommandNotFoundError as error:
            return ExecResult(False, 127, "", str(error))
        except InvalidArgumentError as error:
            if user is not None and "user" in str(error):
                raise SandboxUserUnsupportedError(str(error)) from error
            if error.code == "command_invalid" and "cannot be executed" in str(error):
                raise PermissionError(13, str(error)) from error
            raise
        if ran.timed_out:
            raise TimeoutError(f"the command was ended after {timeout} seconds")
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        for text in (ran.stdout, ran.stderr):
            if ran.truncated or len(text.encode()) > limit:
                cut = text.encode()[:limit].decode(errors="ignore")
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, cut)
        if ran.exit_code == 126 and "permission denied" in ran.stderr.lower():
            raise PermissionError(13, ran.stderr)
        return ExecResult(ran.ok, ran.exit_code, ran.stdout, ran.stderr)

    async def _exec_with_file(self, cmd: list[str], options: dict[str, Any]) -> BothyResult:
        """Run a command whose input is too large for one request: it is read from a file."""
        path = f"/tmp/.stdin-{uuid.uuid4().hex}"
        await self.sandbox.files.write(path, options.pop("stdin"))
        try:
            return await self.sandbox.exec(["/bin/sh", "-c", 'exec "$@" <"$0"', path, *cmd], **options)
        finally:
            await self.sandbox.files.remove(path)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, and the folders that it needs."""
        with translated(file):
            await self.sandbox.files.write(posixpath.join(WORKSPACE, file), contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a whole file."""
        path = posixpath.join(WORKSPACE, file)
        with translated(file):
            size = (await self.sandbox.files.stat(path)).size
            if size > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
            content: bytes = await self.sandbox.files.read_bytes(path)
        return content.decode() if text else content

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """Say how a person gets in."""
        try:
            info = await self.sandbox.refresh()
        except BothyError as error:
            raise ConnectionError(str(error)) from error
        if info.state != "running":
            raise ConnectionError(f"the sandbox {self.sandbox.id} is {info.state}")
        return SandboxConnection(type="bothy", command=f"bothy sh {self.sandbox.id}", container=self.sandbox.id)
