"""Checks the blocks that are no programs, by using them for what they are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mcp
from pages import Block
from sessions import Failed

_NETWORK = {"mode", "presets", "allow_domains", "allow_cidrs", "allow_ports"}


class Data:
    """Checks data blocks against the server of a page."""

    def __init__(self, cwd: Path, environment: Mapping[str, str]) -> None:
        self._cwd = cwd
        self._environment = environment

    def check(self, block: Block) -> None:
        checks: dict[str, Callable[[str], None]] = {
            "json": self._json,
            "toml": self._toml,
            "yaml": self._yaml,
            "nginx": self._nginx,
        }
        try:
            checks[block.language](block.source)
        except (mcp.Failed, ValueError, OSError) as error:
            raise Failed(f"{type(error).__name__}: {error}") from error

    def _json(self, source: str) -> None:
        value = json.loads(source)
        servers = value.get("mcpServers") or value.get("servers")
        if servers:
            self._mcp(servers, {f"input:{i['id']}" for i in value.get("inputs", [])})
        elif set(value) <= _NETWORK:
            self._create({"template": "python-3.12-bare", "network": value})
        else:
            self._create(value)

    def _toml(self, source: str) -> None:
        servers = tomllib.loads(source)["mcp_servers"]
        for server in servers.values():
            if variable := server.pop("bearer_token_env_var", None):
                server["headers"] = {"Authorization": f"Bearer ${{{variable}}}"}
        self._mcp(servers, set())

    def _create(self, request: dict[str, Any]) -> None:
        """Make a sandbox of a request, see that it is what was asked for, and end it."""
        sandbox = self._call("POST", "/v1/sandboxes", request)
        try:
            for key in set(request) - {"secrets"}:
                asked, got = request[key], sandbox.get(key)
                if isinstance(asked, dict) and isinstance(got, dict):
                    got = {name: got.get(name) for name in asked}
                if asked != got:
                    raise Failed(f"{key}: asked for {asked}, got {got}")
        finally:
            self._call("DELETE", f"/v1/sandboxes/{sandbox['id']}")

    def _call(self, method: str, path: str, body: object = None) -> Any:
        credentials = self._credentials()
        request = urllib.request.Request(
            credentials["url"] + path,
            json.dumps(body).encode() if body is not None else None,
            {"Authorization": f"Bearer {credentials['api_key']}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            raise Failed(f"{method} {path}: {error.code}: {error.read().decode()}") from None

    def _credentials(self) -> dict[str, str]:
        path = Path(self._environment["HOME"]) / ".config/bothy/credentials.json"
        credentials: dict[str, str] = json.loads(path.read_text())
        return credentials

    def _mcp(self, servers: dict[str, Any], inputs: set[str]) -> None:
        """Connect to each server of a client's configuration."""
        key = self._credentials()["api_key"]
        names = {"BOTHY_API_KEY", "env:BOTHY_API_KEY", *inputs}

        def fill(text: str, value: str) -> str:
            for name in re.findall(r"\$\{([^}]*)\}", text):
                if name not in names:
                    raise Failed(f"${{{name}}} is nothing that the reader was told to set")
            return re.sub(r"\$\{[^}]*\}", value, text)

        for server in servers.values():
            if "command" in server:
                environment = {**self._environment, "BOTHY_API_KEY": key}
                environment |= {k: fill(v, key) for k, v in server.get("env", {}).items()}
                command = [server["command"], *server.get("args", [])]
                program = shutil.which(command[0], path=environment["PATH"])
                if not program:
                    raise Failed(f"there is no program {command[0]}")
                mcp.over_stdio([program, *command[1:]], environment)
                continue
            headers = server.get("headers", {})
            mcp.over_http(server["url"], {k: fill(v, key) for k, v in headers.items()})
            try:
                mcp.over_http(server["url"], {k: fill(v, "wrong") for k, v in headers.items()})
            except mcp.Failed as refused:
                if " 401:" not in str(refused):
                    raise
            else:
                raise Failed("a wrong key is let in, too")

    def _yaml(self, source: str) -> None:
        """Start a server with these settings."""
        path = self._cwd / "settings.yaml"
        path.write_text(source)
        self._serve(["bothy", "serve", "--config", str(path)])

    def _serve(self, command: list[str]) -> None:
        """See that a server gets ready, with a home of its own, and end it."""
        home = self._cwd / f"home-{os.urandom(4).hex()}"
        environment = {**self._environment, "BOTHY_HOME": str(home), "BOTHY_LISTEN": "127.0.0.1:0"}
        with subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE) as server:
            assert server.stderr is not None
            said: list[str] = []
            try:
                for line in server.stderr:
                    said.append(line)
                    if "ready" in line:
                        return
            finally:
                server.terminate()
        raise Failed("the server did not start:\n" + "".join(said))

    def _nginx(self, source: str) -> None:
        raise Failed("not here yet")
