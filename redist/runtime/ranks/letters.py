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
from redist.runtime.ranks.waiting import abandon, are_complete

HEAD_BYTES = 64
"""A cache line: what the rank says, the number of the meeting, and room that keeps data in line."""
MOST_RANKS = 64
"""More ranks meet by a reduction, in few steps of few messages, and no letters pass."""
MOST_BYTES = 2**20
"""Letters of one meeting are no larger than this, those to send and to receive together."""

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
        self.sent, self.got = address_of(sent), address_of(got)
        self._heads, self._heads_got = (rows.view(np.int64)[:, :2] for rows in (sent, got))
        self._rows = tuple(zip(sent, got, strict=True))

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
        tag, comm, rows = self.number & 1, self._comm, self._rows
        self._heads[:] = said, self.number
        receives: list[Any] = []
        try:
            for (_, row), rank in zip(rows, self.far, strict=True):
                receives.append(comm.Irecv([row, MPI.BYTE], rank, tag))
            for k, rank in enumerate(self.far):
                n_bytes = HEAD_BYTES
                if sizes is not None and sizes[k]:
                    assert pack is not None
                    pack(k)
                    n_bytes += sizes[k]
                self._sends.append(comm.Isend([rows[k][0], n_bytes, MPI.BYTE], rank, tag))
            near()
            mine = receives if sizes is None else [*receives, *self._sends]
            self._wait_until(lambda: are_complete(mine))
        except BaseException:
            with contextlib.suppress(MPI.Exception):
                abandon(receives, self._rows, self._sends)
            raise
        heads = self._heads_got.tolist()
        if any(number != self.number for _, number in heads):
            raise TransferError("internal error: ranks met with letters of different meetings")
        return [words for words, _ in heads]

    def _finish_sends(self) -> None:
        """Wait until MPI has taken the letters of the meeting before."""
        if self._sends and not are_complete(self._sends):
            self._wait_until(lambda: are_complete(self._sends))
        self._sends.clear()

    def close(self) -> None:
        """**Collective.** Free the communicator."""
        self._comm.Free()
