"""A write to a tile as bytes that travel: what to do, with which part, and the values or where they lie."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.tiles import Ints
from redist.runtime.index_sets.part import Part
from redist.runtime.ranks.world import World
from redist.runtime.shm.segments import Bytes, Handle, find
from redist.text.units import ceil_div

Tile = NDArray[Any]
REFERENCE = 6
"""Words that say where values lie, before their strides."""


def enclose(code: int, part: Part, values: Tile) -> Bytes:
    """A record with its values; those of size 1 along a dim stretch."""
    words = _head(code, 0, part, values)
    n_bytes = 8 * len(words) + values.nbytes
    record = np.empty(ceil_div(n_bytes, 8) * 8, np.uint8)
    record[: 8 * len(words)].view(np.int64)[:] = words
    body = record[8 * len(words) : n_bytes].view(values.dtype).reshape(values.shape)
    body[...] = values
    return record


def refer(code: int, part: Part, values: Tile, rank: int) -> Bytes:
    """A record for ranks of this node: the values stay in this rank's shared memory."""
    values = once(values)
    found = find(values)
    assert found is not None
    handle, offset = found
    place = rank, handle.pid, handle.fd, handle.number, handle.n_bytes, offset
    words = [_head(code, 1, part, values), np.array([*place, *values.strides], dtype=np.int64)]
    return np.concatenate(words).view(np.uint8)


def open_record(record: Bytes, dtype: np.dtype[Any], world: World) -> tuple[int, Part, Tile]:
    """**Local.** What a record says: operation, part, values.

    >>> record = enclose(3, Part((range(4, 0, -2), np.array([5, 6]))), np.ones((2, 1)))
    >>> code, part, values = open_record(record, np.dtype("f8"), None)
    >>> code, part.dims, values.tolist()
    (3, (range(4, 0, -2), array([5, 6])), [[1.0], [1.0]])
    """
    words: Ints = record[: len(record) // 8 * 8].view(np.int64)
    code, refers = words[:2].tolist()
    part, n = Part.read(words[2:])
    at = 2 + n
    shape = words[at : at + len(part.dims)].tolist()
    at += len(part.dims)
    if not refers:
        n_bytes = math.prod(shape) * dtype.itemsize
        return code, part, record[8 * at : 8 * at + n_bytes].view(dtype).reshape(shape)
    rank, pid, fd, number, size, offset = words[at : at + REFERENCE].tolist()
    strides = words[at + REFERENCE : at + REFERENCE + len(shape)].tolist()
    memory = world.map_segment(rank, Handle(pid, fd, number, size))
    return code, part, np.ndarray(shape, dtype, memory, offset, strides)


def once(values: Tile) -> Tile:
    """Undo broadcasting: dims with stride 0 become size 1.

    >>> once(np.broadcast_to(np.arange(3), (4, 3))).shape
    (1, 3)
    """
    dims = (slice(None if stride else 1) for stride in values.strides)
    return values[(*dims, ...)]  # with the dots it is a view, without dims too


def _head(code: int, refers: int, part: Part, values: Tile) -> Ints:
    shape = np.array(values.shape, dtype=np.int64)
    return np.concatenate([np.array([code, refers], dtype=np.int64), part.words(), shape])
