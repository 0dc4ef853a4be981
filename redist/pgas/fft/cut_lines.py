"""Every transform of lines that are cut between ranks, of any length, real or complex.

A length that does not fall into rows and columns becomes a convolution with a chirp (Bluestein),
j * k = (j**2 + k**2 - (k - j)**2) / 2, and that a transform of a longer length that does. Real
transforms are complex ones of which half is kept, or which half fills up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.pgas.elementwise.apply import apply, astype
from redist.pgas.indexing.basic import get_basic
from redist.pgas.indexing.keys import InRange
from redist.pgas.kinds import promote, real_dtype, tile_dtype
from redist.pgas.shapes.join import concat
from redist.pgas.tiles.budget import require_room
from redist.pgas.tiles.layouts import dtype_of, with_dtype
from redist.pgas.tiles.move import move, tile_shape
from redist.pgas.tiles.tiled import T, Tile, Tiled, own_box
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import indices_beside
from redist.text.units import ceil_div

# Transforms of lines too long for a rank: a line becomes a matrix, and its columns and rows follow.
#
# With n = rows * columns, element i at (i // columns, i % columns): transform the columns, multiply by
# roots of unity, transform the rows, and read the result down the columns. Three moves, no gathering.
# Both factors must be multiples of the number of tiles; other lengths are padded, below.


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
    dtype = promote(x.dtype, np.complex64)
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
        wide.memory.write(_in_place, wide.tile, 0)
        wide.memory.write(_turn, wide.tile, own_box(wide)[1], size)
    tall = move(wide, tall_type)
    del wide
    if tall.tile is not None:
        tall.memory.write(_in_place, tall.tile, 1)
    wide = move(tall, matrix(rows, columns, (), cut))
    del tall
    result = ArrayType(x.mesh, dtype_of(dtype), x.shape, x.type.dims)
    if wide.tile is None:
        return x.new(result, None)
    n, others_here = wide.tile.shape[1], wide.tile.shape[2:]
    back = [order.index(i) for i in range(x.ndim)]
    shape = tuple((n * rows, *others_here)[i] for i in back)
    out = x.memory.empty(shape, dtype, result.tile_bytes)
    down = out.transpose(order).reshape(n, rows, *others_here)
    assert np.may_share_memory(down, out) or not out.size
    np.multiply(np.swapaxes(wide.tile, 0, 1), dtype.type(scale), out=down)
    if inverse:
        np.conj(out, out=out)
    return x.new(result, out)


def _turn(tile: Tile, columns: tuple[int, int], size: int) -> None:
    """**Local.** Multiply element (i, j) of a tile by the root of unity of i times j, some rows at a time."""
    j = indices_beside(tile, *columns)
    width = max(1, DEVICE_CHUNK // max(1, len(j))) if is_device(tile) else 1
    for at in range(0, len(tile), width):
        i = indices_beside(tile, at, min(len(tile), at + width))[:, None]
        roots = np.exp((-2j * np.pi / size) * (i * j % size)).astype(tile.dtype)
        tile[at : at + width] *= roots.reshape(*roots.shape, *(1,) * (tile.ndim - 2))


def _in_place(tile: Tile, dim: int) -> None:
    """**Local.** Transform a tile along dim 0 or 1, in memory some lines at a time."""
    if is_device(tile):
        tile[...] = np.fft.fft(tile, axis=dim)
        return
    lines = np.moveaxis(tile, dim, -1)
    width = max(1, CHUNK_BYTES * len(lines) // max(1, tile.nbytes))
    for at in range(0, len(lines), width):
        part = lines[at : at + width]
        part[...] = np.fft.fft(np.ascontiguousarray(part), axis=-1)


Axes = tuple[SubAxis, ...]
CHUNK, DEVICE_CHUNK = 2**12, 2**22
"""Indices whose factors are made together, in memory and on a GPU."""
OTHER = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def transform(x: T, name: str, dim: int, n: int | None, norm: str) -> T:
    """**Collective.** Transform along a cut dim if no other dim can take its axes."""
    cut = x.type.dims[dim]
    if name == "hfft":
        return transform(apply(np.conjugate, x), "irfft", dim, n, OTHER[norm])
    if name == "ihfft":
        return apply(np.conjugate, transform(x, "rfft", dim, n, OTHER[norm]))
    if name == "irfft":
        size = 2 * (x.shape[dim] - 1) if n is None else n
        full = _fill_up(resize(x, dim, size // 2 + 1, cut), dim, size, cut)
        return _real(transform_line(full, dim, True, norm))
    x = resize(x, dim, x.shape[dim] if n is None else n, cut)
    out = transform_line(x, dim, name == "ifft", norm)
    return resize(out, dim, x.shape[dim] // 2 + 1, cut) if name == "rfft" else out


def transform_line(x: T, dim: int, inverse: bool, norm: str) -> T:
    """**Collective.** Transform complex values along a cut dim."""
    scale = scale_of(x.shape[dim], inverse, norm)
    if factors(x.shape[dim], x.type.cuts[dim]) is not None:
        return by_rows(x, dim, inverse, scale)
    return by_chirp(x, dim, inverse, scale)


def by_chirp(x: T, dim: int, inverse: bool, scale: float) -> T:
    """**Collective.** Transform along a cut dim of any length, in double precision."""
    size, cut, p = x.shape[dim], x.type.dims[dim], x.type.cuts[dim]
    sign = 1j if inverse else -1j
    length = p * p * smooth(ceil_div(2 * size - 1, p * p))

    def chirp(k: Tile) -> Tile:
        return np.exp((sign * np.pi / size) * (k * k % (2 * size)))

    def kernel(k: Tile) -> Tile:
        near = np.minimum(k, length - k)
        return np.where(near < size, np.conj(chirp(near)), 0)

    def scaled(k: Tile) -> Tile:
        return chirp(k) * scale

    dtype = promote(x.dtype, np.complex64)
    wide = astype(x, np.complex128)
    _multiply(wide, dim, chirp)
    wide = by_rows(resize(wide, dim, length, cut), dim, False, 1.0)
    shape = tuple(length if i == dim else 1 for i in range(x.ndim))
    t = ArrayType(x.mesh, dtype_of(np.dtype(np.complex128)), shape, _cut(((),) * x.ndim, dim, cut))
    factor = _filled(x, t, 1)
    _multiply(factor, dim, kernel)
    factor = by_rows(factor, dim, False, 1.0)
    if wide.tile is not None and factor.tile is not None:
        wide.tile *= factor.tile
    del factor
    out = resize(by_rows(wide, dim, True, 1.0 / length), dim, size, cut)
    _multiply(out, dim, scaled)
    return astype(out, dtype, copy=False)


def smooth(n: int) -> int:
    """The least number from n on whose prime factors are 2, 3 and 5.

    >>> smooth(7), smooth(97), smooth(1)
    (8, 100, 1)
    """
    most = max(1, n).bit_length()
    return min(
        k * 2 ** max(0, math.ceil(math.log2(n / k)))
        for k in (3**b * 5**c for b in range(most) for c in range(most))
        if k < 2 * n + 2 or k == 1
    )


def resize(x: T, dim: int, n: int, cut: Axes) -> T:
    """**Collective** unless it has that length. Keep the first ``n`` of a cut dim, or add zeros behind it."""
    have = x.shape[dim]
    if n < have:
        x = get_basic(x, _items(x, dim, range(n)))
    elif n > have:
        shape = tuple(n - have if i == dim else m for i, m in enumerate(x.shape))
        t = ArrayType(x.mesh, x.type.dtype, shape, x.type.dims)
        x = concat([x, _filled(x, t, 0)], axis=dim)
    return move(x, x.type.with_dims(_cut(x.type.dims, dim, cut)))


def _fill_up(x: T, dim: int, size: int, cut: Axes) -> T:
    """**Collective.** Fill up lines whose second half is the conjugate of the first."""
    back = range(size - size // 2 - 1, 0, -1)
    if not back:
        return resize(x, dim, size, cut)
    half = apply(np.conjugate, get_basic(x, _items(x, dim, back)))
    out = concat([x, half], axis=dim)
    return move(out, out.type.with_dims(_cut(out.type.dims, dim, cut)))


def _items(x: Tiled, dim: int, kept: range) -> tuple[InRange, ...]:
    return tuple(InRange(i, kept if i == dim else range(m)) for i, m in enumerate(x.shape))


def _cut(dims: tuple[Axes, ...], dim: int, cut: Axes) -> tuple[Axes, ...]:
    """Replace the cuts of one dim; the others lose its axes."""
    return tuple(
        cut if i == dim else tuple(part for part in one if part not in cut)
        for i, one in enumerate(dims)
    )


def _multiply(x: Tiled, dim: int, values: Callable[[Tile], Tile]) -> None:
    """**Local.** Multiply along a dim, in place, by a function of the index."""
    if x.tile is not None and x.tile.size:
        x.memory.write(_multiply_tile, x.tile, dim, own_box(x)[dim], values)


def _multiply_tile(
    tile: Tile, dim: int, box: tuple[int, int], values: Callable[[Tile], Tile]
) -> None:
    """**Local.** Multiply a tile along a dim by a function of the index, some of these at a time."""
    start, end = box
    shape = [-1 if i == dim else 1 for i in range(tile.ndim)]
    width = DEVICE_CHUNK if is_device(tile) else CHUNK
    for at in range(start, end, width):
        stop = min(end, at + width)
        part = tile[(slice(None),) * dim + (slice(at - start, stop - start),)]
        part *= values(indices_beside(tile, at, stop)).reshape(shape)


def _filled(x: T, t: ArrayType, value: int) -> T:
    """**Local.** An array of a type, over the ranks of ``x``, with one value everywhere."""
    own = tile_shape(t, x.comm.rank)
    if own is None:
        return x.new(t, None)
    out = x.memory.empty(own, tile_dtype(t.dtype), t.tile_bytes)
    out[...] = value
    return x.new(t, out)


def _real(x: T) -> T:
    """**Local.** Copy the real parts to new tiles."""
    t = ArrayType(x.mesh, dtype_of(real_dtype(x.dtype)), x.shape, x.type.dims)
    return x.new(t, None if x.tile is None else x.memory.contiguous(x.tile.real))
