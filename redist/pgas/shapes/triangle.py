"""The lower and the upper half of matrices."""

from __future__ import annotations

import numpy as np

from redist.errors import ArgumentError
from redist.layout.tiles import box_of
from redist.pgas.tiles.arguments import takes_array
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import T


@asked
@takes_array
def tril(x: T, /, *, k: int = 0) -> T:
    """**Local** unless a reduction is pending. Write zeros above a diagonal."""
    return _half(x, k, lower=True)


@asked
@takes_array
def triu(x: T, /, *, k: int = 0) -> T:
    """**Local** unless a reduction is pending. Write zeros below a diagonal."""
    return _half(x, k, lower=False)


def _half(x: T, k: int, *, lower: bool) -> T:
    if x.ndim < 2:
        raise ArgumentError(f"cannot take half of an array of {x.ndim} dims: need 2")
    x = resolve_pending(x)
    out = x.new(x.type, new_tile(x, x.type))
    box = box_of(x.type, x.comm.rank)
    if out.tile is not None and x.tile is not None and box is not None:
        (first, last), (start, end) = box[-2:]
        if x._memory.on_device:
            out.tile[...] = (np.tril if lower else np.triu)(x.tile, k + first - start)
            return out
        np.copyto(out.tile, x.tile)
        for i in range(last - first):  # row by row: no table of the whole tile
            edge = min(max(first + i + k + int(lower) - start, 0), end - start)
            out.tile[..., i, slice(edge, None) if lower else slice(0, edge)] = 0
    return out
