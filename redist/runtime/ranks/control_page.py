"""A rank's board: the shared memory by which the ranks of a node meet and pass data on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from redist.runtime.copies.addresses import address_of
from redist.runtime.shm.segments import Bytes

CONTROL_BYTES = 4096
"""Of every rank's board: meetings, status and the text of a failure."""
TEXT_AT, TEXT_BYTES = 256, 2048
DESCRIPTION = 32
"""Integers that describe where one array of a transfer lies."""
LEAST_POOL_BYTES = 8192
"""A pool is never smaller: where a plan leaves no staging at all, data trickles through this."""
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
        """Why this rank gave up."""
        return bytes(self.memory[TEXT_AT : TEXT_AT + TEXT_BYTES]).split(b"\0")[0].decode()
