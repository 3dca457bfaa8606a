"""Measures the same calls through E2B's SDK and through Bothy's own, in turns.

Wants both packages, a server, and the variables of both: BOTHY_URL, BOTHY_API_KEY, and
those that `bothy e2b env` prints. Prints JSON as `bothy bench --json` does, and fails if
E2B's SDK took more than 15 % longer.
"""

import argparse
import json
import os
import statistics
import sys
import time

import bothy
import e2b

TEXT = "x" * 4096
ALLOWED = 1.15


def e2b_create():
    return e2b.Sandbox.create(timeout=300, template="python-3.12-bare")


def bothy_create():
    return bothy.Sandbox.create(template="python-3.12-bare", timeout_seconds=300, network="open")


CREATES = {"e2b": (e2b_create, lambda s: s.kill()), "bothy": (bothy_create, lambda s: s.terminate())}


def calls(which, sandbox):
    """Return what is measured, by name."""
    run = sandbox.commands.run if which == "e2b" else sandbox.exec
    return {
        "run": lambda: run("true"),
        "write": lambda: sandbox.files.write("/tmp/bench", TEXT),
        "read": lambda: sandbox.files.read("/tmp/bench"),
    }


def timed(call):
    before = time.perf_counter()
    got = call()
    return got, (time.perf_counter() - before) * 1000


def measure(rounds, creations):
    took = {}
    for _ in range(creations):
        for which, (create, end) in CREATES.items():
            sandbox, ms = timed(create)
            took.setdefault("create", {}).setdefault(which, []).append(ms)
            end(sandbox)
            time.sleep(0.1)  # for the pool to be full again
    sandboxes = {which: create() for which, (create, _) in CREATES.items()}
    try:
        all_calls = {which: calls(which, s) for which, s in sandboxes.items()}
        for i in range(rounds + 10):
            for name in ("run", "write", "read"):
                for which in sorted(CREATES, reverse=i % 2 == 0):  # so that neither always comes after the other's work
                    _, ms = timed(all_calls[which][name])
                    if i >= 10:
                        took.setdefault(name, {}).setdefault(which, []).append(ms)
    finally:
        for which, sandbox in sandboxes.items():
            CREATES[which][1](sandbox)
    return took


def result(name, by):
    def p50(values):
        return round(statistics.median(values), 3)

    own, theirs = p50(by["bothy"]), p50(by["e2b"])
    return {"name": "e2b_" + name, "unit": "ms", "n": len(by["e2b"]), "ok": theirs <= own * ALLOWED, "p50": theirs,
            "against": {"bothy": {"p50": own}}, "ratio": round(theirs / own, 3)}


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=300)
    options.add_argument("--creations", type=int, default=40)
    given = options.parse_args()
    results = [result(name, by) for name, by in measure(given.rounds, given.creations).items()]
    print(json.dumps({"results": results}, indent=1))
    sys.stdout.flush()
    os._exit(0 if all(r["ok"] for r in results) else 1)  # see test/e2b/suite.py


if __name__ == "__main__":
    main()
