"""Looks into process 1, stops it, and changes it."""

import ctypes
import os
import signal
import struct
import sys

from attack import attempt, libc, report, syscall

buffer = ctypes.create_string_buffer(4096)


class iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def read(name):
    with open("/proc/1/" + name, "rb") as f:
        return f.read(64)


def stack():
    """An address that process 1 certainly has, if maps tells one."""
    with open("/proc/1/maps") as f:
        return int(f.readline().split("-")[0], 16)


def memory(mode):
    with open("/proc/1/mem", mode, buffering=0) as f:
        f.seek(stack())
        return f.read(16) if "r" in mode else f.write(b"x")


def vector(number):
    local = iovec(ctypes.addressof(buffer), 16)
    remote = iovec(stack_or_guess, 16)
    return syscall(number, 1, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)


try:
    stack_or_guess = stack()
except OSError:
    stack_or_guess = 0x400000

PTRACE = {"attach": 16, "seize": 0x4206}

if sys.argv[1:] == ["namespace"]:
    # As root of a user namespace of one's own, with every capability in it.
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS)

attempt("maps", lambda: bool(read("maps")))
attempt("mem: read", memory, "rb")
attempt("mem: write", memory, "r+b")
attempt("environ", lambda: bool(read("environ")))
attempt("auxv", lambda: bool(read("auxv")))
attempt("stack pointer", lambda: bool(read("syscall")))
attempt("exe: link", os.readlink, "/proc/1/exe")
attempt("exe: read", lambda: bool(read("exe")))
attempt("cwd", os.listdir, "/proc/1/cwd")
attempt("root", os.listdir, "/proc/1/root")
for fd in range(16):
    attempt(f"fd {fd}: link", os.readlink, f"/proc/1/fd/{fd}")
    attempt(f"fd {fd}: open", os.open, f"/proc/1/fd/{fd}", os.O_RDWR | os.O_NONBLOCK)
attempt("map_files", os.listdir, "/proc/1/map_files")
attempt("oom_score_adj: write", lambda: open("/proc/1/oom_score_adj", "w").write("1000") and open("/proc/1/oom_score_adj", "r").read() == "1000")
attempt("ptrace: attach", syscall, 101, PTRACE["attach"], 1, 0, 0)
attempt("ptrace: seize", syscall, 101, PTRACE["seize"], 1, 0, 0)
attempt("process_vm_readv", vector, 310)
attempt("process_vm_writev", vector, 311)
attempt("kcmp", syscall, 312, 1, os.getpid(), 0, 0, 0)
attempt("pidfd_getfd", lambda: syscall(438, libc.syscall(434, 1, 0), 3, 0))
attempt("pidfd_send_signal", lambda: syscall(424, libc.syscall(434, 1, 0), 9, 0, 0))
attempt("setpriority", os.setpriority, os.PRIO_PROCESS, 1, 19)
attempt("setpgid", os.setpgid, 1, os.getpid())
attempt("prlimit", syscall, 302, 1, 7, (ctypes.c_ulong * 2)(1, 1), 0)
attempt("sched_setaffinity", os.sched_setaffinity, 1, {0})
threads = sorted(int(t) for t in os.listdir("/proc/1/task"))
info = ctypes.create_string_buffer(128)
struct.pack_into("iii", info, 0, signal.SIGKILL, 0, -1)
for thread in threads:
    attempt(f"thread {thread}: kill", os.kill, thread, signal.SIGKILL)
    attempt(f"thread {thread}: tkill", syscall, 200, thread, signal.SIGKILL)
    attempt(f"thread {thread}: tgkill", syscall, 234, 1, thread, signal.SIGKILL)
    attempt(f"thread {thread}: rt_tgsigqueueinfo", syscall, 297, 1, thread, signal.SIGKILL, info)
attempt("rt_sigqueueinfo", syscall, 129, 1, signal.SIGKILL, info)
attempt("killpg", os.killpg, 1, signal.SIGKILL)
for number in range(1, 65):
    attempt(f"kill {number}", os.kill, 1, number)
report()
