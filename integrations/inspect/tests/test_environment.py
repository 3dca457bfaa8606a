"""Inspect's own checks of a sandbox environment, and what they leave out, against a real server."""

import inspect
import warnings

import pytest
import pytest_asyncio
import tiktoken
from bothy import AsyncSandbox, ConnectionFailedError, Sandbox, adapters
from inspect_ai import Task, eval
from inspect_ai._cli.util import parse_sandbox
from inspect_ai._eval.loader import resolve_task_sandbox
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import SandboxUnavailableError
from inspect_ai.util._sandbox.self_check import *  # noqa: F403
from inspect_bothy import BothySandboxConfig, BothySandboxEnvironment



@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox_env():
    made = await BothySandboxEnvironment.sample_init("checks", BothySandboxConfig(memory_mb=1024), {})
    yield made["default"]
    await BothySandboxEnvironment.sample_cleanup("checks", None, made, False)


async def test_a_dead_sandbox_is_reported():
    made = await BothySandboxEnvironment.sample_init("dead", "python-3.12-bare", {})
    await made["default"].sandbox.terminate()
    with pytest.raises(SandboxUnavailableError):
        await made["default"].exec(["true"])
    await BothySandboxEnvironment.sample_cleanup("dead", None, made, False)


async def test_a_server_that_went_away(monkeypatch):
    """The sample fails, with what to do, instead of counting as answered."""
    made = await BothySandboxEnvironment.sample_init("gone", "python-3.12-bare", {})
    here = made["default"].sandbox

    async def terminate():
        raise ConnectionFailedError("nothing listens there")

    monkeypatch.setattr(here, "terminate", terminate)
    with pytest.raises(SandboxUnavailableError, match="eval-retry"):
        await BothySandboxEnvironment.sample_cleanup("gone", None, made, False)
    monkeypatch.undo()
    await BothySandboxEnvironment.sample_cleanup("gone", None, made, False)


@pytest.mark.parametrize("name", ["node-22", "team/app:v3"])
async def test_a_template_is_named(name, tmp_path, monkeypatch):
    """By a task, and on the command line, through what Inspect makes of a name."""
    asked = []

    async def create(**options):
        asked.append(options["template"])
        raise LookupError

    monkeypatch.setattr(AsyncSandbox, "create", create)
    monkeypatch.chdir(tmp_path)
    for spec in (resolve_task_sandbox(Task(sandbox=("bothy", name)), None), resolve_task_sandbox(Task(), parse_sandbox(f"bothy:{name}"))):
        with pytest.raises(LookupError):
            await BothySandboxEnvironment.sample_init("named", spec.config, {})
    assert asked == [name, name]


class Words:
    """Counts words as tokens: Inspect's own counter is fetched from the network."""

    def encode(self, text, **kwargs):
        return text.split()


def test_an_evaluation(tmp_path, monkeypatch):
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: Words())
    monkeypatch.setattr(tiktoken, "encoding_for_model", lambda name: Words())
    model = get_model("mockllm/model", custom_outputs=[
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat 'größe 1.txt'"}),
        ModelOutput.from_content("mockllm/model", "It is forty-two."),
    ])
    sample = Sample(input="How large is it?", target="forty-two", files={"größe 1.txt": "42"})
    task = Task(dataset=[sample], solver=[use_tools(bash()), generate()], scorer=includes(), sandbox="bothy")
    (log,) = eval(task, model=model, log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error
    (ran,) = log.samples
    assert [(m.text, m.error) for m in ran.messages if m.role == "tool"] == [("42", None)]
    ids = [e.data["sandbox_id"] for e in ran.events if e.event == "info" and e.source == "bothy"]
    assert len(ids) == 1 and Sandbox.get(ids[0]).info.state == "stopped"

async def test_an_untested_version_is_said_once(monkeypatch):
    adapters.check_version.cache_clear()
    monkeypatch.setattr("importlib.metadata.version", lambda _: "9.9.9")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            made = await BothySandboxEnvironment.sample_init("versions", "python-3.12-bare", {})
            await BothySandboxEnvironment.sample_cleanup("versions", None, made, False)
    adapters.check_version.cache_clear()
    (one,) = [w for w in said if w.category is adapters.UntestedVersionWarning]
    assert "9.9.9" in str(one.message)


async def test_arguments_of_newer_versions_are_ignored():
    """Every method through which the framework calls is given one argument more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adapters.UntestedVersionWarning)
        for cls in [BothySandboxEnvironment]:
            for name in adapters.overriding(cls):
                try:
                    made = getattr(cls.__new__(cls), name)(an_argument_of_tomorrow=1)
                    if inspect.isawaitable(made):
                        await made
                except (Exception, SystemExit) as error:
                    assert "an_argument_of_tomorrow" not in str(error), name
