"""An agent that works in a sandbox.

A script stands in for the model, so that it needs no key. With a key of OpenAI leave out
``model=`` and the script.
"""

import asyncio

from agents import Runner
from agents.run import RunConfig
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File
from agents.testing import ScriptedModel, assistant_message, function_call
from bothy_openai_agents import BothySandboxClient, BothySandboxClientOptions

COMMAND = "python3 -c \"print(sum(int(n) for n in open('numbers.txt')))\""


async def main() -> None:
    script = [
        [function_call("exec_command", {"cmd": COMMAND}, call_id="call_1")],
        [assistant_message("The sum is forty-two.")],
    ]
    agent = SandboxAgent(
        name="adder",
        instructions="Use the files of the workspace.",
        default_manifest=Manifest(entries={"numbers.txt": File(content=b"10\n12\n20\n")}),
        model=ScriptedModel(script),
    )
    options = BothySandboxClientOptions(template="python-3.12", memory_mb=512)
    sandbox = SandboxRunConfig(client=BothySandboxClient(), options=options)
    config = RunConfig(sandbox=sandbox, tracing_disabled=True)
    result = await Runner.run(agent, "What is the sum?", run_config=config)
    for item in result.new_items:
        if item.type == "tool_call_output_item":
            print(item.output)
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
