"""One array in the global address space: its window, and what an interval has put so far."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from redist.layout.array_type import ArrayType
from redist.pgas.buffers import BUFFERS, check_room
from redist.pgas.choosing import Selection
from redist.pgas.tiled import Tile
from redist.runtime.delivery import MESSAGE_BYTES
from redist.runtime.parts import Part
from redist.runtime.segments import Bytes
from redist.runtime.window import Window

OPS: dict[str, np.ufunc | None] = {
    "replace": None,
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
NAMES = tuple(OPS)
MOST_BYTES = MESSAGE_BYTES - 1024
"""Of a record; larger writes are several."""


class Space:
    """What this rank knows of an array in the global address space.

    ``log`` has the writes of this interval for every rank, in order, ready to travel. They count
    against the memory limit until the interval ends.
    """

    __slots__ = (
        "cuts", "dtype", "is_open", "log", "log_bytes", "peeked", "shape", "tile", "tiles", "type",
        "views", "window",
    )  # fmt: skip

    def __init__(self, window: Window) -> None:
        self.window = window
        self.type: ArrayType = window.type
        self.tile: Tile | None = window.tile
        self.shape, self.tiles, self.cuts = window.shape, window.tiles, window.cuts
        self.views, self.peeked, self.dtype = window.views, window.peeked, window.dtype
        self.is_open = False
        self.log: dict[int, list[Bytes]] = {}
        self.log_bytes = 0

    def read(self, selection: Selection) -> Any:
        """**Local.** The elements selected, as an array of this rank's own or one number."""
        part = selection.part
        check_room(part.n_elems * self.dtype.itemsize)
        out = np.empty(part.shape, self.dtype)
        self.window.read(selection.pieces(self.shape, self.tiles, self.cuts), out)
        return out.reshape(selection.shape)[()]

    def write(self, selection: Selection, values: Any, op: str) -> None:
        """**Local.** Note a write for the end of the interval."""
        part = selection.part
        check_room(part.n_elems * (2 * self.dtype.itemsize + (8 if part.flat else 0)))
        data = np.empty(selection.shape, self.dtype)
        data[...] = values
        data = data.reshape(part.shape)
        made: list[tuple[int, Bytes]] = []
        code = NAMES.index(op)
        for shard, piece, where in selection.pieces(self.shape, self.tiles, self.cuts):
            given = data[where]
            has_list = any(not isinstance(dim, range) for dim in piece.dims)
            most = MOST_BYTES // (self.dtype.itemsize + (8 if has_list else 0))
            for small, there in piece.split(most):
                made.append((shard, _record(code, small, given[there])))
        for shard, record in made:
            self.log_bytes += len(record)
            BUFFERS.live_bytes += len(record)
            for rank in self.window.holders[shard]:
                self.log.setdefault(rank, []).append(record)

    def take(self, record: Bytes) -> None:
        """**Local.** Do a write to this rank's tile."""
        assert self.tile is not None
        words = record[: len(record) // 8 * 8].view(np.int64)
        part, n = Part.read(words[1:])
        start = 8 * (1 + n)
        n_bytes = math.prod(part.shape) * self.dtype.itemsize
        values = record[start : start + n_bytes].view(self.dtype).reshape(part.shape)
        index = part.index(self.tile.shape)
        function = OPS[NAMES[int(words[0])]]
        if function is None:
            self.tile[index] = values
        elif part.repeats:
            function.at(self.tile, index, values)
        else:
            self.tile[index] = function(self.tile[index], values)

    def forget(self) -> None:
        """**Local.** Drop what this interval has put."""
        BUFFERS.live_bytes -= self.log_bytes
        self.log, self.log_bytes = {}, 0


def _record(code: int, part: Part, values: Tile) -> Bytes:
    """A write as bytes: the operation, the part of the tile, the values."""
    words = part.words()
    n_bytes = 8 * (1 + len(words)) + values.nbytes
    record = np.empty(-(-n_bytes // 8) * 8, np.uint8)
    head = record[: 8 * (1 + len(words))].view(np.int64)
    head[0], head[1:] = code, words
    body = record[len(head) * 8 : n_bytes].view(values.dtype).reshape(values.shape)
    body[...] = values
    return record
