"""``redist.launch(4)``: ranks of a notebook, which run its cells and functions.

Each rank is a child of this process, connected to it by a socket. A cell is sent to all ranks; what they
print comes back line by line, followed by the outcome. If a rank raises an error, the others might wait for
it for ever, so they are interrupted.
"""

from __future__ import annotations

import atexit
import inspect
import math
import pickle
import selectors
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from redist.errors import ArgumentError, LaunchError, PeerError
from redist.launch.entrance import invite
from redist.launch.launcher import environment

GRACE_S = 2.0
"""Once a rank has raised, the others have this long to end by themselves before they are interrupted."""
INSIST_S = 5.0
"""Who does not answer an interrupt within this time is ended, and with it all ranks."""
LOOK_S = 0.1
"""While ranks run, it is looked so often whether somebody has pressed Ctrl-C."""
PROGRAM = "redist.runtime.ranks.cells"
HEAD = struct.Struct("!Q")


def send(sock: socket.socket, value: Any) -> None:
    """Send a value to the process at the other end of the socket; it belongs to the same program."""
    data = pickle.dumps(value)
    sock.sendall(HEAD.pack(len(data)) + data)


def receive(sock: socket.socket) -> Any:
    """Receive the next value; raises EOFError if the other end is gone."""
    (size,) = HEAD.unpack(_take(sock, HEAD.size))
    return pickle.loads(_take(sock, size))


def _take(sock: socket.socket, size: int) -> bytes:
    out = bytearray()
    while len(out) < size:
        got = sock.recv(min(size - len(out), 2**20))
        if not got:
            raise EOFError
        out += got
    return bytes(out)


@dataclass(frozen=True, slots=True)
class Raised:
    """An error that a rank raised: its class, its message and its traceback."""

    kind: str
    text: str
    where: str


class LocalRanks:
    """Ranks on this machine that run cells and functions; made by ``redist.launch``."""

    def __init__(self, n_ranks: int, timeout_s: float) -> None:
        self.n_ranks, self._timeout_s = n_ranks, timeout_s
        self._n_cells = 0
        self._start()
        atexit.register(self.close)

    def __repr__(self) -> str:
        state = (
            f"{self.n_ranks} ranks" if self._sockets else f"{self.n_ranks} ranks that have ended"
        )
        return f"<redist.launch: {state}>"

    def run(self, what: str | Callable[..., Any], *args: Any, **options: Any) -> list[Any]:
        """Run a cell or call a function on every rank; return a list of their results (None for a cell).

        For example, ``ranks.run("print(comm.rank)")`` or ``ranks.run(np.random.default_rng, 7)``. A cell is
        text; the variables that it sets are kept, and ``comm`` is one of the variables that it can use. A
        function of this notebook is sent as source and can use these variables; each rank imports a function
        of a module. Every line that a rank prints is shown with the rank's number in front. If any rank
        raises an error, this raises one error.
        """
        if not self._sockets:
            raise PeerError("cannot run this: the ranks have ended; start them anew with restart()")
        self._n_cells += 1
        found = self._answers(self._question(what, args, options))
        wrong = [(rank, one) for rank, one in enumerate(found) if isinstance(one, Raised)]
        if wrong:
            raise _one_error(wrong)
        return found

    def restart(self) -> None:
        """End the ranks, whatever they are doing, and start new ones without any of the old variables."""
        self._end()
        self._start()

    def close(self) -> None:
        """Ask the ranks to end, and wait for them; ranks that do not end in time are killed."""
        for sock in self._sockets:
            with suppress(OSError):
                send(sock, ("end",))
        deadline = time.monotonic() + INSIST_S
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        self._end()

    def cell(self, line: str, cell: str) -> None:
        """Run an IPython cell that begins with ``%%ranks``."""
        self.run(cell)

    def _start(self) -> None:
        ticket = invite(["127.0.0.1"], self.n_ranks, self._timeout_s).text()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._sockets: list[socket.socket] = []
        for rank in range(self.n_ranks):
            mine, theirs = socket.socketpair()
            with theirs:
                command = [sys.executable, "-m", PROGRAM, str(theirs.fileno())]
                self._processes.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        env=environment(),
                        pass_fds=[theirs.fileno()],
                        start_new_session=True,  # Ctrl-C comes here, and is passed on
                    )
                )
            self._sockets.append(mine)
            send(mine, (rank, self.n_ranks, ticket, self._timeout_s))
        wrong = [(r, one) for r, one in enumerate(self._answers()) if isinstance(one, Raised)]
        if wrong:
            self._end()
            raise LaunchError(wrong[0][1].text)
        _offer_magic(self)

    def _question(self, what: Any, args: Sequence[Any], options: dict[str, Any]) -> bytes:
        match what:
            case str():
                question = ("cell", textwrap.dedent(what), f"<cell {self._n_cells}>")
            case _ if not callable(what):
                raise ArgumentError(f"cannot run {what!r}: it is neither text nor a function")
            case _ if getattr(what, "__module__", None) == "__main__":
                question = ("source", _source_of(what), what.__name__, args, options)  # type: ignore[assignment]
            case _:
                question = ("call", what, args, options)  # type: ignore[assignment]
        try:
            return pickle.dumps(question)
        except Exception as error:
            raise ArgumentError(
                f"cannot run {what!r} on the ranks: it or its arguments cannot be sent ({error}); define "
                "what it needs in a cell"
            ) from None

    def _answers(self, question: bytes = b"") -> list[Any]:
        """What each rank returns or raises; meanwhile what they print is shown.

        All ranks are asked, and all answers taken, whenever Ctrl-C comes: no old answer is left behind.
        """
        found: dict[int, Any] = {}
        stop = math.inf  # then the others are interrupted, and later ended
        asked = False
        with selectors.DefaultSelector() as ready, _interrupts_counted() as interrupts:
            for rank, sock in enumerate(self._sockets):
                ready.register(sock, selectors.EVENT_READ, rank)
                if question:
                    sock.sendall(HEAD.pack(len(question)) + question)
            while len(found) < self.n_ranks:
                for one, _ in ready.select(LOOK_S):
                    self._take_word(one.data, found)
                now = time.monotonic()
                if stop == math.inf and any(isinstance(one, Raised) for one in found.values()):
                    stop = now + GRACE_S
                if interrupts and not asked:
                    stop = now
                if now < stop:
                    continue
                waiting = [rank for rank in range(self.n_ranks) if rank not in found]
                if asked and waiting:
                    self._end()
                    raise PeerError(
                        f"ranks {waiting} did not end within {INSIST_S:g} s of an interrupt; all were "
                        "ended; restart() starts new ones"
                    )
                for rank in waiting:
                    self._processes[rank].send_signal(signal.SIGINT)
                asked, stop = True, now + INSIST_S
        if interrupts:
            raise KeyboardInterrupt
        return [found[rank] for rank in range(self.n_ranks)]

    def _take_word(self, rank: int, found: dict[int, Any]) -> None:
        """One word of a rank: something printed, or its answer."""
        sock = self._sockets[rank]
        try:
            match receive(sock):
                case ("out", text):
                    _show(rank, text)
                case ("done", value):
                    found[rank] = value
        except (EOFError, OSError):
            status = self._processes[rank].wait()
            self._end()
            raise PeerError(
                f"rank {rank} died (exit status {status}), and all were ended; restart() starts new ones"
            ) from None

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for sock in self._sockets:
            sock.close()
        self._sockets = []
        self._processes = []


