"""How connections to the server are made: whom to trust, and how to notice that it is gone."""

from __future__ import annotations

import functools
import os
import socket
import ssl
from urllib.parse import SplitResult
from urllib.request import getproxies

import httpx

from ._errors import InvalidArgumentError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

# A command may be silent for hours. Should the server vanish meanwhile, this tells in about a
# minute.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}

SOCKET_OPTIONS: list[tuple[int, int, int]] = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in _KEEPALIVE.items()
        if hasattr(socket, name)
    ),
]


def uses_proxy(url: SplitResult) -> bool:
    """Tell whether the environment names a proxy that ``url`` may go through.

    A proxy has no business with this very machine.
    """
    return url.hostname not in _LOOPBACK and bool(getproxies())


def tls_for(url: SplitResult) -> ssl.SSLContext | None:
    """Return whom to trust, for https; loading the authorities is slow and needless for http.

    ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` name authorities of your own, and ``BOTHY_CA_FILE`` a
    file with further ones.
    """
    if url.scheme != "https":
        return None
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR", "BOTHY_CA_FILE")
    return _context(*(os.environ.get(name) for name in names))


@functools.lru_cache(maxsize=4)
def _context(cert_file: str | None, cert_dir: str | None, ca_file: str | None) -> ssl.SSLContext:
    context = httpx.create_ssl_context()
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except OSError as e:
            raise InvalidArgumentError(
                f"the certificates in {ca_file} cannot be read: {e}",
                hint="BOTHY_CA_FILE must name a file of certificates in PEM.",
            ) from e
    return context
