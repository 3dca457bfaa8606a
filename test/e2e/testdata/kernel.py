"""Asks the kernel for what only a host's owner may have."""

import ctypes
import os
import struct

from attack import attempt, libc, report, syscall

buffer = ctypes.create_string_buffer(4096)

attempt("init_module", syscall, 175, buffer, 4096, buffer)
attempt("finit_module", syscall, 313, os.open("/bin/true", os.O_RDONLY), buffer, 0)
attempt("kexec_load", syscall, 246, 0, 0, buffer, 0)
attempt("kexec_file_load", syscall, 320, -1, -1, 0, buffer, 0)
for name, command in {"restart": 0x01234567, "halt": 0xCDEF0123, "power off": 0x4321FEDC, "suspend": 0xD000FCE2}.items():
    attempt("reboot: " + name, syscall, 169, 0xFEE1DEAD, 672274793, command, 0)
attempt("bpf", syscall, 321, 0, buffer, 48)
attempt("perf_event_open", syscall, 298, buffer, 0, -1, -1, 0)
attempt("io_uring_setup", syscall, 425, 8, buffer)
attempt("userfaultfd", syscall, 323, 0)
attempt("clock_settime", syscall, 227, 0, struct.pack("qq", 1, 1))
attempt("settimeofday", syscall, 164, struct.pack("qq", 1, 1), 0)
attempt("adjtimex", syscall, 159, struct.pack("I", 1).ljust(208, b"\0"))
attempt("iopl", syscall, 172, 3)
attempt("ioperm", syscall, 173, 0, 1024, 1)
attempt("swapon", syscall, 167, b"/workspace\0", 0)
attempt("acct", syscall, 163, b"/workspace/acct\0")
attempt("syslog: clear", syscall, 103, 5, 0, 0)
attempt("quotactl", syscall, 179, 0, b"/dev/vda\0", 0, buffer)
attempt("open_by_handle_at", syscall, 304, -100, buffer, 0)
attempt("pivot_root", syscall, 155, b"/workspace\0", b"/workspace\0")
attempt("setns: process 1", lambda: os.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY)))

# Calls that there are not.
for number in (500, 999, 2000, 2001, 100_000, -1):
    attempt(f"call {number}", syscall, number, -1, -1, -1, -1, -1, -1)

for path in ("/dev/kvm", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/vda", "/dev/sda", "/dev/loop-control", "/dev/mapper/control",
             "/dev/vhost-net", "/dev/userfaultfd", "/proc/kcore", "/proc/kmem"):
    attempt("open " + path, os.open, path, os.O_RDWR)

devices = {"mem": (1, 1), "kmem": (1, 2), "port": (1, 4), "kmsg": (1, 11), "sda": (8, 0), "vda": (254, 0), "loop": (7, 0), "kvm": (10, 232)}
for name, (major, minor) in devices.items():
    def node():
        path = "/workspace/node-" + name
        os.mknod(path, 0o600 | 0o020000, os.makedev(major, minor))
        os.open(path, os.O_RDWR)

    def block():
        path = "/workspace/block-" + name
        os.mknod(path, 0o600 | 0o060000, os.makedev(major, minor))
        os.open(path, os.O_RDWR)

    attempt("mknod and open " + name, node)
    attempt("mknod and open block " + name, block)

report()
