"""A persistent shell."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .._decode import decode
from .._errors import ConnectionFailedError
from .._io import aio as io
from .._output import EventDecoder, OutputCollector
from .._types import ExecEvent, ShellResult
from ._client import Request, without_none
from ._stream import AsyncEventStream, stream_request

if TYPE_CHECKING:
    from ._sandbox import AsyncSandbox


class AsyncShell:
    """One bash whose directory and variables persist from command to command.

    Commands in one shell run one after the other, and as the sandbox's user. With
    ``async with`` the shell ends with the block.

    Attributes:
        id: The shell's id, by which :meth:`AsyncSandbox.get_shell` finds it again.
    """

    def __init__(self, sandbox: AsyncSandbox, shell_id: str) -> None:
        self.id = shell_id
        self._sandbox = sandbox

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} in {self._sandbox.id}>"

    async def __aenter__(self) -> AsyncShell:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def exec(
        self,
        command: str,
        *,
        timeout_seconds: float | None = None,
        on_stdout: io.Callback[str] | None = None,
        on_stderr: io.Callback[str] | None = None,
    ) -> ShellResult:
        """Run a command to its end; what it sets stays for the next.

        Args:
            command: One or more lines for bash.
            timeout_seconds: End the command after this many seconds, but not the shell.
            on_stdout: Called with each piece of standard output as it is written.
            on_stderr: Called with each piece of standard error as it is written.

        Raises:
            ContextNotFoundError: The shell was closed.
        """
        body: dict[str, Any] = {"command": command, "timeout_seconds": timeout_seconds}
        client = self._sandbox._client
        path = f"{self._path}/exec"
        if not (on_stdout or on_stderr):
            wait = timeout_seconds + 30.0 if timeout_seconds else None
            request = Request("POST", path, json=without_none(body), patience=wait, repeat=False)
            return decode(ShellResult, await client._call(request))
        callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        output, collected = EventDecoder(), OutputCollector()
        request = stream_request("POST", path, json=without_none(body), repeat=False)
        async with AsyncEventStream(client, request, dict) as events:
            async for wire in events:
                if wire.get("is_final"):
                    whole = collected.result(ExecEvent(is_final=True))
                    cut = whole.truncated or bool(wire.get("truncated"))
                    gathered = {"stdout": whole.stdout, "stderr": whole.stderr, "truncated": cut}
                    return decode(ShellResult, {**wire, **gathered})
                event = output.decode(wire)
                if event is None:
                    continue
                collected.add(event)
                callback = callbacks[event.stream or "stdout"]
                if callback is not None and event.data:
                    await io.call(callback, event.data)
        raise ConnectionFailedError("the stream of the command's output broke off")

    async def interrupt(self) -> None:
        """End the command that runs, but not the shell.

        Raises:
            ConflictError: No command runs, or it has not arrived yet.
        """
        await self._call("POST", "/interrupt")

    async def restart(self) -> None:
        """Reset the shell, and end what it started."""
        await self._call("POST", "/restart")

    async def close(self) -> None:
        """End the shell, and what it started."""
        await self._call("DELETE", "")

    async def _call(self, method: str, part: str) -> None:
        await self._sandbox._client._call(Request(method, self._path + part))

    @property
    def _path(self) -> str:
        return f"{self._sandbox._path}/shells/{quote(self.id, safe='')}"
