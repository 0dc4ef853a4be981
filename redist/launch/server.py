"""The server of a job: it lets plain processes in, starts their MPI and tells them who has gone.

It runs in a process of its own, because a rank cannot serve the others: mpi4py holds Python's lock in
``MPI_Init``. What it imports is the standard library and two modules beside it, so it starts quickly: see
:data:`redist.launch.entrance.START`. A connection goes through these states::

    STRANGER --proves the token--> WAITING --all are there--> STARTING --MPI runs--> RUNNING --bye--> LEAVING
        |                             |                          |                      |
      hangs up                 TOLD why there is               lost: the others are told that it has gone
                               no job, on every rank

A stranger must prove within seconds that it knows the token; nothing else that it sends is looked at. While
``MPI_Init`` runs, the same connection carries the requests of MPICH (PMI-1, lines of ``cmd=put key=...``).
Nothing that arrives is unpickled or run; lines, values and the number of strangers are bounded.
"""

from __future__ import annotations

import hmac
import json
import secrets
import selectors
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum, auto
from io import RawIOBase
from typing import Any

from redist.launch.hello import GREETING, LONGEST_LINE, Hello, mac_of, watch_link
from redist.launch.pmi import Values, words_of

STRANGER_S = 10.0
"""So long may a connection take to prove that it knows the token."""
MORE_STRANGERS = 64
"""So many strangers there may be beyond the size of the job; the oldest goes first."""
STAY_S = 3.0
"""A server that was given up, and whose starter has gone, tells latecomers so for this long."""


class State(Enum):
    """How far a connection has come."""

    STRANGER = auto()
    WAITING = auto()
    STARTING = auto()
    RUNNING = auto()
    LEAVING = auto()
    TOLD = auto()


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks in words, the first twenty of them.

    >>> ranks_text([3]), ranks_text([1, 2])
    ('rank 3', 'ranks 1, 2')
    """
    numbers = list(ranks)
    more = " and more" if len(numbers) > 20 else ""
    return f"rank{'s'[: len(numbers) != 1]} {', '.join(map(str, numbers[:20]))}{more}"


class Peer:
    """A connection: a stranger until it knows the token, then a rank."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.since = time.monotonic()
        self.nonce = secrets.token_hex(16)
        self.state = State.STRANGER
        self.buffer = b""
        self.hello = Hello(-1, 0, "", "", "", "")

    @property
    def name(self) -> str:
        """How errors call it."""
        return f"rank {self.hello.rank} ({self.hello.name})"


