"""Let one rank perform the copies of all ranks that share a GPU, in one launch.

Processes on one GPU do not run at once, unless NVIDIA's MPS serves them. They take turns, and on an
H200 a turn costs 0.13 ms however little there is to do: 4 ranks that each start a copy, say so by an
event and wait for the events of the others lose 1.4 ms in a call. One launch also reads whole lines
of memory where each rank alone would take its 16 bytes out of every 64.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.runtime.copies.kernels import NOT_YET
from redist.runtime.cuda.kernels.rounds import CudaRound
from redist.runtime.cuda.transports.opened_memory import WORDS, OpenedMemory, check_shareable
from redist.runtime.ranks.control_page import DESCRIPTION
from redist.runtime.ranks.meeting import SLICE_NS
from redist.runtime.ranks.world import World
from redist.runtime.schedule.compiler import Bases, Compiler, Round, TileAt
from redist.runtime.schedule.rounds import whole
from redist.runtime.schedule.stages import StagePart
from redist.text.latest import Latest

REMEMBERED = 4
"""Programs that are kept: their tables take memory of the GPU."""

AWAKE_S = 5e-3
"""So long ranks wait without sleep for the one that moves for them: who sleeps comes back 0.1 ms late."""
AWAKE_NS = 90_000
"""Of one look: shorter than what meet.c waits before it sleeps."""

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
        self._programs: Latest[Any, CudaRound] = Latest(REMEMBERED)

    def run(self, found: Described, stream: Any) -> None:
        """**Local.** Start the copies and reductions of all."""
        program = self._program(found)
        program.fetch(found.table, stream)
        program.take_apart(found.table, stream)

    def _program(self, found: Described) -> CudaRound:
        """What all ranks would do, for tiles that lie like these; made once."""
        key = tuple(found.strides)
        if key not in self._programs:
            self._programs[key] = CudaRound.of(*(self._round(rank, found) for rank in self.parts))
        return self._programs[key]

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


class Descriptions:
    """What this rank tells its neighbours about its tiles: one row each, made anew if a tile has moved."""

    def __init__(self) -> None:
        self._told: Any = None
        self._known: Any = None
        self._rows = np.zeros((0, DESCRIPTION), np.int64)

    def write(self, rows: Any, sources: Sequence[Any], targets: Sequence[Any]) -> None:
        """**Local.** Tell where arrays lie, and how; an error if their memory cannot be shared."""
        told = [_described(array, "source tile") for array in sources]
        told += [_described(array, "target tile") for array in targets]
        if told != self._told:
            self._rows = np.zeros((len(told), DESCRIPTION), np.int64)
            self._rows[:, 0] = TileAt.NOTHING
            for row, one in zip(self._rows, told, strict=True):
                if one is not None:
                    place, strides = one
                    row[0] = TileAt.SHARED
                    row[1 : 1 + WORDS] = place.words
                    row[1 + WORDS : 1 + WORDS + len(strides)] = strides
            self._told = told
        rows[: len(told)] = self._rows

    @property
    def are_new(self) -> bool:
        """Whether a tile is not where the neighbours know it to be."""
        return bool(self._told != self._known)

    def note_read(self) -> None:
        """**Local.** Note that the neighbours have met and read what was told."""
        self._known = self._told


def _described(array: Any, what: str) -> tuple[OpenedMemory, Strides] | None:
    """Where an array lies, and how; None if it has no elements."""
    if array is None or not array.size:
        return None
    return check_shareable(array, what), array.strides


def meet_awake(world: World) -> None:
    """**Collective over the node.** Meet as ``world.meet_node`` does; for some ms without sleep.

    For ranks that wait for a GPU and have cores of their own: it is done soon, and they go on at once.
    """
    node, meeting = world.node, world.meeting
    if node.kernels is None or len(node.ranks) == 1:
        world.meet_node()
        return
    meeting.seq += 1
    meet = node.kernels.meet
    args = world.pages.table, len(node.ranks), node.place, meeting.seq, 0, None
    until = time.perf_counter() + AWAKE_S

    def look() -> int:
        answer = NOT_YET
        while answer == NOT_YET and time.perf_counter() < until:
            answer = int(meet(*args, AWAKE_NS))
        return int(meet(*args, SLICE_NS)) if answer == NOT_YET else answer

    meeting.wait_until(look)
