"""Commands that are left running and asked again: with a terminal, or with pipes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.pty_output import collect_pty_output
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    process_id_to_prune_from_meta,
    resolve_pty_write_yield_time_ms,
)
from agents.sandbox.types import User
from bothy import AsyncTerminal, BothyError
from bothy.adapters import tolerant

from .errors import transport, user_name

MAX_UNREAD = 8 << 20
"""Bytes that are kept of what nobody has asked for yet. Then the command has to wait."""


@dataclass(eq=False)
class Running:
    """One command that was left running."""

    process: Any  # an AsyncTerminal, or an AsyncProcess
    output: deque[bytes] = field(default_factory=deque)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False
    exit_code: int | None = None
    used: float = field(default_factory=time.monotonic)
    reader: asyncio.Task[None] | None = None

    @property
    def tty(self) -> bool:
        return isinstance(self.process, AsyncTerminal)

    async def read(self) -> None:
        """Take in all that it prints, and its exit code."""
        try:
            if self.tty:
                async for data in self.process:
                    await self._keep(data)
                self.exit_code = self.process.exit_code
            else:
                async with self.process.stream() as events:
                    async for event in events:
                        await self._keep(event.raw)
                        if event.is_final:
                            self.exit_code = event.exit_code
        except BothyError as error:
            await self._keep(f"\n[the connection to the command is lost: {error}]\n".encode())
        finally:
            self.closed = True
            self.news.set()

    async def _keep(self, data: bytes) -> None:
        while sum(map(len, self.output)) > MAX_UNREAD:
            await asyncio.sleep(0.05)
        async with self.lock:
            self.output.append(data)
        self.news.set()


@tolerant
class BothyProcesses(BaseSandboxSession):
    """The part of a session that leaves commands running."""

    sandbox: Any

    def __init__(self) -> None:
        self._running: dict[int, Running] = {}

    def supports_pty(self) -> bool:
        """Tell that commands can be left running."""
        return True

    async def _environment(self) -> dict[str, str]:
        return dict(await self.state.manifest.environment.resolve())

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Start a command, and return what it prints in the first ``yield_time_s`` seconds."""
        line = self._prepare_exec_command(*command, shell=shell, user=None)
        options = {
            "cwd": self.state.manifest.root,
            "env": await self._environment(),
            "user": user_name(user),
        }
        try:
            if tty:
                started = await self.sandbox.terminal(line, **options)
            else:
                started = await self.sandbox.spawn(line, timeout_seconds=timeout, **options)
                await started.close_stdin()
        except BothyError as error:
            raise transport(command, error) from error
        running = Running(started)
        running.reader = asyncio.create_task(self._follow(running, timeout))
        number = allocate_pty_process_id(set(self._running))
        pruned = self._prune()
        self._running[number] = running
        if pruned is not None:
            await self._end(pruned)
        seconds = 10.0 if yield_time_s is None else yield_time_s
        wait = clamp_pty_yield_time_ms(int(seconds * 1000))
        return await self._update(number, running, wait, max_output_tokens)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Type into a terminal, and return what is printed since the last call."""
        running = self._resolve_pty_session_entry(
            pty_processes=self._running, session_id=session_id
        )
        if chars:
            if not running.tty:
                # The framework tells by these words what to say to the model.
                raise RuntimeError("stdin is not available for this process")
            if not running.closed:
                with contextlib.suppress(BothyError):  # it may end at this moment
                    await running.process.write(chars)
        running.used = time.monotonic()
        wait = resolve_pty_write_yield_time_ms(
            yield_time_ms=250 if yield_time_s is None else int(yield_time_s * 1000),
            input_empty=not chars,
        )
        return await self._update(session_id, running, wait, max_output_tokens)

    async def pty_terminate_all(self) -> None:
        """End all commands that were left running."""
        every = list(self._running.values())
        self._running.clear()
        await asyncio.gather(*map(self._end, every))

    async def _update(
        self, number: int, running: Running, wait_ms: int, max_tokens: int | None
    ) -> PtyExecUpdate:
        output, tokens, closed = await collect_pty_output(
            output_chunks=running.output,
            output_lock=running.lock,
            output_notify=running.news,
            is_done=lambda: running.closed,
            yield_time_ms=wait_ms,
            max_output_tokens=max_tokens,
        )
        if closed and self._running.pop(number, None) is not None:
            await self._end(running)
        return PtyExecUpdate(
            process_id=None if closed else number,
            output=output,
            exit_code=running.exit_code if closed else None,
            original_token_count=tokens,
        )

    def _prune(self) -> Running | None:
        if len(self._running) < PTY_PROCESSES_MAX:
            return None
        meta = [(number, r.used, r.closed) for number, r in self._running.items()]
        number = process_id_to_prune_from_meta(meta)
        return None if number is None else self._running.pop(number)

    async def _follow(self, running: Running, timeout: float | None) -> None:
        try:
            await asyncio.wait_for(running.read(), timeout)
        except asyncio.TimeoutError:
            await self._kill(running)

    async def _end(self, running: Running) -> None:
        if running.reader is not None:
            running.reader.cancel()
            await asyncio.gather(running.reader, return_exceptions=True)
        await self._kill(running)

    async def _kill(self, running: Running) -> None:
        """End a command with all that it started."""
        with contextlib.suppress(BothyError):
            if running.exit_code is None:
                await self.sandbox.process(running.process.pid).kill()
            if running.tty:
                await running.process.close()
