"""What a process that joined a job knows of it: who it is, who has gone, and how to leave together."""

from __future__ import annotations

import atexit
import json
import os
import selectors
import socket
import sys
import threading
import time
from types import TracebackType
from typing import Any

from redist.errors import LaunchError, PeerError

GRACE_S = 10.0
"""A rank that has not noticed for so long that another has gone ends: it may wait in MPI for ever."""
GUEST_S = 5.0
"""A process of another system waits no longer than this for the others to end too."""
LONGEST_LINE = 2**16


class Membership:
    """One of the ranks of a joined job.

    ``control`` leads to the server: it says who has gone, that the job is given up, or that all may leave.
    ``near`` is the other end of what MPI takes for its launcher: a socket within this process, so that MPI
    does not end with the server. A thread listens to both. ``at_death`` is what happens here when another
    rank dies: a ``guest`` of another system stays, and its next call raises; any other process does so too,
    and ends if it has not noticed for :data:`GRACE_S`.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        job: str,
        control: socket.socket,
        near: socket.socket,
        is_guest: bool,
    ) -> None:
        self.rank, self.size, self.job, self.is_guest = rank, size, job, is_guest
        self.gone: dict[int, str] = {}
        """Ranks that have ended without a goodbye, and what is said of them."""
        self.noticed = self.is_one_node = False
        self.pid = os.getpid()
        self._control, self._near = control, near
        self._may_leave = threading.Event()
        self._since = 0.0
        self._failed = self._is_leaving = False
        self._hook = sys.excepthook
        sys.excepthook = self._note_failure
        threading.Thread(target=self._listen, name="redist-join", daemon=True).start()
        atexit.register(self.leave)

    def raise_if_gone(self) -> None:
        """**Local.** Raise if another rank is known to have gone."""
        if self.gone:
            self.noticed = True
            raise PeerError(f"{next(iter(self.gone.values()))}; start all ranks anew")

    def leave(self) -> None:
        """**Collective.** Wait until all ranks that live want to end too, and end MPI.

        Where one has gone MPI cannot end in order: the process then ends without, with its own status. So it
        does between nodes: of two ranks that close their connections, the later one would find it reset by
        the other, an error to MPI. No message is under way by then, because everybody has said goodbye.
        """
        if os.getpid() != self.pid or self._is_leaving:
            return
        self._is_leaving = True
        if self._failed:
            self._tell(failed=True)
            return
        self._tell(bye=True)
        self._may_leave.wait(GUEST_S if self.is_guest else None)
        from mpi4py import MPI

        self._near.sendall(b"cmd=finalize_ack rc=0\n")  # MPI asks when Python is no more
        in_order = self._may_leave.is_set() and not self.gone and self.is_one_node
        if in_order and not MPI.Is_finalized():
            MPI.Finalize()

    def _note_failure(
        self, kind: type[BaseException], error: BaseException, where: TracebackType | None
    ) -> None:
        self._failed = not (hasattr(sys, "ps1") or sys.flags.interactive)
        self._hook(kind, error, where)

    def _listen(self) -> None:
        """Hear the server and MPI's own words until both end."""
        buffers = {self._control: b"", self._near: b""}
        with selectors.DefaultSelector() as both:
            both.register(self._control, selectors.EVENT_READ, self._hear_server)
            both.register(self._near, selectors.EVENT_READ, self._hear_mpi)
            while both.get_map():
                for ready, _ in both.select(None if self._since == 0 else 0.2):
                    sock: Any = ready.fileobj
                    try:
                        got = sock.recv(LONGEST_LINE)
                    except OSError:
                        got = b""
                    if not got:
                        both.unregister(sock)
                        if sock is self._control:
                            self._miss_server()
                        continue
                    *lines, buffers[sock] = (buffers[sock] + got).split(b"\n")
                    for line in lines:
                        ready.data(line)
                self._look_at_time()

    def _look_at_time(self) -> None:
        """End a rank that waits for one that has gone, and does not know."""
        late = self._since and time.monotonic() > self._since + GRACE_S
        if late and not (self.noticed or self.is_guest or self._is_leaving):
            end_process(
                f"{next(iter(self.gone.values()))}, and this rank may wait for it for ever", 1
            )

    def _miss_server(self) -> None:
        """The server has gone; the ranks go on without."""
        if not self._may_leave.is_set() and not self._failed:
            say(
                f"rank {self.rank}: the server of this job has gone; MPI goes on, but a rank that dies on "
                "another host is not noticed any more"
            )
        self._may_leave.set()

    def _hear_server(self, line: bytes) -> None:
        match json.loads(line):
            case {"gone": rank, "name": name}:
                self.gone[rank] = name
                self._since = self._since or time.monotonic()
            case {"abort": code, "name": name}:
                end_process(f"{name} has given up the job", code)
            case {"bye": True}:
                self._may_leave.set()

    def _hear_mpi(self, line: bytes) -> None:
        words = dict(w.split("=", 1) for w in line.decode(errors="replace").split() if "=" in w)
        if words.get("cmd") == "abort":
            code = int(words.get("exitcode", 1))
            self._tell(abort=code)
            end_process(None, code)
        self._near.sendall(f"cmd={words.get('cmd')}_result rc=-1 msg=not_supported\n".encode())

    def _tell(self, **words: Any) -> None:
        try:
            self._control.sendall(json.dumps(words).encode() + b"\n")
        except OSError:  # the server has gone: nobody is left to wait for
            self._may_leave.set()

    def forget(self) -> None:
        """**Local.** In a fork: hold nothing of the rank's open, and let MPI end without asking it."""
        self._control.close()
        self._near.close()


JOINED: list[Membership] = []
"""The job of this process, once it has joined one."""


def raise_if_joined() -> None:
    """**Local.** Raise in a process that is a rank already, or a fork of one."""
    for member in JOINED:
        if member.pid != os.getpid():
            raise LaunchError(
                f"cannot join: this process is a fork of rank {member.rank}; start new processes, as "
                "multiprocessing does with 'spawn'"
            )
        raise LaunchError(
            f"cannot join: this process is rank {member.rank} of {member.size} already, and a process joins "
            "once in its life; start new processes for another job"
        )


def raise_if_gone() -> None:
    """**Local.** Raise if this process has joined a job of which a rank has gone."""
    for member in JOINED:
        member.raise_if_gone()


def job_name() -> str:
    """**Local.** What the ranks of a job have in common, and no other job has: a launcher or a name."""
    return JOINED[0].job if JOINED else str(os.getppid())


def say(text: str) -> None:
    """**Local.** Write a line to the standard error, also while Python ends."""
    os.write(2, f"redist: {text}\n".encode())


def end_process(why: str | None, status: int) -> None:
    """**Local.** End this process at once, as a launcher of MPI would."""
    if why:
        say(f"{why}; this process ends")
    os._exit(status)


def _in_fork() -> None:
    for member in JOINED:
        member.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_fork)
