"""verifiers with its own runtime for E2B, which the server's door for E2B's clients answers."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bothy import Sandbox

os.environ |= {
    "E2B_API_URL": os.environ["BOTHY_URL"],
    "E2B_SANDBOX_URL": os.environ["BOTHY_URL"],
    "E2B_API_KEY": os.environ["BOTHY_API_KEY"].replace("bothy_", "e2b_", 1),
}

from verifiers.v1.errors import SandboxError  # noqa: E402
from verifiers.v1.runtimes import E2BConfig, provision_runtime  # noqa: E402

IMAGE = "python-3.12-bare"


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert [s.id for s in Sandbox.list(live=True)] == []


def config(**options: object) -> E2BConfig:
    return E2BConfig(image=IMAGE, creates_per_sec=None, cpu=1, memory=0.5, **options)


def test_tasks_are_checked_by_its_command_line(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("vf-validate")
    ran = subprocess.run(
        [program, "forty_two", "--runtime.type", "e2b", "--runtime.image", IMAGE, "--runtime.memory", "0.5",
         "--runtime.cpu", "1", "--runtime.creates-per-sec", "100", "--no-rich", "-o", tmp_path],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (summary,) = tmp_path.glob("*/summary.json")
    told = json.loads(summary.read_text())
    assert told["outcomes"]["valid"] == told["total"] == 4


def test_runtime() -> None:
    async def whole() -> None:
        async with provision_runtime(config(workdir="/srv/größe 1")) as runtime:
            sandbox = Sandbox.get(runtime.info.id)
            assert (sandbox.info.cpu, sandbox.info.memory_mb) == (1, 512)
            ran = await runtime.run(["sh", "-c", "pwd; id -un; echo $X; echo no >&2; exit 3"], {"X": "ü"})
            assert (ran.exit_code, ran.stdout, ran.stderr) == (3, "/srv/größe 1\nroot\nü\n", "no\n")
            assert (await runtime.run_program(["echo", "whole"], {})).stdout == "whole\n"
            await runtime.write("a b/ä.bin", bytes(range(256)))
            assert await runtime.read("a b/ä.bin", max_bytes=256) == bytes(range(256))
            with pytest.raises(SandboxError, match="over the 255 byte limit"):
                await runtime.read("a b/ä.bin", max_bytes=255)
            with pytest.raises(SandboxError, match="nothing"):
                await runtime.read("nothing")
            process = await runtime.open_process(["cat"], {})
            await process.write(b"\x00\xff\n")
            assert await anext(process.stdout) == b"\x00\xff\n"
            await process.kill()
            assert await process.wait() == 137
            await runtime.run_background(["sh", "-c", "echo begun >begun"], {}, "log")
            while (await runtime.run(["test", "-s", "begun"], {})).exit_code != 0:
                pass
            assert await runtime.alive()
            sandbox.terminate()
            assert not await runtime.alive()
            with pytest.raises(SandboxError):
                await runtime.run(["true"], {})

    asyncio.run(whole())


def test_network_policies() -> None:
    async def whole() -> None:
        async with provision_runtime(config(allow=["api.example.com"])) as runtime:
            assert Sandbox.get(runtime.info.id).info.network.mode == "open"
            await runtime.prepare_execution(["https://model.example.com/v1"])
            network = Sandbox.get(runtime.info.id).info.network
            assert network.mode == "restricted"
            assert sorted(network.allow_domains) == ["api.example.com", "model.example.com"]
        async with provision_runtime(config(allow=[])) as runtime:
            await runtime.prepare_execution([])
            assert Sandbox.get(runtime.info.id).info.network.mode == "off"

    asyncio.run(whole())


def test_a_cancelled_rollout_leaves_nothing() -> None:
    async def whole() -> None:
        begun = asyncio.Event()

        async def rollout() -> None:
            async with provision_runtime(config()) as runtime:
                begun.set()
                await runtime.run(["sleep", "600"], {})

        task = asyncio.create_task(rollout())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(whole())
