"""Processes in the background of a sandbox."""

from __future__ import annotations

import base64
import signal as signals
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from .._errors import (
    ConnectionFailedError,
    ProcessNotFoundError,
    RequestTimeoutError,
    SandboxNotReadyError,
    SandboxPausedError,
)
from .._io import aio as io
from .._output import EventDecoder, OutputCollector
from .._retry import backoff
from .._types import ExecEvent, ExecResult, ProcessInfo
from ._client import Request
from ._stream import STREAM_PATIENCE, AsyncEventStream, stream_request

if TYPE_CHECKING:
    from ._sandbox import AsyncSandbox

MAX_REJOINS = 6
"""How often a broken stream is joined again with nothing new in between."""

PAUSED_LOOK = 0.5
"""Seconds between two looks whether a sandbox that was paused in between runs again."""

MAX_WRITTEN = 1 << 20
"""Bytes of input in one call; the server takes a few times more."""


class AsyncProcess:
    """A process in the background. It outlives this object and this program.

    Attributes:
        pid: The process id inside the sandbox.
    """

    def __init__(self, sandbox: AsyncSandbox, pid: int) -> None:
        self.pid = pid
        self._sandbox = sandbox
        self._result: ExecResult | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.pid} in {self._sandbox.id}>"

    async def info(self) -> ProcessInfo:
        """Describe the process as it is now.

        Raises:
            ProcessNotFoundError: The server has forgotten it.
        """
        for info in await self._sandbox.processes():
            if info.pid == self.pid:
                return info
        raise ProcessNotFoundError(f"there is no process {self.pid} in {self._sandbox.id}")

    def stream(self, from_offset: int = 0) -> AsyncProcessStream:
        """Iterate over the output from a byte offset on, to the end of the process.

        When the connection breaks, it is joined again where it was: nothing is lost or
        doubled. Output that the server no longer holds is skipped; the first offset shows
        it. Leaving the stream does not touch the process.
        """
        return AsyncProcessStream(self, from_offset)

    async def output(self, from_offset: int = 0) -> list[ExecEvent]:
        """Return the output from a byte offset on that there is by now, without waiting.

        The next call can continue behind it, at ``events[-1].offset + len(events[-1].raw)``.
        """
        info = await self.info()
        end = info.output_end
        events: list[ExecEvent] = []
        if max(from_offset, info.output_start) >= end:
            return events
        async with self.stream(from_offset) as stream:
            async for event in stream:
                if event.is_final:
                    break
                events.append(event)
                if event.offset + len(event.raw) >= end:
                    break
        return events

    async def wait(
        self,
        timeout_seconds: float | None = None,
        *,
        on_stdout: io.Callback[str] | None = None,
        on_stderr: io.Callback[str] | None = None,
    ) -> ExecResult:
        """Wait for the end and return it with all the output that the server still holds.

        Args:
            timeout_seconds: Give up waiting after this many seconds; the process runs on.
            on_stdout: Called with each piece of standard output.
            on_stderr: Called with each piece of standard error.

        Raises:
            RequestTimeoutError: It has not ended in time.
        """
        if self._result is None:
            deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
            async with AsyncProcessStream(self, 0, deadline) as stream:
                self._result = await collect(stream, on_stdout, on_stderr)
        return self._result

    async def write(self, data: str | bytes, *, eof: bool = False) -> None:
        """Write to its standard input, and with ``eof`` close that after it."""
        raw = data.encode() if isinstance(data, str) else bytes(data)
        for start in range(0, len(raw) or 1, MAX_WRITTEN):
            end = start + MAX_WRITTEN
            encoded = base64.b64encode(raw[start:end]).decode()
            last = True if eof and end >= len(raw) else None
            await self._post("stdin", {"data": encoded, "encoding": "base64", "eof": last})

    async def close_stdin(self) -> None:
        """Close its standard input: it reads the end of the file."""
        await self._post("stdin", {"eof": True})

    async def signal(self, signal: int | str | signals.Signals) -> None:
        """Send a signal, by number or by name such as ``"SIGINT"``, to it and its children."""
        await self._post("signal", {"signal": signal_number(signal)})

    async def kill(self) -> None:
        """Kill it and everything it started."""
        await self._sandbox._client._call(Request("DELETE", self._path))

    @property
    def _path(self) -> str:
        return f"{self._sandbox._path}/processes/{self.pid}"

    async def _post(self, part: str, body: dict[str, object]) -> None:
        request = self._sandbox._post(f"/processes/{self.pid}/{part}", body)
        await self._sandbox._client._call(request)


