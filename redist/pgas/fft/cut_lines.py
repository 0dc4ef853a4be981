"""Transforms of lines too long for a rank: a line becomes a matrix, and its columns and rows follow.

With n = rows * columns, element i at (i // columns, i % columns): transform the columns, multiply by
roots of unity, transform the rows, and read the result down the columns. Three moves, no gathering.
Both factors must be multiples of the number of tiles; see :mod:`redist.pgas.fft.any_length` for other
lengths.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from redist.layout.array_type import ArrayType
from redist.pgas.tiles.budget import require_room
from redist.pgas.tiles.layouts import dtype_of, with_dtype
from redist.pgas.tiles.move import move
from redist.pgas.tiles.ownership import own_box
from redist.pgas.tiles.tiled import T, Tile

CHUNK_BYTES = 2**17
"""Of lines that are transformed together."""


def factors(n: int, p: int) -> tuple[int, int] | None:
    """Two factors of n, both multiples of p, as near to each other as can be.

    >>> factors(4096, 4), factors(4098, 4)
    ((64, 64), None)
    """
    if n == 0 or n % (p * p):
        return None
    rest = n // (p * p)
    a = next(k for k in range(math.isqrt(rest), 0, -1) if rest % k == 0)
    return a * p, rest // a * p


def scale_of(size: int, inverse: bool, norm: str) -> float:
    """The factor of a norm, by which values are multiplied."""
    if norm == "ortho":
        return 1.0 / math.sqrt(size)
    return 1.0 / size if inverse == (norm == "backward") else 1.0


def by_rows(x: T, dim: int, inverse: bool, scale: float) -> T:
    """**Collective.** Transform along a cut dim whose length has :func:`factors`."""
    p, size = x.type.cuts[dim], x.shape[dim]
    found = factors(size, p)
    assert found is not None
    rows, columns = found
    dtype = np.result_type(x.dtype, np.complex64)
    cut = x.type.dims[dim]
    order = [dim, *(i for i in range(x.ndim) if i != dim)]
    rest = tuple(x.shape[i] for i in order[1:])
    others = tuple(x.type.dims[i] for i in order[1:])

    def matrix(a: int, b: int, first: Any, second: Any) -> ArrayType:
        return ArrayType(x.mesh, dtype_of(dtype), (a, b, *rest), (first, second, *others))

    tall_type = matrix(rows, columns, cut, ())
    require_room(x, "transform", 3 * with_dtype(x.type, dtype_of(dtype)).tile_bytes)
    tile = x.tile
    if tile is not None:
        line = tile.transpose(order).astype(dtype)
        if inverse:
            np.conj(line, out=line)
        tile = line.reshape(tall_type.tile_shape[0], columns, *line.shape[1:])
        del line
    first = x.new(tall_type, tile)
    del tile
    wide = move(first, matrix(rows, columns, (), cut))
    del first
    if wide.tile is not None:
        wide._memory.write(_in_place, wide.tile, 0)
        i2 = np.arange(*own_box(wide)[1])
        for k1 in range(rows):
            roots = np.exp((-2j * np.pi / size) * (k1 * i2 % size))
            wide.tile[k1] *= roots.astype(dtype).reshape(-1, *(1,) * len(rest))
    tall = move(wide, tall_type)
    del wide
    if tall.tile is not None:
        tall._memory.write(_in_place, tall.tile, 1)
    wide = move(tall, matrix(rows, columns, (), cut))
    del tall
    result = ArrayType(x.mesh, dtype_of(dtype), x.shape, x.type.dims)
    if wide.tile is None:
        return x.new(result, None)
    n, others_here = wide.tile.shape[1], wide.tile.shape[2:]
    back = [order.index(i) for i in range(x.ndim)]
    shape = tuple((n * rows, *others_here)[i] for i in back)
    out = x._memory.empty(shape, dtype, result.tile_bytes)
    down = out.transpose(order).reshape(n, rows, *others_here)
    assert np.may_share_memory(down, out) or not out.size
    np.multiply(np.swapaxes(wide.tile, 0, 1), dtype.type(scale), out=down)
    if inverse:
        np.conj(out, out=out)
    return x.new(result, out)


def _in_place(tile: Tile, dim: int) -> None:
    """**Local.** Transform a tile along dim 0 or 1, some lines at a time."""
    lines = np.moveaxis(tile, dim, -1)
    width = max(1, CHUNK_BYTES * len(lines) // max(1, tile.nbytes))
    for at in range(0, len(lines), width):
        part = lines[at : at + width]
        part[...] = np.fft.fft(np.ascontiguousarray(part), axis=-1)
