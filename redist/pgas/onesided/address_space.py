"""One array in the global address space: its window, and what an interval has put so far."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, ClassVar

import numpy as np

from redist.layout.array_type import ArrayType
from redist.pgas.keeper import FAR_BYTES
from redist.pgas.memory import BUFFERS, SHARED_FROM, TileMemory
from redist.pgas.onesided.index_selection import TileSelection
from redist.pgas.tiles.tiled import Tile
from redist.pgas.watch.seam import FarRead, traffic
from redist.runtime.elements.inspected import OPS
from redist.runtime.index_sets.part import Part
from redist.runtime.onesided.delivery import (
    MESSAGE_BYTES,
    enclose,
    in_segment,
    once,
    open_record,
    refer,
    segment_of,
)
from redist.runtime.onesided.window import Index, Window
from redist.runtime.shm.segments import Bytes, find
from redist.text.call_site import Line, calling_line

# Blocks of tiles on other nodes, kept within an interval and fetched ahead in the next.
#
# Reads of an interval see the values from its start, so what was fetched stays right until the fence: no rank
# must be told. A line of a program reads much the same blocks in every interval: when it misses one, all
# that it read in the interval before are fetched with it, in one go.


Block = tuple[int, Part]
"""The number of a tile, and which part of it."""


_NUMBERS = count()


class FarBlocks:
    """Reads parts of tiles for one array, those of other nodes as seldom as can be.

    ``prefetch`` and ``cache`` may be switched off, for comparison.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self.prefetch = self.cache = True
        self._number = next(_NUMBERS)
        self._interval = 0
        self._now: dict[Line, dict[Any, Block]] = {}
        """By line: what it has read in this interval."""
        self._before: dict[Line, dict[Any, Block]] = {}
        self._kept: list[Any] = []
        self._ahead: dict[Any, tuple[Line, int]] = {}
        """What was fetched ahead and not read yet: for which line, and its bytes."""

    def read(self, parts: Iterable[tuple[int, Part, Index]], out: Tile, line: Line) -> None:
        """**Local.** Copy parts of tiles to places in ``out``."""
        near, missing, there = [], [], []
        for shard, part, where in parts:
            if shard not in self.window.sources:
                near.append((shard, part, where))
                continue
            key = self._key(shard, part)
            self._now.setdefault(line, {})[key] = shard, part
            block = FAR_BYTES.get(key) if self.cache else None
            if block is None:
                missing.append((key, shard, part, where))
            else:
                there.append((block, where))
                self._ahead.pop(key, None)
                traffic().note(line, FarRead(hits=1, kept_bytes=block.nbytes))
        if near:
            self.window.read(near, out)
        if missing:
            there += self._fetch(missing, line)
        self.window.put(there, out)

    def _fetch(
        self, missing: list[tuple[Any, int, Part, Index]], line: Line
    ) -> list[tuple[Any, Index]]:
        """Fetch what is missing, and with it what the line read in the interval before."""
        wanted = {key: (shard, part) for key, shard, part, _ in missing}
        ahead: dict[Any, Block] = {}
        if self.prefetch and self.cache:
            before = self._before.pop(line, {})  # once in an interval
            now = self._now[line]
            for shard, part in before.values():
                key = self._key(shard, part)
                if key not in wanted and key not in now:
                    ahead[key] = shard, part
        asked = {**wanted, **ahead}
        blocks = dict(zip(asked, self.window.fetch(asked.values()), strict=True))
        fetched = sum(block.nbytes for block in blocks.values())
        traffic().note(line, FarRead(misses=len(wanted), fetched_bytes=fetched))
        if self.cache:
            for key, block in blocks.items():
                if FAR_BYTES.put(key, block, block.nbytes):
                    self._kept.append(key)
                    if key in ahead:
                        self._ahead[key] = line, block.nbytes
        return [(blocks[key], where) for key, _, _, where in missing]

    def _key(self, shard: int, part: Part) -> Any:
        return self._number, self._interval, shard, part.words().tobytes()

    def end_interval(self) -> None:
        """**Local.** Keep nothing of this interval but what its lines have read."""
        for line, n_bytes in self._ahead.values():
            traffic().note(line, FarRead(wasted_bytes=n_bytes))
        for key in self._kept:
            FAR_BYTES.drop(key)
        self._interval += 1
        self._before, self._now = self._now, {}
        self._kept, self._ahead = [], {}


NAMES = tuple(OPS)
REFER_FROM = 4096
"""Values from this many bytes on stay where they were put, for owners on the same node to read."""
MOST_BYTES = MESSAGE_BYTES - 1024
"""Of a record; larger writes are several."""


