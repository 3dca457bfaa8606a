"""Checks the blocks that are no programs, by using them for what they are."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mcp
from pages import Block
from sessions import Failed

_NETWORK = {"mode", "presets", "allow_domains", "allow_cidrs", "allow_ports", "deny_cidrs"}


class Data:
    """Checks data blocks against the server of a page."""

    def __init__(self, cwd: Path, environment: Mapping[str, str]) -> None:
        self._cwd = cwd
        self._environment = environment

    def check(self, block: Block) -> None:
        self._page = Path(self._environment["DOCS_REPOSITORY"]) / block.page
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
            {
                "Authorization": f"Bearer {credentials['api_key']}",
                "Content-Type": "application/json",
            },
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
                self._compare(mcp.over_stdio([program, *command[1:]], environment))
                continue
            headers = server.get("headers", {})
            filled = {k: fill(v, key) for k, v in headers.items()}
            self._compare(mcp.over_http(server["url"], filled))
            try:
                mcp.over_http(server["url"], {k: fill(v, "wrong") for k, v in headers.items()})
            except mcp.Failed as refused:
                if " 401:" not in str(refused):
                    raise
            else:
                raise Failed("a wrong key is let in, too")

    def _compare(self, tools: list[str]) -> None:
        if differing := set(tools) ^ tool_table(self._page):
            raise Failed(f"the server has other tools than the page lists: {differing}")

    def _yaml(self, source: str) -> None:
        """Start a server with these settings."""
        path = self._cwd / "settings.yaml"
        path.write_text(source)
        self._serve(["bothy", "serve", "--config", str(path)])

    def _serve(self, command: list[str]) -> None:
        """See that a server gets ready, with a home of its own, and end it."""
        home = self._cwd / f"home-{os.urandom(4).hex()}"
        environment = {**self._environment, "BOTHY_HOME": str(home), "BOTHY_LISTEN": "127.0.0.1:0"}
        environment["BOTHY_TEMPLATES"] = str(home / "templates")
        with subprocess.Popen(
            command, env=environment, text=True, stderr=subprocess.PIPE
        ) as server:
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
        """Have nginx do what the configuration says, and come through it by each door."""
        folder = self._cwd / "nginx"
        folder.mkdir()
        certificate, key = folder / "fullchain.pem", folder / "privkey.pem"
        make = f"openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=test -days 2 -keyout {key} -out {certificate}"
        run([*make.split(), "-addext", "subjectAltName=IP:127.0.0.1"])
        port = free_port()
        name = re.search(r"server_name (\S+)[ ;]", source)
        assert name is not None
        site = source.replace("listen 443", f"listen 127.0.0.1:{port}")
        site = site.replace("/etc/ssl/bothy/fullchain.pem", str(certificate))
        site = site.replace("/etc/ssl/bothy/privkey.pem", str(key))
        settings = folder / "nginx.conf"
        temporary = "".join(
            f"{kind}_temp_path {folder}/{kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        settings.write_text(
            f"daemon off; user root; pid {folder}/pid; error_log stderr;\nevents {{}}\n"
            f"http {{ access_log off;\n{temporary}\n{site}\n}}\n"
        )
        command = [nginx(folder), "-p", str(folder), "-c", str(settings)]
        run([*command, "-t"])
        address = f"https://127.0.0.1:{port}"
        with subprocess.Popen(command) as proxy:
            try:
                tls = ssl.create_default_context(cafile=certificate)
                deadline = time.monotonic() + 60
                while time.monotonic() < deadline:
                    try:
                        socket.create_connection(("127.0.0.1", port)).close()
                        break
                    except OSError:
                        time.sleep(0.05)
                secret = self._credentials()["api_key"]
                headers = {"Host": name[1], "Authorization": f"Bearer {secret}"}
                mcp.over_http(f"{address}/api/sandboxes/mcp", headers, tls)
                environment = {
                    **self._environment,
                    "BOTHY_API_KEY": secret,
                    "SSL_CERT_FILE": str(certificate),
                }
                bothy = ["bothy", "--url", address, "run", "-t", "python-3.12-bare", "--", "true"]
                run(bothy, environment)
                self._behind(address, name[1], tls)
            finally:
                proxy.terminate()

    def _behind(self, address: str, name: str, tls: ssl.SSLContext) -> None:
        """Look for what a proxy must not change: who may see the metrics, and what links are."""
        metrics = urllib.request.Request(f"{address}/metrics", headers={"Host": name})
        try:
            urllib.request.urlopen(metrics, timeout=60, context=tls)
            raise Failed("the metrics are open to everybody who comes through the proxy")
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
        sandbox = self._call("POST", "/v1/sandboxes", {"template": "python-3.12-bare"})
        path = f"/v1/sandboxes/{sandbox['id']}"
        try:
            made = urllib.request.Request(
                f"{address}{path}/links",
                b'{"port": 80}',
                {
                    "Host": name,
                    "Authorization": f"Bearer {self._credentials()['api_key']}",
                    "Content-Type": "application/json",
                },
            )
            with urllib.request.urlopen(made, timeout=60, context=tls) as answer:
                link = json.loads(answer.read())["url"]
            if not re.match(r"https://80-[a-z0-9]+\.boxes\.example\.org/\?", link):
                raise Failed(f"a link made through the proxy is {link}")
        finally:
            self._call("DELETE", path)


def nginx(folder: Path) -> str:
    """Return the path of nginx, which is fetched for this test if it is not there."""
    if there := shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"):
        return there
    fetch = ["apt-get", "download", "-q", "nginx"]
    if subprocess.run(fetch, cwd=folder, capture_output=True).returncode:
        run(["apt-get", "update", "-q"])
        run(fetch, cwd=folder)
    (package,) = folder.glob("nginx_*.deb")
    run(["dpkg-deb", "-x", str(package), str(folder / "root")])
    return str(folder / "root/usr/sbin/nginx")


def run(
    command: list[str], environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> None:
    """Run a command to its end; raise Failed with what it printed if it fails."""
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{command[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def tool_table(page: Path) -> set[str]:
    """Return what a page lists as tools: the first column of the table that is headed so."""
    table = re.search(r"^\| tool \|.*\n\|[-|]+\n((?:\|.*\n)+)", page.read_text(), re.M)
    return set(re.findall(r"^\| `(\w+)`", table[1], re.M)) if table else set()
