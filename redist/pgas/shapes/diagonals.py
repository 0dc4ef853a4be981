"""Diagonals of a pair of dims: each rank takes what lies in its tile."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.lower_bound import lower_bound_bytes
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.ownership import own_box
from redist.pgas.tiles.tiled import T


@lru_cache(maxsize=1024)
def _one_cut_type(t: ArrayType, first: int, second: int) -> ArrayType:
    """The cheapest type that cuts at most one of two dims, with tiles of the same size."""
    dims = list(t.dims)
    if not dims[first] or not dims[second]:
        return t
    found = []
    for keep, give in ((first, second), (second, first)):
        new = list(dims)
        new[keep], new[give] = (*dims[keep], *dims[give]), ()
        found.append(t.with_dims(new))
    return min(found, key=lambda end: lower_bound_bytes(t, end))


@asked
def diagonal(x: T, first: int, second: int, offset: int = 0) -> T:
    """**Collective** if both dims are cut. Elements ``i, i + offset`` of two dims, as the last dim.

    With an offset of 0 and a square array the result is cut as the dim that was cut; else it is whole
    along its last dim, by a sum in which each rank gives what it has.
    """
    x = resolve_pending(x)
    x = move(x, _one_cut_type(x.type, first, second))
    t = x.type
    rest = [i for i in range(t.ndim) if i not in (first, second)]
    rows, columns = t.shape[first], t.shape[second]
    n = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    cut = t.dims[first] or t.dims[second]
    aligned = offset == 0 and rows == columns
    shape = (*(t.shape[i] for i in rest), n)
    dims = (*(t.dims[i] for i in rest), cut if aligned else ())
    pending = () if aligned else cut
    op = ("max" if x.dtype == np.bool_ else "sum") if pending else None
    result = ArrayType(t.mesh, t.dtype, shape, dims, op, pending)
    if x.tile is None:
        return x.new(result, None)
    box = own_box(x)
    (top, below), (left, right) = box[first], box[second]
    low, high = max(0, -offset), max(0, -offset) + n  # rows that the diagonal passes
    r0 = max(low, top, left - offset)
    r1 = max(r0, min(high, below, right - offset))
    tile = x.tile.transpose([*rest, first, second])
    i = x._memory.asarray(np.arange(r0, r1))
    part = tile[..., i - top, i + offset - left]
    if aligned or not pending:
        return x.new(result, x._memory.contiguous(part))
    out = x._memory.empty((*part.shape[:-1], n), x.dtype, result.tile_bytes)
    out[...] = 0
    out[..., r0 - low : r1 - low] = part
    return x.new(result, out)
