"""Tries to reach anything at all. The argument is JSON:
{"tcp": ["host:port", ...], "udp": [...], "ping": [...]}"""

import http.client
import json
import os
import socket
import struct
import sys

from attack import attempt, report
from reach import ECHO, ask, connect, datagram, echo

targets = json.loads(sys.argv[1])
TIMEOUT = 3


def resolve(name, kind, over_tcp):
    """Asks the gateway's name server and returns the records that it gives."""
    query = struct.pack("!HHHHHH", 0x6208, 0x0100, 1, 0, 0, 0)
    query += b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + struct.pack("!BHH", 0, kind, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if over_tcp else socket.SOCK_DGRAM) as s:
        s.settimeout(TIMEOUT)
        s.connect(("10.0.0.1", 53))
        s.send((struct.pack("!H", len(query)) if over_tcp else b"") + query)
        answer = s.recv(1500)
    return struct.unpack("!H", answer[6 + 2 * over_tcp:8 + 2 * over_tcp])[0]


def library(name):
    try:
        return socket.getaddrinfo(name, 443)
    except socket.gaierror:
        return False


def guest(host, method, path, body=None, peer=None):
    c = http.client.HTTPConnection(host, 49983, timeout=TIMEOUT, source_address=peer)
    try:
        c.request(method, path, body, {"Content-Type": "application/json", "Authorization": "Basic cm9vdDo="})
        return c.getresponse().status < 300
    except (http.client.HTTPException, ConnectionError):
        return False


def freebind(option):
    with socket.socket() as s:
        s.setsockopt(socket.IPPROTO_IP, option, 1)
        s.settimeout(TIMEOUT)
        s.bind(("10.0.0.1", 0))
        s.connect(("10.0.0.2", 49983))


def listen(host):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        s.bind((host, 49983))
        s.listen()


def netlink(kind, flags, body):
    """Sends one request and raises the error in its answer."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.settimeout(TIMEOUT)
        s.send(struct.pack("IHHII", 16 + len(body), kind, flags | 5, 1, 0) + body)
        answer = s.recv(4096)
        code = -struct.unpack("i", answer[16:20])[0]
        if struct.unpack("H", answer[4:6])[0] == 2 and code:
            raise OSError(code, os.strerror(code))


def attribute(kind, value):
    return struct.pack("HH", 4 + len(value), kind) + value.ljust((len(value) + 3) // 4 * 4, b"\0")


index = next((i for i, n in socket.if_nameindex() if n != "lo"), 2)
gateway = socket.inet_aton("10.0.0.1")

connect("tcp ", targets["tcp"])
connect("the gateway's port ", [f"10.0.0.1:{p}" for p in range(1, 1025) if p != 53])
ask("udp ", targets["udp"], datagram, b"ping")
ask("large udp ", targets["udp"], datagram, b"x" * 1400)
ask("ping ", targets["ping"], echo, ECHO)

for name in ("example.com", "localhost.example.com", "internal", "x" * 60 + ".example.org"):
    attempt("resolve " + name, library, name)
    for kind in (1, 28, 16, 255):
        attempt(f"query {name} {kind}", resolve, name, kind, False)
    attempt(f"query {name} over TCP", resolve, name, 1, True)

for host in ("10.0.0.2", "127.0.0.1", "localhost"):
    attempt(f"the guest at {host}: health", guest, host, "GET", "/health")
    attempt(f"the guest at {host}: read", guest, host, "GET", "/files?path=/etc/shadow&username=root")
    attempt(f"the guest at {host}: run", guest, host, "POST", "/process.Process/List", b"{}")
attempt("the guest from a loopback address", guest, "10.0.0.2", "GET", "/health", None, ("127.0.0.1", 0))
attempt("the guest from the gateway's address", guest, "10.0.0.2", "GET", "/health", None, ("10.0.0.1", 0))
attempt("bind to the gateway's address: freebind", freebind, 15)
attempt("bind to the gateway's address: transparent", freebind, 19)
for host in ("10.0.0.2", "0.0.0.0", "::", "::ffff:10.0.0.2"):
    attempt("listen in the guest's place: " + host, listen, host)

attempt("raw socket", socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
attempt("raw socket with headers", socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
attempt("raw IPv6 socket", socket.socket, socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
attempt("packet socket", socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
attempt("packet socket, cooked", socket.socket, socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
attempt("vsock", socket.socket, 40, socket.SOCK_STREAM)
attempt("bluetooth", socket.socket, 31, socket.SOCK_RAW)
attempt("add the gateway's address", netlink, 20, 0x400, struct.pack("BBBBI", 2, 24, 0, 0, index) + attribute(2, gateway) + attribute(1, gateway))
attempt("remove the address", netlink, 21, 0, struct.pack("BBBBI", 2, 24, 0, 0, index) + attribute(2, socket.inet_aton("10.0.0.2")))
attempt("add a route", netlink, 24, 0x400, struct.pack("BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + attribute(5, gateway))
attempt("take the link down", netlink, 16, 0, struct.pack("BBHiII", 0, 0, 0, index, 0, 1))
report()
