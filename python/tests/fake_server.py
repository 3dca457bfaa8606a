"""The fake server, for the tests of the SDK.

It is the real API over sandboxes in memory, in a program of its own
(api/apitest/fakeapi). That program tells each request to this one first, which
has it answered there, or answers itself where a test says how: so streams,
disconnects and broken connections are what they are.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import http.client
import json
import os
import queue
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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


def sandbox(**more: Any) -> dict[str, Any]:
    """Return a sandbox as the API describes it."""
    return {
        "id": "sbx-1",
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


@functools.cache
def _program() -> tuple[str, int]:
    """Start the program, which ends with this process, and return its address."""
    root = Path(__file__).resolve().parents[2]
    program = os.environ.get("BOTHY_FAKEAPI") or str(root / "bin/fakeapi")
    if not os.path.exists(program):
        raise FileNotFoundError(f"{program} is missing: run `make bin/fakeapi`")
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout
    host, _, port = process.stdout.readline().strip().rpartition(":")
    process.stdout.close()

    @atexit.register
    def end(stdin: Any = process.stdin) -> None:
        stdin.close()
        process.wait()

    return host, int(port)


class FakeServer:
    """A server: what it saw, and how to make it misbehave."""

    def __init__(self, certificate: Path | None = None, page_size: int = 0) -> None:
        self.seen: list[Seen] = []
        self.scripts: dict[str, Script] = {}
        self.outputs: list[Script] = []
        self.sockets: dict[str, Callable[[Exchange], None]] = {}
        self.next_answers: list[Answer] = []
        self.drop_next = 0
        self.killed = threading.Event()
        self.routes: dict[tuple[str, str], Callable[[Exchange], Answer | None]] = {}
        self._exchanges: dict[int, Exchange] = {}
        self._lock = threading.Lock()
        self._control = socket.create_connection(_program())
        self._lines = self._control.makefile("rb")
        self.tell(
            key=KEY, certificate=str(certificate) if certificate else "", page_size=page_size
        )
        self.url: str = json.loads(self._lines.readline())["url"]
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the server, and return when it listens no more."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        self._thread.join()
        self._lines.close()
        self._control.close()

    def calls(self, method: str, path: str = "") -> list[Seen]:
        """Return the requests with this method whose path ends so."""
        return [s for s in self.seen if s.method == method and s.path.endswith(path)]

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the API itself, which is not a request that the server has seen."""
        url = urlsplit(self.url)
        connection = http.client.HTTPConnection(url.hostname or "", url.port)
        headers = {"Authorization": f"Bearer {KEY}", "X-Fake-Pass": "yes"}
        headers["Content-Type"] = "application/json"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        assert answer.status < 300, content
        return json.loads(content) if content else None

    @property
    def sandboxes(self) -> dict[str, dict[str, Any]]:
        """All sandboxes that there are, by id, the oldest first."""
        items = self.api("GET", "/v1/sandboxes?limit=1000")["items"]
        return {s["id"]: s for s in reversed(items)}

    def add_sandbox(self, **asked: Any) -> dict[str, Any]:
        """Create a sandbox."""
        made: dict[str, Any] = self.api("POST", "/v1/sandboxes", asked)
        return made

    def tell(self, **order: Any) -> None:
        """Send a line to the program."""
        with self._lock:
            self._control.sendall(json.dumps(order).encode() + b"\n")

    def _listen(self) -> None:
        for line in self._lines:
            report = json.loads(line)
            if "method" in report:
                self._begin(report)
            elif (exchange := self._exchanges.get(report["id"])) is not None:
                exchange.hear(report)
        for exchange in self._exchanges.values():
            exchange.hear({"gone": True})

    def _begin(self, report: dict[str, Any]) -> None:
        target = urlsplit(report["target"])
        query = {k: v[0] for k, v in parse_qs(target.query, keep_blank_values=True).items()}
        body = base64.b64decode(report.get("body", ""))
        seen = Seen(report["method"], unquote(target.path), query, report["headers"], body)
        exchange = Exchange(self, report["id"], seen)
        self.seen.append(seen)
        if report.get("gone"):
            return
        self._exchanges[report["id"]] = exchange
        if self.drop_next > 0:
            self.drop_next -= 1
            exchange.order("drop")
        elif self.next_answers:
            exchange.send(self.next_answers.pop(0))
        elif handler := self._handler(exchange):
            threading.Thread(target=exchange.run, args=[handler], daemon=True).start()
        else:
            exchange.order("pass")

    def _handler(self, exchange: Exchange) -> Callable[[Exchange], Answer | None] | None:
        seen = exchange.request_seen
        if seen.headers.get("authorization") != f"Bearer {KEY}":
            return None
        if route := self.routes.get((seen.method, seen.path)):
            return route
        rest = "/".join(seen.path.split("/")[4:])
        if rest in self.sockets:
            return self._upgrade
        if rest.endswith("/output") and self.outputs:
            return self._output
        if rest == "files/watch" and "watch" in self.scripts:
            return lambda exchange: exchange.play(self.scripts["watch"])
        if rest in ("exec", "code"):
            asked = seen.json
            script = self.scripts.get(str(asked.get("command") or asked.get("code")))
            return None if script is None else lambda exchange: exchange.play(script)
        return None

    def _output(self, exchange: Exchange) -> None:
        sandbox_id = exchange.request_seen.path.split("/")[3]
        if self.sandboxes[sandbox_id]["state"] == "paused":
            exchange.order("pass")
        else:
            exchange.send_events(self.outputs.pop(0)(exchange))

    def _upgrade(self, exchange: Exchange) -> None:
        exchange.order("upgrade", headers={"X-Process-Id": "77"})
        handler = self.sockets["/".join(exchange.request_seen.path.split("/")[4:])]
        handler(exchange)
        exchange.order("end")


