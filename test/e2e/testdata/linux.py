"""Prints what of the kernel is not as under Linux. Its argument is the id of a process to attach to."""

import ctypes
import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
target = int(sys.argv[1])


def want(what, got, right):
    if got != right:
        print(f"{what}: {got!r}, want {right!r}")


def trial(f, *args):
    try:
        return f(*args)
    except OSError as e:
        return e.strerror


def read(path):
    with open(path) as f:
        return f.read()


# Whoever may trace a process reads its memory and attaches to it. Process 1 is nobody's.
def attach(pid):
    if libc.ptrace(0x4206, pid, 0, 0) != 0:  # PTRACE_SEIZE
        return os.strerror(ctypes.get_errno())
    libc.ptrace(0x4207, pid, 0, 0)  # PTRACE_INTERRUPT
    os.waitpid(pid, 0x40000000)  # __WALL
    libc.ptrace(17, pid, 0, 0)  # PTRACE_DETACH
    return "attached"


want("ptrace_scope", read("/proc/sys/kernel/yama/ptrace_scope"), "0\n")
want("attach", attach(target), "attached")
want("attach to process 1", attach(1), "Operation not permitted")

# The master of a terminal whose other side was never opened.
master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
poll = select.poll()
poll.register(master, select.POLLIN)
want("an unused terminal", trial(os.read, master, 1), "Resource temporarily unavailable")
want("poll of an unused terminal", poll.poll(0), [])
os.close(master)

# A process on a terminal of its own.
child, master = pty.fork()
if child == 0:
    os.write(1, b"x")
    signal.pause()
os.read(master, 1)
number = int(os.path.basename(os.readlink(f"/proc/{child}/fd/0")))
fields = read(f"/proc/{child}/stat").rpartition(")")[2].split()
want("tty_nr and tpgid", fields[4:6], [str(136 << 8 | number), str(child)])
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
want("a hung up terminal", trial(os.read, master, 1), "Input/output error")

# What monitors read.
for name in ("diskstats", "interrupts", "softirqs", "swaps", "vmstat", "net/sockstat", "net/sockstat6", "self/smaps_rollup"):
    want(name, os.path.isfile("/proc/" + name), True)
want("vmstat", int(re.search(r"^nr_free_pages (\d+)$", read("/proc/vmstat"), re.M)[1]) > 0, True)
want("swaps", len(read("/proc/swaps").splitlines()), 1)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.signal(signal.SIGUSR2, lambda *_: None)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
os.kill(os.getpid(), signal.SIGALRM)
status = dict(line.split(":\t", 1) for line in read("/proc/self/status").splitlines())
has = lambda name, n: bool(int(status.get(name, "0"), 16) >> (n - 1) & 1)
want("SigIgn", has("SigIgn", signal.SIGUSR1), True)
want("SigCgt", has("SigCgt", signal.SIGUSR2), True)
want("SigBlk", has("SigBlk", signal.SIGALRM), True)
want("pending", has("SigPnd", signal.SIGALRM) or has("ShdPnd", signal.SIGALRM), True)
peak, now = (int(status.get(name, "0 kB").split()[0]) for name in ("VmHWM", "VmRSS"))
want("VmHWM", peak >= now > 0, True)
want("VmSwap", status.get("VmSwap", "").strip(), "0 kB")
rollup = dict(re.findall(r"^(\w+): +(\d+) kB$", read("/proc/self/smaps_rollup"), re.M))
want("smaps_rollup", int(rollup["Rss"]) > 0 and int(rollup["Private_Dirty"]) > 0, True)
want("locks", os.path.isfile("/proc/locks"), True)
for name in ("cpu", "io", "memory"):
    lines = [line.split()[:2] for line in read("/proc/pressure/" + name).splitlines()]
    want("pressure", lines, [["some", "avg10=0.00"], ["full", "avg10=0.00"]])
opened = [os.dup(0) for _ in range(100)]
used, unused, most = map(int, read("/proc/sys/fs/file-nr").split())
want("file-nr", (used >= 100, unused, most > used), (True, 0, True))
for fd in opened:
    os.close(fd)
want("aio-max-nr", int(read("/proc/sys/fs/aio-max-nr")) > int(read("/proc/sys/fs/aio-nr")), True)

# setarch -R.
want("ADDR_NO_RANDOMIZE", (libc.personality(0x40000), libc.personality(0xFFFFFFFF)), (0, 0x40000))
# A message queue fails where it is opened.
want("mq_open", (libc.mq_open(b"/q", os.O_CREAT | os.O_RDWR, 0o600, None), os.strerror(ctypes.get_errno())), (-1, "Function not implemented"))

want("tasks", int(read("/proc/loadavg").split()[3].split("/")[1]) > 1, True)
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
    s.bind(("::1", 0))
    want("udp6", f"01000000:{s.getsockname()[1]:04X} " in read("/proc/net/udp6"), True)
    want("sockstat6", re.search(r"UDP6: inuse [1-9]", read("/proc/net/sockstat6")) is not None, True)

