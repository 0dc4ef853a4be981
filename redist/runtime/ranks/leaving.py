"""A rank whose program ends tells the others, so that none waits for it: by an exception, or early."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import struct
import sys
import time
import weakref
from types import TracebackType
from typing import Any

from mpi4py import MPI

from redist.errors import PeerError
from redist.runtime.ranks.failure import Failure, left_without
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.waiting import wait_for
from redist.text.units import ranks_in_words

STAY_S = 10.0
"""After an exception a rank says so if others go on for longer."""
_FAILURES: weakref.WeakSet[Failure] = weakref.WeakSet()


def tell_at_exit(failure: Failure) -> None:
    """**Local.** Let the ranks that this failure is about know when the program of this one ends."""
    _FAILURES.add(failure)
    watch_exit()


def watch_exit() -> None:
    """**Local.** Tell the others when this program ends, from now on; nothing for a single rank."""
    if _ENDS or not MPI.Is_initialized() or MPI.COMM_WORLD.size == 1:
        return
    _ENDS.append(ProgramEnd())


class ProgramEnd:
    """What happens at the end of this process's program, after what happens anyway."""

    def __init__(self) -> None:
        self._pid, self._before = os.getpid(), sys.excepthook
        sys.excepthook = self._at_exception
        atexit.register(self._at_exit)

    def _at_exception(
        self, kind: type[BaseException], error: BaseException, where: TracebackType | None
    ) -> None:
        self._before(kind, error, where)
        if not (hasattr(sys, "ps1") or sys.flags.interactive):
            self._leave(error)
            with contextlib.suppress(KeyboardInterrupt):
                _stay(kind.__name__)

    def _at_exit(self) -> None:
        self._leave(None)

    def _leave(self, error: BaseException | None) -> None:
        if os.getpid() != self._pid or MPI.Is_finalized():
            return
        if not (isinstance(error, PeerError) or _HEARD):  # what this one has heard others hear too
            _put_up_sign()
        failures = list(_FAILURES)
        known = {f.size for f in failures if f.broken is None}
        for failure in failures:
            failure.leave(error)
        if error is None or isinstance(error, PeerError) or MPI.COMM_WORLD.size in known:
            return
        text = f"{type(error).__name__}: {error}"
        comm = MPI.COMM_WORLD
        for rank in range(comm.size):  # who waits for a first call has nothing else to look at
            if rank != comm.rank:
                with contextlib.suppress(MPI.Exception):
                    _TOLD.append(comm.isend(text, rank, Tag.ENDED))


_ENDS: list[ProgramEnd] = []
_TOLD: list[Any] = []
_HEARD: list[PeerError] = []
"""What this rank was told at its first call: who leaves because of that is not to blame."""


def _stay(kind: str) -> None:
    """Stay until the neighbours have heard; say so if they do not mind, because MPI waits for them."""
    end = time.monotonic() + STAY_S
    while time.monotonic() < end:
        MPI.COMM_WORLD.Iprobe(MPI.ANY_SOURCE, Tag.ENDED)  # what was told goes on its way
        others = {rank: failure for failure in _FAILURES for rank in failure.still_here()}
        if not others:
            return
        time.sleep(0.02)
    most = max(_FAILURES, key=lambda failure: failure.size)
    print(
        f"rank {most.rank} has ended by {kind}, {ranks_in_words(most.still_here(), most.size)} have not: "
        "MPI waits for all. python -m mpi4py script.py ends all ranks at once",
        file=sys.stderr,
        flush=True,
    )


def _sign_of(rank: int) -> str:
    """The name of a socket that ranks started by one launcher know of each other; no file has it."""
    return f"\0redist-{os.getuid()}-{os.getppid()}-{rank}-left"


def _put_up_sign() -> None:
    """Let ranks of this machine that share nothing with this one see that its program has ended."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        sign = socket.socket(socket.AF_UNIX)
        sign.bind(_sign_of(MPI.COMM_WORLD.rank))
        sign.listen()
        sign.detach()  # it stays until the process ends


def _has_left(rank: int) -> bool:
    """Whether a rank of this machine has put up its sign."""
    if sys.platform != "linux":
        return False
    with socket.socket(socket.AF_UNIX) as visit, contextlib.suppress(OSError):
        visit.setblocking(False)
        visit.connect(_sign_of(rank))
        owner = visit.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return bool(struct.unpack("3i", owner)[1] == os.getuid())
    return False


class _Beginning:
    """What a wait looks at before ranks share anything: whether the program of one has ended."""

    def __init__(self, comm: MPI.Comm) -> None:
        everyone = range(comm.size)
        self._ranks = comm.group.Translate_ranks(list(everyone), MPI.COMM_WORLD.group)

    def raise_if_any(self) -> None:
        status = MPI.Status()
        if MPI.COMM_WORLD.Iprobe(MPI.ANY_SOURCE, Tag.ENDED, status):
            text = MPI.COMM_WORLD.recv(source=status.source, tag=Tag.ENDED)
            raise PeerError(f"rank {status.source} ended: {text}")

    def raise_if_broken(self) -> None:
        pass

    def count_wait(self) -> None:
        pass

    def say_waiting(self, call: str | None) -> None:
        pass

    def raise_if_apart(self) -> None:
        for rank, known in enumerate(self._ranks):
            if known not in (MPI.UNDEFINED, MPI.COMM_WORLD.rank) and _has_left(known):
                self.raise_if_any()
                raise left_without(rank)

    def absent(self) -> tuple[list[int], list[int], int]:
        return [MPI.COMM_WORLD.rank], [], MPI.COMM_WORLD.size


def wait_to_begin(comm: MPI.Comm, timeout_s: float | None) -> None:
    """**Collective.** Wait for all ranks of a communicator, which share nothing yet."""
    try:
        wait_for([comm.Ibarrier()], timeout_s, _Beginning(comm))
    except PeerError as error:
        _HEARD.append(error)
        raise


watch_exit()
