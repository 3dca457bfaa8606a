"""The loop of an agent: ask the model, run what it asks for, tell it what came of it.

It speaks to any model with an API in the style of OpenAI, and needs nothing but Python, so
that it runs in a bare sandbox as well as on your machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "run_shell",
            "description": "Run a line of bash on a Linux machine and return its output and exit code.",
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "string"}},
                "required": ["command"],
            },
        },
    }
]
MAX_TURNS = 20


def ask(messages: list[dict]) -> dict:
    """Return the model's next message."""
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        data=json.dumps(
            {"model": os.environ.get("MODEL", "gpt-5"), "messages": messages, "tools": TOOLS}
        ).encode(),
        headers={
            "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)["choices"][0]["message"]


def run(task: str, run_shell: Callable[[str], str]) -> str:
    """Work on a task until the model has an answer, and return it."""
    messages: list[dict] = [{"role": "user", "content": task}]
    for _ in range(MAX_TURNS):
        message = ask(messages)
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            command = json.loads(call["function"]["arguments"])["command"]
            print("$", command, flush=True)
            messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": run_shell(command)}
            )
    return "I gave up."


def here(command: str) -> str:
    """Run a command on this machine."""
    done = subprocess.run(
        ["bash", "-lc", command], capture_output=True, text=True, timeout=300, check=False
    )
    return f"{done.stdout}{done.stderr}\nexit code {done.returncode}"


if __name__ == "__main__":
    # On the machine that it may do as it likes with: inside a sandbox.
    print("the key here is", os.environ["OPENAI_API_KEY"][:13] + "…", flush=True)
    print(run(sys.argv[1], here))
