"""Where the tiles of a node are in one stage: decide it, tell the neighbours, look where theirs are."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from redist.plan.pieces import Piece
from redist.runtime.copies.addresses import Addresses, address_of
from redist.runtime.copies.strided import c_strides, canonical
from redist.runtime.host.staging import Staging
from redist.runtime.ranks.world import World
from redist.runtime.schedule.compiler import Bases, TileAt
from redist.runtime.schedule.stages import StagePart
from redist.runtime.shm.segments import Handle, find

AnyArray = NDArray[Any]
Arrays = Sequence[AnyArray | None]
Kinds = dict[tuple[int, int], TileAt]
"""Where the tile of (rank, item) is found."""
Place = tuple[int, int, int, int]
"""What a rank says about an array: descriptor, number and bytes of its segment, and the offset there."""
IN_PLACE = (TileAt.SHARED, TileAt.PRIVATE)
TILE_AT = tuple(TileAt)
NO_PLACE: Place = (0, 0, 0, 0)

SMALL_BYTES = 32768
"""Tiles up to this size pass through the pool even where they could be read in place, if few rounds
suffice: that takes two meetings as well, and recorded calls serve arrays other than those before."""
FEW_ROUNDS = 4
MANY_ROUNDS = 64
"""Beyond this many rounds private memory is read in place, however short its runs are."""
READ_RUN_BYTES = 4096 if platform.machine() == "x86_64" else 2**62
"""Runs of this size are read from a neighbour's private memory: the kernel of the system copies them once.
On aarch64 that takes half as much again as the pool; on x86_64 it has not been shown to take longer."""
BROUGHT_BYTES = 2**18
"""Smaller targets are not opened to neighbours: they stay in the cache, wherever they are read from."""


@dataclass(frozen=True, slots=True)
class Found:
    """Where the tiles of a node are: sources by (rank, item), and the targets opened to neighbours."""

    kinds: Kinds
    opened: frozenset[tuple[int, int]] = frozenset()

    @property
    def in_place(self) -> bool:
        """Whether someone reads a neighbour's array in place."""
        return any(kind in IN_PLACE for kind in self.kinds.values())

    def is_pooled(self, parts: Sequence[StagePart]) -> bool:
        """Whether data passes through a pool: all do so round by round."""
        ranks = {rank for rank, _ in self.kinds}
        brought = {
            item
            for item, part in enumerate(parts)
            if part.step.is_brought and all((rank, item) in self.opened for rank in ranks)
        }
        return any(
            kind == TileAt.POOL and item not in brought for (_, item), kind in self.kinds.items()
        )

    def without_pools(self) -> Found:
        """The same if nobody reads the pools."""
        pool, nothing = TileAt.POOL, TileAt.NOTHING
        kinds = {key: nothing if kind == pool else kind for key, kind in self.kinds.items()}
        return Found(kinds, self.opened)


NOWHERE = Found({})


