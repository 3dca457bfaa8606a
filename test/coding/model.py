"""A model that follows a script, in the styles of Anthropic and OpenAI: an HTTPS server that streams.

    python model.py PORT CERTIFICATE KEY API_KEY FOLDER

It wants the right key. To a prompt with a line `USE {"name": …, "input": …}` it asks for that tool, and when it
has the result it says what that was. To anything else it says OK. It also serves the files of a folder.
"""

from __future__ import annotations

import itertools
import json
import ssl
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

port, certificate, key, api_key, folder = sys.argv[1:]
numbers = itertools.count(1)


def text_of(content) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(b.get("text") or text_of(b.get("content") or "") for b in content)


def asked(message: dict) -> str | None:
    """The tool that a prompt asks for."""
    lines = text_of(message["content"]).splitlines() if message["role"] == "user" else []
    return next((x[4:] for x in reversed(lines) if x.startswith("USE {")), None)


def reply(messages: list) -> dict:
    """The one block of the answer."""
    prompt = max((i for i, m in enumerate(messages) if asked(m)), default=None)
    if prompt is None:
        return {"type": "text", "text": "OK"}
    for message in messages[prompt + 1 :]:
        for block in message["content"] if isinstance(message["content"], list) else []:
            if block.get("type") == "tool_result":
                return {"type": "text", "text": f"The tool said: {text_of(block.get('content') or '')}"}
    return {"type": "tool_use", "id": f"toolu_{next(numbers)}", **json.loads(asked(messages[prompt]) or "")}


class Model(SimpleHTTPRequestHandler):
    def __init__(self, *args: object) -> None:
        super().__init__(*args, directory=folder)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.startswith("/v1/responses"):
            self.respond(body)
        elif self.headers.get("X-Api-Key") != api_key:
            problem = {"type": "authentication_error", "message": f"invalid x-api-key {self.headers.get('X-Api-Key')}"}
            self.answer(401, json.dumps({"type": "error", "error": problem}), "application/json")
        elif self.path.startswith("/v1/messages/count_tokens"):
            self.answer(200, json.dumps({"input_tokens": 1}), "application/json")
        elif self.path.startswith("/v1/messages"):
            self.message(body, reply(body["messages"]))
        else:
            self.answer(404, "{}", "application/json")

    def respond(self, body: dict) -> None:
        """Answers in the style of OpenAI."""
        if self.headers.get("Authorization") != f"Bearer {api_key}":
            self.answer(401, json.dumps({"error": {"message": "invalid key", "type": "invalid_request_error"}}), "application/json")
            return
        messages = []
        for item in body["input"]:
            if item.get("type") == "function_call_output":
                item = {"role": "user", "content": [{"type": "tool_result", "content": item["output"]}]}
            if item.get("role") == "user":
                messages.append(item)
        block = reply(messages)
        if block["type"] == "text":
            content = [{"type": "output_text", "text": block["text"]}]
            item = {"type": "message", "role": "assistant", "id": f"item_{next(numbers)}", "content": content}
        else:
            item = {"type": "function_call", "id": f"item_{next(numbers)}", "call_id": block["id"], "name": block["name"]}
            item["arguments"] = json.dumps(block["input"])
        whole = {"id": f"resp_{next(numbers)}"}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        events = [
            {"type": "response.created", "response": whole},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {**whole, "usage": usage}},
        ]
        self.answer(200, "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events), "text/event-stream")

    def message(self, body: dict, block: dict) -> None:
        stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
        whole = {"id": f"msg_{next(numbers)}", "type": "message", "role": "assistant", "model": body["model"], "stop_sequence": None}
        usage = {"input_tokens": 1, "output_tokens": 1}
        if not body.get("stream"):
            whole |= {"content": [block], "stop_reason": stop, "usage": usage}
            self.answer(200, json.dumps(whole), "application/json")
            return
        if block["type"] == "text":
            start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events = [
            {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
        self.answer(200, "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events), "text/event-stream")

    def answer(self, status: int, text: str, kind: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, form: str, *args: object) -> None:
        print(form % args, file=sys.stderr, flush=True)


server = ThreadingHTTPServer(("127.0.0.1", int(port)), Model)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
