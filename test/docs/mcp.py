"""A small client of the Model Context Protocol, to see whether a configuration leads to
the server. Only what every client does first: initialize, and list the tools."""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence

REVISION = "2025-06-18"
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": REVISION,
        "capabilities": {},
        "clientInfo": {"name": "docs", "version": "1"},
    },
}
_INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
_LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


class Failed(Exception):
    """The server did not answer as it must."""


def over_http(url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None = None) -> list[str]:
    """Return the names of the tools of the server at url."""
    headers = {
        **headers,
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }

    def post(message: dict[str, object]) -> tuple[Mapping[str, str], str]:
        body = json.dumps(message).encode()
        request = urllib.request.Request(url, body, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=30, context=tls) as answer:
                return answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            raise Failed(f"{url} answers {error.code}: {error.read().decode()[:300]}") from None

    answered, text = post(_INITIALIZE)
    _result(_events(text))
    if session := answered.get("Mcp-Session-Id"):
        headers["Mcp-Session-Id"] = session
    headers["Mcp-Protocol-Version"] = REVISION
    post(_INITIALIZED)
    _, text = post(_LIST)
    return _tools(_events(text))


def over_stdio(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the names of the tools of the server that command is."""
    lines = "".join(json.dumps(m) + "\n" for m in (_INITIALIZE, _INITIALIZED))
    with subprocess.Popen(
        command, env=dict(environment), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            server.stdin.write(lines)
            server.stdin.flush()
            _result(server.stdout.readline())
            server.stdin.write(json.dumps(_LIST) + "\n")
            server.stdin.flush()
            tools = _tools(server.stdout.readline())
            server.stdin.close()
            if code := server.wait(30):
                raise Failed(f"{command[0]} ended with {code}")
        finally:
            server.kill()
    return tools


def _events(text: str) -> str:
    """Return the JSON of an answer, which may be wrapped in one server-sent event."""
    if text.startswith("{"):
        return text
    return "".join(line[5:] for line in text.splitlines() if line.startswith("data:"))


def _result(text: str) -> dict[str, object]:
    if not text.strip():
        raise Failed("the server said nothing")
    message = json.loads(text)
    if "result" not in message:
        raise Failed(f"the server says {message.get('error')}")
    result = message["result"]
    assert isinstance(result, dict)
    return result


def _tools(text: str) -> list[str]:
    tools = _result(text)["tools"]
    assert isinstance(tools, list)
    return [tool["name"] for tool in tools]
