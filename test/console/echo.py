"""How long a key takes to be echoed by `bothy sh`: echo.py BOTHY SANDBOX KEYS prints milliseconds as JSON."""

import json
import os
import pty
import select
import signal
import sys
import time

bothy, sandbox, keys = sys.argv[1], sys.argv[2], int(sys.argv[3])
pid, fd = pty.fork()
if pid == 0:
    os.execv(bothy, [bothy, "sh", sandbox])


def read_until(wanted: bytes) -> float:
    seen = b""
    while wanted not in seen:
        if not select.select([fd], [], [], 20)[0]:
            sys.exit(f"bothy sh printed {seen!r}, and not {wanted!r}")
        seen += os.read(fd, 4096)
    return time.perf_counter()


read_until(b"$")
times = []
for i in range(keys):
    time.sleep(0.02)  # a pace at which somebody may type
    began = time.perf_counter()
    os.write(fd, b"q")
    times.append((read_until(b"q") - began) * 1000)
    if i % 40 == 39:
        os.write(fd, b"\x15")
        time.sleep(0.2)
        while select.select([fd], [], [], 0)[0]:
            os.read(fd, 4096)
os.kill(pid, signal.SIGHUP)
print(json.dumps(times))
