"""What a process and the server of a job say to each other before MPI starts, and what bounds it."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
from dataclasses import dataclass, fields

GREETING = "redist-join-1"
"""What the server says first, with the name of its job and a number that is used once."""
LONGEST_LINE, LONGEST_VALUE, LONGEST_KEY = 2**13, 1024, 64
"""Bytes of a line, and of what MPI stores: MPICH is told, and keeps to it."""


@dataclass(frozen=True)
class Hello:
    """What a process says of itself; ``problem`` is why it cannot be a rank, if so."""

    rank: int
    size: int
    node: str
    name: str
    library: str
    problem: str

    @staticmethod
    def parse(text: str) -> Hello:
        """Read what :meth:`text` wrote; ValueError if it is anything else.

        >>> Hello.parse(Hello(1, 4, "here", "process 7 on a", "MPICH", "").text()).rank
        1
        """
        try:
            found = json.loads(text)
            hello = Hello(**found)
        except (ValueError, TypeError, RecursionError):
            raise ValueError("no hello") from None
        kinds = {"int": int, "str": str}
        if not all(type(getattr(hello, f.name)) is kinds[str(f.type)] for f in fields(hello)):
            raise ValueError("no hello")
        return hello

    def text(self) -> str:
        """The same as one line of JSON."""
        return json.dumps({field.name: getattr(self, field.name) for field in fields(self)})


def mac_of(token: str, *words: str) -> str:
    """The proof of knowing a token, for these words alone.

    >>> mac_of("secret", "a") == mac_of("secret", "a"), mac_of("secret", "a") == mac_of("other", "a")
    (True, False)
    """
    return hmac.new(token.encode(), "\n".join(words).encode(), hashlib.sha256).hexdigest()


def watch_link(sock: socket.socket) -> None:
    """Send at once, and notice within half a minute that the other machine is not there any more."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"KEEPIDLE": 10, "KEEPINTVL": 5, "KEEPCNT": 4, "USER_TIMEOUT": 30_000}
    for name, value in options.items():
        if hasattr(socket, f"TCP_{name}"):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{name}"), value)
