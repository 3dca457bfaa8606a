"""Codex itself, with a model that follows a script. Its key is not in the sandbox."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from conftest import BOTHY, run, sandboxes

HOST, PORT, KEY = os.environ["MODEL_HOST"], os.environ["MODEL_PORT"], os.environ["MODEL_KEY"]
AT_MODEL = ("-t", "codex-at-model", "--secret", f"OPENAI_API_KEY@{HOST}", "--allow-port", PORT)
DOCKERFILE = f"""
FROM codex
RUN mkdir ~/.codex && echo 'openai_base_url = "https://{HOST}:{PORT}/v1"' >~/.codex/config.toml
"""


@pytest.fixture(autouse=True, scope="module")
def template(tmp_path_factory):
    """Codex reads from a file where its model is."""
    folder = tmp_path_factory.mktemp("codex")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    subprocess.run([BOTHY, "template", "build", "codex-at-model", str(folder)], check=True, capture_output=True)
    yield
    subprocess.run([BOTHY, "template", "rm", "codex-at-model"], check=True, capture_output=True)


def use(command: str) -> str:
    return "USE " + json.dumps({"name": "exec_command", "input": {"cmd": command}})


def test_codex_does_a_task(project, tmp_path):
    def codex(*words: str) -> str:
        words = (BOTHY, "agent", "run", "codex", *words)
        done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OPENAI_API_KEY": KEY}, timeout=60)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    said = codex("--repo", str(project), *AT_MODEL, "--task", use("echo changed >>main.py; echo key=$OPENAI_API_KEY"), "--out", str(tmp_path / "patch"))
    assert "The tool said:" in said and "key=bothy-secret-" in said, said
    assert "+changed" in (tmp_path / "patch").read_text()
    (first,) = sandboxes()
    said = codex("--fork", first["id"], "--rm", "--task", use("cat main.py"))
    assert "print('one')\nchanged" in said, said
    subprocess.run([BOTHY, "rm", first["id"]], check=True, capture_output=True)


@run
async def test_codex_in_an_editor(edit, project):
    async with edit("--agent", "codex", *AT_MODEL, "--", env={"OPENAI_API_KEY": KEY}) as editor:
        assert "OK" in await editor.prompt("hello")
        await editor.prompt(use("cat main.py; echo new >new.txt"))
        assert (project / "new.txt").read_text() == "new\n", editor.said
    assert sandboxes() == []