class Exchange:
    """One request, and its answer step by step."""

    def __init__(self, fake: FakeServer, number: int, seen: Seen) -> None:
        self.fake = fake
        self.request_seen = seen
        self._number = number
        self._gone = threading.Event()
        self._frames: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()

    def hear(self, report: dict[str, Any]) -> None:
        """Take note of what the client did."""
        if report.get("gone"):
            self._gone.set()
            self._frames.put((-1, b""))
        else:
            self._frames.put((report["op"], base64.b64decode(report.get("body", ""))))

    def run(self, handler: Callable[[Exchange], Answer | None]) -> None:
        """Answer by a test's function, which may also do it all by itself."""
        try:
            answer = handler(self)
            if answer is not None:
                self.send(answer)
        except OSError:
            pass  # The client has left, or the test closed the server.
        except BaseException:
            self.order("drop")  # The client must not wait for what a test did not say.
            raise

    def order(self, do: str, **more: Any) -> None:
        if self._gone.is_set():
            raise BrokenPipeError("the client has left")
        self.fake.tell(id=self._number, do=do, **more)

    def send(self, answer: Answer) -> None:
        length = {} if answer.status == 204 else {"Content-Length": str(len(answer.body))}
        self.start(answer.status, {**length, "X-Request-Id": "req-1", **answer.headers})
        if answer.body:
            self.send_chunk(answer.body)
        self.order("end")

    def start(self, status: int, headers: dict[str, str]) -> None:
        self.order("head", status=status, headers=headers)

    def start_stream(self) -> None:
        self.start(200, {"Content-Type": "text/event-stream"})
        self.send_chunk(b"")

    def send_chunk(self, data: bytes) -> None:
        self.order("write", data=base64.b64encode(data).decode())

    def play(self, script: Script) -> Answer | None:
        """Answer as a script says: event by event, or at once, as was asked for."""
        if self.request_seen.headers.get("accept") == "text/event-stream":
            self.send_events(script(self))
            return None
        if self.request_seen.path.endswith("/code"):
            return as_json(next(script(self)))
        result: dict[str, Any] = {"stdout": "", "stderr": "", "pid": 7}
        for event in script(self):
            if event.get("is_final"):
                result |= {k: v for k, v in event.items() if k != "is_final"}
            else:
                result[event["stream"]] += event["data"]
        return as_json(result)

    def send_events(self, events: Iterator[dict[str, Any]]) -> None:
        """Send events as they come; stop, and note it, when the client has gone."""
        try:
            self.start_stream()
            for event in events:
                name = event.pop("_event", None)
                head = f"event: {name}\n" if name else ""
                if (number := event.pop("_id", None)) is not None:
                    head += f"id: {number}\n"
                self.send_chunk(f"{head}data: {json.dumps(event)}\n\n".encode())
            self.order("end")
        except OSError:
            self.fake.killed.set()

    def wait_until_client_leaves(self) -> None:
        """Wait for the other side to hang up, and note it."""
        self._gone.wait()
        self.fake.killed.set()
        raise BrokenPipeError("the client has left")

    def cut(self) -> None:
        """Break the connection in the middle of an answer."""
        self.order("drop")
        raise BrokenPipeError("cut")

    def send_frame(self, opcode: int, data: bytes, final: bool = True) -> None:
        """Send one frame of a WebSocket."""
        size = len(data)
        if size < 126:
            length = bytes([size])
        elif size < 1 << 16:
            length = b"\x7e" + size.to_bytes(2, "big")
        else:
            length = b"\x7f" + size.to_bytes(8, "big")
        self.send_chunk(bytes([(0x80 if final else 0) | opcode]) + length + data)

    def read_frame(self) -> tuple[int, bytes]:
        """Read one frame of a WebSocket; (-1, b"") at the end."""
        return self._frames.get()