# What ss asks for: the listeners of TCP and UDP and the sockets of Unix, each with its inode.
def diagnosed(request):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as s:  # NETLINK_SOCK_DIAG
        s.send(struct.pack("=IHHII", 16 + len(request), 20, 0x301, 1, 0) + request)  # NLM_F_REQUEST | NLM_F_DUMP
        while True:
            data = s.recv(1 << 18)
            while data:
                size, kind = struct.unpack_from("=IH", data)
                if kind == 3:  # NLMSG_DONE
                    return
                if kind == 2:  # NLMSG_ERROR
                    number = -struct.unpack_from("=i", data, 16)[0]
                    raise OSError(number, os.strerror(number))
                yield data[16:size]
                data = data[size + 3 & ~3 :]


def listed(family, protocol, state):
    for b in diagnosed(struct.pack("=BBxxI48x", family, protocol, 1 << state)):
        yield (*struct.unpack_from(">HH", b, 4), socket.inet_ntop(family, b[8 : 8 + (4 if family == 2 else 16)]), struct.unpack_from("=I", b, 68)[0])


inode = lambda s: os.fstat(s.fileno()).st_ino
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    with socket.socket(family) as s, socket.socket(family, socket.SOCK_DGRAM) as u, socket.socket(family) as c:
        s.bind((address, 0))
        s.listen()
        u.bind((address, 0))
        c.connect(s.getsockname())
        row = lambda s, to: (s.getsockname()[1], to, address, inode(s))
        want("a listener", row(s, 0) in listed(family, 6, 10), True)
        want("a connection", row(c, s.getsockname()[1]) in listed(family, 6, 1), True)
        want("not a listener", row(c, s.getsockname()[1]) in listed(family, 6, 10), False)
        want("a receiver", row(u, 0) in listed(family, 17, 7), True)
mptcp = struct.pack("=BBxxI48xHHI", socket.AF_INET, 262 & 0xFF, 1 << 10, 8, 3, 262)
want("MPTCP", trial(list, diagnosed(mptcp)), "No such file or directory")
with socket.socket(socket.AF_UNIX) as s:
    s.bind("\0diagnosed")
    s.listen()
    rows = [b for b in diagnosed(struct.pack("=BxxxIII8x", socket.AF_UNIX, 1 << 10, 0, 1)) if struct.unpack_from("=I", b, 4)[0] == inode(s)]
    want("a socket of Unix", [b[20 : 16 + struct.unpack_from("=H", b, 16)[0]] for b in rows], [b"\0diagnosed"])

# A directory is listed with the inodes that stat shows.
for folder in ("/", "/usr", "/usr/lib"):
    with os.scandir(folder) as entries:
        other = [e.path for e in entries if not os.path.ismount(e.path) and e.inode() != os.lstat(e.path).st_ino]
    want("inodes of " + folder, other, [])

# A new network namespace has a loopback interface that is down and has no address. This is how
# bubblewrap sets it up: an address that must be new, then the interface.
if libc.unshare(0x10000000 | 0x40000000) != 0:  # CLONE_NEWUSER | CLONE_NEWNET
    sys.exit("unshare: " + os.strerror(ctypes.get_errno()))


def netlink(kind, flags, body):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.send(struct.pack("=IHHII", 16 + len(body), kind, flags | 5, 1, 0) + body)  # NLM_F_REQUEST | NLM_F_ACK
        return os.strerror(-struct.unpack_from("=i", s.recv(4096), 16)[0])


def flags():
    with socket.socket() as s:
        return struct.unpack_from("=16sh", fcntl.ioctl(s, 0x8913, struct.pack("=16s24x", b"lo")))[1]  # SIOCGIFFLAGS


def connect(family, address):
    with socket.socket(family) as server, socket.socket(family) as client:
        server.bind((address, 0))
        server.listen()
        client.connect(server.getsockname())
        return "connected"


lo = socket.if_nametoindex("lo")
up = lambda on: netlink(16, 0, struct.pack("=BxHiII", 0, 0, lo, on, 1))  # RTM_NEWLINK
address = struct.pack("=BBBBI", socket.AF_INET, 8, 0, 254, lo) + struct.pack("=HH4s", 8, 2, b"\x7f\0\0\1")  # IFA_LOCAL
want("new lo", (flags() & 1, trial(connect, socket.AF_INET, "127.0.0.1") == "connected"), (0, False))
want("a new address", netlink(20, 0x600, address), "Success")  # RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL
want("the same address", netlink(20, 0x600, address), "File exists")
want("set lo up", (up(1), flags() & 1), ("Success", 1))
want("IPv4", trial(connect, socket.AF_INET, "127.0.0.1"), "connected")
want("IPv6", trial(connect, socket.AF_INET6, "::1"), "connected")
want("set lo down", (up(0), flags() & 1), ("Success", 0))
print("done")
