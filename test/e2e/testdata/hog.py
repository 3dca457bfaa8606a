"""Uses up memory in one of several ways."""

import ctypes
import mmap
import os
import sys
import time

way = sys.argv[1]
PIECE = 4 << 20


def grow(pause=0):
    held = []
    while True:
        held.append(bytearray(os.urandom(1024) * (PIECE // 1024)))
        time.sleep(pause)


def fill(path):
    piece = b"x" * PIECE
    with open(path, "wb") as f:
        while True:
            f.write(piece)


if way == "one":
    grow()
elif way == "many":
    # None of them is large.
    for _ in range(60):
        if os.fork() == 0:
            grow(pause=0.05)
    time.sleep(60)
elif way == "child":
    # What it started is what grows; the one who waits is innocent.
    child = os.fork()
    if child == 0:
        grow()
    _, status = os.waitpid(child, 0)
    print("child", os.waitstatus_to_exitcode(status))
elif way == "threads":
    import threading

    for _ in range(16):
        threading.Thread(target=grow, args=(0.01,)).start()
elif way == "shared":
    m = mmap.mmap(-1, 2 << 30, mmap.MAP_SHARED)
    for at in range(0, len(m), 4096):
        m[at] = 1
elif way == "memfd":
    f = ctypes.CDLL(None).syscall(319, b"hog", 0)
    while True:
        os.write(f, b"x" * PIECE)
elif way == "stack":
    def deeper(n):
        deeper(bytes(100_000) + n)

    sys.setrecursionlimit(1_000_000)
    deeper(b"")
elif way == "pipes":
    import fcntl

    ends = []
    while True:
        r, w = os.pipe()
        ends.append((r, w))
        fcntl.fcntl(w, 1031, 1 << 20)
        os.set_blocking(w, False)
        try:
            while True:
                os.write(w, b"x" * 65536)
        except BlockingIOError:
            pass
elif way == "sockets":
    import socket

    ends = []
    while True:
        a, b = socket.socketpair()
        ends.append((a, b))
        a.setblocking(False)
        try:
            while True:
                a.send(b"x" * 65536)
        except BlockingIOError:
            pass
else:
    fill(way)
