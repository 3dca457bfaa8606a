"""examples/swerex with the real SWE-ReX."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from bothy import Sandbox
from swerex.deployment.abstract import AbstractDeployment
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    DeploymentNotStartedError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)

sys.path.insert(0, str(Path(__file__).parents[3] / "examples/swerex"))

from bothy_deployment import BothyDeployment  # noqa: E402


def run(deployment: AbstractDeployment, work: Callable[[AbstractRuntime], Awaitable[None]]) -> None:
    async def whole() -> None:
        await deployment.start()
        try:
            assert await deployment.is_alive()
            await work(deployment.runtime)
        finally:
            await deployment.stop()

    asyncio.run(whole())


@pytest.fixture
def deployment():
    yield BothyDeployment("python-3.12-bare")
    assert [s.id for s in Sandbox.list(live=True)] == []


def test_sessions(deployment, tmp_path):
    async def work(runtime):
        await runtime.create_session(CreateBashSessionRequest())
        await runtime.create_session(CreateBashSessionRequest(session="other"))
        with pytest.raises(SessionExistsError):
            await runtime.create_session(CreateBashSessionRequest())

        async def said(command, **options):
            return await runtime.run_in_session(BashAction(command=command, timeout=30, **options))

        await said('mkdir -p "/tmp/größe 1" && cd "/tmp/größe 1" && export X=ü')
        assert (await said("pwd; echo $X")).output.split("\n")[:2] == ["/tmp/größe 1", "ü"]
        assert "ü" not in (await said("echo $X", session="other")).output
        assert (await said("echo out; echo err >&2")).output.split() == ["out", "err"]
        assert (await said("f() { return 7; }\nf", check="silent")).exit_code == 7
        assert (await said("false", check="ignore")).exit_code is None
        with pytest.raises(NonZeroExitCodeError, match="my words"):
            await said("ls /nowhere", error_msg="my words")
        with pytest.raises(BashIncorrectSyntaxError):
            await said("if then")
        assert (await said("echo still here; pwd")).output.split("\n")[0] == "still here"
        await runtime.close_session(CloseBashSessionRequest(session="other"))
        for use in (said("true", session="other"), runtime.close_session(CloseBashSessionRequest(session="other"))):
            with pytest.raises(SessionDoesNotExistError):
                await use

    run(deployment, work)


def test_time_out_ends_the_command(deployment):
    async def work(runtime):
        await runtime.create_session(CreateBashSessionRequest())
        with pytest.raises(CommandTimeoutError):
            await runtime.run_in_session(BashAction(command="sleep 60", timeout=1))
        slow = asyncio.create_task(runtime.run_in_session(BashAction(command="echo $$ >/tmp/begun; sleep 60", check="silent")))
        while (await runtime.execute(Command(command=["test", "-s", "/tmp/begun"]))).exit_code != 0:
            pass
        await runtime.run_in_session(BashInterruptAction())
        assert (await slow).exit_code != 0
        assert "back" in (await runtime.run_in_session(BashAction(command="echo back", timeout=30))).output
        with pytest.raises(CommandTimeoutError):
            await runtime.execute(Command(command=["sleep", "60"], timeout=1))

    run(deployment, work)


def test_commands_and_files(deployment, tmp_path):
    async def work(runtime):
        ran = await runtime.execute(Command(command="echo $((6*7)); echo no >&2", shell=True))
        assert (ran.stdout, ran.stderr, ran.exit_code) == ("42\n", "no\n", 0)
        ran = await runtime.execute(Command(command="echo a; echo b >&2", shell=True, merge_output_streams=True))
        assert ran.stdout == "a\nb\n"
        ran = await runtime.execute(Command(command=["sh", "-c", "pwd; echo $Y"], cwd="/usr", env={"Y": "z", "PATH": "/usr/bin:/bin"}))
        assert ran.stdout == "/usr\nz\n"
        with pytest.raises(NonZeroExitCodeError):
            await runtime.execute(Command(command=["false"], check=True))
        folder = Path("/workspace")
        path = str(folder / "a b" / "ä.txt")
        await runtime.write_file(WriteFileRequest(path=path, content="grün\n"))
        assert (await runtime.read_file(ReadFileRequest(path=path))).content == "grün\n"
        source = tmp_path / "source"
        (source / "in").mkdir(parents=True)
        (source / "in" / "raw.bin").write_bytes(bytes(range(256)))
        await runtime.upload(UploadRequest(source_path=str(source), target_path=str(folder / "target")))
        read = ReadFileRequest(path=str(folder / "target/in/raw.bin"), encoding="latin-1")
        assert (await runtime.read_file(read)).content == bytes(range(256)).decode("latin-1")
        with pytest.raises(UnicodeDecodeError):
            await runtime.read_file(ReadFileRequest(path=str(folder / "target/in/raw.bin")))
        with pytest.raises(Exception, match="nothing"):
            await runtime.read_file(ReadFileRequest(path="/nothing"))

    run(deployment, work)


def test_what_only_bothy_says():
    deployment = BothyDeployment("python-3.12-bare", memory_mb=256)
    with pytest.raises(DeploymentNotStartedError):
        deployment.runtime

    async def work(runtime):
        await runtime.create_session(CreateBashSessionRequest())
        with pytest.raises(NotImplementedError, match="terminal"):
            await runtime.run_in_session(BashAction(command="gdb", is_interactive_command=True))
        assert "cut" not in (await runtime.run_in_session(BashAction(command="head -c 100000 /dev/zero | tr '\\0' x"))).output
        large = await runtime.run_in_session(BashAction(command="head -c 30000000 /dev/zero | tr '\\0' x"))
        assert "output was dropped" in large.output
        ended = await runtime.run_in_session(BashAction(command="exit 3", check="silent"))
        assert ended.exit_code == 3
        assert (await runtime.run_in_session(BashAction(command="echo anew; ls /nowhere", check="silent"))).output.count("\n") == 2
        await runtime.sandbox.terminate()
        alive = await runtime.is_alive()
        assert not alive and "stopped" in alive.message

    run_dead(deployment, work)


def run_dead(deployment, work):
    async def whole():
        await deployment.start()
        await work(deployment.runtime)
        await deployment.stop()

    asyncio.run(whole())
