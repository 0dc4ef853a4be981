"""Control pages: the shared memory by which the ranks of a node meet and pass data on."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.runtime.copies.addresses import address_of
from redist.runtime.ranks.node import Node, RankGroup
from redist.runtime.shm.segments import (
    Bytes,
    Handle,
    attach,
    can_share,
    find,
    release_pages,
    shared_bytes,
)

CONTROL_BYTES = 4096
"""Of every rank's page: meetings, status and the text of a failure."""
TEXT_AT, TEXT_BYTES = 256, 2048
DESCRIPTION = 32
"""Integers that describe where one array of a transfer lies."""
LEAST_POOL_BYTES = 8192
"""A pool is never smaller: where a plan leaves no staging at all, data trickles through this."""
ARRIVED, STATUS, WAITS, IS_WAITING = 0, 1, 2, 3
"""Control words: the meetings that this rank has come to; whether it has given up or left; the waits of
all ranks for MPI that it has begun; whether it waits for long, and :attr:`ControlPage.call` says where."""
GAVE_UP, LEFT = 1, 2
"""What a status says, as in meet.c: a rank stopped in the middle, or its program has ended."""
CALL_AT, CALL_BYTES = TEXT_AT + TEXT_BYTES, 1024
CONTROL_WORD = 8
"""Control words lie a cache line apart, as in meet.c."""


class ControlPage:
    """One rank's part of the shared control memory: control words, descriptions, pool."""

    def __init__(self, memory: Bytes, n_items: int) -> None:
        self.memory = memory
        self.n_items = n_items
        self.address = address_of(memory)
        self.control: NDArray[np.uint64] = memory[:TEXT_AT].view(np.uint64)
        n_bytes = n_items * DESCRIPTION * 8
        starts = (CONTROL_BYTES, CONTROL_BYTES + n_bytes)
        self.descriptions = [
            memory[at : at + n_bytes].view(np.int64).reshape(n_items, DESCRIPTION) for at in starts
        ]
        """Where the arrays of a transfer lie, one row each; for even and odd meetings."""
        self.pool_bytes = len(memory) - CONTROL_BYTES - 2 * n_bytes
        self.pool_address = self.address + CONTROL_BYTES + 2 * n_bytes

    def slot(self, parity: int, slot_bytes: int) -> int:
        """Address of the slot for even or odd meetings: one from the front, one from the back.

        So slots of different sizes, of one transfer after another, do not overlap.
        """
        return self.pool_address + (self.pool_bytes - slot_bytes if parity else 0)

    @property
    def text(self) -> str:
        """Why this rank gave up or left."""
        return self._read(TEXT_AT, TEXT_BYTES)

    @text.setter
    def text(self, text: str) -> None:
        self._write(TEXT_AT, TEXT_BYTES, text)

    @property
    def call(self) -> str:
        """In which call this rank waits."""
        return self._read(CALL_AT, CALL_BYTES)

    @call.setter
    def call(self, text: str) -> None:
        self._write(CALL_AT, CALL_BYTES, text)

    def _read(self, at: int, size: int) -> str:
        return bytes(self.memory[at : at + size]).split(b"\0")[0].decode(errors="replace")

    def _write(self, at: int, size: int, text: str) -> None:
        data = text.encode()[: size - 1] + b"\0"
        self.memory[at : at + len(data)] = np.frombuffer(data, np.uint8)


class ControlPages:
    """The control pages of the ranks of a node, each mapped by all of them.

    ``words`` has the control words as Python numbers, quick to read; ``table`` is the address of a
    table of the pages; ``version`` grows whenever pages are made anew.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.version = 0
        self.touched_bytes = 0
        """What transfers have used of this rank's pool, and so keeps pages."""
        self.own = _new_page(16, LEAST_POOL_BYTES)
        self._note({node.rank: self.own})

    def _note(self, pages: dict[int, ControlPage]) -> None:
        self.by_rank = pages
        self.words = {rank: memoryview(page.control) for rank, page in pages.items()}  # type: ignore[arg-type]
        self._addresses = np.array([page.address for page in pages.values()], dtype=np.uintp)
        self.table = address_of(self._addresses)

    def __getitem__(self, rank: int) -> ControlPage:
        return self.by_rank[rank]

    def reserve(self, n_items: int, pool_bytes: int, ranks: RankGroup) -> bool:
        """**Collective over the node.** Make all pages anew if they are too small; whether they were.

        The old ones stay until all ranks have the new ones, because neighbours look at them meanwhile.
        """
        old = self.own
        if old.n_items >= n_items and old.pool_bytes >= pool_bytes:
            return False
        self.own = _new_page(max(n_items, old.n_items), max(pool_bytes, old.pool_bytes))
        self.touched_bytes = 0
        self._note({self._node.rank: self.own})
        self.map(ranks)
        return True

    def map(self, ranks: RankGroup) -> None:
        """**Collective over the node.** Map the pages of all its ranks, and check that they are theirs."""
        own, node = self.own, self._node
        found = find(own.memory)
        mark = os.urandom(8)
        own.memory[TEXT_AT : TEXT_AT + 8] = np.frombuffer(mark, np.uint8)
        told = ranks.gather_on_node((*(found or (None, 0)), mark))
        pages: dict[int, ControlPage] = {}
        problem: str | None = None
        try:
            for rank, (handle, offset, there) in zip(node.ranks, told, strict=True):
                pages[rank] = own if rank == node.rank else self._attach(rank, handle, offset)
                if bytes(pages[rank].memory[TEXT_AT : TEXT_AT + 8]) != there:
                    raise TransferError(f"what is mapped is not the memory of rank {rank}")
        except (OSError, ValueError, TransferError) as error:
            problem = str(error)
        problems = [one for one in ranks.gather_on_node(problem) if one is not None]
        if problems:
            raise TransferError(problems[0])
        self._note(pages)
        self.version += 1
        own.memory[TEXT_AT : TEXT_AT + 8] = 0
        own.control[:] = 0
        ranks.wait_on_node()

    def _attach(self, rank: int, handle: Handle | None, offset: int) -> ControlPage:
        """**Local.** The page of a neighbour, mapped."""
        if handle is None:
            raise TransferError(f"rank {rank} has no memory to share")
        memory = attach(handle)[offset : offset + len(self.own.memory)]
        return ControlPage(memory, self.own.n_items)

    def trim(self, slot_bytes: int) -> None:
        """**Local.** Give back what earlier transfers touched of this rank's pool beyond two slots."""
        if self.touched_bytes > slot_bytes:
            memory = self.own.memory
            start = len(memory) - self.own.pool_bytes + slot_bytes
            release_pages(memory[start : len(memory) - slot_bytes])
            self.touched_bytes = slot_bytes


def _new_page(n_items: int, pool_bytes: int) -> ControlPage:
    n_bytes = CONTROL_BYTES + 2 * n_items * DESCRIPTION * 8 + pool_bytes
    return ControlPage(
        shared_bytes(n_bytes) if can_share() else np.zeros(n_bytes, np.uint8), n_items
    )
