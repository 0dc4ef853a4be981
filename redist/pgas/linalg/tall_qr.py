"""QR of tall matrices: each rank its rows, then the small R factors of all ranks together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import whole
from redist.layout.lower_bound import lower_bound_bytes
from redist.layout.tiles import tile_index
from redist.pgas.linalg.matrices import LARGEST_BYTES
from redist.pgas.tiles.budget import require_room
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.tiled import Tile, Tiled


def by_rows(t: ArrayType) -> ArrayType:
    """The type with whole rows: the axes of the columns cut the rows too, and so do idle ones."""
    dims = list(t.dims)
    dims[-2], dims[-1] = (*dims[-2], *dims[-1]), ()
    plain = ArrayType(t.mesh, t.dtype, t.shape, tuple(dims))
    if plain.used:
        return plain
    dims[-2] = tuple(whole(t.mesh, name) for name, _ in t.mesh.axes)
    other = ArrayType(t.mesh, t.dtype, t.shape, tuple(dims))
    return min(plain, other, key=lambda end: lower_bound_bytes(t, end) + end.tile_bytes)


def factors_bytes(t: ArrayType) -> int:
    """Bytes of the R factors that a rank sees together, for one stack of matrices."""
    *stack, rows, _ = t.tile_shape
    columns = t.shape[-1]
    return t.cuts[-2] * min(rows, columns) * columns * t.dtype.itemsize * math.prod(stack)


def distributes(t: ArrayType) -> bool:
    """Whether the R factors of the rows are small: the matrix is tall."""
    return t.shape[-2] >= t.shape[-1] and factors_bytes(by_rows(t)) <= LARGEST_BYTES


def qr(x: Tiled) -> tuple[Any, Any]:
    """**Collective.** Decompose tall matrices: ``x = Q R`` with Q cut as the rows, R whole."""
    x = resolve_pending(x)
    x = move(x, by_rows(x.type))
    t = x.type
    m, n = t.shape[-2:]
    k = min(m, n)
    some = min(t.tile_shape[-2], n)
    q = r = None
    require_room(x, "factor", 3 * t.tile_bytes)  # LAPACK works in a copy, and Q is made twice
    if x.tile is not None:
        q, r = np.linalg.qr(x.tile)
    q_type = ArrayType(t.mesh, t.dtype, (*t.shape[:-1], k), (*t.dims[:-1], ()))
    r_type = ArrayType(t.mesh, t.dtype, (*t.shape[:-2], k, n), (*t.dims[:-2], (), ()))
    if t.cuts[-2] == 1:  # R is whole
        if x.tile is None or r is None:
            return x.new(q_type, None), x.new(r_type, None)
        out = x.memory.empty((*x.tile.shape[:-1], k), x.dtype, q_type.tile_bytes)
        out[...] = q
        return x.new(q_type, out), x.new(r_type, x.memory.contiguous(r))
    factors = _all_factors(x, r, some)
    held = np.minimum(np.diff(t.cut(-2).edges()), n)  # rows of R that every tile has
    if x.tile is None or q is None or factors is None:
        return x.new(q_type, None), x.new(r_type, None)
    q2, r_all = np.linalg.qr(_rows_held(factors, some, held.tolist()))
    mine = tile_index(t, x.comm.rank)[-2]
    first = int(held[:mine].sum())
    part = q2[..., first : first + int(held[mine]), :]
    shape = (*x.tile.shape[:-1], k)
    out = np.matmul(q, part, out=x.memory.empty(shape, x.dtype, q_type.tile_bytes))
    return x.new(q_type, out), x.new(r_type, x.memory.contiguous(r_all))


def _all_factors(x: Tiled, r: Tile | None, some: int) -> Tile | None:
    """**Collective.** Stack the R factors of all tiles, ``some`` rows for each."""
    t = x.type
    shape = (*t.shape[:-2], t.cuts[-2] * some, t.shape[-1])
    source = ArrayType(t.mesh, t.dtype, shape, t.dims)
    tile: Tile | None = None
    if r is not None:
        tile = x.memory.empty((*r.shape[:-2], some, r.shape[-1]), x.dtype, source.tile_bytes)
        tile[...] = 0
        tile[..., : r.shape[-2], :] = r
    return move(x.new(source, tile), source.with_dims((*t.dims[:-2], (), ()))).tile


def _rows_held(factors: Tile, some: int, held: list[int]) -> Tile:
    """The first rows of each R factor: of ``some``, those that its tile has."""
    if all(n == some for n in held):
        return factors
    parts = [factors[..., i * some : i * some + n, :] for i, n in enumerate(held)]
    return np.concatenate(parts, axis=-2)
