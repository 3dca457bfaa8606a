"""bothy agent run, with an agent that is a shell script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BOTHY, sandboxes

SCRIPTED = """
scripted:
  template: node-22-bare
  run: [sh, -c, "{task}"]
  continue: [sh, -c, "echo again; {task}"]
failing:
  template: python-3.12-bare
  acp: [true]
"""


@pytest.fixture
def bothy(tmp_path: Path):
    (tmp_path / "agents.yaml").write_text(SCRIPTED)

    def run(*words: str, code: int = 0, cwd: Path = tmp_path, **more) -> subprocess.CompletedProcess:
        done = subprocess.run([BOTHY, *words], cwd=cwd, capture_output=True, text=True, timeout=240, **more)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done

    yield run
    for sandbox in sandboxes():
        subprocess.run([BOTHY, "rm", sandbox["id"]], check=True, capture_output=True)


@pytest.fixture
def agent(bothy, tmp_path: Path):
    def run(*words: str, **more):
        new = () if {"--continue", "--fork"} & set(words) else ("-t", "python-3.12-bare")
        return bothy("agent", "run", "scripted", "--agents", str(tmp_path / "agents.yaml"), *new, *words, **more)

    return run


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", folder, *names, *words], check=True, capture_output=True, text=True).stdout


def test_a_task_streams_and_its_code_is_passed_on(agent, bothy):
    done = agent("--task", "echo out; echo err >&2; exit 7", code=7)
    assert done.stdout == "out\n" and "err\n" in done.stderr
    (sandbox,) = sandboxes()
    assert sandbox["state"] == "paused" and f"--continue {sandbox['id']}" in done.stderr
    assert agent("--rm", "--task", "-", input="cat /etc/hostname").stdout
    assert len(sandboxes()) == 1


def test_as_json(agent):
    done = agent("--json", "--rm", "--task", "printf 'a\\nb'; exit 3", code=3)
    first, *pieces, last = map(json.loads, done.stdout.splitlines())
    assert first["started"] == "new" and first["sandbox_id"] == last["sandbox_id"]
    assert last["is_final"] and last["exit_code"] == 3 and last["state"] == "stopped"
    assert {p["stream"] for p in pieces} == {"stdout"}


def test_go_on_and_in_a_copy(agent, bothy):
    agent("--task", "echo 1 >state; echo first >/tmp/memory")
    (first,) = sandboxes()
    assert agent("--continue", first["id"], "--task", "cat state /tmp/memory; echo 2 >state").stdout == "again\n1\nfirst\n"
    copy = json.loads(agent("--json", "--fork", first["id"], "--task", "cat state; echo 3 >state").stdout.splitlines()[0])
    assert copy["started"] == "copy" and copy["sandbox_id"] != first["id"]
    assert agent("--continue", first["id"], "--task", "cat state").stdout == "again\n2\n"
    assert agent("--continue", copy["sandbox_id"], "--task", "cat state").stdout == "again\n3\n"


def test_a_folder_goes_in_and_a_patch_comes_out(agent, bothy, tmp_path):
    repo = tmp_path / "mein projäct"
    repo.mkdir()
    git(repo, "init", "-q")
    (repo / ".gitignore").write_text(".env\nbuilt\n")
    (repo / ".env").write_text("SECRET")
    (repo / "a.txt").write_text("committed\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "first")
    (repo / "a.txt").write_text("changed, not committed\n")
    task = (
        "pwd; cat .env a.txt; git config user.name x; git config user.email x@example.org;"
        "echo agent >>a.txt; git commit -qam second; echo new >'new ünd.txt'; echo x >built; printf '\\0\\1\\2' >data.bin"
    )
    done = agent("--repo", str(repo), "--task", task, "--out", "changes.patch")
    assert "/workspace/mein projäct\nchanged, not committed\n" in done.stdout and "SECRET" not in done.stdout
    assert (repo / "a.txt").read_text() == "changed, not committed\n"
    (sandbox,) = sandboxes()
    patch = tmp_path / "changes.patch"
    assert patch.read_text() == bothy("agent", "diff", sandbox["id"]).stdout
    assert sandboxes()[0]["state"] == "paused"
    git(repo, "apply", str(patch))
    assert (repo / "a.txt").read_text() == "changed, not committed\nagent\n"
    assert (repo / "new ünd.txt").read_text() == "new\n" and (repo / "data.bin").read_bytes() == b"\0\1\2"
    assert not (repo / "built").exists()


def test_a_repository_is_cloned(agent, bothy, tmp_path):
    work, host, port = Path(os.environ["MODEL_FILES"]), os.environ["MODEL_HOST"], os.environ["MODEL_PORT"]
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(work / "project.git"))
    git(tmp_path, "clone", "-q", str(work / "project.git"), "there")
    (tmp_path / "there/a.txt").write_text("a\n")
    git(tmp_path / "there", "add", "-A")
    git(tmp_path / "there", "commit", "-qm", "first")
    git(tmp_path / "there", "push", "-q", "origin", "HEAD:main", "HEAD:topic/x")
    git(work / "project.git", "update-server-info")
    url = f"https://{host}:{port}/project.git"
    done = agent("--repo", url, "--branch", "topic/x", "--allow-port", port, "--task", "pwd; git branch --show-current; echo b >>a.txt")
    assert done.stdout == "/workspace/project\ntopic/x\n"
    (sandbox,) = sandboxes()
    assert "+b\n" in bothy("agent", "diff", sandbox["id"]).stdout
    done = agent("--repo", url + "x", "--allow-port", port, "--rm", "--task", "x", code=1)
    assert "cannot clone" in done.stderr and len(sandboxes()) == 1


def test_interrupted(tmp_path, agent, bothy):
    words = [BOTHY, "agent", "run", "scripted", "--agents", str(tmp_path / "agents.yaml"), "-t", "python-3.12-bare", "--task", "echo begun; sleep 1000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as p:
        assert p.stdout.readline() == "begun\n"
        p.send_signal(signal.SIGINT)
        assert p.wait(120) == 130
    (sandbox,) = sandboxes()
    assert sandbox["state"] == "paused"
    assert agent("--continue", sandbox["id"], "--task", "pgrep -x sleep || echo none").stdout == "again\nnone\n"


def test_what_makes_no_sense(agent, bothy, tmp_path):
    assert "no task" in agent(code=2).stderr
    assert "no agent" in bothy("agent", "run", "nobody", "--task", "x", code=2).stderr
    assert "claude-code" in bothy("agent", "run", "nobody", "--task", "x", code=2).stderr
    agents = ("--agents", str(tmp_path / "agents.yaml"))
    assert "bothy acp" in bothy("agent", "run", "failing", *agents, "--task", "x", code=1).stderr
    assert "https" in agent("--repo", "http://git.example.org/a", "--task", "x", code=2).stderr
    assert "credential" in agent("--repo", "https://me:x@git.example.org/a", "--task", "x", code=2).stderr
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC", "CLAUDE"))}
    assert "ANTHROPIC_API_KEY or CLAUDE" in bothy("agent", "run", "claude-code", "--task", "x", code=1, env=environment).stderr
    assert "no template" in bothy("agent", "run", "scripted", *agents, "--task", "x", code=3).stderr
    assert "not carried" in agent("--repo", "/", "--task", "x", code=1).stderr
    other = bothy("create", "python-3.12-bare").stdout.strip()
    assert "not one of the agent" in agent("--continue", other, "--task", "x", code=2).stderr
    assert "not of an agent" in bothy("agent", "diff", other, code=3).stderr
    assert "claude-code" in bothy("agent", "ls").stdout and sys.version


def test_a_program_that_is_not_there(agent, tmp_path):
    (tmp_path / "agents.yaml").write_text("scripted: {template: x, run: [no-such-program]}")
    assert "no-such-program" in agent("--task", "x", code=127).stderr
