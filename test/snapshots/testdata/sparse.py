"""Touches one in so many pages of so many. For every line in the pipe it looks whether
all of them are as they were left, touches more, and says so in its log."""
import mmap
import os
import sys

PAGE = 4096
name, EVERY, PAGES = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def pattern(i, kind):
    return (b"%s %d %d;" % (kind.encode(), i, i * i)).ljust(64, b".")


class Region:
    def __init__(self, kind, pages, **how):
        self.kind, self.pages, self.m = kind, pages, mmap.mmap(how.pop("fd", -1), pages * PAGE, **how)
        self.rounds = 0

    def touch(self):
        for i in range(self.rounds * 5 % EVERY, self.pages, EVERY):
            self.m[i * PAGE : i * PAGE + 64] = pattern(i, self.kind)
        self.rounds += 1

    def check(self, rest):
        touched = {i for r in range(self.rounds) for i in range(r * 5 % EVERY, self.pages, EVERY)}
        for i in range(self.pages):
            want = pattern(i, self.kind) if i in touched else rest(i)
            if self.m[i * PAGE : i * PAGE + 64] != want:
                return "%s: page %d is %r" % (self.kind, i, self.m[i * PAGE : i * PAGE + 64])
        return ""


with open("/workspace/sparse", "wb") as f:
    for i in range(512):
        f.write(b"f%d" % i + b"-" * 61 + b"\0" * (PAGE - 61 - len(b"f%d" % i)))
file = os.open("/workspace/sparse", os.O_RDWR)
zero = lambda i: bytes(64)
content = lambda i: (b"f%d" % i + b"-" * 61)[:61 + len(b"f%d" % i)].ljust(64, b"\0")[:64]
regions = [
    (Region("private", PAGES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), zero),
    (Region("shared", 2048, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS), zero),
    (Region("copied", 512, fd=file, flags=mmap.MAP_PRIVATE), content),
]


def serve(who):
    pipe, log = f"/workspace/{name}.{who}", f"/workspace/{name}.{who}.log"
    os.mkfifo(pipe)
    with open(log, "a") as out:
        print("ready", file=out, flush=True)
        n = 0
        while True:
            with open(pipe) as lines:
                for _ in lines:
                    n += 1
                    wrong = [w for w in (r.check(rest) for r, rest in regions if who == "parent" or r.kind != "shared") if w]
                    for r, _ in regions:
                        if who == "parent" or r.kind != "shared":
                            r.touch()
                    print(n, "wrong: " + wrong[0] if wrong else "whole", file=out, flush=True)


for r, _ in regions:
    r.touch()
serve("child" if os.fork() == 0 else "parent")
