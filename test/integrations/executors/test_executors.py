"""The examples of examples/executors with the real frameworks, a real server, and models that follow a script."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from bothy import Sandbox

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "AGNO_TELEMETRY": "false"}
sys.path.insert(0, str(Path(__file__).parents[3] / "examples/executors"))

SLOW = "import time; print('begun', flush=True); time.sleep(60)"


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert [s.id for s in Sandbox.list(live=True)] == []


@pytest.fixture
def sandbox(nothing_is_left):
    with Sandbox.create() as sandbox:
        yield sandbox


def test_smolagents():
    from smolagents import ChatMessage, CodeAgent, Model
    from smolagents_executor import BothyExecutor

    class Scripted(Model):
        replies = iter(["x = 20", "undefined + 1", "final_answer(x + 22)"])
        seen = []

        def generate(self, messages, **options):
            self.seen.append(str(messages[-1].content))
            return ChatMessage(role="assistant", content=f"Thought: go on.\n<code>\n{next(self.replies)}\n</code>")

    executor = BothyExecutor(timeout_seconds=20)
    agent = CodeAgent(tools=[], model=Scripted(), executor=executor, verbosity_level=0)
    try:
        assert agent.run("What is x and 22?") == 42
        assert any("NameError" in text for text in Scripted.seen)
        assert executor("print('said')\n20 + 22").logs == "said\n"
        assert executor("from PIL import Image\nImage.new('RGB', (2, 3))").output.size == (2, 3)
        executor.timeout_seconds = 1
        with pytest.raises(Exception, match="KeyboardInterrupt"):
            executor(SLOW)
        executor.timeout_seconds = 20
        assert executor("x").output == "20"
    finally:
        agent.cleanup()


def test_autogen():
    asyncio.run(autogen())


async def autogen():
    from autogen_core import CancellationToken
    from autogen_core.code_executor import CodeBlock
    from autogen_executor import BothyCodeExecutor
    from autogen_ext.tools.code_execution import PythonCodeExecutionTool

    async with BothyCodeExecutor(timeout_seconds=20) as executor:
        tool = PythonCodeExecutionTool(executor)

        async def run(code):
            return await tool.run_json({"code": code}, CancellationToken())

        assert (await run("x = 20")).success
        assert (await run("print(x + 22)")).output == "42\n"
        failed = await run("undefined")
        assert not failed.success and "NameError" in failed.output
        blocks = [CodeBlock("echo 'ä b' >'ä b'; cat 'ä b'", "bash"), CodeBlock("exit 3", "sh"), CodeBlock("echo never", "sh")]
        done = await executor.execute_code_blocks(blocks, CancellationToken())
        assert (done.exit_code, done.output) == (3, "ä b\n")
        executor.timeout_seconds = 1
        assert not (await run(SLOW)).success

        executor.timeout_seconds = 60
        token = CancellationToken()
        given_up = asyncio.ensure_future(executor.execute_code_blocks([CodeBlock("touch begun; exec sleep 1234", "sh")], token))
        while not await executor.sandbox.files.exists("begun"):
            await asyncio.sleep(0.05)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        while "1234" in (await executor.sandbox.exec("ps ax -o args")).stdout:
            await asyncio.sleep(0.05)
        await executor.restart()
        assert not (await run("x")).success


def test_crewai(sandbox):
    from crewai import Agent, BaseLLM, Crew, Task
    from crewai_tool import RunPython

    tool = RunPython(sandbox=sandbox, timeout_seconds=20)

    class Scripted(BaseLLM):
        seen: list = []
        codes: list = ["x = 20", "print(x + undefined)", "print(x + 22)"]

        def call(self, messages, *args, **options):
            self.seen.append(" ".join(str(m["content"]) for m in messages))
            if not self.codes:
                found = re.findall(r"\b42\b", self.seen[-1])
                return f"Thought: I know it.\nFinal Answer: {found[0]}"
            return f'Thought: compute.\nAction: run_python\nAction Input: {{"code": "{self.codes.pop(0)}"}}'

        def supports_function_calling(self):
            return False

    llm = Scripted(model="scripted")
    agent = Agent(role="analyst", goal="compute", backstory="none", llm=llm, tools=[tool])
    crew = Crew(agents=[agent], tasks=[Task(description="What is x and 22?", expected_output="a number", agent=agent)])
    assert crew.kickoff().raw == "42"
    assert any("NameError" in text for text in llm.seen)
    tool.timeout_seconds = 1
    assert "KeyboardInterrupt" in tool.run(code=SLOW)
    assert tool.run(code="x") == "20\n"


def test_llamaindex(sandbox):
    from llama_index.core.agent.workflow import ReActAgent
    from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
    from llamaindex_tool import sandbox_tools

    class Scripted(CustomLLM):
        codes: list = ["x = 20", "print(x + undefined)", "print(x + 22)"]
        seen: list = []

        @property
        def metadata(self):
            return LLMMetadata(model_name="scripted")

        def complete(self, prompt, **options):
            self.seen.append(prompt)
            if self.codes:
                text = f'Thought: compute.\nAction: run_python\nAction Input: {{"code": "{self.codes.pop(0)}"}}'
            else:
                text = "Thought: I can answer without using any more tools.\nAnswer: " + re.findall(r"Observation: (\d+)", prompt)[-1]
            return CompletionResponse(text=text)

        def stream_complete(self, prompt, **options):
            yield self.complete(prompt, **options)

    async def ask(llm, tools):
        return str(await ReActAgent(tools=tools, llm=llm).run(user_msg="What is x and 22?"))

    llm, tools = Scripted(), sandbox_tools(sandbox, timeout_seconds=20)
    assert asyncio.run(ask(llm, tools)) == "42"
    assert "NameError" in llm.seen[-1]
    assert tools[1].call(command="echo out; exit 3").raw_output == "out\n\nexit code 3"
    hasty = sandbox_tools(sandbox, timeout_seconds=1)
    assert "KeyboardInterrupt" in hasty[0].call(code=SLOW).raw_output
    assert tools[0].call(code="x").raw_output == "20\n"


def test_agno(sandbox):
    from agno.agent import Agent
    from agno.models.base import Model
    from agno.models.response import ModelResponse
    from agno_tools import BothyTools

    class Scripted(Model):
        codes = ["x = 20", "print(x + undefined)", "print(x + 22)"]
        seen = []

        def invoke(self, messages, *args, **options):
            self.seen.append(str(messages[-1].content))
            if not self.codes:
                return ModelResponse(role="assistant", content="It is " + self.seen[-1].strip())
            call = {"name": "run_python", "arguments": '{"code": "%s"}' % self.codes.pop(0)}
            return ModelResponse(role="assistant", tool_calls=[{"id": f"call-{len(self.codes)}", "type": "function", "function": call}])

        def other(self, *args, **options):
            raise NotImplementedError

        ainvoke = invoke_stream = ainvoke_stream = _parse_provider_response = _parse_provider_response_delta = other

    tools = BothyTools(sandbox, timeout_seconds=20)
    assert Agent(model=Scripted(id="scripted"), tools=[tools], telemetry=False).run("What is x and 22?").content == "It is 42"
    assert any("NameError" in text for text in Scripted.seen)
    assert tools.write_file("a folder/ä.txt", "text") and tools.read_file("a folder/ä.txt") == "text"
    assert "not-there" in tools.read_file("not-there")
    assert tools.run_command("exit 3").endswith("exit code 3")
    tools.timeout_seconds = 1
    assert "KeyboardInterrupt" in tools.run_python(SLOW)
