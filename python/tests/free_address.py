"""Addresses for the servers of tests, here and in test/coding."""

from __future__ import annotations

import random
import socket
from pathlib import Path


def free_address() -> tuple[str, socket.socket]:
    """Find an address that stays the caller's while the socket is open, as internal/freeport does.

    The kernel gives no port below its range to a connection, and an abstract name keeps
    other tests away.
    """
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(10000, first), first - 10000):
        taken = socket.socket(socket.AF_UNIX)
        try:
            taken.bind(f"\0bothy-port-{port}")
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            taken.close()
            continue
        return f"127.0.0.1:{port}", taken
    raise RuntimeError("no port is free")
