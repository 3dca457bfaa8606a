"""Takes as much of one thing that costs the kernel memory as there is, and says how that ended."""

import os
import socket
import sys

kept = []
folder = "/workspace/hoard"
os.makedirs(folder, exist_ok=True)


def file(n):
    os.close(os.open(f"{folder}/{n}", os.O_CREAT | os.O_WRONLY))


def folders(n):
    os.mkdir("deeper")
    os.chdir("deeper")


def link(n):
    if n == 0:
        file("first")
    os.link(f"{folder}/first", f"{folder}/{n}")


def symlink(n):
    os.symlink("x" * 4000, f"{folder}/{n}")


def attribute(n):
    if n % 50 == 0:
        file(n // 50)
    os.setxattr(f"{folder}/{n // 50}", f"user.{n % 50}", b"v" * 60000)


def fill(end):
    os.set_blocking(end, False)
    kept.append(end)
    try:
        while True:
            os.write(end, b"x" * 65536)
    except BlockingIOError:
        pass


def pipe(n):
    r, w = os.pipe()
    kept.append(r)
    fill(w)


def sock(n):
    a, b = socket.socketpair()
    kept.append((a, b))
    fill(a.fileno())


what = {"file": file, "folder": folders, "link": link, "symlink": symlink, "attribute": attribute, "pipe": pipe, "socket": sock}[sys.argv[1]]
os.chdir(folder)
n = 0
try:
    while n < 1_000_000:
        what(n)
        n += 1
except OSError as e:
    kept.clear()
    print(f"{sys.argv[1]} {n}: {e.strerror}", flush=True)
    sys.exit(7)
print(f"{sys.argv[1]} {n}: no end", flush=True)