class Server:
    """Lets ranks in until all are there, answers MPI while it starts, then passes on who has gone.

    ``parent`` is at its end once the process that started the server is: before the job is complete
    that gives it up; after that the server stays for the ranks.
    """

    def __init__(
        self, listeners: list[socket.socket], parent: RawIOBase, job: str, size: int, token: str,
        timeout_s: float,
    ) -> None:  # fmt: skip
        self.listeners, self.job, self.size, self.token = listeners, job, size, token
        self.timeout_s, self.end = timeout_s, time.monotonic() + timeout_s
        self.kvs = f"redist-{secrets.token_hex(8)}"  # MPICH names its shared memory after it
        self.peers: set[Peer] = set()
        self.ranks: dict[int, Peer] = {}
        self.gone: dict[int, str] = {}
        self.values = Values(self.kvs, [])
        self.barrier: list[Peer] = []
        self.problem = ""
        self.told: set[int] = set()
        self.n_wrong = 0
        self.selector = selectors.DefaultSelector()
        for listener in listeners:
            listener.setblocking(False)
            self.selector.register(listener, selectors.EVENT_READ, listener)
        self.selector.register(parent, selectors.EVENT_READ, None)
        self.parent = parent

    def run(self) -> None:
        """Serve until nobody can come any more and nobody is left."""
        while self.listeners or self.peers:
            ends = [p.since + STRANGER_S for p in self.peers if p.state is State.STRANGER]
            if self.listeners or self.is_starting():
                ends.append(self.end)
            left = max(0.0, min(ends) - time.monotonic()) if ends else None
            for ready, _ in self.selector.select(left):
                match ready.data:
                    case Peer() as peer:
                        if peer in self.peers:
                            self.hear(peer)
                    case None:
                        self.lose_parent()
                    case listener:
                        self.accept(listener)
            self.look_at_time()

    def is_starting(self) -> bool:
        """Whether MPI starts on a rank."""
        return any(peer.state is State.STARTING for peer in self.peers)

    def look_at_time(self) -> None:
        """Hang up on slow strangers; give up, or let go of who does not start, once time is up."""
        now = time.monotonic()
        for peer in list(self.peers):
            if peer.state is State.STRANGER and peer.since + STRANGER_S < now:
                self.drop(peer)
        if self.listeners and now >= self.end:
            missing = ranks_text(rank for rank in range(self.size) if rank not in self.ranks)
            wrong = f" ({self.n_wrong} connections gave a wrong token)" if self.n_wrong else ""
            self.refuse(
                f"{missing} of {self.size} did not join within {self.timeout_s:g} s{wrong}; start all "
                "ranks, or raise timeout_s"
            )
            self.close()
        elif self.listeners and self.problem and self.told.issuperset(range(self.size)):
            self.close()
        elif now >= self.end:
            for peer in list(self.peers):
                if peer.state is State.STARTING:
                    self.drop(peer)

    def accept(self, listener: socket.socket) -> None:
        """Greet a stranger."""
        try:
            sock, _ = listener.accept()
            watch_link(sock)
        except OSError:
            return
        sock.settimeout(STRANGER_S)  # of what is sent; what comes is waited for by select
        peer = Peer(sock)
        strangers = [p for p in self.peers if p.state is State.STRANGER]
        if len(strangers) >= self.size + MORE_STRANGERS:
            self.drop(min(strangers, key=lambda p: p.since))
        self.peers.add(peer)
        self.selector.register(sock, selectors.EVENT_READ, peer)
        self.say(peer, f"{GREETING} {self.job} {peer.nonce}")

    def lose_parent(self) -> None:
        """The process that started the server has gone: there will be no job, if there is none yet."""
        self.selector.unregister(self.parent)
        if self.listeners:
            self.refuse("rank 0, or who started the server, has ended; see why, and start all anew")
            self.end = min(self.end, time.monotonic() + STAY_S)

    def say(self, peer: Peer, line: str) -> None:
        """Send a line; who does not take it is gone."""
        try:
            peer.sock.sendall(line.encode() + b"\n")
        except OSError:
            self.drop(peer)

    def tell(self, peer: Peer, **words: Any) -> None:
        """Send words to a rank, as JSON."""
        self.say(peer, json.dumps(words))

    def hear(self, peer: Peer) -> None:
        """Read what has come, and take it line by line."""
        try:
            got = peer.sock.recv(LONGEST_LINE)
        except OSError:
            got = b""
        *lines, peer.buffer = (peer.buffer + got).split(b"\n")
        if not got or len(peer.buffer) > LONGEST_LINE:
            self.drop(peer)
            return
        for line in lines:
            if peer not in self.peers:
                return
            try:
                self.take(peer, line.decode())
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                self.drop(peer)  # no rank of ours says such things

    def take(self, peer: Peer, line: str) -> None:
        """One line; an error ends the connection."""
        match peer.state:
            case State.STRANGER:
                self.let_in(peer, line)
            case State.STARTING if line.startswith("{"):
                peer.state = State.RUNNING
                for rank, name in self.gone.items():
                    self.tell(peer, gone=rank, name=name)
            case State.STARTING:
                words = words_of(line)
                match words.get("cmd"):
                    case "barrier_in":
                        self.barrier.append(peer)
                        self.release()
                    case "abort":
                        raise ValueError("MPI gives up")
                    case _:
                        self.say(peer, self.values.answer(words))
            case State.RUNNING | State.LEAVING:
                self.pass_on(peer, json.loads(line))
            case _:
                raise ValueError("who waits says nothing")

    # The meeting.

    def let_in(self, peer: Peer, line: str) -> None:
        """Take a stranger for a rank, if it proves that it knows the token."""
        mac, nonce, text = line.split(" ", 2)
        fits = hmac.compare_digest(
            mac.encode(), mac_of(self.token, "rank", peer.nonce, nonce, text).encode()
        )
        if not fits:
            self.n_wrong += 1
            self.say(peer, "wrong")
            raise ValueError("another token")
        peer.hello = Hello.parse(text)
        peer.state = State.WAITING
        left = max(0.0, self.end - time.monotonic())
        self.say(peer, f"{mac_of(self.token, 'server', nonce)} {left:.1f}")
        self.problem = self.problem or self.problem_with(peer)
        if self.problem:
            self.refuse(self.problem)
            return
        self.ranks[peer.hello.rank] = peer
        if len(self.ranks) == self.size:
            self.start()

    def problem_with(self, peer: Peer) -> str:
        """Why there can be no job with this process; empty if there can."""
        hello, other = peer.hello, self.ranks.get(peer.hello.rank)
        if hello.problem:
            return f"{peer.name}: {hello.problem}"
        if hello.size != self.size:
            return f"{peer.name} wants {hello.size} ranks, the others {self.size}; give all the same size"
        if not 0 <= hello.rank < self.size:
            last = self.size - 1
            return f"{peer.name} is out of range; ranks of {self.size} go from 0 to {last}"
        if other is not None:
            return (
                f"two processes are rank {hello.rank}: {other.hello.name} and {hello.name}; "
                "give each rank to one process"
            )
        first = next(iter(self.ranks.values()), peer)
        if hello.library != first.hello.library:
            return (
                f"{peer.name} has {hello.library}, {first.name} {first.hello.library}; "
                "install the same everywhere"
            )
        return ""

    def refuse(self, problem: str) -> None:
        """There will be no job: tell all who have come, and those who still come until time is up."""
        self.problem = self.problem or problem
        for peer in list(self.peers):
            if peer.state is State.WAITING:
                peer.state = State.TOLD
                self.told.add(peer.hello.rank)
                self.tell(peer, error=self.problem)

    def start(self) -> None:
        """All are there: nobody else comes in, and MPI may speak."""
        self.values = Values(self.kvs, [self.ranks[rank].hello.node for rank in range(self.size)])
        self.close()
        self.end = time.monotonic() + self.timeout_s
        for peer in list(self.peers):
            if peer.state is State.WAITING:
                peer.state = State.STARTING
                self.tell(peer, job=self.kvs)
            else:
                self.drop(peer)

    def close(self) -> None:
        """Let nobody in any more."""
        for listener in self.listeners:
            self.selector.unregister(listener)
            listener.close()
        self.listeners = []

    # MPI starts, and runs.

    def release(self) -> None:
        """Let ranks go on from a barrier of MPI, or from their goodbye, once all that live are there."""
        if self.barrier and (self.gone or len(self.barrier) == self.size):
            going, self.barrier = self.barrier, []
            for peer in going:
                self.say(peer, f"cmd=barrier_out rc={-1 if self.gone else 0}")
        leaving = [peer for peer in self.peers if peer.state is State.LEAVING]
        working = (State.STARTING, State.RUNNING)
        if leaving and not any(peer.state in working for peer in self.peers):
            for peer in leaving:
                peer.state = State.TOLD
                self.tell(peer, bye=True)

    def pass_on(self, peer: Peer, said: dict[str, Any]) -> None:
        """A word of a rank: it wants to end, its program has failed, or the whole job is given up."""
        if "bye" in said:
            peer.state = State.LEAVING
            self.release()
        elif "failed" in said and peer.state is State.RUNNING:
            peer.state = State.TOLD
            self.lose(peer, "was ended by an error")
        elif "abort" in said:
            for other in list(self.peers):
                if other is not peer:
                    self.tell(other, abort=int(said["abort"]), name=peer.name)

    def drop(self, peer: Peer) -> None:
        """End a connection; what follows depends on who it was."""
        if peer not in self.peers:
            return
        self.peers.discard(peer)
        self.selector.unregister(peer.sock)
        peer.sock.close()
        match peer.state:
            case State.WAITING:
                self.refuse(
                    f"{peer.name} has gone before all had come; see why, and start all anew"
                )
            case State.STARTING | State.RUNNING:
                self.lose(peer, "has died")
        self.release()

    def lose(self, peer: Peer, how: str) -> None:
        """A rank has gone without a goodbye: the others are told."""
        self.gone[peer.hello.rank] = f"{peer.name} {how}"
        for other in list(self.peers):
            if other.state in (State.RUNNING, State.LEAVING):
                self.tell(other, gone=peer.hello.rank, name=self.gone[peer.hello.rank])
        if len(self.gone) == 1 and self.is_starting():
            text = f"{self.gone[peer.hello.rank]} while MPI started; all ranks end: see why, start anew"
            print(f"redist: {text}", file=sys.stderr, flush=True)
        for other in list(self.peers):
            if other.state is State.STARTING:
                self.drop(other)  # MPI_Init would wait for ever; so it ends the process
        self.release()


def main() -> None:
    """Serve as the first line of the standard input says, and until the ranks have gone."""
    stdin = open(sys.stdin.fileno(), "rb", buffering=0)  # noqa: SIM115  (selectors see what is not read)
    ask = json.loads(stdin.readline())
    listeners = [socket.socket(fileno=fd) for fd in ask.pop("listeners")]
    with suppress(KeyboardInterrupt):
        Server(listeners, stdin, **ask).run()
