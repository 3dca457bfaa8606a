"""The server's hints name REST calls: here, they name what does the same in Python."""

from __future__ import annotations

import re

_CALL = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/v1/[^\s,)]*[^\s,.)])")

_WORDS: list[tuple[str, str, str]] = [
    ("GET", r"/v1/sandboxes", "Sandbox.list()"),
    ("POST", r"/v1/sandboxes", "Sandbox.create()"),
    ("GET", r"/v1/sandboxes/([^/]+)", 'Sandbox.get("{}")'),
    ("PATCH", r"/v1/sandboxes/[^/]+", "sandbox.update()"),
    ("DELETE", r"/v1/sandboxes/[^/]+", "sandbox.terminate()"),
    ("POST", r"/v1/sandboxes/([^/]+)/resume", 'Sandbox.resume("{}")'),
    ("POST", r"/v1/sandboxes/([^/]+)/restart", 'Sandbox.restart("{}")'),
    ("POST", r"/v1/sandboxes/[^/]+/pause", "sandbox.pause()"),
    ("POST", r"/v1/sandboxes/[^/]+/links", "sandbox.create_link()"),
    ("GET", r"/v1/sandboxes/[^/]+/links", "sandbox.links()"),
    ("PUT", r"/v1/sandboxes/[^/]+/files", "sandbox.files.write()"),
    ("GET", r"/v1/sandboxes/[^/]+/processes/([^/]+)/output", "sandbox.process({}).output()"),
    ("GET", r"/v1/snapshots", "client.snapshots()"),
    ("GET", r"/v1/snapshots/([^/]+)", 'client.snapshot("{}")'),
]


def in_python(hint: str) -> str:
    """Return the hint in the words of this package. A call without a counterpart stays."""

    def word(call: re.Match[str]) -> str:
        for method, path, words in _WORDS:
            match = re.fullmatch(path, call[2])
            if method == call[1] and match:
                given = match.groups()
                return words.format(*given).replace('"{id}"', "id").replace("{pid}", "pid")
        return call[0]

    return _CALL.sub(word, hint)
