"""SWE-ReX with a sandbox: ``BothyDeployment`` takes the place of ``DockerDeployment``.

Nothing of SWE-ReX runs in the sandbox: sessions are Bothy's kept shells.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from bothy import AsyncSandbox, AsyncShell, BothyError, ExecResult
from bothy.adapters import notes_on
from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    DeploymentNotStartedError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime import abstract as rex
from swerex.utils.log import get_logger


class BothyRuntime(rex.AbstractRuntime):
    """Runs commands in a sandbox."""

    def __init__(self, sandbox: AsyncSandbox, logger: logging.Logger) -> None:
        self.logger = logger
        self.sandbox = sandbox
        self._shells: dict[str, AsyncShell] = {}

    async def is_alive(self, *, timeout: float | None = None) -> rex.IsAliveResponse:
        try:
            info = await self.sandbox.refresh()
        except BothyError as error:
            return rex.IsAliveResponse(is_alive=False, message=str(error))
        gone = f"the sandbox {info.id} is {info.state}" if info.state != "running" else ""
        return rex.IsAliveResponse(is_alive=not gone, message=gone)

    async def create_session(self, request: rex.CreateSessionRequest) -> rex.CreateSessionResponse:
        if request.session in self._shells:
            raise SessionExistsError(f"session {request.session!r} already exists")
        shell = await self.sandbox.shell()
        # A session is a terminal for SWE-ReX: what goes wrong is read between the rest.
        begun = " ; ".join(["exec 2>&1", *(f"source {path}" for path in request.startup_source)])
        ran = await shell.exec(begun)
        self._shells[request.session] = shell
        return rex.CreateBashSessionResponse(output=ran.stdout)

    async def run_in_session(self, action: rex.Action) -> rex.Observation:
        shell = self._shell(action.session)
        if isinstance(action, rex.BashInterruptAction):
            await shell.interrupt()
            return rex.BashObservation(exit_code=0)
        if action.is_interactive_command or action.is_interactive_quit or action.expect:
            raise NotImplementedError("programs that ask questions need a terminal: use Sandbox.terminal")
        ran = await shell.exec(action.command, timeout_seconds=action.timeout)
        if ran.timed_out:
            message = f"timeout after {action.timeout} seconds while running command {action.command!r}"
            raise CommandTimeoutError(f"{message}; it was ended. Its output:\n{ran.stdout}")
        if ran.exit_code == 2:
            await self._check_syntax(action.command)
        if ran.ended:
            self.logger.warning("The session %s ended and starts again", action.session)
            await shell.exec("exec 2>&1")
        output = ran.stdout + ran.stderr + notes_on(ran)
        if action.check == "raise":
            _check(action.command, ran.exit_code, f"Here is the output:\n{output!r}", action.error_msg)
        return rex.BashObservation(output=output, exit_code=None if action.check == "ignore" else ran.exit_code)

    async def _check_syntax(self, command: str) -> None:
        read = await self.sandbox.exec(["bash", "-n", "-c", command])
        if read.exit_code != 0:
            raise BashIncorrectSyntaxError(
                f"{command!r} is no command for bash:\n{read.stderr}",
                extra_info={"bash_stdout": read.stdout, "bash_stderr": read.stderr},
            )

    async def close_session(self, request: rex.CloseSessionRequest) -> rex.CloseSessionResponse:
        await self._shell(request.session).close()
        del self._shells[request.session]
        return rex.CloseBashSessionResponse()

    def _shell(self, session: str) -> AsyncShell:
        if session not in self._shells:
            raise SessionDoesNotExistError(f"session {session!r} does not exist")
        return self._shells[session]

    async def execute(self, command: rex.Command) -> rex.CommandResponse:
        given = command.command
        line = given if isinstance(given, str) else given[0]
        ran: ExecResult = await self.sandbox.exec(
            ["sh", "-c", line] if command.shell else [given] if isinstance(given, str) else given,
            cwd=command.cwd,
            env=command.env,
            timeout_seconds=command.timeout,
            merge_stderr=command.merge_output_streams,
        )
        if ran.timed_out:
            raise CommandTimeoutError(f"Timeout ({command.timeout}s) exceeded while running command")
        if command.check:
            _check(str(given), ran.exit_code, f"Stdout:\n{ran.stdout!r}\nStderr:\n{ran.stderr!r}", command.error_msg)
        return rex.CommandResponse(stdout=ran.stdout, stderr=ran.stderr + notes_on(ran), exit_code=ran.exit_code)

    async def read_file(self, request: rex.ReadFileRequest) -> rex.ReadFileResponse:
        raw = await self.sandbox.files.read_bytes(request.path)
        return rex.ReadFileResponse(content=raw.decode(request.encoding or "utf-8", request.errors or "strict"))

    async def write_file(self, request: rex.WriteFileRequest) -> rex.WriteFileResponse:
        await self.sandbox.files.write(request.path, request.content)
        return rex.WriteFileResponse()

    async def upload(self, request: rex.UploadRequest) -> rex.UploadResponse:
        await self.sandbox.files.upload(Path(request.source_path), request.target_path)
        return rex.UploadResponse()

    async def close(self) -> rex.CloseResponse:
        for name in list(self._shells):
            await self.close_session(rex.CloseBashSessionRequest(session=name))
        return rex.CloseResponse()


def _check(command: str, exit_code: int, told: str, said: str) -> None:
    if exit_code != 0:
        message = f"Command {command!r} failed with exit code {exit_code}. {told}"
        raise NonZeroExitCodeError(f"{said}: {message}" if said else message)


class BothyDeployment(AbstractDeployment):
    """One sandbox, from ``start`` to ``stop``.

    Args:
        template: What it starts from.
        options: What else ``AsyncSandbox.create`` takes, such as ``network`` and ``memory_mb``.
    """

    def __init__(self, template: str = "python-3.12", *, logger: logging.Logger | None = None, **options: Any) -> None:
        self.logger = logger or get_logger("rex-deploy")
        self._create = {"timeout_seconds": 3600, **options, "template": template}
        self._hooks = CombinedDeploymentHook()
        self._runtime: BothyRuntime | None = None

    def add_hook(self, hook: DeploymentHook) -> None:
        self._hooks.add_hook(hook)

    async def start(self) -> None:
        if self._runtime is not None:
            self.logger.warning("The deployment is started already")
            return
        self._hooks.on_custom_step("Starting a sandbox")
        sandbox = await AsyncSandbox.create(**self._create)
        self.logger.info("The deployment is the sandbox %s", sandbox.id)
        self._runtime = BothyRuntime(sandbox, self.logger)

    async def stop(self) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.sandbox.terminate()

    async def is_alive(self, *, timeout: float | None = None) -> rex.IsAliveResponse:
        return await self.runtime.is_alive(timeout=timeout)

    @property
    def runtime(self) -> BothyRuntime:
        if self._runtime is None:
            raise DeploymentNotStartedError()
        return self._runtime
