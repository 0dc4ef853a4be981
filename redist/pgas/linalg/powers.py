"""Powers of matrices, cross products of vectors, diagonals and traces."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.pgas import reductions
from redist.pgas.creation import eye, zeros
from redist.pgas.elementwise.apply import astype
from redist.pgas.elementwise.binary import where
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.global_array import Array
from redist.pgas.kinds import promote
from redist.pgas.linalg.decompositions import inv
from redist.pgas.linalg.matrices import check_matrices, identity_like
from redist.pgas.memory import as_tile
from redist.pgas.products.matmul import matmul
from redist.pgas.shapes import diagonals
from redist.pgas.shapes.join import concat
from redist.pgas.tiles.arguments import check_arrays
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.devices import check_alike, kind_of
from redist.pgas.tiles.layouts import dtype_of, free_dims, meet, operand_type, with_dtype
from redist.pgas.tiles.move import move, paid
from redist.pgas.tiles.tiled import T


@in_f32
def matrix_power(x: T, n: int, /) -> T:
    """**Collective** if operands must move. Raise square matrices to the power ``n``."""
    check_matrices("matrix_power", x, square=True, floating=False)
    n = operator.index(n)
    if n < 0:
        x, n = inv(x), -n
    if n == 0:
        return identity_like(x)
    if n == 1:
        return astype(x, x.dtype)
    out = None
    while n:
        if n & 1:
            out = x if out is None else matmul(out, x)
        n >>= 1
        x = matmul(x, x) if n else x
    assert out is not None
    return out


def diagonal(x: T, /, *, offset: int = 0) -> T:
    """**Collective** if rows and columns are cut. Take the diagonals of a stack of matrices."""
    check_matrices("diagonal", x, floating=False)
    return diagonals.diagonal(x, x.ndim - 2, x.ndim - 1, offset)


def diag(v: Array, /, k: int = 0) -> Array:
    """**Collective** if elements must move. Make a matrix from its diagonal, or take the diagonal of one.

    A vector of n elements gives a matrix of shape ``(n + |k|, n + |k|)``, cut by rows over all ranks; a
    temporary mask takes 1 byte for each of its elements.
    """
    check_arrays("diag", v)
    v = paid(v)
    if v.ndim == 2:
        return diagonals.diagonal(v, 0, 1, k)
    if v.ndim != 1:
        raise ArgumentError(f"cannot take or make a diagonal of {v.ndim} dims: need 1 or 2")
    n = v.shape[0] + abs(k)
    if k:
        t = ArrayType(v.mesh, v.type.dtype, (abs(k),), ((),))
        pad = zeros(abs(k), dtype=v.dtype, type=t, comm=v.comm, device=kind_of(v))
        v = concat([pad, v] if k > 0 else [v, pad])
    mask = eye(n, k=k, dtype=bool, mesh=v.mesh, comm=v.comm, device=kind_of(v))
    return where(mask, v, v.dtype.type(0))


@in_f32
def trace(x: T, /, *, offset: int = 0, dtype: Any = None) -> T:
    """**Collective** if rows and columns are cut. Sum the diagonals of a stack of matrices."""
    check_matrices("trace", x, floating=False)
    return reductions.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


@in_f32
@asked
def cross(x1: T, x2: T, /, *, axis: int = -1) -> T:
    """**Collective** if operands must move. The cross products of vectors of 3 elements."""
    if axis >= 0 and x1.ndim != x2.ndim:
        raise ArgumentError(f"cannot cross shapes {x1.shape} and {x2.shape} along dim {axis}")
    for x in (x1, x2):
        if not -x.ndim <= axis < x.ndim or x.shape[axis] != 3:
            raise ArgumentError(f"cannot cross shape {x.shape}: dim {axis} must have size 3")
    check_arrays("cross", x1, x2)
    check_alike("cross", x1, x2)
    together = meet((x1.type, x2.type))[-1]
    end = free_dims(together, frozenset({axis % together.ndim}))
    a, b = (move(x, operand_type(x.type, end)) for x in (x1, x2))
    dtype = promote(a.dtype, b.dtype)
    t = with_dtype(end, dtype_of(dtype))
    if a.tile is None or b.tile is None:
        return a.new(t, None)
    dim = axis if axis < 0 else axis - x1.ndim
    return a.new(t, as_tile(np.cross(a.tile, b.tile, axis=dim)).astype(dtype, copy=False))
