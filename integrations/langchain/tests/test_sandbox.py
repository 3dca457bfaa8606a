"""LangChain's own tests of sandboxes, and what they leave out, against a real server."""

import inspect
import asyncio
import importlib.metadata
import time
import warnings

import pytest
from bothy import Sandbox, adapters
from deepagents import create_deep_agent
from langchain_bothy import BothySandbox
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_tests.integration_tests import SandboxIntegrationTests


@pytest.fixture(scope="module")
def made():
    with Sandbox.create(template="python-3.12", timeout_seconds=1200) as sandbox:
        yield BothySandbox(sandbox=sandbox)


# With deepagents 0.7.32 its own local backend fails these, too: the suite expects what
# the interface gave before 0.7.
BEHIND = {
    "test_glob", "test_write_existing_file_fails", "test_glob_basic_pattern", "test_glob_with_directories",
    "test_glob_hidden_files_explicitly", "test_glob_with_character_class", "test_glob_with_question_mark",
}


@pytest.fixture(autouse=True)
def behind(request):
    if request.node.name in BEHIND:
        request.node.add_marker(pytest.mark.xfail(reason="the suite is behind deepagents 0.7", strict=True))


class TestSandbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, made):
        return made


def test_a_time_out_ends_the_command(made):
    began = time.monotonic()
    late = made.execute("echo begun; sleep 77", timeout=1)
    assert late.exit_code == 124 and "begun" in late.output and "ended after 1 seconds" in late.output
    assert time.monotonic() - began < 20
    assert made.execute("pgrep -f '[s]leep 77' || echo none").output.strip() == "none"


def test_a_cancelled_task_ends_the_command(made):
    async def cancel():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(made.aexecute("sleep 78"), 1)

    asyncio.run(cancel())
    gone = made.execute("for i in $(seq 50); do pgrep -x sleep -a | grep -q 'sleep 78' || exec echo gone; sleep 0.1; done")
    assert gone.output == "gone\n"


def test_names_and_bytes(made):
    path, content = "/tmp/ein Ordner/größe 'x'.bin", bytes(range(256))
    assert [r.error for r in made.upload_files([(path, content)])] == [None]
    assert made.download_files([path])[0].content == content


def test_a_large_output_is_left_in_a_file(made):
    ran = made.execute_with_offload("seq 200000", "/tmp/seq.out", max_inline_bytes=1000)
    assert ran.offloaded and len(ran.response.output) < 5000
    assert made.execute("tail -1 /tmp/seq.out").output == "200000\n"


class Scripted(GenericFakeChatModel):
    """A model that says what it was told to say."""

    def bind_tools(self, tools, **kwargs):
        return self


def test_an_agent(made):
    ask = {"name": "execute", "args": {"command": "echo $((6 * 7)) > /tmp/answer; cat /tmp/answer"}, "id": "1"}
    says = iter([AIMessage(content="", tool_calls=[ask]), AIMessage(content="It is 42.")])
    agent = create_deep_agent(model=Scripted(messages=says), backend=made)
    answer = agent.invoke({"messages": [{"role": "user", "content": "What is six times seven?"}]})
    assert answer["messages"][-1].content == "It is 42."
    said = [str(m.content) for m in answer["messages"] if m.type == "tool"]
    assert len(said) == 1 and "42" in said[0], said
    assert made.execute("cat /tmp/answer").output == "42\n"


def test_the_command_line_finds_it():
    (found,) = importlib.metadata.entry_points(group="deepagents_code.sandbox_providers", name="bothy")
    assert found.value == "langchain_bothy.provider:BothyProvider"

def test_an_untested_version_is_said_once(monkeypatch, made):
    adapters.check_version.cache_clear()
    monkeypatch.setattr("importlib.metadata.version", lambda _: "9.9.9")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            BothySandbox(sandbox=made.sandbox)
    adapters.check_version.cache_clear()
    (one,) = [w for w in said if w.category is adapters.UntestedVersionWarning]
    assert "9.9.9" in str(one.message)


async def test_arguments_of_newer_versions_are_ignored():
    """Every method through which the framework calls is given one argument more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adapters.UntestedVersionWarning)
        for cls in [BothySandbox]:
            for name in adapters.overriding(cls):
                try:
                    made = getattr(cls.__new__(cls), name)(an_argument_of_tomorrow=1)
                    if inspect.isawaitable(made):
                        await made
                except (Exception, SystemExit) as error:
                    assert "an_argument_of_tomorrow" not in str(error), name
