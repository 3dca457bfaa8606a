"""An editor for the tests: the official client of the Agent Client Protocol, with bothy acp as
its agent."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import acp
import pytest
from acp import schema

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "python/tests"))
from free_address import free_address  # noqa: E402

BOTHY = os.environ["BOTHY_BIN"]
OWN_TEMPLATES = HERE.parents[1] / "scripts/own-templates"
SCRIPTED = ("-t", "python-3.12-bare", "--", "python3", "-c", (HERE / "agent.py").read_text())


class Editor(acp.Client):
    """What the agent said, and what it may do."""

    def __init__(self, cwd: Path, stderr) -> None:
        self.cwd, self.stderr = cwd, stderr
        self.answer = "yes"
        self.said = ""
        self.updates: list = []
        self.heard = asyncio.Event()
        self.agent = self.process = self.session = None

    async def session_update(self, session_id, update, **kwargs):
        self.updates.append(update)
        if isinstance(update, schema.AgentMessageChunk):
            self.said += update.content.text
            self.heard.set()

    async def request_permission(self, session_id, tool_call, options, **kwargs):
        kind = "allow_once" if self.answer == "yes" else "reject_once"
        chosen = next(o for o in options if o.kind == kind)
        return schema.RequestPermissionResponse(outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id))

    async def read_text_file(self, session_id, path, line=None, limit=None, **kwargs):
        return schema.ReadTextFileResponse(content=Path(path).read_text())

    async def write_text_file(self, session_id, path, content, **kwargs):
        Path(path).write_text(content)
        return schema.WriteTextFileResponse()

    async def create_terminal(self, *args, **kwargs):
        raise AssertionError("the agent got a terminal of this host")

    async def open(self, cwd=None, **more):
        made = await self.agent.new_session(cwd=str(cwd or self.cwd), mcp_servers=more.pop("mcp_servers", []), **more)
        self.session = made.session_id

    async def prompt(self, *lines: str) -> str:
        """Has the lines done, and returns what the agent said meanwhile."""
        self.said = ""
        self.ended = await self.agent.prompt(session_id=self.session, prompt=[acp.text_block("\n".join(lines))])
        return self.said

    def errors(self) -> str:
        self.stderr.flush()
        return Path(self.stderr.name).read_text()


def run(test):
    """A test that is a coroutine, and does not hang."""

    @functools.wraps(test)
    def wrapper(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), int(os.environ.get("BOTHY_TEST_HANGS", "240"))))

    return wrapper


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "my projäct"
    folder.mkdir()
    (folder / "main.py").write_text("print('one')\n")
    return folder


@pytest.fixture
def edit(project: Path, tmp_path: Path):
    """Starts bothy acp with flags, and leaves it at the end."""

    @asynccontextmanager
    async def start(*flags: str, env: dict[str, str] | None = None, opened: bool = True, cwd: Path | None = None):
        words = flags if "--" in flags else (*flags, *SCRIPTED)
        environment = {**os.environ, "HOME": str(tmp_path / "home"), **(env or {})}
        with open(tmp_path / "stderr", "ab") as stderr:
            editor = Editor(project, stderr)
            async with acp.spawn_agent_process(
                editor, BOTHY, "acp", *words, env=environment, cwd=cwd or project,
                transport_kwargs={"stderr": stderr, "limit": 64 << 20, "shutdown_timeout": 60.0},
            ) as (editor.agent, editor.process):
                if opened:
                    await editor.agent.initialize(
                        protocol_version=1,
                        client_capabilities=schema.ClientCapabilities(
                            fs=schema.FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=True
                        ),
                    )
                    await editor.open()
                try:
                    yield editor
                except BaseException:
                    print(editor.errors())
                    raise

    return start


class Server:
    """A server of a test's own, which can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.address, self.taken = free_address()
        self.folder, self.process = folder, None

    def start(self) -> None:
        credentials = self.folder / "credentials.json"
        words = [BOTHY, "serve", "--listen", self.address]
        words += ["--bootstrap-credentials", str(credentials)]
        env = {**os.environ, "BOTHY_HOME": str(self.folder / "state"), "BOTHY_POOL": "off"}
        env["BOTHY_TEMPLATES"] = str(self.folder / "templates")
        self.process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)
        assert any("msg=ready" in line for line in self.process.stderr), "the server did not start"
        self.log = threading.Thread(target=self.process.stderr.read, daemon=True)
        self.log.start()
        stored = json.loads(credentials.read_text())
        self.env = {"BOTHY_URL": f"http://{self.address}", "BOTHY_API_KEY": stored["api_key"]}

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture
def server():
    folder = Path(tempfile.mkdtemp(prefix="bothy-coding-", dir="/var/tmp"))
    folder.chmod(0o711)
    subprocess.run([OWN_TEMPLATES, folder / "templates"], check=True, capture_output=True)
    server = Server(folder)
    server.start()
    yield server
    subprocess.run([BOTHY, "rm", "--all"], env={**os.environ, **server.env}, check=True, capture_output=True)
    server.stop()
    shutil.rmtree(folder)


def sandboxes() -> list[dict]:
    """The sandboxes that live."""
    out = subprocess.run([BOTHY, "ls", "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(out)["items"] if out.strip() else []
