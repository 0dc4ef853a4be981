"""Let one rank perform the copies of all ranks that share a GPU, in one launch.

Processes on one GPU do not run at once, unless NVIDIA's MPS serves them. They take turns, and on an
H200 a turn costs 0.13 ms however little there is to do: 4 ranks that each start a copy, say so by an
event and wait for the events of the others lose 1.4 ms in a call. One launch also reads whole lines
of memory where each rank alone would take its 16 bytes out of every 64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.runtime.cuda.kernels.rounds import CudaRound
from redist.runtime.cuda.transports.ipc import WORDS, check_shareable
from redist.runtime.schedule.compiler import Bases, Compiler, Round, TileAt
from redist.runtime.schedule.rounds import whole
from redist.runtime.schedule.stages import StagePart

REMEMBERED = 4
"""Programs that are kept: their tables take memory of the GPU."""

Strides = tuple[int, ...]


class SharedGpuBases(Bases):
    """Numbers of the buffers of all ranks of a node, as one of them sees them.

    >>> bases = SharedGpuBases(1, (4, 5), 5)
    >>> bases.source(0) == bases.neighbour(5, 0), bases.target(0), bases.size
    (True, 3, 4)
    """

    def __init__(self, n_items: int, node: Sequence[int], rank: int) -> None:
        super().__init__(n_items, node)
        self.rank = rank
        self.size = 2 * len(node) * n_items

    def neighbour(self, rank: int, item: int) -> int:
        """The tile of a rank that is read."""
        return self.place[rank] * self.n_items + item

    def source(self, item: int) -> int:
        """The tile of this rank."""
        return self.neighbour(self.rank, item)

    def target(self, item: int) -> int:
        """The tile of this rank that is written."""
        return (len(self.place) + self.place[self.rank]) * self.n_items + item


class Described:
    """Addresses and strides of all tiles of a stage: sources, then targets, as in :class:`SharedGpuBases`."""

    def __init__(self, n_items: int, node: Sequence[int]) -> None:
        self.n_items, self.node = n_items, tuple(node)
        self.table = np.zeros(2 * len(node) * n_items, np.uintp)
        self.strides: list[Strides] = [()] * len(self.table)

    def put(self, side: int, rank: int, item: int, address: int, strides: Strides) -> None:
        """A source (side 0) or a target (side 1)."""
        number = (side * len(self.node) + self.node.index(rank)) * self.n_items + item
        self.table[number] = address
        self.strides[number] = strides

    def of(self, side: int, rank: int) -> tuple[Strides, ...]:
        """Strides of a rank's tiles."""
        start = (side * len(self.node) + self.node.index(rank)) * self.n_items
        return tuple(self.strides[start : start + self.n_items])


class GpuMates:
    """A stage of ranks that share a GPU: the first of them makes the copies of all in one launch.

    Every rank has waited for its own stream before they met, and waits for the first one after. Where
    some ranks of a node share a GPU, a rank with one of its own is alone on it, and waits too.
    ``parts`` are those of all ranks that this one moves for.
    """

    def __init__(self, node: Sequence[int], parts: dict[int, Sequence[StagePart]]) -> None:
        self.node, self.parts = tuple(node), parts
        self._programs: dict[Any, CudaRound] = {}

    def run(self, found: Described, stream: Any) -> None:
        """**Local.** Start the copies and reductions of all."""
        key = tuple(found.strides)
        if key not in self._programs:
            if len(self._programs) >= REMEMBERED:
                self._programs.clear()
            self._programs[key] = CudaRound.of(*(self._round(rank, found) for rank in self.parts))
        self._programs[key].fetch(found.table, stream)
        self._programs[key].take_apart(found.table, stream)

    def _round(self, rank: int, found: Described) -> Round:
        """What a rank would do by itself."""
        parts = self.parts[rank]
        places = [(other, item) for other in self.node for item in range(len(parts))]
        compiler = Compiler(
            rank,
            parts,
            SharedGpuBases(len(parts), self.node, rank),
            dict.fromkeys(places, TileAt.SHARED),
            {},
            found.of(0, rank),
            found.of(1, rank),
            (0, 0),
            packs_all=True,
            far_strides={(r, i): s for r in self.node for i, s in enumerate(found.of(0, r)) if s},
        )
        return compiler.round(whole(len(parts))[0])


def describe(rows: Any, arrays: Sequence[Any], what: str) -> None:
    """**Local.** Tell the neighbours where arrays lie, and how: one row each."""
    for row, array in zip(rows, arrays, strict=True):
        is_there = array is not None and array.size > 0
        row[0] = TileAt.SHARED if is_there else TileAt.NOTHING
        if is_there:
            row[1 : 1 + WORDS] = check_shareable(array, what).words
            row[1 + WORDS : 1 + WORDS + array.ndim] = array.strides
