"""Transforms of lines too long for a rank: a line becomes a matrix, and its columns and rows follow.

With n = rows * columns, element i at (i // columns, i % columns): transform the columns, multiply by
roots of unity, transform the rows, and read the result down the columns. Three moves, no gathering.
Both factors must be multiples of the number of tiles; see :mod:`redist.pgas.any_lines` for other
lengths.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.tiles import grid
from redist.pgas.buffers import empty
from redist.pgas.moving import move
from redist.pgas.room import need
from redist.pgas.tiled import Tiled
from redist.pgas.types import dtype_of, with_dtype


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
    """What values are multiplied by."""
    if norm == "ortho":
        return 1.0 / math.sqrt(size)
    return 1.0 / size if inverse == (norm == "backward") else 1.0


def by_rows(x: Tiled, dim: int, inverse: bool, scale: float) -> Any:
    """**Collective.** The transform along a cut dim whose length has :func:`factors`."""
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

    need(x, "transform", 6 * with_dtype(x.type, dtype_of(dtype)).tile_bytes)
    tile = x.local
    if tile is not None:
        line = tile.transpose(order).astype(dtype)
        line = np.conj(line) if inverse else line
        tile = line.reshape(rows // p, columns, *line.shape[1:])
    wide = move(x.new(matrix(rows, columns, cut, ()), tile), matrix(rows, columns, (), cut))
    if wide.local is not None:
        step = np.fft.fft(wide.local, axis=0)
        t = wide.type
        row = list(t.mesh.ranks).index(x.comm.rank)
        lo, hi = grid(t).boxes()
        k1, i2 = np.arange(rows), np.arange(int(lo[row, 1]), int(hi[row, 1]))
        roots = np.exp((-2j * np.pi / size) * (k1[:, None] * i2[None, :] % size))
        step *= roots.reshape(*roots.shape, *(1,) * len(rest))
        np.copyto(wide.local, step, casting="same_kind")
    tall = move(wide, matrix(rows, columns, cut, ()))
    del wide
    if tall.local is not None:
        np.copyto(tall.local, np.fft.fft(tall.local, axis=1), casting="same_kind")
    wide = move(tall, matrix(rows, columns, (), cut))
    del tall
    result = ArrayType(x.mesh, dtype_of(dtype), x.shape, x.type.dims)
    if wide.local is None:
        return x.new(result, None)
    line = np.swapaxes(wide.local, 0, 1) * dtype.type(scale)
    line = np.conj(line) if inverse else line
    line = line.reshape(size // p, *line.shape[2:])
    back = [order.index(i) for i in range(x.ndim)]
    out = empty(tuple(line.shape[i] for i in back), dtype, result.tile_bytes)
    out[...] = line.transpose(back)
    return x.new(result, out)
