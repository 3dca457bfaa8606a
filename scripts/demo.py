"""The example of the README, with a watch."""

import time

from bothy import Sandbox

start = time.perf_counter()
with Sandbox.create(template="python-3.12-bare") as sbx:
    created = time.perf_counter()
    sbx.files.write("/workspace/main.py", "print(sum(range(1_000_000)))")
    result = sbx.exec("python /workspace/main.py")
    print(result.stdout, end="")
    print(f"sandbox created in {(created - start) * 1000:.0f} ms, command took {result.duration_ms} ms")
if result.exit_code != 0 or result.stdout.strip() != "499999500000":
    raise SystemExit(f"unexpected result: {result}")
