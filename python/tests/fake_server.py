"""A small Bothy server in memory, for the tests of the SDK.

It speaks real HTTP over a real socket, so that streams, disconnects and broken
connections are what they are. Commands do what a test says they do.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

KEY = "bothy_0123456789abcdef"

Script = Callable[["Exchange"], Iterator[dict[str, Any]]]


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What to send back."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def as_json(value: Any, status: int = 200, **headers: str) -> Answer:
    return Answer(
        status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers}
    )


def problem(status: int, code: str, detail: str, hint: str = "", **headers: str) -> Answer:
    body = {"status": status, "code": code, "detail": detail, "hint": hint}
    answer = as_json(body, status, **headers)
    answer.headers["Content-Type"] = "application/problem+json"
    return answer


def out(data: str, offset: int = 0, stream: str = "stdout", **more: Any) -> dict[str, Any]:
    """Return one event of output."""
    return {"stream": stream, "data": data, "offset": offset, **more}


def final(exit_code: int = 0, **more: Any) -> dict[str, Any]:
    """Return the last event."""
    return {"is_final": True, "exit_code": exit_code, "duration_ms": 12, **more}


class FakeServer:
    """The server: its state, what it saw, and how to make it misbehave."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.seen: list[Seen] = []
        self.sandboxes: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = set()
        self.archives: dict[str, bytes] = {}
        self.scripts: dict[str, Script] = {}
        self.outputs: list[Script] = []
        self.processes: list[dict[str, Any]] = []
        self.snapshots: list[dict[str, Any]] = []
        self.sleeping: dict[str, dict[str, Any]] = {}
        self.contexts: dict[str, dict[str, Any]] = {}
        self.sockets: dict[str, Callable[[Exchange], None]] = {}
        self.next_answers: list[Answer] = []
        self.drop_next = 0
        self.killed = threading.Event()
        self.page_size = 100
        self.routes: dict[tuple[str, str], Callable[[Exchange], Answer | None]] = {}
        self._http = _Server(("127.0.0.1", 0), Exchange)
        self._http.fake = self
        self._scheme = "http"
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def calls(self, method: str, path: str = "") -> list[Seen]:
        """Return the requests with this method whose path ends so."""
        return [s for s in self.seen if s.method == method and s.path.endswith(path)]

    def add_sandbox(self, **more: Any) -> dict[str, Any]:
        number = len(self.sandboxes) + 1
        sandbox = {
            "id": f"sbx-{number}",
            "state": "running",
            "template": "python-3.12",
            "engine": "fake",
            "cpu": 1,
            "memory_mb": 512,
            "disk_mb": 2048,
            "network": "off",
            "created_at": "2026-03-04T05:06:07.123456789Z",
            "timeout_seconds": 600,
            "on_timeout": "terminate",
            **more,
        }
        self.sandboxes[sandbox["id"]] = sandbox
        return sandbox


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    fake: FakeServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the tests."""


class Exchange(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server
    request_seen: Seen

    @property
    def fake(self) -> FakeServer:
        return self.server.fake

    def log_message(self, format: str, *args: Any) -> None:
        """Tests are quiet."""

    def handle_any(self) -> None:
        self.request_seen = seen = self._receive()
        self.fake.seen.append(seen)
        if self.fake.drop_next > 0:
            self.fake.drop_next -= 1
            self.close_connection = True
            self.connection.close()
            return
        answer = self._answer(seen)
        if answer is not None:
            self._send(answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    def _receive(self) -> Seen:
        parts = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        headers = {k.lower(): v for k, v in self.headers.items()}
        return Seen(self.command, unquote(parts.path), query, headers, self._body(headers))

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("X-Request-Id", f"req-{len(self.fake.seen)}")
        self.end_headers()
        self.wfile.write(answer.body)

    def start_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def send_events(self, events: Iterator[dict[str, Any]]) -> None:
        """Send events as they come; stop, and note it, when the client has gone."""
        self.start_stream()
        try:
            for event in events:
                name = event.pop("_event", None)
                head = f"event: {name}\n" if name else ""
                if (number := event.pop("_id", None)) is not None:
                    head += f"id: {number}\n"
                self.send_chunk(f"{head}data: {json.dumps(event)}\n\n".encode())
            self.send_chunk(b"")
        except OSError:
            self.fake.killed.set()

    def wait_until_client_leaves(self) -> None:
        """Wait for the other side to hang up, and note it."""
        if not self.connection.recv(1):
            self.fake.killed.set()
            raise BrokenPipeError("the client has left")

    def cut(self) -> None:
        """Break the connection in the middle of an answer."""
        self.close_connection = True
        self.wfile.flush()
        self.connection.close()
        raise BrokenPipeError("cut")

    def _answer(self, seen: Seen) -> Answer | None:
        if self.fake.next_answers:
            return self.fake.next_answers.pop(0)
        if seen.headers.get("authorization") != f"Bearer {KEY}":
            return problem(401, "unauthenticated", "no API key was given", "Send one.")
        if route := self.fake.routes.get((seen.method, seen.path)):
            return route(self)
        if seen.path == "/v1/sandboxes":
            return self._create() if seen.method == "POST" else self._list()
        if seen.path == "/v1/snapshots":
            wanted = seen.query.get("sandbox_id")
            items = [s for s in self.fake.snapshots if wanted in (None, s["sandbox_id"])]
            return as_json({"items": items})
        _, _, kind, sandbox_id, *rest = seen.path.split("/")
        if rest == ["resume"] and kind == "sandboxes":
            return self._resume(sandbox_id)
        sandbox = self.fake.sandboxes.get(sandbox_id)
        if kind != "sandboxes" or sandbox is None:
            return problem(404, "sandbox_not_found", f"there is no sandbox {sandbox_id!r}")
        return self._sandbox(sandbox, "/".join(rest))

    def _resume(self, some_id: str) -> Answer:
        sandbox = self.fake.sleeping.get(some_id) or self.fake.sandboxes.get(some_id)
        if sandbox is None:
            return problem(404, "sandbox_not_found", f"nothing sleeps in {some_id!r}")
        sandbox["state"] = "running"
        return as_json(sandbox)

    def _create(self) -> Answer:
        asked = self.request_seen.json
        if asked.get("template") == "missing":
            return problem(404, "template_not_found", 'there is no template "missing"', "Build it.")
        shown = {k: v for k, v in asked.items() if k not in ("secrets", "size", "snapshot_id")}
        return as_json(self.fake.add_sandbox(**shown), 201)

    def _list(self) -> Answer:
        query = self.request_seen.query
        items = [s for s in self.fake.sandboxes.values() if self._matches(s, query)]
        start = int(query.get("cursor", 0))
        end = start + min(int(query.get("limit", 100)), self.fake.page_size)
        more = {"next_cursor": str(end)} if end < len(items) else {}
        return as_json({"items": items[start:end], **more})

    def _matches(self, sandbox: dict[str, Any], query: dict[str, str]) -> bool:
        labels = {k[9:]: v for k, v in query.items() if k.startswith("metadata.")}
        has = sandbox.get("metadata") or {}
        return (
            ("state" not in query or sandbox["state"] in query["state"].split(","))
            and query.get("name") in (None, sandbox.get("name"))
            and all(has.get(k) == v for k, v in labels.items())
        )

    def _sandbox(self, sandbox: dict[str, Any], rest: str) -> Answer | None:
        method = self.request_seen.method
        if rest == "" and method == "DELETE":
            sandbox["state"] = "stopped"
            return Answer(204)
        if rest == "" and method == "GET":
            return as_json(sandbox)
        if rest == "" and method == "PATCH":
            sandbox.update(self.request_seen.json)
            return as_json(sandbox)
        if sandbox["state"] == "paused":
            return problem(409, "sandbox_paused", f"{sandbox['id']} is paused", "Resume it.")
        handler = getattr(self, "_on_" + rest.split("/")[0], None)
        if handler is None:
            return problem(404, "not_found", f"there is no {rest}")
        answer: Answer | None = handler(sandbox, rest)
        return answer

    def _on_pause(self, sandbox: dict[str, Any], rest: str) -> Answer:
        sandbox["state"] = "paused"
        snapshot = self._new_snapshot(sandbox, "")
        self.fake.sleeping[snapshot["id"]] = sandbox
        return as_json({"snapshot_id": snapshot["id"], "snapshot": snapshot})

    def _on_snapshots(self, sandbox: dict[str, Any], rest: str) -> Answer:
        return as_json(self._new_snapshot(sandbox, self.request_seen.json.get("name", "")), 201)

    def _new_snapshot(self, sandbox: dict[str, Any], name: str) -> dict[str, Any]:
        snapshot = {
            "id": f"snap-{len(self.fake.snapshots) + 1}",
            "sandbox_id": sandbox["id"],
            "name": name,
            "template": sandbox["template"],
            "kind": "memory",
            "size_bytes": 1 << 40,
            "created_at": "2026-03-04T05:06:07Z",
        }
        self.fake.snapshots.append(snapshot)
        return snapshot

    def _on_fork(self, sandbox: dict[str, Any], rest: str) -> Answer:
        asked = self.request_seen.json
        count = asked.pop("count")
        copies = [self.fake.add_sandbox(**asked) for _ in range(count)]
        return as_json({"items": copies}, 201)

    def _on_template(self, sandbox: dict[str, Any], rest: str) -> Answer:
        asked = self.request_seen.json
        made = {"name": asked["name"], "digest": "sha256:02", "size_bytes": 5, "project": "red"}
        if asked.get("memory"):
            made["memory"] = {"snapshot_id": "snap-1", "memory_mb": 512}
        return as_json(made, 201)

    def _on_rollback(self, sandbox: dict[str, Any], rest: str) -> Answer:
        sandbox["parent_snapshot_id"] = self.request_seen.json["snapshot_id"]
        return as_json(sandbox)

    def _on_code(self, sandbox: dict[str, Any], rest: str) -> Answer | None:
        asked = self.request_seen.json
        script = self.fake.scripts[asked["code"]]
        if self.request_seen.headers.get("accept") == "text/event-stream":
            self.send_events(script(self))
            return None
        return as_json(next(script(self)))

    def _on_contexts(self, sandbox: dict[str, Any], rest: str) -> Answer:
        if self.request_seen.method == "POST" and rest == "contexts":
            context = {"language": "python", **self.request_seen.json, "id": "ctx-1"}
            self.fake.contexts["ctx-1"] = context
            return as_json(context, 201)
        if self.request_seen.method == "GET":
            return as_json({"items": list(self.fake.contexts.values())})
        if self.request_seen.method == "POST":
            return Answer(204)
        if self.fake.contexts.pop(rest.split("/")[1], None) is None:
            return problem(404, "context_not_found", "there is no such context")
        return Answer(204)

    def _on_processes(self, sandbox: dict[str, Any], rest: str) -> Answer | None:
        if rest == "processes":
            return as_json({"items": self.fake.processes})
        if rest.endswith("/output"):
            self.send_events(self.fake.outputs.pop(0)(self))
            return None
        return Answer(204)

    def _on_terminal(self, sandbox: dict[str, Any], rest: str) -> Answer | None:
        return self._websocket(rest)

    _on_ports = _on_terminal

    def _websocket(self, rest: str) -> Answer | None:
        key = self.request_seen.headers["sec-websocket-key"].encode()
        accept = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        self.send_response_only(101)
        for name, value in {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": base64.b64encode(accept).decode(),
            "X-Process-Id": "77",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        self.fake.sockets[rest](self)
        return None

    def send_frame(self, opcode: int, data: bytes, final: bool = True) -> None:
        """Send one frame of a WebSocket."""
        size = len(data)
        if size < 126:
            length = bytes([size])
        elif size < 1 << 16:
            length = b"\x7e" + size.to_bytes(2, "big")
        else:
            length = b"\x7f" + size.to_bytes(8, "big")
        self.wfile.write(bytes([(0x80 if final else 0) | opcode]) + length + data)

    def read_frame(self) -> tuple[int, bytes]:
        """Read one frame of a WebSocket, which must be masked; (-1, b"") at the end."""
        head = self.rfile.read(2)
        if len(head) < 2:
            return -1, b""
        assert head[1] & 0x80, "a client must mask"
        size = head[1] & 0x7F
        if size >= 126:
            size = int.from_bytes(self.rfile.read(2 if size == 126 else 8), "big")
        mask = self.rfile.read(4)
        data = self.rfile.read(size)
        return head[0] & 0x0F, bytes(b ^ mask[i % 4] for i, b in enumerate(data))

    def _on_exec(self, sandbox: dict[str, Any], rest: str) -> Answer | None:
        asked = self.request_seen.json
        if asked.get("background"):
            return as_json({"pid": 42, "exit_code": 0, "stdout": "", "stderr": ""})
        script = self.fake.scripts.get(str(asked["command"]))
        if script is None:
            return as_json({"exit_code": 127, "stdout": "", "stderr": "not found", "pid": 7})
        if self.request_seen.headers.get("accept") == "text/event-stream":
            self.send_events(script(self))
            return None
        result: dict[str, Any] = {"stdout": "", "stderr": "", "pid": 7}
        for event in script(self):
            if event.get("is_final"):
                result |= {k: v for k, v in event.items() if k != "is_final"}
            else:
                result[event["stream"]] += event["data"]
        return as_json(result)

    def _on_files(self, sandbox: dict[str, Any], rest: str) -> Answer | None:
        method, files = self.request_seen.method, self.fake.files
        if method == "POST":
            return self._change_files(rest, self.request_seen.json)
        path = self.request_seen.query["path"]
        if rest == "files/archive":
            return self._archive(path)
        if rest == "files/watch":
            self.send_events(self.fake.scripts["watch"](self))
            return None
        if method == "PUT":
            files[path] = self.request_seen.body
            return as_json(self._info(path))
        if method == "DELETE":
            return self._missing(path) if files.pop(path, None) is None else Answer(204)
        if path in self.fake.folders and rest == "files":
            return as_json({"items": [self._info(p) for p in files if p.startswith(path + "/")]})
        if path not in files and path not in self.fake.folders:
            return self._missing(path)
        info = self._info(path)
        if rest == "files/stat":
            return as_json(info)
        return Answer(200, files[path], {"X-File-Info": json.dumps(info)})

    def _change_files(self, rest: str, asked: dict[str, Any]) -> Answer:
        if rest == "files/mkdir":
            self.fake.folders.add(asked["path"])
            return as_json(self._info(asked["path"]))
        self.fake.files[asked["to"]] = self.fake.files.pop(asked["from"])
        return as_json(self._info(asked["to"]))

    def _archive(self, path: str) -> Answer:
        if self.request_seen.method == "PUT":
            self.fake.archives[path] = self.request_seen.body
            return Answer(204)
        return Answer(200, self.fake.archives[path], {"Content-Type": "application/x-tar"})

    def _missing(self, path: str) -> Answer:
        return problem(404, "file_not_found", f"there is no file {path}")

    def _info(self, path: str) -> dict[str, Any]:
        return {
            "name": path.rsplit("/", 1)[-1],
            "path": path,
            "type": "directory" if path in self.fake.folders else "file",
            "size": len(self.fake.files.get(path, b"")),
            "mode": self.request_seen.query.get("mode", "0640"),
            "modified_at": "2026-03-04T05:06:07.25Z",
        }
