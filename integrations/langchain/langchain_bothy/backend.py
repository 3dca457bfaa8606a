"""The sandbox backend."""

from __future__ import annotations

import asyncio
from typing import Any

from bothy import (
    AsyncClient,
    AsyncSandbox,
    BothyError,
    Client,
    ExecResult,
    FileNotFoundInSandboxError,
    InvalidArgumentError,
    IsADirectoryInSandboxError,
    NotADirectoryInSandboxError,
    PermissionDeniedError,
    Sandbox,
)
from bothy.adapters import check_version, tolerant
from deepagents.backends.protocol import (
    ExecuteOffloadResult,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

DEFAULT_TIMEOUT = 30 * 60
"""Seconds after which a command is ended, unless its caller says otherwise."""

ARTIFACTS = ("/large_tool_results", "/conversation_history", "/blobs")
"""Where deepagents leaves files of its own, which the sandbox's user could not make."""

ERRORS: list[tuple[type[BothyError], str]] = [
    (FileNotFoundInSandboxError, "file_not_found"),
    (PermissionDeniedError, "permission_denied"),
    (IsADirectoryInSandboxError, "is_directory"),
    (NotADirectoryInSandboxError, "invalid_path"),
    (InvalidArgumentError, "invalid_path"),
]


@tolerant
class BothySandbox(BaseSandbox):
    """One Bothy sandbox as a backend.

    Args:
        sandbox: The sandbox. The caller ends it.
        timeout: Seconds after which a command is ended; 0 for never.
        url: The server's address for asynchronous calls; by default the environment's.
        api_key: The key for asynchronous calls; by default the environment's.
    """

    # Large outputs are left in files: every built-in template has what that takes.
    enable_capture_offload = True

    def __init__(
        self,
        *,
        sandbox: Sandbox,
        timeout: int = DEFAULT_TIMEOUT,
        url: str | None = None,
        api_key: str | None = None,
    ) -> None:
        check_version("langchain-bothy", "deepagents", "0.7.0", "0.8")
        self.sandbox = sandbox
        self._timeout = timeout
        self._prepared = False
        self._access = {"url": url, "api_key": api_key}

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self.sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command; a time-out ends it with all that it started."""
        options = self._options(timeout)
        return _response(self.sandbox.exec(command, **options), options)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command; a task that is cancelled ends it, too."""
        # A client for each call: the agent's event loops come and go.
        options = self._options(timeout)
        async with AsyncClient(**self._access) as client:
            sandbox = await AsyncSandbox.get(self.id, client=client)
            return _response(await sandbox.exec(command, **options), options)

    def _options(self, timeout: int | None) -> dict[str, Any]:
        seconds = self._timeout if timeout is None else timeout
        return {"timeout_seconds": seconds or None, "merge_stderr": True}

    def execute_with_offload(
        self, command: str, capture_path: str, **options: Any
    ) -> ExecuteOffloadResult:
        """Run a command, and leave a large output in a file of the sandbox."""
        self._prepare(capture_path)
        return super().execute_with_offload(command, capture_path, **options)

    async def aexecute_with_offload(
        self, command: str, capture_path: str, **options: Any
    ) -> ExecuteOffloadResult:
        """Run a command, and leave a large output in a file of the sandbox."""
        await asyncio.to_thread(self._prepare, capture_path)
        return await super().aexecute_with_offload(command, capture_path, **options)

    def _prepare(self, path: str) -> None:
        if self._prepared or not path.startswith(ARTIFACTS):
            return
        self.sandbox.exec(["mkdir", "-p", "-m", "1777", *ARTIFACTS], user="root").check()
        self._prepared = True

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files, and the folders that they need."""
        return [FileUploadResponse(path, self._upload(path, content)) for path, content in files]

    def _upload(self, path: str, content: bytes) -> str | None:
        if not path.startswith("/"):
            return "invalid_path"
        try:
            self._prepare(path)
            self.sandbox.files.write(path, content)
        except BothyError as error:
            return _name(error)
        return None

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files, byte for byte."""
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path, None, "invalid_path")
        try:
            return FileDownloadResponse(path, self.sandbox.files.read_bytes(path))
        except BothyError as error:
            return FileDownloadResponse(path, None, _name(error))


def _name(error: BothyError) -> str:
    return next((name for kind, name in ERRORS if isinstance(error, kind)), str(error))


def _response(result: ExecResult, options: dict[str, Any]) -> ExecuteResponse:
    output, code = result.stdout, result.exit_code
    if result.timed_out:
        output += f"\n[the command was ended after {options['timeout_seconds']} seconds]"
        code = 124
    elif result.hint:
        output += f"\n[{result.hint}]"
    return ExecuteResponse(output=output, exit_code=code, truncated=result.truncated)


def connect(sandbox_id: str | None = None, **create: Any) -> BothySandbox:
    """Return the backend of a sandbox: of the one with this id, or of a new one."""
    client = Client()
    if sandbox_id is None:
        return BothySandbox(sandbox=Sandbox.create(client=client, **create))
    return BothySandbox(sandbox=Sandbox.get(sandbox_id, client=client))