class TilePlaces:
    """Decides where the tiles of a stage are found, and finds those of the neighbours."""

    def __init__(
        self, world: World, parts: Sequence[StagePart], bases: Bases, staging: Staging
    ) -> None:
        self._world, self._parts, self._bases, self._staging = world, parts, bases, staging
        self._readable = [self._is_readable(part) for part in parts]

    def _is_readable(self, part: StagePart) -> bool:
        """Whether this rank's private tile is better read in place than passed through its pool."""
        pieces = part.step.pieces
        if not self._world.reads_memory or any(p.order for p in pieces):
            return False
        given = [p for p in pieces if p.sender == self._world.rank != p.receiver]
        return len(self._staging.rounds) > MANY_ROUNDS or all(
            _run_bytes(p, part.itemsize) >= READ_RUN_BYTES for p in given
        )

    def kinds(self, sources: Arrays) -> tuple[TileAt, ...]:
        """Decide where the neighbours shall find this rank's tiles."""
        few = len(self._staging.rounds) <= FEW_ROUNDS
        kinds = []
        for item, source in enumerate(sources):
            kind = TileAt.NOTHING
            if source is not None and self._staging.exports[self._world.rank, item]:
                kind = TileAt.POOL
                if not (few and source.nbytes <= SMALL_BYTES) and source.flags.c_contiguous:
                    if find(source) is not None:
                        kind = TileAt.SHARED
                    elif self._readable[item]:
                        kind = TileAt.PRIVATE
            kinds.append(kind)
        return tuple(kinds)

    def opens(self, targets: Arrays) -> tuple[bool, ...]:
        """Decide into which of this rank's targets neighbours shall write, if they bring at all."""
        several = len(self._world.node.ranks) > 1
        return tuple(
            several
            and part.step.is_brought
            and not part.step.fills  # which happens after the meeting, as they write
            and (target is None or target.nbytes == 0 or _can_open(target))
            for part, target in zip(self._parts, targets, strict=True)
        )

    def describe(
        self,
        parity: int,
        kinds: Sequence[TileAt],
        sources: Arrays,
        opens: Sequence[bool],
        targets: Arrays,
    ) -> None:
        """Tell the neighbours where this rank's tiles are found, and which targets they write."""
        rows = self._world.pages.own.descriptions[parity]
        for item, (kind, source, is_open, target) in enumerate(
            zip(kinds, sources, opens, targets, strict=True)
        ):
            place = _place(source) if kind == TileAt.SHARED else NO_PLACE
            if kind == TileAt.PRIVATE and source is not None:
                place = (0, 0, 0, address_of(source))
            rows[item, :5] = (kind, *place)
            rows[item, 5:10] = (is_open, *(_place(target) if is_open else NO_PLACE))

    def look(self, parity: int, all_pooled: bool, table: Addresses) -> Found:
        """Find every neighbour's tiles; their addresses go into the table."""
        world, bases, slot_bytes = self._world, self._bases, self._staging.slot_bytes
        kinds: Kinds = {}
        opened: set[tuple[int, int]] = set()
        for rank in world.node.ranks:
            page = world.pages[rank]
            described = not all_pooled and world.meeting.flag_of(rank)
            for item in range(len(self._parts)):
                kind = TileAt.POOL if self._staging.exports[rank, item] else TileAt.NOTHING
                table[bases.neighbour(rank, item)] = page.slot(parity, slot_bytes)
                if described:
                    row = page.descriptions[parity][item, :10].tolist()
                    kind = TILE_AT[row[0]]
                    if kind in IN_PLACE and rank != world.rank:
                        table[bases.neighbour(rank, item)] = self._address(rank, row[1:5])
                    if row[5]:
                        opened.add((rank, item))
                    if row[5] and row[8] and rank != world.rank:
                        there = self._address(rank, row[6:10], writes=True)
                        table[bases.open_target(rank, item)] = there
                kinds[rank, item] = kind
        return Found(kinds, frozenset(opened))

    def _address(self, rank: int, place: Sequence[int], writes: bool = False) -> int:
        """Where a neighbour's array is: in its segment, mapped here, or in its private memory."""
        fd, number, n_bytes, offset = place
        if not n_bytes:
            return offset
        handle = Handle(self._world.node.pids[rank], fd, number, n_bytes)
        return address_of(self._world.map_segment(rank, handle, writes)) + offset


def _place(array: AnyArray | None) -> Place:
    """Where an array in shared memory is."""
    found = None if array is None or array.nbytes == 0 else find(array)
    if found is None:
        return NO_PLACE
    handle, offset = found
    return handle.fd, handle.number, handle.n_bytes, offset


def _can_open(target: AnyArray) -> bool:
    large = target.nbytes >= BROUGHT_BYTES
    return large and target.flags.c_contiguous and find(target) is not None


def _run_bytes(piece: Piece, itemsize: int) -> int:
    source = piece.src_strides(c_strides(piece.src_shape, itemsize))
    target = piece.dst_strides(c_strides(piece.dst_shape, itemsize))
    return canonical(piece.shape, itemsize, target, source).block
