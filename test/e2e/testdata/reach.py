"""Reaches for many addresses at once. A text "host:port" names one."""

import errno
import select
import socket
import struct
import time

from attack import outcomes

PATIENCE = 8  # an address on the cable that nobody has takes the kernel three


def address(text):
    host, port = text.rsplit(":", 1)
    host = host.strip("[]")
    return socket.AF_INET6 if ":" in host else socket.AF_INET, (host, int(port))


def connect(prefix, texts):
    """Notes for each address whether a connection could be made."""
    for start in range(0, len(texts), 250):
        waiting = {}
        poll = select.poll()
        for text in texts[start:start + 250]:
            family, where = address(text)
            s = socket.socket(family, socket.SOCK_STREAM)
            s.setblocking(False)
            outcomes[prefix + text] = "no answer"
            code = s.connect_ex(where)
            if code == errno.EINPROGRESS:
                waiting[s.fileno()] = s, text
                poll.register(s, select.POLLOUT)
            else:
                outcomes[prefix + text] = errno.errorcode.get(code, "done")
        end = time.monotonic() + PATIENCE
        while waiting and time.monotonic() < end:
            for fd, _ in poll.poll(100):
                s, text = waiting.pop(fd)
                poll.unregister(fd)
                code = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                outcomes[prefix + text] = errno.errorcode.get(code, "done")
                s.close()
        for s, _ in waiting.values():
            s.close()


def ask(prefix, texts, new, message):
    """Sends datagrams and notes who answers: nothing else tells whether they
    arrive."""
    waiting = {}
    poll = select.poll()
    for text in texts:
        family, where = address(text)
        try:
            s = new(family)
            s.setblocking(False)
            s.sendto(message, where)
        except OSError as e:
            outcomes[prefix + text] = errno.errorcode[e.errno]
            continue
        waiting[s.fileno()] = s, text
        poll.register(s, select.POLLIN)
        outcomes[prefix + text] = "silence"
    end = time.monotonic() + 2
    while waiting and time.monotonic() < end:
        for fd, _ in poll.poll(100):
            s, text = waiting.pop(fd)
            poll.unregister(fd)
            try:
                s.recvfrom(2000)
                outcomes[prefix + text] = "done"
            except OSError as e:
                outcomes[prefix + text] = errno.errorcode[e.errno]


def datagram(family):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    return s


def echo(family):
    return socket.socket(family, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)


ECHO = struct.pack("!BBHHH", 8, 0, 0, 0, 1) + b"bothy"
