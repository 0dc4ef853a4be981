"""How dims are reduced: each rank its tile, and what was cut stays pending until it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.pgas.buffers import check_room
from redist.pgas.moving import settle
from redist.pgas.tiled import Tile, Tiled
from redist.pgas.types import dtype_of
from redist.runtime.reduce import identity

Axis = int | Sequence[int] | None


def dims_of(axis: Axis, ndim: int) -> tuple[int, ...]:
    """The dims that an axis argument names, ascending."""
    given = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    out = []
    for i in given:
        if not -ndim <= i < ndim:
            raise RequestError(f"there is no dim {i}: the array has {ndim}")
        out.append(i % ndim)
    if len(set(out)) < len(out):
        raise RequestError(f"a dim is named twice in {axis}")
    return tuple(sorted(out))


def reduced(t: ArrayType, dims: Sequence[int], op: str, keepdims: bool, dtype: Any) -> ArrayType:
    """The type after reducing: axes that cut the dims are pending."""
    pending: list[SubAxis] = [*t.pending_axes, *(part for i in dims for part in t.dims[i])]
    keep = [i for i in range(t.rank) if keepdims or i not in dims]
    shape = tuple(1 if i in dims else t.shape[i] for i in keep)
    cuts = tuple(() if i in dims else t.dims[i] for i in keep)
    return ArrayType(
        t.mesh, dtype_of(np.dtype(dtype)), shape, cuts, op if pending else None, tuple(pending)
    )


def reduce(x: Tiled, op: str, axis: Axis, keepdims: bool, dtype: Any) -> Any:
    """**Collective** where something else is pending. Reduce by sum, prod, max or min."""
    if x.type.pending_op not in (None, op):
        x = settle(x)
    dims = dims_of(axis, x.ndim)
    if op in ("max", "min") and any(x.shape[i] == 0 for i in dims):
        raise ValueError(f"cannot take the {op} of nothing: dim of size 0 in {x.shape}")
    t = reduced(x.type, dims, op, keepdims, dtype)
    check_room(t.tile_bytes)
    if x.local is None:
        return x.new(t, None)
    return x.new(t, _tile(x.local, op, dims, keepdims, t))


def _tile(local: Tile, op: str, dims: tuple[int, ...], keepdims: bool, t: ArrayType) -> Tile:
    dtype = t.dtype.to_numpy()
    if op in ("sum", "prod"):
        function = np.sum if op == "sum" else np.prod
        return np.asarray(function(local, axis=dims, dtype=dtype, keepdims=keepdims))
    if any(local.shape[i] == 0 for i in dims):
        shape = [n for i, n in enumerate(local.shape) if i not in dims]
        if keepdims:
            shape = [1 if i in dims else n for i, n in enumerate(local.shape)]
        return np.full(shape, identity(op, t.dtype), dtype)
    return np.asarray((np.max if op == "max" else np.min)(local, axis=dims, keepdims=keepdims))
