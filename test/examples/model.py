"""A model that follows a script, for the examples' test: an HTTPS server in the style of OpenAI.

python model.py PORT CERTIFICATE KEY API_KEY

It wants the right key, asks for one command, and knows the answer from its output alone.
"""

from __future__ import annotations

import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, certificate, key, api_key = sys.argv[1:]
COMMAND = "echo $((6 * 7)) >/workspace/sum && cat /workspace/sum && hostname"


class Model(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("Authorization") != f"Bearer {api_key}":
            self.answer(401, {"error": {"message": "wrong key"}})
            return
        if self.path != "/v1/chat/completions" or not body["tools"]:
            self.answer(400, {"error": {"message": "wrong request"}})
            return
        last = body["messages"][-1]
        message: dict = {"role": "assistant", "content": None}
        if last["role"] == "user":
            call = {"name": "run_shell", "arguments": json.dumps({"command": COMMAND})}
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": call}]
        elif last["content"].startswith("42\n") and "exit code 0" in last["content"]:
            message["content"] = "The answer is 42."
        else:
            message["content"] = f"I do not know: {last['content']}"
        self.answer(200, {"choices": [{"index": 0, "message": message}]})

    def answer(self, status: int, body: dict) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(port)), Model)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
