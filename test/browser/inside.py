"""The server in a sandbox: an app that knows its visitor by nothing but the link."""

import base64
import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

SEEN: list[str] = []


class App(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if self.headers.get("Upgrade"):
            self.socket()
        elif url.path == "/seen":
            self.answer("application/json", json.dumps(SEEN))
        elif url.path == "/toss":
            self.answer("text/html", "tossed", parse_qs(url.query)["cookie"])
        else:
            if url.path != "/favicon.ico":  # which the browser asks for when it likes
                SEEN.append(f"GET {self.path}")
            self.answer("text/html", "<title>app</title><form method=post action=/act><input name=what></form>")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        SEEN.append(f"POST {self.path} {body}")
        self.answer("text/html", "done")

    def socket(self) -> None:
        """Say hello in one frame."""
        SEEN.append(f"SOCKET {self.path}")
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.wfile.write(b"\x81\x05hello")
        self.close_connection = True
        self.rfile.read(1)

    def answer(self, kind: str, text: str, cookies: list[str] | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        for cookie in cookies or []:
            self.send_header("Set-Cookie", cookie)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", 8080), App).serve_forever()