class AsyncProcessStream(AsyncEventStream[ExecEvent]):
    """The output of a background process; see :meth:`AsyncProcess.stream`."""

    def __init__(
        self, process: AsyncProcess, from_offset: int, deadline: float | None = None
    ) -> None:
        self._decoder = EventDecoder(from_offset)
        self._process = process
        self._deadline = deadline
        self._patience = STREAM_PATIENCE
        self._rejoin = False
        self._joined = False
        super().__init__(process._sandbox._client, self._join(), self._decoder.decode)

    async def __aenter__(self) -> AsyncProcessStream:
        await super().__aenter__()
        return self

    async def _receive(self) -> AsyncGenerator[ExecEvent, None]:
        failures = 0
        while True:
            reason: ConnectionFailedError | None = None
            try:
                async with aclosing(super()._receive()) as events:
                    async for event in events:
                        failures = 0
                        self._joined = True
                        yield event
                        if event.is_final:
                            return
            except ConnectionFailedError as error:
                reason = error
            except (SandboxPausedError, SandboxNotReadyError):
                if not self._joined:
                    raise
                # It was paused in the middle of it, and continues when it is resumed.
                await io.sleep(PAUSED_LOOK)
                self._request, self._response = self._join(), None
                continue
            except RequestTimeoutError:
                # Silence; joining again finds out whether that was the last second.
                pass
            self._joined = True
            if not self._rejoin:
                if failures >= MAX_REJOINS:
                    raise reason or ConnectionFailedError("the output ends before the process")
                await io.sleep(backoff(failures))
                failures += 1
            self._request, self._response = self._join(), None

    def _join(self) -> Request:
        self._rejoin = False
        self._patience = STREAM_PATIENCE
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise RequestTimeoutError(f"process {self._process.pid} has not ended in time")
            self._patience = min(left, STREAM_PATIENCE)
        params = {"from": self._decoder.offset}
        path = f"{self._process._path}/output"
        return stream_request("GET", path, params=params, patience=self._patience)

    def _alive(self) -> None:
        if self._deadline is None:
            return
        # Silence from now on would end too late, so the stream is joined again for less time.
        late = time.monotonic() + self._patience - self._deadline
        if late > max(0.25, 0.1 * self._patience):
            self._rejoin = True
            raise RequestTimeoutError("the stream is joined again")


async def collect(
    events: AsyncEventStream[ExecEvent],
    on_stdout: io.Callback[str] | None,
    on_stderr: io.Callback[str] | None,
) -> ExecResult:
    """Follow a command to its end and return its result."""
    callbacks = {"stdout": on_stdout, "stderr": on_stderr}
    collected = OutputCollector()
    final = ExecEvent(is_final=True)
    async for event in events:
        if event.is_final:
            final = event
        collected.add(event)
        callback = callbacks.get(event.stream or "")
        if callback is not None and event.data:
            await io.call(callback, event.data)
    return collected.result(final)


def signal_number(signal: int | str | signals.Signals) -> int:
    """Return the number that a signal has in Linux, which is what runs in the sandbox."""
    if not isinstance(signal, str):
        return int(signal)
    name = signal.upper()
    name = name if name.startswith("SIG") else "SIG" + name
    if name not in LINUX_SIGNALS:
        raise ValueError(f"{signal!r} is not the name of a signal")
    return LINUX_SIGNALS[name]


LINUX_SIGNALS = {
    "SIGHUP": 1,
    "SIGINT": 2,
    "SIGQUIT": 3,
    "SIGABRT": 6,
    "SIGKILL": 9,
    "SIGUSR1": 10,
    "SIGSEGV": 11,
    "SIGUSR2": 12,
    "SIGPIPE": 13,
    "SIGALRM": 14,
    "SIGTERM": 15,
    "SIGCHLD": 17,
    "SIGCONT": 18,
    "SIGSTOP": 19,
    "SIGTSTP": 20,
    "SIGTTIN": 21,
    "SIGTTOU": 22,
    "SIGWINCH": 28,
}
