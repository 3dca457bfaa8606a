"""Agents with a scripted model, through the framework's own runner, in real sandboxes."""

import subprocess
import sys
from pathlib import Path

from agents import Runner, RunState, function_tool
from agents.run import RunConfig
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.testing import ScriptedModel, assistant_message, function_call
from bothy import Sandbox
from bothy_openai_agents import BothySandboxClient, BothySandboxClientOptions

EXAMPLE = Path(__file__).parent.parent / "examples" / "agent.py"


@function_tool(needs_approval=True)
def ask() -> str:
    """Ask a person."""
    return "granted"


def agent(*script):
    return SandboxAgent(
        name="worker", instructions="Work.", tools=[ask], model=ScriptedModel(script)
    )


def config(**options):
    made = BothySandboxClientOptions(metadata={"test": "agent"}, **options)
    sandbox = SandboxRunConfig(client=BothySandboxClient(), options=made)
    return RunConfig(sandbox=sandbox, tracing_disabled=True)


def outputs(result):
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]


async def test_an_agent_waits_for_a_person_and_goes_on_in_another_process(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # where the framework keeps snapshots
    first = agent(
        [
            function_call(
                "exec_command",
                {"cmd": "echo 42 >'größe 1.txt'; cat 'größe 1.txt'; exit 3"},
                call_id="c1",
            )
        ],
        [
            function_call(
                "exec_command", {"cmd": "cat", "tty": True, "yield_time_ms": 300}, call_id="c2"
            )
        ],
        [function_call("ask", {}, call_id="c3")],
    )
    result = await Runner.run(first, "Begin.", run_config=config())
    ran, terminal = outputs(result)
    assert "42" in ran and "exited with code 3" in ran and "session ID" in terminal
    kept = result.to_state().to_json()

    second = agent(
        [
            function_call(
                "exec_command", {"cmd": "cat 'größe 1.txt'; pgrep -x cat | wc -l"}, call_id="c4"
            )
        ],
        [assistant_message("It is forty-two.")],
    )
    state = await RunState.from_json(second, kept)
    state.approve(state.get_interruptions()[0])
    result = await Runner.run(second, state, run_config=config())
    assert result.final_output == "It is forty-two."
    assert "granted" in outputs(result) and "42\n0" in outputs(result)[-1]
    made = Sandbox.list(metadata={"test": "agent"})
    assert len(made) == 2 and {sandbox.info.state for sandbox in made} == {"stopped"}


def test_the_example():
    ran = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert "42" in ran.stdout and ran.stdout.endswith("The sum is forty-two.\n")
