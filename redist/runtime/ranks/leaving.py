"""A rank whose program ends tells the others, so that none waits for it: by an exception, or early."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
import weakref
from types import TracebackType
from typing import Any

from mpi4py import MPI

from redist.errors import PeerError, RedistError, error_in_words
from redist.runtime.ranks.failure import Failure
from redist.runtime.ranks.signs import (
    FORKED,
    HEARD,
    HERE,
    LEFT,
    TOLD,
    Beginning,
    error_sign,
    put_up,
    shows,
    still_running,
)
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.waiting import wait_for
from redist.text.call_site import callers_of
from redist.text.units import ranks_in_words

STAY_S = 10.0
"""After an exception a rank says so if others go on for longer."""
SAME_S = 1.0
"""So long a rank looks whether a lower one ends by the same error, which is then shown once."""
INTERRUPT = error_in_words(KeyboardInterrupt())
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
        atexit.register(self._leave, None)
        put_up(HERE)

    def _at_exception(
        self, kind: type[BaseException], error: BaseException, where: TracebackType | None
    ) -> None:
        if hasattr(sys, "ps1") or sys.flags.interactive:
            self._before(kind, error, where)
            return
        words = error_in_words(error)
        if isinstance(error, KeyboardInterrupt | PeerError) and words.endswith(INTERRUPT):
            words = INTERRUPT  # this rank's, or one's that was quicker
            where = callers_of(where) or where  # what we were doing is of no interest
            error.with_traceback(where).__suppress_context__ = True
        ours = isinstance(error, RedistError | KeyboardInterrupt) and os.getpid() == self._pid
        own = error_sign(words)
        me = 0 if MPI.Is_finalized() else MPI.COMM_WORLD.rank
        if ours and not MPI.Is_finalized():
            put_up(own)
        first = _first_with(own, me) if ours else None
        if first is not None:
            print(f"rank {me}: the same error as rank {first}", file=sys.stderr, flush=True)
        else:
            self._before(kind, error, where)
        self._leave(error)
        with contextlib.suppress(KeyboardInterrupt):
            _stay(kind.__name__)

    def _leave(self, error: BaseException | None) -> None:
        if os.getpid() != self._pid or MPI.Is_finalized():
            return
        try:
            self._tell(error)
        finally:  # who sees the sign finds the message
            put_up(TOLD if isinstance(error, PeerError) or HEARD else LEFT)  # others hear it too

    def _tell(self, error: BaseException | None) -> None:
        """**Local.** Say it where others wait: in what failures share, and by messages."""
        failures = list(_FAILURES)
        known = {f.size for f in failures if f.broken is None}
        for failure in failures:
            failure.leave(error)
        if error is None or isinstance(error, PeerError) or MPI.COMM_WORLD.size in known:
            return
        text = error_in_words(error)
        comm = MPI.COMM_WORLD
        for rank in range(comm.size):  # who waits for a first call has nothing else to look at
            if rank != comm.rank:
                with contextlib.suppress(MPI.Exception):
                    _TOLD.append(comm.isend(text, rank, Tag.ENDED))


_ENDS: list[ProgramEnd] = []
_TOLD: list[Any] = []


def _first_with(own: str, me: int) -> int | None:
    """**Local.** The lowest rank of this machine below this one that has this error, watched for a moment."""
    end = time.monotonic() + SAME_S
    for rank in range(me):  # who is above one that has it waits for that to say so
        while shows(rank, HERE) and not shows(rank, own, LEFT, TOLD) and time.monotonic() < end:
            time.sleep(0.01)
        if shows(rank, own):
            return rank
    return None


def _stay(kind: str) -> None:
    """Stay until the neighbours have heard; say so if they do not mind, because MPI waits for them."""
    end = time.monotonic() + STAY_S
    while time.monotonic() < end:
        MPI.COMM_WORLD.Iprobe(MPI.ANY_SOURCE, Tag.ENDED)  # what was told goes on its way
        if not (still_running() or any(failure.still_here() for failure in _FAILURES)):
            return
        time.sleep(0.02)
    most = max(_FAILURES, key=lambda failure: failure.size, default=None)
    rank, size = (most.rank, most.size) if most else (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    others = most.still_here() if most else still_running()
    print(
        f"rank {rank} has ended by {kind}, {ranks_in_words(others, size)} "
        f"{'has' if len(others) == 1 else 'have'} not: "
        "MPI waits for all. python -m mpi4py script.py ends all ranks at once",
        file=sys.stderr,
        flush=True,
    )


def wait_to_begin(comm: MPI.Comm, timeout_s: float | None) -> None:
    """**Collective.** Wait for all ranks of a communicator, which share nothing yet."""
    watch = Beginning(comm)
    wait_for([comm.Ibarrier()], timeout_s, watch)


def _in_fork() -> None:
    """**Local.** Let nothing here meet other ranks any more: they meet the rank that this is a fork of."""
    if MPI.Is_initialized() and not MPI.Is_finalized():
        FORKED[:] = [MPI.COMM_WORLD.rank]
        for failure in _FAILURES:
            failure.broken = failure.broken or "this process is a fork"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_fork)


watch_exit()
