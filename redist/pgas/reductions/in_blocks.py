"""Sums and products of 16-bit floats: f32 inside a block of rows, f64 from block to block.

Adding 2^24 values to one f32 number, one after another, loses the last ones: the number has grown too large
for them. NumPy adds in pairs along the innermost dim only. So a tile is added up in blocks of at most
``BLOCK_ELEMS``, whose f32 results are added in f64; the whole is rounded to f32 at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from redist.pgas.kinds import F32
from redist.pgas.tiles.tiled import Tile

BLOCK_ELEMS = 2**12
"""Of one result: this many values are added up in f32."""
MOST_ELEMS = 2**18
"""A block has no more elements than this."""


def sum_in_f32(tile: Tile, axis: tuple[int, ...], dtype: Any = F32, keepdims: bool = False) -> Tile:
    """**Local.** The sum over dims, as f32 or what else is asked.

    >>> float(sum_in_f32(np.ones((2**13, 1), np.float16), (0, 1)))
    8192.0
    """
    return _reduce(np.add, tile, axis, dtype, keepdims)


def prod_in_f32(
    tile: Tile, axis: tuple[int, ...], dtype: Any = F32, keepdims: bool = False
) -> Tile:
    """**Local.** The product over dims, as f32 or what else is asked."""
    return _reduce(np.multiply, tile, axis, dtype, keepdims)


def _reduce(
    function: np.ufunc, tile: Tile, axis: tuple[int, ...], dtype: Any, keepdims: bool
) -> Tile:
    out = np.empty([1 if i in axis else n for i, n in enumerate(tile.shape)], dtype)
    _fill(function, tile, axis, out)
    return out if keepdims else out.squeeze(axis)


def _fill(function: np.ufunc, tile: Tile, axis: tuple[int, ...], out: Tile) -> None:
    """Write results a block at a time: blocks cut dims that the result keeps."""
    kept = [i for i, n in enumerate(out.shape) if n > 1]
    if tile.size <= MOST_ELEMS or not kept:
        out[...] = _total(function, tile, axis)
        return
    dim = max(kept, key=lambda i: (abs(tile.strides[i]), -i))
    for part in _parts(tile, dim, MOST_ELEMS * out.shape[dim] // tile.size):
        _fill(function, tile[part], axis, out[part])


def _total(function: np.ufunc, tile: Tile, axis: tuple[int, ...]) -> Tile:
    """Results of a block, its reduced dims cut until few enough values are added up in f32."""
    rows = [i for i in axis if tile.shape[i] > 1]
    n = math.prod(tile.shape[i] for i in axis)
    if not rows or n <= BLOCK_ELEMS:
        return function.reduce(tile.astype(F32), axis=axis, keepdims=True)
    dim = max(rows, key=lambda i: (abs(tile.strides[i]), -i))
    total: Any = None
    for part in _parts(tile, dim, BLOCK_ELEMS * tile.shape[dim] // n):
        made = _total(function, tile[part], axis).astype(np.float64)
        total = made if total is None else function(total, made)
    return total


def _parts(tile: Tile, dim: int, length: int) -> Iterator[tuple[slice, ...]]:
    step = max(1, length)
    for at in range(0, tile.shape[dim], step):
        yield (*(slice(None),) * dim, slice(at, at + step))