class ArrayAccess:
    """What this rank knows of an array in the global address space.

    ``log`` has the writes of this interval for every rank, in order, ready to travel; ``staged`` what
    they refer to. Both count against the memory limit until the interval ends.
    """

    memory: ClassVar[TileMemory] = BUFFERS

    __slots__ = (
        "cuts", "dtype", "far", "is_open", "log", "log_bytes", "peeked", "shape", "staged", "tile", "type",
        "views", "window",
    )  # fmt: skip

    def __init__(self, window: Window) -> None:
        self.window = window
        self.type: ArrayType = window.type
        self.tile: Tile | None = window.tile
        self.shape, self.cuts = window.shape, window.cuts
        self.views, self.peeked, self.dtype = window.views, window.peeked, window.dtype
        self.is_open = False
        self.far = FarBlocks(window) if window.sources else None
        """Reads tiles of other nodes; None if there are none."""
        self.log: dict[int, list[Bytes]] = {}
        self.log_bytes = 0
        self.staged: list[Any] = []

    def read(self, selection: TileSelection) -> Any:
        """**Local.** Read the elements selected, as a new array or one number."""
        part = selection.part
        self.memory.check_room(part.n_elems * self.dtype.itemsize)
        out = self.new(part.shape)
        pieces = selection.pieces(self.cuts)
        if self.far is not None and self.is_open:
            self.far.read(pieces, out, calling_line())
        else:
            self.window.read(pieces, out)
        return self.given(out.reshape(selection.shape))

    def new(self, shape: tuple[int, ...]) -> Any:
        """**Local.** An array for elements that are copied."""
        return np.empty(shape, self.dtype)

    def given(self, out: Any) -> Any:
        """**Local.** Elements that were read, as the user gets them."""
        return out[()]

    def write(self, selection: TileSelection, values: Any, op: str) -> None:
        """**Local.** Note a write for the end of the interval."""
        data = self.copied(selection, values)
        code = NAMES.index(op)
        made: list[tuple[int, Bytes]] = []
        for shard, piece, where in selection.pieces(self.cuts):
            holders, near = self.window.holders[shard], self.window.near
            given = self.part_of(data, piece, where)
            close = [rank for rank in holders if rank in near]
            records = list(self.references(code, piece, given)) if close else []
            if records:
                made += [(rank, record) for record in records for rank in close]
                holders = [rank for rank in holders if rank not in near]
            if holders:
                records = list(self._records(code, piece, self.on_host(given)))
                made += [(rank, record) for record in records for rank in holders]
        for record in {id(record): record for _, record in made}.values():
            self.log_bytes += len(record)
            BUFFERS.live_bytes += len(record)
        for rank, record in made:
            self.log.setdefault(rank, []).append(record)

    def part_of(self, data: Any, piece: Part, where: Index) -> Any:
        """**Local.** The values of a part."""
        return data[where] if piece.has_list else data[(*where, ...)]

    def on_host(self, given: Any) -> Tile:
        """**Local.** Values that travel."""
        values: Tile = given
        return values

    def references(self, code: int, piece: Part, given: Any) -> Iterator[Bytes]:
        """**Local.** Records for owners on the node that leave values where they are; none if they travel."""
        if not piece.has_list and find(given) is not None and once(given).nbytes >= REFER_FROM:
            self.staged.append(given)
            values = once(given)
            yield refer(code, piece, values, segment_of(values, self.window.world.rank))

    def copied(self, selection: TileSelection, values: Any) -> Any:
        """Copy values as they are now, in the array's dtype; those that repeat are kept once.

        Many lie in shared memory, where the owners of the elements find them.
        """
        part, itemsize = selection.part, self.dtype.itemsize
        shape = kept_shape(selection, np.shape(values))
        n_bytes = math.prod(shape) * itemsize
        travels = part.has_list or n_bytes < SHARED_FROM or not self.window.world.one_node
        extra = n_bytes + (8 * part.n_elems if part.flat else 0) if travels else 0
        BUFFERS.check_room((n_bytes if n_bytes < SHARED_FROM else 0) + extra)
        data = np.empty(shape, self.dtype) if part.has_list else BUFFERS.empty(shape, self.dtype, 0)
        data[...] = values
        wide = data if shape == selection.shape else np.broadcast_to(data, selection.shape)
        return wide.reshape(part.shape)

    def _records(self, code: int, piece: Part, given: Tile) -> Iterator[Bytes]:
        """Cut a write into parts that fit a message each, the values with them."""
        if not piece.has_list and once(given).nbytes <= MOST_BYTES:
            yield enclose(code, piece, once(given))
            return
        most = MOST_BYTES // (self.dtype.itemsize + (8 if piece.has_list else 0))
        for small, there in piece.split(most):
            yield enclose(code, small, given[there])

    def take(self, record: Bytes) -> None:
        """**Local.** Do a write to this rank's tile."""
        assert self.tile is not None
        world = self.window.world
        code, part, values = open_record(
            record, self.dtype, lambda place, shape: in_segment(place, shape, self.dtype, world)
        )
        function = OPS[NAMES[code]]
        index = part.index(self.tile.shape)
        if function is None:
            self.tile[index] = values
        elif part.repeats:
            function.at(self.tile, index, np.broadcast_to(values, part.shape))
        elif part.has_list:
            self.tile[index] = function(self.tile[index], values)
        else:
            view = self.tile[(*index, ...)]
            function(view, values, out=view)

    def finish(self) -> None:
        """**Local.** Have done all that was taken."""

    def forget(self) -> None:
        """**Local.** Drop what this interval has put, and fetched."""
        BUFFERS.live_bytes -= self.log_bytes
        self.log, self.log_bytes, self.staged = {}, 0, []
        if self.far is not None:
            self.far.end_interval()


def kept_shape(selection: TileSelection, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which values of a shape are kept: those that repeat are kept once."""
    is_larger = len(shape) > len(selection.shape) or math.prod(shape) >= selection.part.n_elems
    return selection.shape if selection.part.has_list or is_larger else shape
