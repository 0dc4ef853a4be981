"""How ranks of several nodes meet: each sends every rank of another node a letter, which may carry data.

A letter begins with what its rank brings to the meeting, and the number of the meeting. What is enclosed
lies behind that: small moves pass so, in the meeting itself. All of it lands in memory of the communicator;
nobody takes it from there before letters of all ranks have come and say the same::

     rank A                                 rank B
     | head | for B |  ------------------>  | head | from A |    compare heads,
     | head | from B |  <-----------------  | head | for A |     then unpack

Tags tell even meetings from odd ones. That suffices: nobody gets two meetings ahead of another, whose
letter it needs for the one between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.runtime.copies.addresses import address_of
from redist.runtime.ranks.node import Node
from redist.runtime.ranks.waiting import Incomplete, abandon
from redist.text.latest import Latest

HEAD_BYTES = 64
"""A cache line: what the rank says, the number of the meeting, and room that keeps data in line."""
MOST_RANKS = 64
"""More ranks meet by a reduction, in few steps of few messages, and no letters pass."""
MOST_BYTES = 2**20
"""Letters of one meeting are no larger than this, those to send and to receive together."""

Rows = list[tuple[int, list[Any]]]
"""Letters by rank, as MPI takes them."""
REMEMBERED = 64
WaitUntil = Callable[[Callable[[], bool]], None]
Pack = Callable[[int], None]
"""Writes what is enclosed in the letter of this number."""


class Letters:
    """The letters of a communicator, one from and one to every rank of another node.

    ``far`` has these ranks, in such an order that not all ranks begin with the same one. The letters to
    send lie ``room`` bytes apart from the address ``sent`` on, those received from ``got`` on. Whatever ranks
    disagree about, no letter is larger than the room for it.
    """

    def __init__(self, comm: MPI.Comm, node: Node, wait_until: WaitUntil) -> None:
        me = node.rank
        far = [rank for rank in range(comm.size) if rank not in node.ranks]
        self.far = (*(r for r in far if r > me), *(r for r in far if r < me))
        self.number = 0
        """The number of the last meeting."""
        self._comm, self._wait_until = comm.Dup(), wait_until
        self._sends: list[Any] = []
        n, self.room = len(self.far), MOST_BYTES // (2 * comm.size) // HEAD_BYTES * HEAD_BYTES
        # Of zeros that nobody touches there are no pages.
        sent, got = (np.zeros((n, self.room), np.uint8) for _ in range(2))
        self._memory = sent, got
        self.sent, self.got = address_of(sent), address_of(got)
        self._heads, self._heads_got = (rows.view(np.int64)[:, :2] for rows in (sent, got))
        self._got_rows: Rows = [(r, [row, MPI.BYTE]) for r, row in zip(self.far, got, strict=True)]
        self._rows: Latest[tuple[int, ...], Rows] = Latest(REMEMBERED)
        self._heads_alone = self._rows_of([0] * n)

    @property
    def most_enclosed(self) -> int:
        """What one letter may carry."""
        return self.room - HEAD_BYTES

    def place(self, rank: int) -> int:
        """Where the data of the letter to or from a rank begins, behind the first byte of all letters."""
        return self.far.index(rank) * self.room + HEAD_BYTES

    def meet(
        self, said: int, sizes: Sequence[int] | None, pack: Pack | None, near: Callable[[], None]
    ) -> list[int]:
        """**Collective.** Send all letters, do what is ``near``, and wait; what the far ranks say.

        ``sizes`` has what is enclosed in each letter, which ``pack`` writes just before it is sent. Letters
        with data are waited for until MPI has taken them: after that it may not be called for long.
        """
        self._finish_sends()
        self.number += 1
        self._heads[:] = said, self.number
        tag, isend, sends = self.number & 1, self._comm.Isend, self._sends
        receives = [self._comm.Irecv(row, rank, tag) for rank, row in self._got_rows]
        try:
            if sizes is None or pack is None:
                for rank, row in self._heads_alone:
                    sends.append(isend(row, rank, tag))
                near()
                self._wait_until(Incomplete(receives).is_empty)
            else:
                for number, (rank, row) in enumerate(self._rows_of(sizes)):
                    pack(number)
                    sends.append(isend(row, rank, tag))
                near()
                self._wait_until(Incomplete([*receives, *sends]).is_empty)
        except BaseException:
            with contextlib.suppress(MPI.Exception):
                abandon(receives, self._memory, sends)
            raise
        said_far: list[int] = self._heads_got[:, 0].tolist()
        if (self._heads_got[:, 1] != self.number).any():
            raise TransferError("internal error: ranks met with letters of different meetings")
        return said_far

    def _rows_of(self, sizes: Sequence[int]) -> Rows:
        """Letters with so many bytes enclosed, as MPI takes them."""
        found = self._rows.get(tuple(sizes))
        if found is None:
            spans = zip(self.far, self._memory[0], sizes, strict=True)
            found = [(rank, [row[: HEAD_BYTES + n], MPI.BYTE]) for rank, row, n in spans]
            self._rows[tuple(sizes)] = found
        return found

    def _finish_sends(self) -> None:
        """Wait until MPI has taken the letters of the meeting before."""
        if self._sends:
            self._wait_until(Incomplete(self._sends).is_empty)
            self._sends.clear()

    def close(self) -> None:
        """**Collective.** Free the communicator."""
        self._comm.Free()
