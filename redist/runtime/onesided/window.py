"""Windows: how a rank reads every tile of one array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.tiles import grid
from redist.runtime.index_sets.part import Part
from redist.runtime.onesided.read_service import ANSWER_BYTES, Ask, ReadService
from redist.runtime.ranks.waiting import wait_for
from redist.runtime.ranks.world import World
from redist.runtime.shm.process_reads import peek, peeker
from redist.runtime.shm.segments import Handle

Tile = NDArray[Any]
Index = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TilePlace:
    """Where a rank's tile lies, as other processes need it."""

    pid: int
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    handle: Handle | None
    offset: int
    writable: bool


class Peeked:
    """A tile in the private memory of a neighbour."""

    def __init__(self, place: TilePlace, dtype: np.dtype[Any]) -> None:
        self._place, self._dtype = place, dtype
        self._one = np.empty(1, dtype)
        self._peek_one = peeker(place.pid, self._one.view(np.uint8))

    def item(self, inside: Sequence[int]) -> Any:
        """One element, by its indices in the tile."""
        address = self._place.address
        for i, stride in zip(inside, self._place.strides):  # noqa: B905
            address += i * stride
        self._peek_one(address)
        return self._one[0]

    def read(self, part: Part, out: Tile) -> None:
        """Copy a part to a contiguous array."""
        place = self._place
        offsets, run_bytes = part.runs(place.shape, place.strides, self._dtype.itemsize)
        peek(place.pid, offsets + place.address, run_bytes, out.reshape(-1).view(np.uint8))


class Window:
    """The tiles of an array as this rank reaches them. Made by ``publish``.

    ``views`` has an array for each tile that is a load away: this rank's own, and those in shared
    memory of the node. Other tiles are read through the kernel, or by asking their rank.
    """

    def __init__(
        self,
        world: World,
        number: int,
        t: ArrayType,
        tile: Tile | None,
        service: ReadService | None,
        timeout_s: float | None,
    ) -> None:
        self.world, self.number, self.type, self.tile = world, number, t, tile
        self.service = service
        """Reads tiles of other nodes; None if there is none to read."""
        self.timeout_s, self.name = timeout_s, str(t)
        self.dtype = t.dtype.to_numpy()
        numbers = grid(t)
        self.shape = t.shape
        self.cuts = tuple(map(t.cut, range(t.ndim)))
        shards, holders = numbers.shards().tolist(), t.mesh.ranks
        self.holders: dict[int, list[int]] = {}
        for shard, rank in zip(shards, holders, strict=True):
            self.holders.setdefault(shard, []).append(rank)
        self.views: list[Tile | None] = [None] * (max(shards) + 1)
        self.peeked: dict[int, Peeked] = {}
        self.sources: dict[int, int] = {}
        self.fixed: tuple[int, ...] = ()

    def connect(self, places: Sequence[TilePlace | None]) -> None:
        """Find the nearest copy of every tile."""
        world = self.world
        self.fixed = tuple(
            rank for rank, place in enumerate(places) if place is not None and not place.writable
        )
        for shard, holders in self.holders.items():
            near = [rank for rank in holders if rank in world.node.ranks]
            if world.rank in holders:
                self.views[shard] = self.tile
                continue
            for rank in near:
                place = places[rank]
                assert place is not None
                if place.handle is not None:
                    memory = world.map_segment(rank, place.handle)
                    self.views[shard] = np.ndarray(
                        place.shape, self.dtype, memory, place.offset, place.strides
                    )
                    break
                if world.reads_memory:
                    self.peeked[shard] = Peeked(place, self.dtype)
                    break
            else:
                self.sources[shard] = holders[world.rank % len(holders)]

    def fetch(self, blocks: Iterable[tuple[int, Part, Tile]]) -> None:
        """**Local.** Fill contiguous arrays with parts of tiles on other nodes, asked for together."""
        most = max(1, ANSWER_BYTES // self.dtype.itemsize)
        asked: list[Ask] = []
        for shard, part, block in blocks:
            rank, whole = self.sources[shard], cast(Any, block)
            asked += [(rank, self.number, p, whole[(*there, ...)]) for p, there in part.split(most)]
        self._ask(asked)

    def _ask(self, asked: list[Ask]) -> None:
        if asked:
            assert self.service is not None
            watch = self.world.failure
            self.service.ask(asked, lambda requests: wait_for(requests, self.timeout_s, watch))

    def read(self, parts: Iterable[tuple[int, Part, Index]], out: Tile) -> None:
        """**Local.** Copy parts of tiles, by number, to places in ``out``."""
        asked: list[Ask] = []
        answers: list[tuple[Index, Tile]] = []
        most = max(1, ANSWER_BYTES // self.dtype.itemsize)
        for shard, part, where in parts:
            view = self.views[shard]
            if view is not None:
                out[where] = view[part.index(view.shape)]
                continue
            piece: Any = out[(*where, ...)]
            if not (np.may_share_memory(piece, out) and piece.flags.c_contiguous):
                piece = np.empty(part.shape, self.dtype)
                answers.append((where, piece))
            if shard in self.peeked:
                self.peeked[shard].read(part, piece)
                continue
            rank = self.sources[shard]
            asked += [(rank, self.number, p, piece[(*there, ...)]) for p, there in part.split(most)]
        self._ask(asked)
        for where, piece in answers:
            out[where] = piece
