"""A real server for the tests: the one that BOTHY_URL names, or one of their own.

Without ``BOTHY_E2E=1`` nothing here is collected. With it, and without BOTHY_URL and
BOTHY_API_KEY, the program ``bothy`` is started on a free port with a home of its own. It
is looked for at BOTHY_BINARY, in ``bin`` of the repository, and in PATH. It needs root, and
templates, which it links: in BOTHY_TEMPLATES, or where ``bothy up`` keeps them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from free_address import free_address

from bothy import Client, Sandbox, State

REPOSITORY = Path(__file__).resolve().parents[3]
ASKED_FOR = os.environ.get("BOTHY_E2E") == "1"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return None if ASKED_FOR else True


def find_binary() -> Path:
    named = os.environ.get("BOTHY_BINARY")
    in_repository = REPOSITORY / "bin" / "bothy"
    in_path = shutil.which("bothy")
    for candidate in (named, in_repository, in_path):
        if candidate and Path(candidate).exists():
            return Path(candidate)
    pytest.fail(
        f"there is no bothy program at BOTHY_BINARY, {in_repository} or in PATH: run `make build`",
        pytrace=False,
    )


class Server:
    """A server of our own, which can be killed and started again."""

    def __init__(self) -> None:
        self._binary = find_binary()
        # Not pytest's own folder: the sandboxes' processes, which are nobody, must pass through.
        self.home = Path(tempfile.mkdtemp(prefix="bothy-e2e-", dir="/var/tmp"))
        self.home.chmod(0o711)
        command = [REPOSITORY / "scripts" / "own-templates", self.home / "templates"]
        subprocess.run(command, check=True, capture_output=True)
        self._listen, self._taken = free_address()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> dict[str, str]:
        """Start it, wait until it listens, and return the environment that leads to it."""
        log, credentials = self.home / "log", self.home / "credentials.json"
        environment = {
            **os.environ,
            "BOTHY_HOME": str(self.home / "state"),
            "BOTHY_TEMPLATES": str(self.home / "templates"),
        }
        command = [str(self._binary), "serve", "--listen", self._listen]
        command += ["--bootstrap-credentials", str(credentials)]
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        wait_until_ready(self._process, log)
        stored = json.loads(credentials.read_text())
        return {"BOTHY_URL": stored["url"], "BOTHY_API_KEY": stored["api_key"]}

    def end(self, *, kill: bool = False) -> None:
        """Stop it; its sandboxes live on."""
        if self._process is None:
            return
        self._process.kill() if kill else self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        for line in (self.home / "log").read_text().splitlines():
            if " level=ERROR " in line:
                print(line, file=sys.__stderr__)

    def remove(self, environment: dict[str, str]) -> None:
        """End what is left in it, stop it, and remove its home."""
        try:
            with Client(environment["BOTHY_URL"], environment["BOTHY_API_KEY"]) as client:
                living: list[State] = ["starting", "running", "paused"]
                for sandbox in Sandbox.list(state=living, client=client):
                    sandbox.terminate()
        finally:
            self.end()
            self._taken.close()
            shutil.rmtree(self.home, ignore_errors=True)


@pytest.fixture(scope="session")
def server() -> Iterator[dict[str, str]]:
    """The environment that leads to the server."""
    if os.environ.get("BOTHY_URL") and os.environ.get("BOTHY_API_KEY"):
        yield {name: os.environ[name] for name in ("BOTHY_URL", "BOTHY_API_KEY")}
        return
    own = Server()
    environment = own.start()
    yield environment
    own.remove(environment)


@pytest.fixture
def restartable() -> Iterator[tuple[Server, Client]]:
    """A server that a test may kill, and a client of it."""
    own = Server()
    environment = own.start()
    with Client(environment["BOTHY_URL"], environment["BOTHY_API_KEY"]) as client:
        yield own, client
    own.remove(environment)


def wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    """Follow the log up to the line that says that the server listens."""
    with subprocess.Popen(
        ["tail", "-n", "+1", "-f", f"--pid={process.pid}", log], stdout=subprocess.PIPE
    ) as tail:
        assert tail.stdout is not None
        for line in tail.stdout:
            if b"msg=ready" in line:
                tail.terminate()
                return
    pytest.fail(f"the server did not start:\n{log.read_text()}", pytrace=False)


@pytest.fixture(autouse=True)
def environment(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Every test finds the server as a user's program does."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture(scope="session")
def template(server: dict[str, str]) -> str:
    """A template with Python."""
    with Client(server["BOTHY_URL"], server["BOTHY_API_KEY"]) as client:
        names = [template.name for template in client.templates()]
    for name in ("python-3.12", "python-3.12-bare"):
        if name in names:
            return name
    pytest.fail(f"the server has no template with Python, only {names}", pytrace=False)


@pytest.fixture
def sbx(environment: dict[str, str], template: str) -> Iterator[Sandbox]:
    """A new sandbox."""
    with Sandbox.create(template) as sandbox:
        yield sandbox
