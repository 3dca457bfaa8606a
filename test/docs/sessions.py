"""The programs that run a page's blocks: one for each language, for the whole page."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from pages import Block

HERE = Path(__file__).resolve().parent
# Seconds for one block; far more than any needs.
DEADLINE = int(os.environ.get("DOCS_DEADLINE", "300"))


class Failed(Exception):
    """A block did not do what it says. The argument tells why, with what it printed."""


def high(descriptor: int) -> int:
    """Move a descriptor out of the way of 3 and 4."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


class Session:
    """A process that is told each block on one pipe and answers "ok" on another."""

    def __init__(self, command: list[str], cwd: Path, environment: Mapping[str, str]) -> None:
        told, self._tell = map(high, os.pipe())
        self._answers, answer = map(high, os.pipe())
        self._output = cwd / f"output-{os.urandom(4).hex()}"
        self._shown = 0
        # A terminal, as whoever types the page's lines has one.
        self._screen, terminal = pty.openpty()
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", f'exec "$@" 3<&{told}- 4>&{answer}-', "bash", *command],
                cwd=cwd,
                env=environment,
                pass_fds=(told, answer),
                stdin=terminal,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        os.close(told)
        os.close(answer)
        self._terminal = terminal
        self._ended = threading.Event()
        threading.Thread(target=self._leave_shells, daemon=True).start()

    def tell(self, line: str) -> None:
        """Hand over a block, and return when it has been run; raise Failed if it failed."""
        self._shown = self._output.stat().st_size
        try:
            os.write(self._tell, line.encode() + b"\n")
        except BrokenPipeError:
            raise Failed(self._why("ended")) from None
        deadline = time.monotonic() + DEADLINE
        while not select.select([self._answers], [], [], 0.5)[0]:
            if time.monotonic() > deadline:
                self._process.send_signal(signal.SIGABRT)  # Python shows where it is
                time.sleep(1)
                raise Failed(self._why(f"did not end within {DEADLINE} s"))
            # What it leaves in the background may hold the pipe.
            if self._process.poll() is not None:
                break
        if not select.select([self._answers], [], [], 0)[0] or not os.read(self._answers, 64):
            self._process.wait(30)
            raise Failed(self._why(f"ended with {self._process.returncode}"))

    def end(self) -> None:
        """Let it end by itself, as it does at the end of a page; raise Failed if it does not."""
        os.close(self._tell)
        self._tell = -1
        try:
            code = self._process.wait(30)
        except subprocess.TimeoutExpired:
            raise Failed(self._why("did not end after the last block")) from None
        if code:
            raise Failed(self._why(f"ended with {code} after the last block"))

    def close(self) -> None:
        """Kill what is left of it."""
        self._ended.set()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        for descriptor in (self._tell, self._answers, self._screen, self._terminal):
            if descriptor >= 0:
                os.close(descriptor)

    def _why(self, what: str) -> str:
        with self._output.open("rb") as output:
            output.seek(self._shown)
            printed = output.read().decode(errors="replace").splitlines()
        return "\n".join([what, *(f"    {line}" for line in printed[-25:])])

    def _leave_shells(self) -> None:
        """Type what leaves a shell whenever something reads the terminal key by key."""
        while not self._ended.wait(0.1):
            try:
                if not termios.tcgetattr(self._terminal)[3] & termios.ICANON:
                    os.write(self._screen, b"exit\r")
                if select.select([self._screen], [], [], 0)[0]:
                    os.read(self._screen, 4096)
            except (OSError, termios.error):
                return


class Shell:
    """Runs sh blocks in one bash."""

    def __init__(self, blocks: list[Block], cwd: Path, environment: Mapping[str, str]) -> None:
        self._cwd = cwd
        self.session = Session(["bash", str(HERE / "shblocks.sh")], cwd, environment)

    def run(self, block: Block) -> None:
        path = self._cwd / f"block-{block.line}.sh"
        path.write_text(block.source)
        self.session.tell(str(path))


class Python:
    """Runs python blocks in one namespace."""

    def __init__(self, blocks: list[Block], cwd: Path, environment: Mapping[str, str]) -> None:
        self._root = Path(environment["DOCS_REPOSITORY"])
        self.session = Session(
            ["python", "-uXfaulthandler", str(HERE / "pyblocks.py")], cwd, environment
        )

    def run(self, block: Block) -> None:
        told = {"file": str(self._root / block.page), "line": block.line, "source": block.source}
        self.session.tell(json.dumps(told))


class Script:
    """Runs ts and js blocks as one program."""

    def __init__(self, blocks: list[Block], cwd: Path, environment: Mapping[str, str]) -> None:
        js = Path(environment["DOCS_REPOSITORY"]) / "js"
        if not (js / "node_modules" / "typescript").exists():
            raise Failed(f"there is no TypeScript compiler: run `npm ci` in {js}")
        made = subprocess.run(
            ["node", str(HERE / "program.mjs"), str(js)],
            input=json.dumps([block.source for block in blocks]),
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise Failed(made.stderr)
        program = cwd / "page.mjs"
        program.write_text(made.stdout)
        self.session = Session(["node", str(program)], cwd, environment)

    def run(self, block: Block) -> None:
        self.session.tell("")


KINDS = {"sh": Shell, "python": Python, "ts": Script, "js": Script}
