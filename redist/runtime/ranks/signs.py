"""What ranks see of each other before they share anything: signs on their machine, and a message at the end.

A sign is a socket whose name ranks started by one launcher know: no file, and it goes with its process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
import sys
import time

from mpi4py import MPI

from redist.errors import PeerError, TransferError
from redist.runtime.ranks.failure import left_without
from redist.runtime.ranks.membership import job_name, raise_if_gone
from redist.runtime.ranks.tokens import Tag

HERE, LEFT, TOLD, WAITS = "here", "left", "told", "waits"
"""Signs of a rank: its program runs; it has ended; it has ended because of what others told it; it waits."""
ARRIVES_S = 0.1
"""A message that was sent before a sign was put up has arrived by then."""
HEARD: list[PeerError] = []
"""What this rank was told before ranks shared anything: who leaves because of that is not to blame."""


FORKED: list[int] = []
"""In a fork of a rank, which must call no other rank: whose fork it is."""


def raise_if_forked() -> None:
    """**Local.** Raise in a fork of a rank: it would talk to other ranks in the place of that."""
    if FORKED:
        raise TransferError(
            f"cannot call other ranks here: this process is a fork of rank {FORKED[0]}; call redist in "
            "the rank itself, and give the fork NumPy arrays, such as a.local or a.gather()"
        )


def error_sign(text: str) -> str:
    """The sign of a rank whose program was ended by an error with this text."""
    return f"error-{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"


def _name_of(rank: int, sign: str) -> str:
    return f"\0redist-{os.getuid()}-{job_name()}-{rank}-{sign}"


def put_up(sign: str) -> int | None:
    """**Local.** Let the ranks of this machine see a sign of this one, until its process ends.

    It can be taken down before by closing the descriptor that is given.
    """
    if sys.platform != "linux":
        return None
    with contextlib.suppress(OSError):
        own = socket.socket(socket.AF_UNIX)
        own.bind(_name_of(MPI.COMM_WORLD.rank, sign))
        own.listen()
        return own.detach()  # it stays until the process ends
    return None


def shows(rank: int, *signs: str) -> bool:
    """**Local.** Whether a rank of this machine has put up one of these signs."""
    return sys.platform == "linux" and any(_is_up(rank, sign) for sign in signs)


def _is_up(rank: int, sign: str) -> bool:
    with socket.socket(socket.AF_UNIX) as visit, contextlib.suppress(OSError):
        visit.setblocking(False)
        try:
            visit.connect(_name_of(rank, sign))
        except BlockingIOError:  # it is there, and nobody takes our visits
            return True
        owner = visit.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return bool(struct.unpack("3i", owner)[1] == os.getuid())
    return False


def still_running() -> list[int]:
    """**Local.** The other ranks of this machine whose programs run, as far as they show it."""
    others = (rank for rank in range(MPI.COMM_WORLD.size) if rank != MPI.COMM_WORLD.rank)
    return [rank for rank in others if shows(rank, HERE) and not shows(rank, LEFT, TOLD)]


class Beginning:
    """What a wait looks at before ranks share anything: whether the program of one has ended."""

    def __init__(self, comm: MPI.Comm) -> None:
        raise_if_forked()
        everyone = range(comm.size)
        self._ranks = comm.group.Translate_ranks(list(everyone), MPI.COMM_WORLD.group)
        self._rank = comm.rank
        self._sign: int | None = None

    def raise_if_any(self) -> None:
        """**Local.** Raise if a message says that the program of another rank was ended by an error."""
        status = MPI.Status()
        if MPI.COMM_WORLD.Iprobe(MPI.ANY_SOURCE, Tag.ENDED, status):
            text = MPI.COMM_WORLD.recv(source=status.source, tag=Tag.ENDED)
            raise _heard(PeerError(f"rank {status.source} ended: {text}"))
        raise_if_gone()

    def raise_if_broken(self) -> None:
        """Nothing can be, yet."""

    def count_wait(self) -> None:
        """Nobody would see it."""

    def say_waiting(self, call: str | None) -> None:
        """**Local.** Put a sign up, or take it down; it stays if the wait ends by an error."""
        if call is not None:
            self._sign = put_up(WAITS)
        elif self._sign is not None and sys.exc_info()[0] is None:
            os.close(self._sign)
            self._sign = None

    def raise_if_apart(self) -> None:
        """**Local.** Raise if the program of another rank has ended."""
        for rank, known in enumerate(self._ranks):
            if known not in (MPI.UNDEFINED, MPI.COMM_WORLD.rank) and shows(known, LEFT):
                end = time.monotonic() + ARRIVES_S
                while time.monotonic() < end:
                    self.raise_if_any()
                    time.sleep(0.01)
                raise _heard(left_without(rank))

    def all_wait_here(self) -> bool:
        """Nobody would see it."""
        return False

    def absent(self) -> tuple[list[int], list[int], int]:
        """**Local.** The ranks of this machine that wait too, if this is the first; who has not come; all."""
        here, absent = [], []
        for rank, known in enumerate(self._ranks):
            if rank == self._rank or (known != MPI.UNDEFINED and shows(known, WAITS)):
                here.append(rank)
            elif known != MPI.UNDEFINED and shows(known, HERE):
                absent.append(rank)
        return here if here[:1] == [self._rank] else [], absent, len(self._ranks)


def _heard(error: PeerError) -> PeerError:
    HEARD.append(error)
    return error
