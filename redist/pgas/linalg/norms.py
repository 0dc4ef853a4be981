"""Norms of vectors and matrices, by reductions if they are sums or largest values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.pgas import reductions
from redist.pgas.elementwise.apply import apply, astype
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.kinds import array_dtype, number_kind, real_dtype
from redist.pgas.linalg.decompositions import svdvals
from redist.pgas.linalg.matrices import check_matrices
from redist.pgas.memory import as_tile
from redist.pgas.reductions.reduce import reduced_type
from redist.pgas.shapes.permute import expand_dims
from redist.pgas.tiles.arguments import check_arrays, dims_of
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.layouts import free_dims
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.tiled import T

Order = float | str


@in_f32
def vector_norm(
    x: T, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False,
    ord: float = 2,
) -> T:  # fmt: skip
    """**Collective** if the root of a cut sum is taken. The norm over dims; ``ord`` is a number or inf."""
    check_arrays("vector_norm", x)
    if number_kind(x.dtype) not in "fc":
        raise ArgumentTypeError(f"cannot take the norm of {x.dtype}: need floating-point numbers")
    dims = dims_of(axis, x.ndim)
    here = x.type.pending_op is None and not any(x.type.dims[i] for i in dims)
    if ord == 2 and here and not x.memory.on_device:
        return local_norm(x, dims, keepdims)
    size = apply(np.abs, x)
    where: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
    if ord in (math.inf, -math.inf):
        function = reductions.max if ord > 0 else reductions.min
        if ord > 0 and math.prod(x.shape[i] for i in dims) == 0:
            return reductions.sum(size, **where)
        return function(size, **where)
    if ord == 0:
        ones = astype(apply(np.not_equal, size, 0.0), size.dtype)
        return reductions.sum(ones, dtype=size.dtype, **where)
    if ord == 1:
        return reductions.sum(size, dtype=size.dtype, **where)
    if ord == 2:
        squares = apply(np.multiply, size, size)
        return apply(np.sqrt, reductions.sum(squares, dtype=size.dtype, **where))
    powers = apply(np.power, size, float(ord))
    return apply(np.power, reductions.sum(powers, dtype=size.dtype, **where), 1.0 / ord)


@in_f32
def matrix_norm(x: T, /, *, keepdims: bool = False, ord: Order | None = "fro") -> T:
    """**Collective** if rows or columns are cut. The norm of each matrix in a stack."""
    check_matrices("matrix_norm", x)
    ends = (x.ndim - 2, x.ndim - 1)
    if ord in (None, "fro"):
        return vector_norm(x, axis=ends, keepdims=keepdims)
    if ord in (1, -1, math.inf, -math.inf):
        assert ord is not None and not isinstance(ord, str)
        inner = ends[0] if abs(ord) == 1 else ends[1]
        sums = reductions.sum(
            apply(np.abs, x), axis=inner, keepdims=True, dtype=real_dtype(x.dtype)
        )
        best = reductions.max if ord > 0 else reductions.min
        if ord > 0 and sums.shape[-1] * sums.shape[-2] == 0:
            return reductions.sum(sums, axis=ends, keepdims=keepdims, dtype=sums.dtype)
        return best(sums, axis=ends, keepdims=keepdims)
    if ord in (2, -2, "nuc"):
        values = svdvals(x)
        function = reductions.max if ord == 2 else reductions.min
        if ord == "nuc" or (ord == 2 and values.shape[-1] == 0):
            function = reductions.sum
        out = function(values, axis=-1)
        return expand_dims(out, axis=ends) if keepdims else out
    raise ArgumentError(f"unknown order {ord!r}; known: 'fro', 'nuc', inf, -inf, 1, -1, 2, -2")


@asked
def local_norm(x: T, dims: tuple[int, ...], keepdims: bool) -> T:
    """**Collective** in a plan that cuts such a dim. The 2-norm over dims that no axis cuts."""
    x = move(resolve_pending(x), free_dims(x.type, frozenset(dims)))
    t = reduced_type(x.type, dims, "sum", keepdims, real_dtype(x.dtype))
    x.memory.check_room(t.tile_bytes)
    if x.tile is None:
        return x.new(t, None)
    if len(dims) == x.ndim and not keepdims:
        tile = np.linalg.norm(x.tile if x.ndim == 1 else x.tile.reshape(-1))  # the quickest
    else:
        tile = np.linalg.vector_norm(x.tile, axis=dims, keepdims=keepdims)
    return x.new(t, as_tile(tile, array_dtype(t.dtype)))
