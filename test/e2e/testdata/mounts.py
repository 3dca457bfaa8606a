"""Mounts what it can, in the sandbox's own mount namespace or, with the
argument "namespace", as root of namespaces of its own."""

import ctypes
import os
import sys

from attack import attempt, libc, report, syscall

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_MOVE = 1, 32, 4096, 16384, 8192


def mount(source, target, kind, flags=0, data=None):
    c = [s.encode() if s is not None else None for s in (source, target, kind, data)]
    if libc.mount(c[0], c[1], c[2], ctypes.c_ulong(flags), c[3]) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def unmount(target, flags=0):
    if libc.umount2(target.encode(), flags) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


if sys.argv[1:] == ["namespace"]:
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS)

os.makedirs("/tmp/m", exist_ok=True)
for d in ("lower", "upper", "work"):
    os.makedirs("/tmp/o/" + d, exist_ok=True)

attempt("unmount /.bothy", unmount, "/.bothy")
attempt("unmount /.bothy lazily", unmount, "/.bothy", 2)
attempt("unmount /proc", unmount, "/proc", 2)
attempt("unmount /", unmount, "/", 2)
attempt("remount /.bothy writable", mount, "none", "/.bothy", None, MS_REMOUNT)
attempt("write to the guest", open, "/.bothy/guest", "r+b")
attempt("add to /.bothy", open, "/.bothy/new", "w")
attempt("tmpfs", mount, "none", "/tmp/m", "tmpfs")
attempt("tmpfs over /.bothy", mount, "none", "/.bothy", "tmpfs")
attempt("proc", mount, "none", "/tmp/m", "proc")
attempt("sysfs", mount, "none", "/tmp/m", "sysfs")
attempt("devtmpfs", mount, "none", "/tmp/m", "devtmpfs")
attempt("devpts", mount, "none", "/tmp/m", "devpts")
attempt("cgroup", mount, "none", "/tmp/m", "cgroup")
attempt("bind /", mount, "/", "/tmp/m", None, MS_BIND | MS_REC)
attempt("bind over the guest", mount, "/bin/true", "/.bothy/guest", None, MS_BIND)
attempt("remount / read-only", mount, "none", "/", None, MS_REMOUNT | MS_RDONLY)
attempt("move /proc", mount, "/proc", "/tmp/m", None, MS_MOVE)
attempt("overlay", mount, "none", "/tmp/m", "overlay", 0, "lowerdir=/tmp/o/lower,upperdir=/tmp/o/upper,workdir=/tmp/o/work")
for kind in ("ext4", "xfs", "9p", "gofer", "lisafs", "erofs", "fuse", "nfs", "cifs", "binfmt_misc", "debugfs", "tracefs", "securityfs", "bpf", "hugetlbfs"):
    attempt(kind, mount, "/dev/vda", "/tmp/m", kind)
attempt("open_tree", syscall, 428, -100, b"/\0", 1)
attempt("fsopen", syscall, 430, b"tmpfs\0", 0)
report()
