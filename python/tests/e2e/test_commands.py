"""Commands, processes, terminals and code in real sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bothy import (
    AsyncSandbox,
    Client,
    CommandError,
    CommandNotFoundError,
    ContextNotFoundError,
    ExecEvent,
    ProcessNotFoundError,
    Sandbox,
    SandboxEndedError,
)
from e2e.conftest import Server


def test_results(sbx: Sandbox) -> None:
    result = sbx.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert result.duration_ms >= 0 and result.pid > 0
    with pytest.raises(CommandError):
        result.check()
    result = sbx.exec(["printf", "%s|", "a b", "$HOME"])
    assert result.check().stdout == "a b|$HOME|"


def test_circumstances(sbx: Sandbox) -> None:
    assert sbx.exec("pwd; id -un").stdout == "/workspace\nuser\n"
    result = sbx.exec(
        "pwd; id -un; echo $A; cat", cwd="/tmp", user="root", env={"A": "b"}, stdin="c"
    )
    assert result.stdout == "/tmp\nroot\nb\nc"
    with pytest.raises(CommandNotFoundError):
        sbx.exec(["no-such-program"])


def test_time_limit(sbx: Sandbox) -> None:
    result = sbx.exec("echo before; sleep 60", timeout_seconds=0.5)
    assert result.timed_out and result.stdout == "before\n" and not result.ok
    assert result.duration_ms < 10_000


def test_streaming(sbx: Sandbox) -> None:
    # The command waits for a file that only the first chunk's arrival makes.
    command = "echo one; until [ -e go ]; do sleep 0.01; done; echo two >&2; exit 4"
    events: list[ExecEvent] = []
    with sbx.exec_stream(command) as stream:
        for event in stream:
            events.append(event)
            if event.data == "one\n":
                sbx.files.write("go", "")
    assert [(e.stream, e.data) for e in events[:-1]] == [("stdout", "one\n"), ("stderr", "two\n")]
    assert events[-1].exit_code == 4


def test_callbacks(sbx: Sandbox) -> None:
    out: list[str] = []
    result = sbx.exec("printf 'ä'; printf '\\xff'; exit 1", on_stdout=out.append)
    assert "".join(out) == result.stdout == "ä\ufffd" and result.exit_code == 1


def test_leaving_a_stream_kills_the_command(sbx: Sandbox) -> None:
    with sbx.exec_stream("echo $$; exec sleep 4242") as stream:
        pid = next(stream).data.strip()
    gone = f"for i in $(seq 500); do kill -0 {pid} 2>/dev/null || exit 0; sleep 0.01; done; exit 1"
    assert sbx.exec(gone).ok


async def test_cancelling_kills_the_command(template: str) -> None:
    async with AsyncSandbox.create(template) as sbx:
        started = asyncio.Event()
        pids: list[str] = []

        def note(text: str) -> None:
            pids.append(text.strip())
            started.set()

        task = asyncio.create_task(sbx.exec("echo $$; exec sleep 4242", on_stdout=note))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gone = f"for i in $(seq 500); do kill -0 {pids[0]} || exit 0; sleep 0.01; done; exit 1"
        assert (await sbx.exec(gone)).ok


def test_background_process(sbx: Sandbox) -> None:
    process = sbx.spawn("read line; echo got $line; sleep 600")
    process.write("hello\n")
    with process.stream() as stream:
        assert next(stream).data == "got hello\n"
    assert process.info().running
    assert [event.data for event in process.output()] == ["got hello\n"]
    process.signal("SIGTERM")
    result = process.wait(30)
    assert result.stdout == "got hello\n" and result.exit_code == 143
    assert not process.info().running


def test_end_of_input_and_kill(sbx: Sandbox) -> None:
    process = sbx.spawn(["cat"])
    process.write(b"\x00\xff", eof=True)
    assert process.wait(30).ok
    assert b"".join(event.raw for event in process.output()) == b"\x00\xff"
    sleeper = sbx.spawn(["sleep", "600"])
    sleeper.kill()
    assert sleeper.wait(30).exit_code == 137


class Cutter:
    """A way to the server that breaks every connection after some bytes."""

    def __init__(self, url: str, after: int) -> None:
        self._to = ("127.0.0.1", int(url.rsplit(":", 1)[1]))
        self._after = after
        self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        far = socket.create_connection(self._to)
        with near, far, contextlib.suppress(OSError):
            up = threading.Thread(target=self._copy, args=(near, far, 1 << 62), daemon=True)
            up.start()
            self._copy(far, near, self._after)
            near.shutdown(socket.SHUT_RDWR)
            far.shutdown(socket.SHUT_RDWR)
            up.join()

    def _copy(self, source: socket.socket, target: socket.socket, left: int) -> None:
        with contextlib.suppress(OSError):
            while left > 0 and (data := source.recv(min(4096, left))):
                target.sendall(data)
                left -= len(data)


@pytest.fixture
def cutter(environment: dict[str, str]) -> Iterator[Cutter]:
    cutter = Cutter(environment["BOTHY_URL"], 80_000)
    yield cutter
    cutter.close()


def test_output_over_a_line_that_keeps_breaking(
    sbx: Sandbox, cutter: Cutter, environment: dict[str, str]
) -> None:
    process = sbx.spawn("seq 20000; seq 20000 >&2")
    with Client(cutter.url, environment["BOTHY_API_KEY"]) as client:
        result = Sandbox.get(sbx.id, client=client).process(process.pid).wait(60)
    expected = "".join(f"{n}\n" for n in range(1, 20_001))
    assert result.stdout == expected and result.stderr == expected
    assert cutter.connections > 3


def test_output_over_a_server_that_is_killed(
    restartable: tuple[Server, Client], template: str
) -> None:
    server, client = restartable
    with Sandbox.create(template, client=client) as sbx:
        process = sbx.spawn("i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i; sleep 0.01; done")
        seen, stopped = "", False
        with process.stream() as stream:
            for event in stream:
                seen += event.data
                if event.offset == 0:
                    server.end(kill=True)
                    server.start()
                elif not stopped and seen.count("\n") > 2:
                    sbx.files.write("stop", "")
                    stopped = True
        numbers = [int(line) for line in seen.split()]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 2


def test_a_terminal_is_joined_again(sbx: Sandbox) -> None:
    first = sbx.terminal("bash --norc")
    arrived = first.read_until("$ ")
    first.write("kept=7; echo o''ne\n")
    arrived += first.read_until("one\r\n")
    first._socket._stream.close()  # as a network does that breaks
    with sbx.join_terminal(first.pid, from_offset=len(arrived)) as again:
        assert again.pid == first.pid
        again.write("echo $((kept * 6)) t''wo\n")
        seen = again.read_until("42 two\r\n")
        assert b"one\r\n" not in seen
        again.write("exit 3\n")
        b"".join(again)
        assert again.exit_code == 3
    with sbx.terminal("bash --norc") as third:
        arrived = third.read_until("$ ")
        third.write("echo r''epeated\n")
        arrived += third.read_until("repeated\r\n")
        third._socket._stream.close()
        with sbx.join_terminal(third.pid) as anew:  # from the beginning
            assert anew.read_until("repeated\r\n") == arrived
    with pytest.raises(ProcessNotFoundError):
        sbx.join_terminal(999999)


def test_terminal(sbx: Sandbox) -> None:
    with sbx.terminal("bash --norc", cols=100, rows=30, env={"PS1": "> "}) as terminal:
        terminal.write("stty size; tty -s && echo y''es\n")
        seen = b""
        # Until its prompt is there, bash may put back the size that it has read before.
        while b"$ " not in seen.partition(b"yes\r\n")[2]:
            seen += terminal.read()
        assert b"30 100" in seen and terminal.pid > 0
        terminal.resize(120, 40)
        terminal.write("stty size; exit 5\n")
        rest = b"".join(terminal)
    assert b"40 120" in rest and terminal.exit_code == 5


def test_ended_sandbox(template: str) -> None:
    with Sandbox.create(template) as sbx:
        sbx.terminate()
        with pytest.raises(SandboxEndedError):
            sbx.exec("true")
        info = sbx.refresh()
        assert info.state == "stopped" and info.ended is not None
        assert info.ended.reason == "terminated"


def test_out_of_memory_says_so(template: str) -> None:
    with Sandbox.create(template, memory_mb=256) as sbx:
        result = sbx.exec("python3 -c 'x = bytearray(1 << 30)'")
        assert result.oom_killed and not result.ok and "256" in result.hint
        assert sbx.exec("echo alive").stdout == "alive\n"


def test_two_hundred_commands_at_once(sbx: Sandbox) -> None:
    def one(n: int) -> str:
        return sbx.exec(f"read line; echo {n} $line", stdin=f"line {n}\n").check().stdout

    with ThreadPoolExecutor(200) as pool:
        assert list(pool.map(one, range(200))) == [f"{n} line {n}\n" for n in range(200)]


def ends(marker: str) -> str:
    """Return a command that succeeds when no process has this command line, or soon has none."""
    return f"for i in $(seq 600); do pgrep -fx '{marker}' || exit 0; sleep 0.1; done; exit 1"


async def test_giving_up_a_plain_command_kills_it(template: str) -> None:
    async with AsyncSandbox.create(template) as sbx:
        for number, give_up in enumerate((0.0, 0.005, 1.0)):
            marker = f"sleep 77{number}"
            task = asyncio.create_task(sbx.exec(f"{marker} & {marker}"))
            await asyncio.sleep(give_up)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert (await sbx.exec(ends(marker))).ok, give_up
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sbx.exec("sleep 780"), 0.6)
        assert (await sbx.exec(ends("sleep 780"))).ok
        task = asyncio.create_task(sbx.exec("sleep 781", keep_running=True))
        assert (await sbx.exec("until pgrep -fx 'sleep 781'; do sleep 0.1; done")).ok
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await sbx.exec("sleep 1")
        assert (await sbx.exec("pgrep -fx 'sleep 781'")).ok


def test_an_interrupt_kills_the_command(sbx: Sandbox) -> None:
    # What a shell has put into the background is born deaf to SIGINT.
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{hears}; from bothy import Sandbox; Sandbox.get({sbx.id!r}).exec('sleep 790')"
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as process:
        try:
            seen = "until pgrep -fx 'sleep 790'; do sleep 0.1; done"
            assert sbx.exec(seen, timeout_seconds=60).ok
            process.send_signal(signal.SIGINT)
            process.wait(30)
        finally:
            process.kill()
    assert sbx.exec(ends("sleep 790")).ok


def test_bytes_and_one_output(sbx: Sandbox) -> None:
    raw = bytes(range(256))
    assert sbx.exec("cat", stdin=raw).stdout_bytes == raw
    script = "for i in 1 2 3; do echo o$i; echo e$i >&2; done"
    result = sbx.exec(script, merge_stderr=True)
    assert (result.stdout, result.stderr) == ("o1\ne1\no2\ne2\no3\ne3\n", "")


def test_shell_code_has_an_exit_code(sbx: Sandbox) -> None:
    assert sbx.run_code("true", "bash").exit_code == 0
    result = sbx.run_code("echo x; exit 7", "bash")
    assert (result.exit_code, result.stdout) == (7, "x\n") and result.error is not None


def test_a_shell_stays(sbx: Sandbox) -> None:
    with sbx.shell(cwd="/tmp") as shell:
        assert (
            shell.exec("pwd; x=41; f() { echo \"got $1\"; }; export E='ü ö'").check().stdout
            == "/tmp\n"
        )
        assert shell.exec('cd /; f "$((x + 1))"').stdout == "got 42\n"
        assert shell.exec("pwd; printenv E; false").stdout == "/\nü ö\n"
        assert shell.exec("(exit 5)").exit_code == 5
        heard: list[str] = []
        late = shell.exec(
            "echo begun; trap '' INT; sleep 60", timeout_seconds=0.5, on_stdout=heard.append
        )
        assert late.timed_out and late.exit_code != 0 and heard == ["begun\n"] == [late.stdout]
        assert shell.exec("echo $x; sleep 600 &").stdout == "41\n"
        shell.restart()
        assert shell.exec("echo \"$x\"; ps -e -o args | grep -c '[s]leep 600'").stdout == "\n0\n"
        gone = shell.exec("exit 3")
        assert (gone.exit_code, gone.ended) == (3, True) and gone.hint
        assert shell.exec("echo new").stdout == "new\n"
    with pytest.raises(ContextNotFoundError):
        shell.exec("true")
    sbx.get_shell().exec("y=1")
    assert sbx.get_shell().exec("echo $y").stdout == "1\n"
