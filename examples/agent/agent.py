"""An agent with a computer of its own, in two ways.

    python agent.py tool TASK    the loop runs here, and a sandbox is its tool
    python agent.py home TASK    the loop itself runs in a sandbox, without the model's key

The model is where OPENAI_BASE_URL says, and opens with OPENAI_API_KEY.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import loop

from bothy import Sandbox

TEMPLATE = "python-3.12-bare"


def as_tool(task: str) -> str:
    """The model's commands run in a sandbox that reaches nothing, and is gone afterwards."""
    with Sandbox.create(template=TEMPLATE, timeout_seconds=600) as sandbox:

        def run_shell(command: str) -> str:
            result = sandbox.exec(command, timeout_seconds=300)
            return f"{result.stdout}{result.stderr}\nexit code {result.exit_code}"

        return loop.run(task, run_shell)


def as_home(task: str) -> str:
    """The loop runs in a sandbox that reaches the model and nothing else.

    The key stays outside: the sandbox has a word in its place, and the gateway puts the key
    into requests to the model's host.
    """
    model = urlsplit(os.environ["OPENAI_BASE_URL"])
    assert model.hostname is not None
    with Sandbox.create(
        template=TEMPLATE,
        timeout_seconds=600,
        network={
            "mode": "restricted",
            "allow_domains": [model.hostname],
            "allow_ports": [model.port or 443],
        },
        secrets=[
            {
                "name": "OPENAI_API_KEY",
                "value": os.environ["OPENAI_API_KEY"],
                "hosts": [model.hostname],
            }
        ],
        env={"OPENAI_BASE_URL": os.environ["OPENAI_BASE_URL"]},
    ) as sandbox:
        sandbox.files.write("/workspace/loop.py", Path(loop.__file__).read_text())
        result = sandbox.exec(["python3", "/workspace/loop.py", task], on_stderr=sys.stderr.write)
        if result.exit_code:
            raise SystemExit(f"the agent failed: {result.stderr[-500:]}")
        *said, answer = result.stdout.rstrip("\n").split("\n")
        print("\n".join(said))
        return answer


if __name__ == "__main__":
    ways = {"tool": as_tool, "home": as_home}
    if len(sys.argv) != 3 or sys.argv[1] not in ways:
        raise SystemExit(__doc__)
    print(ways[sys.argv[1]](sys.argv[2]))
