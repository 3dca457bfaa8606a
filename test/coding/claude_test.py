"""Claude Code itself, with a model that follows a script. Its key is not in the sandbox."""

from __future__ import annotations

import json
import os
import subprocess

import acp
from conftest import BOTHY, run, sandboxes

HOST, PORT, KEY = os.environ["MODEL_HOST"], os.environ["MODEL_PORT"], os.environ["MODEL_KEY"]
AT_MODEL = (
    "--secret", f"ANTHROPIC_API_KEY@{HOST}", "-e", f"ANTHROPIC_BASE_URL=https://{HOST}:{PORT}", "--allow-port", PORT,
)


def use(name: str, **given) -> str:
    return "USE " + json.dumps({"name": name, "input": given})


@run
async def test_claude_code_in_an_editor(edit, project):
    flags = ("--agent", "claude-code", *AT_MODEL, "--")
    async with edit(*flags, env={"ANTHROPIC_API_KEY": KEY}) as editor:
        assert "OK" in await editor.prompt("hello")
        await editor.agent.set_session_mode(session_id=editor.session, mode_id="default")
        said = await editor.prompt(use("Bash", command="cat main.py; echo key=$ANTHROPIC_API_KEY", description="look"))
        assert "print('one')" in said and "key=bothy-secret-" in said and KEY not in said
        said = await editor.prompt(use("Write", file_path=str(project / "héllo.txt"), content="from inside"))
        assert (project / "héllo.txt").read_text() == "from inside", said
        editor.answer = "no"
        await editor.prompt(use("Write", file_path=str(project / "no.txt"), content="from inside"))
        assert not (project / "no.txt").exists()
        assert editor.ended.stop_reason == "end_turn"
    assert sandboxes() == []


@run
async def test_claude_code_with_a_wrong_key(edit):
    flags = ("--agent", "claude-code", *AT_MODEL, "-e", "CLAUDE_CODE_MAX_RETRIES=0", "--")
    async with edit(*flags, env={"ANTHROPIC_API_KEY": "a-wrong-key"}) as editor:
        try:
            said = await editor.prompt("hello")
        except acp.RequestError as error:
            said = str(error)
        assert "OK" not in said and "a-wrong-key" not in said + editor.errors()


def test_claude_code_does_a_task(project, tmp_path):
    """It does one, is paused, and takes up the conversation in a copy."""
    environment = {**os.environ, "ANTHROPIC_API_KEY": KEY}

    def claude(*words: str) -> str:
        done = subprocess.run([BOTHY, "agent", "run", "claude-code", *words], capture_output=True, text=True, env=environment, timeout=240)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    task = use("Bash", command="echo changed >>main.py; echo key=$ANTHROPIC_API_KEY", description="change")
    said = claude("--repo", str(project), *AT_MODEL, "--task", task, "--out", str(tmp_path / "patch"))
    assert "→ Bash echo changed >>main.py" in said and "The tool said: key=bothy-secret-" in said
    assert "+changed" in (tmp_path / "patch").read_text()
    (first,) = sandboxes()
    assert first["state"] == "paused"
    said = claude("--fork", first["id"], "--rm", "--task", use("Bash", command="cat main.py", description="look"))
    assert "The tool said: print('one')\nchanged" in said
    subprocess.run([BOTHY, "rm", first["id"]], check=True, capture_output=True)


SDK = """
import { query } from "@anthropic-ai/claude-agent-sdk";
for await (const message of query({ prompt: process.argv[2], options: { permissionMode: "bypassPermissions", allowDangerouslySkipPermissions: true } }))
  if (message.type === "result") console.log(message.subtype, message.result);
"""


def test_a_program_with_the_agent_sdk(tmp_path):
    (tmp_path / "program.mjs").write_text(SDK)
    flags = ("-t", "claude-code", "--memory", "2048", *AT_MODEL, "--allow-domain", HOST, "-v", f"{tmp_path}/program.mjs:/workspace/program.mjs")
    task = use("Bash", command="echo $((6 * 7)) key=$ANTHROPIC_API_KEY", description="compute")
    words = (BOTHY, "run", *flags, "--", "node", "program.mjs", task)
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "ANTHROPIC_API_KEY": KEY}, timeout=240)
    assert done.stdout.startswith("success The tool said: 42 key=bothy-secret-"), (done.stdout, done.stderr)
