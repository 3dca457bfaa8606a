"""Runs the Python blocks of one page, in one namespace. It is told each as a line of JSON
on descriptor 3, and answers "ok" on descriptor 4. A block that raises ends it."""

import json
import sys

namespace: dict[str, object] = {"__name__": "__main__"}
with open(3) as blocks, open(4, "w") as answers:
    for told in blocks:
        block = json.loads(told)
        # So far down that a traceback shows the line of the page.
        code = "\n" * (block["line"] - 1) + block["source"]
        exec(compile(code, block["file"], "exec"), namespace)
        sys.stdout.flush()
        answers.write("ok\n")
        answers.flush()