def launch(n_ranks: int, timeout_s: float = 60.0) -> LocalRanks:
    """Start ranks on this machine for a notebook or an interactive Python, and return them.

    After ``ranks = redist.launch(4)``, use ``ranks.run("print(comm.rank)")`` or a cell that begins with
    ``%%ranks``. Each rank has joined a job of ``n_ranks`` ranks, whose communicator is its variable ``comm``.
    This process is not one of the ranks. They end when it ends, or at ``ranks.close()``.
    """
    if isinstance(n_ranks, bool) or not isinstance(n_ranks, int) or n_ranks < 1:
        raise ArgumentError(f"cannot launch {n_ranks!r} ranks: give a whole number from 1 on")
    return LocalRanks(n_ranks, timeout_s)


@contextmanager
def _interrupts_counted() -> Iterator[list[int]]:
    """Count what Ctrl-C asks, in the place of raising: a word of a rank is read to its end."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


def _source_of(function: Any) -> str:
    if getattr(function, "__name__", "<lambda>") == "<lambda>" or getattr(
        function, "__closure__", None
    ):
        raise ArgumentError(
            f"cannot run {function!r} on the ranks: only its source is sent, and it has no name or uses "
            "names of a function around it; define it with def, and give what it needs as arguments"
        )
    try:
        return textwrap.dedent(inspect.getsource(function))
    except OSError:
        raise ArgumentError(
            f"cannot run {function!r} on the ranks: its source is not known; write it in a cell"
        ) from None


def _one_error(wrong: list[tuple[int, Raised]]) -> PeerError:
    """The error that is raised here for those of the ranks: the first that is no consequence of another."""
    led = [one for one in wrong if one[1].kind not in ("KeyboardInterrupt", "PeerError")]
    rank, raised = (led or wrong)[0]
    same = [r for r, one in wrong if (one.kind, one.text) == (raised.kind, raised.text)]
    who = f"rank {rank}" if len(same) == 1 else f"ranks {', '.join(map(str, same))}"
    return PeerError(f"{who}: {raised.kind}: {raised.text}\n{raised.where}".rstrip())


def _show(rank: int, text: str) -> None:
    for line in text.splitlines():
        print(f"[{rank}] {line}", flush=True)


def _offer_magic(ranks: LocalRanks) -> None:
    """Let IPython run cells that begin with ``%%ranks``, if it is there."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        shell.register_magic_function(ranks.cell, "cell", "ranks")
