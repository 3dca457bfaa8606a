"""deepagents' own command line with its plug-in for Bothy, and a model that follows a script."""

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bothy import Sandbox

COMMAND = "pwd; echo $((6*7)) >'größe 1.txt'; cat 'größe 1.txt'"
SCRIPT = [
    ("execute", {"command": COMMAND}),
    ("read_file", {"file_path": "/workspace/größe 1.txt"}),
]


class Model(http.server.BaseHTTPRequestHandler):
    """Speaks as much of chat completions as the command line asks for."""

    heard: list[str] = []

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = [str(m["content"]) for m in asked["messages"] if m["role"] == "tool"]
        Model.heard = max(Model.heard, said, key=len)
        if asked.get("tools") and len(said) < len(SCRIPT):
            name, given = SCRIPT[len(said)]
            function = {"name": name, "arguments": json.dumps(given)}
            call = {"index": 0, "id": f"call_{len(said)}", "type": "function", "function": function}
            self.answer({"tool_calls": [call]}, "tool_calls", asked.get("stream"))
        else:
            self.answer({"content": "It is forty-two."}, "stop", asked.get("stream"))

    def answer(self, delta: dict, reason: str, stream: bool) -> None:
        whole = {"id": "c", "created": 1, "model": "m"}
        delta = {"role": "assistant", "content": None, **delta}
        if stream:
            parts = [{"delta": delta, "finish_reason": None}, {"delta": {}, "finish_reason": reason}]
            body = "".join(
                f"data: {json.dumps({**whole, 'object': 'chat.completion.chunk', 'choices': [{'index': 0, **p}]})}\n\n"
                for p in parts
            )
            body += "data: [DONE]\n\n"
        else:
            choice = {"index": 0, "message": delta, "finish_reason": reason}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            body = json.dumps({**whole, "object": "chat.completion", "choices": [choice], "usage": usage})
        raw = body.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


@pytest.fixture
def model() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def task(model: str, home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("dcode")
    params = json.dumps({"use_responses_api": False, "base_url": model})
    return subprocess.run(
        [program, "-n", "What is six times seven?", "--sandbox", "bothy", "-M", "openai:gpt-4o",
         "--model-params", params, "-S", "all", "--no-tracing", "-q", *options],
        env={**os.environ, "HOME": str(home), "OPENAI_API_KEY": "none"},
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def test_a_task_in_a_sandbox_of_its_own_and_in_one_that_is_paused(model: str, tmp_path: Path) -> None:
    ran = task(model, tmp_path)
    assert ran.returncode == 0 and "It is forty-two." in ran.stdout, ran.stdout + ran.stderr
    assert "/workspace\n42\n" in Model.heard[0] and "42" in Model.heard[1]
    for made in Sandbox.list(live=True, metadata={"client": "deepagents-code"}):
        Sandbox.get(made.id).terminate()
    with Sandbox.create() as sandbox:
        sandbox.pause()
        ran = task(model, tmp_path, "--sandbox-id", sandbox.id)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert sandbox.files.read("/workspace/größe 1.txt") == "42\n"
    ran = task(model, tmp_path, "--sandbox-id", "sbxnone")
    assert ran.returncode != 0
