"""Answers on port 9222 as Chromium does: to localhost only, and on WebSockets without an Origin, with what it is sent."""

import base64
import hashlib
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SOCKET = "/devtools/browser/3f2c"


class Browser(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        host, key = self.headers["Host"], self.headers["Sec-WebSocket-Key"]
        if host != "localhost:9222" or self.headers["Authorization"]:
            self.send_error(500)
        elif self.path == "/json/version":
            text = b'{"Browser":"Chrome/1","webSocketDebuggerUrl":"ws://%s%s"}' % (host.encode(), SOCKET.encode())
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        elif self.path == SOCKET and key and not self.headers["Origin"]:
            proof = hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(proof).decode())
            self.end_headers()
            head, size = self.rfile.read(2)
            mask, data = self.rfile.read(4), self.rfile.read(size & 127)
            self.wfile.write(bytes([head, len(data)]) + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))
            self.close_connection = True
        else:
            self.send_error(403)

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 9222), Browser)
if os.fork() == 0:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    server.serve_forever()
