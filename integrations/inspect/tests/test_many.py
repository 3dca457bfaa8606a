"""Many samples at once, each a copy of one prepared sandbox, against a real server."""

import asyncio
import os
import time

import pytest
from bothy import Client, Sandbox
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import solver
from inspect_ai.util import SandboxEnvironmentSpec, sandbox
from inspect_bothy import BothySandboxConfig

SAMPLES = int(os.environ.get("BOTHY_INSPECT_SAMPLES", "20"))


@solver
def all_at_once():
    """Solve a sample when all of them have their sandbox."""
    ready, everyone = [], asyncio.Event()

    async def solve(state, generate):
        done = await sandbox().exec(["sh", "-c", "cat prepared; kill -0 $(cat pid) && echo alive"])
        await sandbox().write_file("mine", str(state.sample_id))
        ready.append(state.sample_id)
        if len(ready) == SAMPLES:
            everyone.set()
        await asyncio.wait_for(everyone.wait(), 600)
        state.output.completion = f"{done.stdout.split()} {await sandbox().read_file('mine')}"
        return state

    return solve


@pytest.fixture
def prepared():
    """A snapshot of a sandbox with a file and a process."""
    with Sandbox.create("python-3.12-bare", memory_mb=256) as sandbox:
        sandbox.exec("mkdir -p /workspace; cd /workspace; echo prepared >prepared; nohup sleep 100000 >/dev/null 2>&1 & echo $! >/workspace/pid")
        snapshot = sandbox.snapshot("prepared")
    yield snapshot.id
    with Client() as client:
        client.delete_snapshot(snapshot)


def test_many_at_once(prepared, tmp_path):
    spec = SandboxEnvironmentSpec("bothy", BothySandboxConfig(snapshot_id=prepared))
    samples = [Sample(input="?", target=f"['prepared', 'alive'] {i}", id=i) for i in range(1, SAMPLES + 1)]
    begun = time.monotonic()
    (log,) = eval(
        Task(dataset=samples, solver=all_at_once(), scorer=includes(), sandbox=spec),
        model=get_model("mockllm/model"), log_dir=str(tmp_path), display="none", max_samples=SAMPLES, max_sandboxes=SAMPLES,
    )
    took = time.monotonic() - begun
    assert log.status == "success", log.error
    ids = {e.data["sandbox_id"] for s in log.samples for e in s.events if e.event == "info" and e.source == "bothy"}
    assert len(ids) == len(log.samples) == SAMPLES
    assert all(s.scores["includes"].value == "C" for s in log.samples)
    assert not ids & {s.id for s in Sandbox.list(live=True)}
    print(f"{SAMPLES} samples at once took {took:.1f} s")
