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
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.errors import TransferError
from redist.runtime.copies.addresses import address_of
from redist.runtime.ranks.node import Node
from redist.runtime.ranks.waiting import Incomplete, abandon

HEAD_BYTES = 64
"""A cache line: what the rank says, the number of the meeting, and room that keeps data in line."""
MOST_RANKS = 64
"""More ranks meet by a reduction, in few steps of few messages, and no letters pass."""
MOST_BYTES = 2**20
"""Letters of one meeting are no larger than this, those to send and to receive together."""

WaitUntil = Callable[[Callable[[], bool]], None]
Pack = Callable[[], None]
"""Writes what is enclosed in a letter."""
Enclosed = list[tuple[int, list[Any], Pack]]
"""Letters with data, by rank: their bytes as MPI takes them, and what writes the data."""


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
        # Of a mapping there are only the pages that letters touch.
        memory = np.frombuffer(mmap.mmap(-1, 2 * n * self.room), np.uint8)
        sent, got = memory.reshape(2, n, self.room)
        self._memory = sent, got
        self.sent, self.got = address_of(sent), address_of(got)
        self._heads, self._heads_got = (rows.view(np.int64)[:, :2] for rows in (sent, got))
        self._got_rows = [(r, [row, MPI.BYTE]) for r, row in zip(self.far, got, strict=True)]
        self._alone = self.enclose([0] * n, [lambda: None] * n)

    @property
    def most_enclosed(self) -> int:
        """What one letter may carry."""
        return self.room - HEAD_BYTES

    def place(self, rank: int) -> int:
        """Where the data of the letter to or from a rank begins, behind the first byte of all letters."""
        return self.far.index(rank) * self.room + HEAD_BYTES

    def enclose(self, sizes: Sequence[int], packs: Sequence[Pack]) -> Enclosed:
        """**Local.** What letters are to carry: bytes of each, and what writes them."""
        spans = zip(self.far, self._memory[0], sizes, packs, strict=True)
        return [(rank, [row[: HEAD_BYTES + n], MPI.BYTE], pack) for rank, row, n, pack in spans]

    def meet(
        self, said: int, enclosed: Enclosed | None, near: Callable[[], None] | None
    ) -> list[int]:
        """**Collective.** Send all letters, do what is ``near``, and wait; what the far ranks say.

        What is ``enclosed`` is written just before it is sent. Such letters are waited for until MPI has
        taken them: after that it may not be called for long.
        """
        self._finish_sends()
        self.number += 1
        self._heads[:] = said, self.number
        comm, tag, sends = self._comm, self.number & 1, self._sends
        irecv, isend = comm.Irecv, comm.Isend
        receives = [irecv(row, rank, tag) for rank, row in self._got_rows]
        try:
            for rank, row, pack in enclosed or self._alone:
                pack()
                sends.append(isend(row, rank, tag))
            if near is not None:
                near()
            mine = receives if enclosed is None else [*receives, *sends]
            self._wait_until(Incomplete(mine).is_empty)
        except BaseException:
            with contextlib.suppress(MPI.Exception):
                abandon(receives, self._memory, sends)
            raise
        heads = self._heads_got.tolist()
        if any(number != self.number for _, number in heads):
            raise TransferError("internal error: ranks met with letters of different meetings")
        return [words for words, _ in heads]

    def _finish_sends(self) -> None:
        """Wait until MPI has taken the letters of the meeting before."""
        if self._sends:
            self._wait_until(Incomplete(self._sends).is_empty)
            self._sends.clear()

    def close(self) -> None:
        """**Collective.** Free the communicator."""
        self._comm.Free()
