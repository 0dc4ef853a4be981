"""Diagonals of a pair of dims: each rank takes what lies in its tile."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.layout.lower_bound import lower_bound_bytes
from redist.layout.tiles import box_of
from redist.pgas.tiles.arguments import takes_array
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import T, own_box

# The lower and the upper half of matrices.


@asked
@takes_array
def tril(x: T, /, *, k: int = 0) -> T:
    """**Local** unless a reduction is pending. Copy an array, with zeros above a diagonal."""
    return _half(x, k, lower=True)


@asked
@takes_array
def triu(x: T, /, *, k: int = 0) -> T:
    """**Local** unless a reduction is pending. Copy an array, with zeros below a diagonal."""
    return _half(x, k, lower=False)


def _half(x: T, k: int, *, lower: bool) -> T:
    if x.ndim < 2:
        raise ArgumentError(f"cannot take half of an array of {x.ndim} dims: need 2")
    x = resolve_pending(x)
    out = x.new(x.type, new_tile(x, x.type))
    box = box_of(x.type, x.comm.rank)
    if out.tile is not None and x.tile is not None and box is not None:
        (first, last), (start, end) = box[-2:]
        if x.memory.on_device:
            out.tile[...] = (np.tril if lower else np.triu)(x.tile, k + first - start)
            return out
        np.copyto(out.tile, x.tile)
        for i in range(last - first):  # row by row: no table of the whole tile
            edge = min(max(first + i + k + int(lower) - start, 0), end - start)
            out.tile[..., i, slice(edge, None) if lower else slice(0, edge)] = 0
    return out


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
    i = x.memory.asarray(np.arange(r0, r1))
    part = tile[..., i - top, i + offset - left]
    if aligned or not pending:
        return x.new(result, x.memory.contiguous(part))
    out = x.memory.empty((*part.shape[:-1], n), x.dtype, result.tile_bytes)
    out[...] = 0
    out[..., r0 - low : r1 - low] = part
    return x.new(result, out)
