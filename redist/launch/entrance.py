"""The way into a job: start its server, find it, prove the token, and wait until all ranks are there."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from redist.errors import LaunchError
from redist.launch.hello import GREETING, LONGEST_LINE, Hello, mac_of, watch_link

Door = tuple[str, int]
"""Host and port."""
TOKEN_VARIABLE = "REDIST_JOIN_TOKEN"
CONNECT_S, GREET_S = 2.0, 5.0
"""So long may one try to connect take, and so long the server to greet."""
MORE_S = 5.0
"""The server says first that time is up; a process waits this much longer for its word."""
START = """
import sys
from types import ModuleType
for name, folder in (("redist", sys.argv[1]), ("redist.launch", sys.argv[1] + "/launch")):
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__path__ = [folder]
from redist.launch.server import main
main()
"""
"""Starts the server: its packages without what they import, which takes longer than all the rest."""
SIOCGIFADDR = 0x8915
"""Asks Linux for the address of a network interface."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """Where a server is, what its job is called, and the token that lets in.

    >>> Ticket.parse(Ticket((("10.0.0.1", 5000),), "w", "secret").text()).doors
    (('10.0.0.1', 5000),)
    """

    doors: tuple[Door, ...]
    job: str
    token: str
    is_open: bool = True
    """Whether the server is known to be up; else rank 0 starts it."""

    def text(self) -> str:
        """One line of JSON: a secret."""
        return json.dumps({"doors": self.doors, "job": self.job, "token": self.token})

    @staticmethod
    def parse(text: str) -> Ticket:
        """Read what :meth:`text` wrote."""
        try:
            found = json.loads(text)
            doors = tuple((str(host), int(port)) for host, port in found["doors"])
            return Ticket(doors, str(found["job"]), str(found["token"]))
        except (ValueError, KeyError, TypeError) as error:
            raise LaunchError(
                f"cannot join: what the meeting place holds is no ticket ({error}); is the place "
                "used for something else?"
            ) from None


def job_of(key: str) -> str:
    """The name of the job that meets under a key, such as ``host:port``: one word."""
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def own_token() -> str:
    """**Local.** The token in ``REDIST_JOIN_TOKEN``; else this user's, from a file that is theirs alone."""
    given = os.environ.get(TOKEN_VARIABLE)
    if given:
        return given
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(home) / "redist" / "join-token"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        own = path.with_name(f"{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
        if not path.exists():
            with open(os.open(own, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                file.write(secrets.token_hex(32))
            with suppress(FileExistsError):  # another rank was quicker
                os.link(own, path)
            own.unlink()
        found = path.stat()
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise OSError(f"others can read {path}: chmod 600, or remove it")
        return path.read_text().strip()
    except OSError as error:
        raise LaunchError(
            f"cannot join: there is no token ({error}); set {TOKEN_VARIABLE} to the same secret for all ranks"
        ) from None


def own_addresses() -> list[str]:
    """**Local.** Where others may reach this machine: the addresses of its interfaces, loopback last."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                question = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, question)
                found.append(socket.inet_ntoa(answer[20:24]))
    unique = dict.fromkeys([*found, "127.0.0.1"])
    return sorted(unique, key=lambda address: address.startswith("127."))


def node_name() -> str:
    """**Local.** Who shares memory with this process: machine, boot, shared memory, process numbers."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    for path in ("/dev/shm", "/proc/self/ns/pid", "/proc/self/ns/ipc"):
        with suppress(OSError):
            found = Path(path).stat()
            parts.append(f"{found.st_dev}-{found.st_ino}")
    return "/".join(parts)


def addresses_to_bind(host: str) -> list[str]:
    """**Local.** The addresses of a host; this machine's own, if it knows its name only as loopback."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise LaunchError(
            f"cannot serve at {host}: its address is not known ({error}); give another with at="
        ) from None
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    only_here = all(address.startswith("127.") or address == "::1" for address in addresses)
    if only_here and host not in ("localhost", *addresses):
        return own_addresses()
    return addresses


def serve(
    hosts: Sequence[str], port: int, job: str, size: int, token: str, timeout_s: float
) -> tuple[tuple[Door, ...], subprocess.Popen[bytes]]:
    """**Local.** Start the server of a job in a process of its own; where it is, and the process.

    It binds to these addresses and no others. OSError if one is taken, or is not this machine's.
    """
    listeners: list[socket.socket] = []
    try:
        for host in hosts:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listeners.append(socket.create_server((host, port), family=family, backlog=1024))
        fds = [listener.fileno() for listener in listeners]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", START, os.fspath(Path(__file__).parents[1])],
            stdin=subprocess.PIPE,  # stays open: the server knows by it that this process lives
            stdout=subprocess.DEVNULL,
            pass_fds=fds,
            start_new_session=True,  # Ctrl-C is for the ranks, who say goodbye to it
            cwd="/",
        )
        doors = tuple(
            (host, one.getsockname()[1]) for host, one in zip(hosts, listeners, strict=True)
        )
    finally:
        for listener in listeners:
            listener.close()
    ask = {"listeners": fds, "job": job, "size": size, "token": token, "timeout_s": timeout_s}
    assert process.stdin is not None
    process.stdin.write(json.dumps(ask).encode() + b"\n")
    process.stdin.flush()
    _SERVERS.append(process)
    return doors, process


_SERVERS: list[subprocess.Popen[bytes]] = []
"""Kept: a server whose standard input is closed gives up."""


def invite(hosts: Sequence[str], size: int, timeout_s: float, secret: str = "") -> Ticket:
    """**Local.** Serve a job at any free ports of these addresses, with a new token; its ticket.

    Whoever joins must know the ``secret`` too, which is not in the ticket.
    """
    job, token = secrets.token_hex(8), secrets.token_hex(32)
    doors, _ = serve(hosts, 0, job, size, token + secret, timeout_s)
    return Ticket(doors, job, token)


def serve_at(ticket: Ticket, size: int, timeout_s: float) -> None:
    """**Local.** Serve at the first door that is free, unless this job is served already."""
    taken: list[str] = []
    for host, port in ticket.doors:
        try:
            serve(addresses_to_bind(host), port, ticket.job, size, ticket.token, timeout_s)
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise LaunchError(
                    f"cannot serve at {host}:{port}: {error}; rank 0 serves, and must run on the host that "
                    "at= or MASTER_ADDR names"
                ) from None
        with suppress(OSError, _ElsewhereError), _connect((host, port), CONNECT_S) as sock:
            _hear_greeting(sock, ticket.job)
            return  # a second rank 0: it goes in and is told so, as all are
        taken.append(str(port))
    raise LaunchError(
        f"cannot serve at {ticket.doors[0][0]}: another program has port {', '.join(taken)}; give a free "
        "one with at= or MASTER_PORT"
    )


class _ElsewhereError(Exception):
    """A server that is not the one of this job."""


def enter(find: Callable[[], Ticket], hello: Hello, timeout_s: float) -> tuple[socket.socket, str]:
    """**Collective.** Go in and wait for all ranks; the connection, and the name of the job that begins.

    ``find`` looks for the ticket, each time that no server answered: an old one may still lie there.
    """
    end, pause = time.monotonic() + timeout_s, 0.01
    said: dict[str, str] = {}
    while True:
        ticket = find()
        for door in ticket.doors:
            left = end - time.monotonic()
            if left <= 0:
                tried = "; ".join(f"{where}: {text}" for where, text in said.items())
                raise LaunchError(
                    f"cannot join as rank {hello.rank} of {hello.size}: no server within {timeout_s:g} s "
                    f"({tried}); is rank 0 there, are all its ranks there already, is this its address?"
                )
            try:
                sock = _connect(door, min(left, CONNECT_S))
                try:
                    return _go_in(sock, ticket, hello)
                except BaseException:
                    sock.close()
                    raise
            except (OSError, _ElsewhereError) as error:
                said[f"{door[0]}:{door[1]}"] = str(error)
        time.sleep(min(pause, max(0.0, end - time.monotonic())))
        pause = min(0.5, 1.5 * pause)


def _connect(door: Door, timeout_s: float) -> socket.socket:
    sock = socket.create_connection(door, timeout=timeout_s)
    if sock.getsockname() == sock.getpeername():  # Linux: who tries a free port often meets itself
        sock.close()
        raise ConnectionRefusedError("nobody is there")
    watch_link(sock)
    return sock


def _hear_greeting(sock: socket.socket, job: str) -> str:
    """The number that the server of this job has for this connection."""
    sock.settimeout(GREET_S)
    words = _read_line(sock, 200).split()
    if len(words) != 3 or words[0] != GREETING:
        raise _ElsewhereError("another program is there")
    if words[1] != job:
        raise _ElsewhereError("another job meets there")
    return words[2]


def _go_in(sock: socket.socket, ticket: Ticket, hello: Hello) -> tuple[socket.socket, str]:
    theirs, mine = _hear_greeting(sock, ticket.job), secrets.token_hex(16)
    text = hello.text()
    proof = mac_of(ticket.token, "rank", theirs, mine, text)
    sock.sendall(f"{proof} {mine} {text}\n".encode())
    answer = _read_line(sock)
    mac, _, left = answer.partition(" ")
    if answer == "wrong" or not hmac.compare_digest(
        mac.encode(), mac_of(ticket.token, "server", mine).encode()
    ):
        raise LaunchError(
            f"cannot join as rank {hello.rank} of {hello.size}: the server has another token; set "
            f"{TOKEN_VARIABLE}, or give token=, the same for all ranks"
        )
    sock.settimeout(float(left) + MORE_S)
    try:
        told = json.loads(_read_line(sock))
    except (OSError, ValueError) as error:
        raise LaunchError(
            f"cannot join as rank {hello.rank} of {hello.size}: the server has gone ({error}); rank 0 "
            "started it: see why it ended, and start all anew"
        ) from None
    if "error" in told:
        raise LaunchError(f"cannot join as rank {hello.rank} of {hello.size}: {told['error']}")
    sock.setblocking(True)
    return sock, str(told["job"])


def _read_line(sock: socket.socket, most: int = LONGEST_LINE) -> str:
    """A line, and not a byte more: what follows belongs to MPI."""
    out = b""
    while not out.endswith(b"\n"):
        got = sock.recv(1)
        if not got:
            raise ConnectionResetError("it hung up")
        out += got
        if len(out) > most:
            raise _ElsewhereError("another program is there")
    return out.decode(errors="replace").rstrip("\n")
