"""Visits: every rank sees the rows of all ranks, one tile at a time, its own first.

Tiles of ranks on the same node are read in place: nothing is copied. Each tile of another node arrives by
one planned move, and the next move is under way while a tile is used; the first tiles to arrive are kept for
the next visit, as long as there is room.

On GPUs, tiles of ranks that share a GPU are read in place, too. Tiles on other GPUs of the node are each
copied once, while earlier kernels run. Tiles of other nodes come one after another.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.pgas.memory import BUFFERS, DEVICE
from redist.pgas.tiles.move import tile_shape
from redist.pgas.watch.seam import TileMove, VisitCounts, Wait, plus, traffic
from redist.runtime.ranks.neighbours import neighbour_tiles
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import world_of
from redist.runtime.redistribute import prepare
from redist.spmd.neighbours import share
from redist.spmd.rows import Rows, cut_by_rows
from redist.text.call_site import calling_line

Values = NDArray[Any]
WHAT = "visit the rows of all ranks"
KEPT_BYTES = 2**26
"""What a visit keeps of other nodes' tiles, if nobody says otherwise."""


class Visits:
    """Visits to the rows of all ranks; creating them, and each visit, is **collective over** the rows' ranks.

    >>> from redist.spmd import Rows
    >>> for first, tile in Visits(Rows.share([[3.0], [5.0]])):      # rows first, first + 1, ... of the whole
    ...     print(first, tile.tolist())
    0 [[3.0], [5.0]]

    Every rank must complete each visit that it starts, and must not move data during it. ``prefetch=False``
    and ``keep_bytes=0`` switch off fetching ahead and keeping tiles, for comparison; ``node_size`` pretends
    that each node has that many ranks. ``counts`` sums up what the visits did; a trace shows it by line.
    """

    def __init__(
        self,
        rows: Rows,
        *,
        prefetch: bool = True,
        keep_bytes: int = KEPT_BYTES,
        node_size: int | None = None,
    ) -> None:
        rows = rows.even_out()
        self._comm, self._prefetch = rows.comm, prefetch and not rows.on_gpu
        self._ahead = prefetch
        """Whether tiles of other GPUs of the node are copied ahead; others are, in memory alone."""
        self._on_gpu = rows.on_gpu
        self._world = world_of(rows.comm, node_size=node_size)
        self._tile = DEVICE.contiguous(rows.local) if rows.on_gpu else share(rows.local)
        self._firsts = rows.firsts()
        self._type = cut_by_rows(rows.comm.size, rows.dtype, (rows.n, *rows.local.shape[1:]))
        self.counts = VisitCounts()
        size, node = rows.comm.size, self._world.node
        near, is_complete = node.ranks, self._world.one_node
        self._on_node: Any = None
        if rows.on_gpu:
            from redist.runtime.cuda.neighbours import DeviceNeighbours

            self._on_node = DeviceNeighbours(rows.comm, self._world, self._tile, TIMEOUT_S)
            near, is_complete = self._on_node.ranks, self._on_node.is_complete
        self._is_far = [rank not in near for rank in range(size)]
        steps = () if is_complete else range(1, size)
        room = keep_bytes // max(1, self._type.tile_bytes)
        self._steps = [(step, number < room) for number, step in enumerate(steps)]
        self._moves = {step: self._prepared(step) for step in steps}
        self._kept: dict[int, Values] = {}

    def __iter__(self) -> Iterator[tuple[int, Values]]:
        """**Collective.** The first row number and the rows of each rank's tile, each once."""
        before = self.counts
        for other, tile in self._on_gpus() if self._on_gpu else self._near():
            yield int(self._firsts[other]), tile
        yield from self._far()
        self.counts = plus(self.counts, VisitCounts(visits=1))
        gained = (now - was for now, was in zip(self.counts, before, strict=True))
        traffic().note(calling_line(), VisitCounts._make(gained))

    def _near(self) -> Iterator[tuple[int, Values]]:
        """**Collective over the node.** The tiles that are read in place, by rank, the own one first."""
        with neighbour_tiles(self._world, self._tile, self._tile.dtype, WHAT, TIMEOUT_S) as near:
            for other in self._in_turn(near.tiles):
                self._count_in_place(near.tiles[other])
                yield other, near.tiles[other]

    def _on_gpus(self) -> Iterator[tuple[int, Values]]:
        """**Collective over the node.** Tiles of this GPU, the own one first, then those of the others."""
        from redist.runtime.cuda.neighbours import copied_ahead

        near = self._on_node
        with near.reading(WHAT, TIMEOUT_S):
            for other in self._in_turn(near.tiles):
                self._count_in_place(near.tiles[other])
                yield other, near.tiles[other]
            others = self._in_turn(near.beside)
            copies = copied_ahead([near.beside[other] for other in others], self._ahead)
            for other, tile in zip(others, copies, strict=True):
                done = VisitCounts(fetched=1, ahead=int(self._ahead), fetched_bytes=tile.nbytes)
                self.counts = plus(self.counts, done)
                yield other, tile

    def _in_turn(self, ranks: Iterable[int]) -> list[int]:
        """Ranks from this one on."""
        return sorted(ranks, key=lambda other: (other - self._comm.rank) % self._comm.size)

    def _count_in_place(self, tile: Values) -> None:
        self.counts = plus(self.counts, VisitCounts(in_place=1, in_place_bytes=tile.nbytes))

    def _far(self) -> Iterator[tuple[int, Values]]:
        """**Collective.** The tiles of other nodes, in the same order of steps on all ranks."""
        size, rank = self._comm.size, self._comm.rank
        under_way: dict[int, Wait] = {}
        to_fetch = [step for step, _ in self._steps if step not in self._kept]
        ahead = iter(to_fetch)
        if self._prefetch:
            self._start(next(ahead, None), under_way)
        for step, keeps in self._steps:
            other = (rank + step) % size
            if step in self._kept:
                tile = self._kept[step]
                done = VisitCounts(kept=1, kept_bytes=tile.nbytes)
            else:
                if not self._prefetch:
                    self._start(step, under_way)
                started = time.perf_counter()
                got = under_way.pop(step)()
                waited = time.perf_counter() - started
                tile = self._tile[:0] if got is None else got
                self.counts = plus(self.counts, VisitCounts(waited_s=waited))
                early = int(self._prefetch)
                done = VisitCounts(fetched=1, ahead=early, fetched_bytes=tile.nbytes)
                if self._prefetch:
                    self._start(next(ahead, None), under_way)
                if keeps:
                    self._kept[step] = tile
            if self._is_far[other]:
                self.counts = plus(self.counts, done)
                yield int(self._firsts[other]), tile

    def _prepared(self, step: int) -> TileMove:
        """**Collective.** The move by which each rank gets the tile of the rank ``step`` after it."""
        size = self._comm.size
        ranks = tuple((place - step) % size for place in range(size))
        turned = Mesh({"x": size}, ranks=ranks)
        t = self._type
        target = ArrayType(turned, t.dtype, t.shape, t.dims)
        shape = tile_shape(target, self._comm.rank)
        if self._on_gpu:
            return TileMove(self._tile, t, target, shape, DEVICE)
        return TileMove(self._tile, t, target, shape, BUFFERS, prepare(t, target, self._comm))

    def _start(self, step: int | None, under_way: dict[int, Wait]) -> None:
        """**Collective.** Begin to fetch the tile of a step, if there is one more."""
        if step is None:
            return
        move = self._moves[step]
        if not self._on_gpu:
            under_way[step] = traffic().start(move, self._comm)
            return
        tile, transfer = traffic().redistribute(move, self._comm, None)
        self._moves[step] = move._replace(prepared=transfer)
        under_way[step] = lambda: tile
