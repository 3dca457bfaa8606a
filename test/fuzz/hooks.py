"""Hands the fuzzer ids of things that there are, so that it comes past "not found"."""

from __future__ import annotations

import os
import random

import schemathesis

_THERE = {
    "/v1/sandboxes/": os.environ["FUZZ_SANDBOX"],
    "/v1/snapshots/": os.environ["FUZZ_SNAPSHOT"],
    "/v1/projects/": os.environ["FUZZ_PROJECT"],
}
_ALSO = {"pid": os.environ["FUZZ_PID"], "port": "8000"}
# These end what the others need, the fuzzer's own key included: they get ids that nothing has.
_ENDS = {
    "delete-snapshot",
    "delete-token",
    "kill-process",
    "pause-sandbox",
    "rollback-sandbox",
    "signal-process",
    "terminate-sandbox",
}
_chance = random.Random(7)


@schemathesis.hook
def before_call(context, case, kwargs):
    operation = case.operation
    called = operation.definition.raw.get("operationId")
    given = case.path_parameters
    if given and called in _ENDS:
        if given.get("id") in _THERE.values() or called == "delete-token":
            given["id"] = "none"
    elif given:
        for prefix, there in _THERE.items():
            if operation.path.startswith(prefix) and "id" in given and _chance.random() < 0.7:
                given["id"] = there
        for name, there in _ALSO.items():
            if name in given and _chance.random() < 0.7:
                given[name] = there
    # Nothing shall run for longer than the fuzzer waits, or be made more often than needed.
    body = case.body
    if isinstance(body, dict):
        if called in ("exec", "run-code", "exec-in-shell") and isinstance(body.get("timeout_seconds", 2), (int, float)):
            body["timeout_seconds"] = min(body.get("timeout_seconds", 2), 2)
        if called == "wait" and isinstance(body.get("timeout_seconds", 1), (int, float)):
            body["timeout_seconds"] = min(body.get("timeout_seconds") or 1, 1)  # 0 is a minute
        if called == "fork-sandbox" and isinstance(body.get("count"), int):
            body["count"] = min(body["count"], 2)


@schemathesis.serializer("application/x-tar")
def tar(context, value):
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")
