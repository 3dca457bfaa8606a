"""A coding agent without a model: it does what the prompt says, a line at a time.

    write PATH TEXT     write a file of its own
    sh COMMAND          run a command, and say what it printed
    say TEXT            send a piece of an answer
    ask TEXT            ask for a permission, and say what the answer was
    read PATH           read a file through the editor
    save PATH TEXT      write a file through the editor
    terminal            ask the editor for a terminal
    flood BYTES         send one piece of that size
    wait                go on when the turn is cancelled
    die TEXT            end with an error
    tell                say what the session was opened with
"""

import json
import os
import queue
import subprocess
import sys
import threading

CANCELLED = object()
arrived = queue.Queue()
answers = queue.Queue()
capabilities = {}
sessions = {}
number = 0


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def read():
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "session/cancel":
            answers.put(CANCELLED)
        elif "method" in message:
            arrived.put(message)
        else:
            answers.put(message)
    arrived.put(None)


def ask(method, params):
    global number
    number += 1
    send({"id": number, "method": method, "params": params})
    answer = answers.get()
    return json.dumps(answer.get("result", answer.get("error")), sort_keys=True)


def say(session, text):
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    send({"method": "session/update", "params": {"sessionId": session, "update": update}})


def do(session, line):
    word, _, rest = line.partition(" ")
    cwd = sessions[session]["cwd"]
    name, _, text = rest.partition(" ")
    path = os.path.join(cwd, name)
    if word == "write":
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
        call = {"toolCallId": path, "title": "write", "kind": "edit", "status": "completed", "locations": [{"path": path}]}
        send({"method": "session/update", "params": {"sessionId": session, "update": {"sessionUpdate": "tool_call", **call}}})
    elif word == "sh":
        done = subprocess.run(["bash", "-c", rest], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        say(session, done.stdout.decode())
    elif word == "say":
        say(session, rest)
    elif word == "ask":
        options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}, {"optionId": "no", "name": "No", "kind": "reject_once"}]
        call = {"toolCallId": "ask", "title": rest}
        say(session, ask("session/request_permission", {"sessionId": session, "toolCall": call, "options": options}))
    elif word == "read":
        say(session, ask("fs/read_text_file", {"sessionId": session, "path": path}))
    elif word == "save":
        say(session, ask("fs/write_text_file", {"sessionId": session, "path": path, "content": text}))
    elif word == "terminal":
        say(session, ask("terminal/create", {"sessionId": session, "command": "id"}))
    elif word == "flood":
        say(session, "x" * int(rest))
    elif word == "wait":
        say(session, "waiting")
        return "cancelled" if answers.get() is CANCELLED else "refusal"
    elif word == "die":
        sys.stderr.write(rest + "\n")
        sys.stderr.flush()
        os._exit(3)
    elif word == "tell":
        say(session, json.dumps({"capabilities": capabilities, "session": sessions[session]}))
    return None


def answer(message):
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        capabilities.update(params.get("clientCapabilities") or {})
        return {"protocolVersion": 1, "agentCapabilities": {"loadSession": False}, "authMethods": []}
    if method == "session/new":
        session = f"session-{len(sessions)}"
        sessions[session] = params
        return {"sessionId": session}
    if method == "session/prompt":
        for block in params["prompt"]:
            for line in block.get("text", "").splitlines():
                if reason := do(params["sessionId"], line):
                    return {"stopReason": reason}
        return {"stopReason": "end_turn"}
    raise LookupError(method)


threading.Thread(target=read, daemon=True).start()
while (message := arrived.get()) is not None:
    try:
        send({"id": message["id"], "result": answer(message)})
    except LookupError:
        send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
