"""Reduce dims: each rank its tile; over cut dims the rest is pending until someone needs the value."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.pgas.tiles.arguments import Axis, dims_of
from redist.pgas.tiles.arranging import (
    ArrangedCall,
    ChosenTypes,
    EinForm,
    current_arranger,
    label_dims,
    with_places,
)
from redist.pgas.tiles.layouts import dtype_of, resolved_type
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.tiled import T, Tile
from redist.runtime.copies.reduce import identity


@lru_cache(maxsize=4096)
def reduced_type(
    t: ArrayType, dims: tuple[int, ...], op: str, keepdims: bool, dtype: Any
) -> ArrayType:
    """The type after reducing: axes that cut the dims are pending."""
    pending: list[SubAxis] = [*t.pending_axes, *(part for i in dims for part in t.dims[i])]
    keep = [i for i in range(t.ndim) if keepdims or i not in dims]
    shape = tuple(1 if i in dims else t.shape[i] for i in keep)
    cuts = tuple(() if i in dims else t.dims[i] for i in keep)
    return ArrayType(
        t.mesh, dtype_of(np.dtype(dtype)), shape, cuts, op if pending else None, tuple(pending)
    )


def reduce(x: T, op: str, axis: Axis, keepdims: bool, dtype: Any) -> T:
    """**Collective** if something else is pending. Reduce by sum, prod, max or min."""
    if (arranger := current_arranger()) is not None and arranger.wants(x.memory):
        made: T = arranger.call(_arranged(x, op, axis, keepdims, dtype), [x])
        return made
    if x.type.pending_op is not None and (x.type.pending_op != op or x.dtype != dtype):
        x = resolve_pending(x)  # partial values in another dtype would not wrap where the sum does
    dims = tuple(sorted(dims_of(axis, x.ndim)))
    if op in ("max", "min") and 0 in (x.shape[i] for i in dims) and _has_size(x.shape, dims):
        raise ArgumentError(f"cannot take the {op} of nothing: dim of size 0 in {x.shape}")
    t = reduced_type(x.type, dims, op, keepdims, dtype)
    memory = x.memory
    if memory.limit_bytes is not None:
        memory.check(t.tile_bytes)
    if x.tile is None:
        return x.new(t, None)
    return x.new(t, memory.asarray(_tile(x.tile, op, dims, keepdims, t)))


def _arranged(x: T, op: str, axis: Axis, keepdims: bool, dtype: Any) -> ArrangedCall:
    """The call as a plan sees it."""
    dims = tuple(sorted(dims_of(axis, x.ndim)))
    kept: list[Hashable] = [
        ("one", i) if i in dims else i for i in range(x.ndim) if keepdims or i not in dims
    ]
    notation, sizes = label_dims([x.shape], [range(x.ndim)], kept)
    casts = x.dtype != dtype

    def choose(types: tuple[ArrayType, ...]) -> ChosenTypes:
        (t,) = types
        if t.pending_op is not None and (t.pending_op != op or casts):
            t = resolved_type(t)
        return ChosenTypes((t,), reduced_type(t, dims, op, keepdims, dtype))

    def run(given: Sequence[Any], made: ArrayType | None) -> Any:
        return reduce(given[0], op, axis, keepdims, dtype)

    form = EinForm(notation, sizes, "cast" if casts else "copy", op)
    given: Any = with_places((x, op, axis, keepdims, dtype), []), {}
    return ArrangedCall(op, run, form, choose, function=reduce, given=given)


def _has_size(shape: tuple[int, ...], dims: tuple[int, ...]) -> bool:
    """Whether a reduction over dims has results."""
    return 0 not in (n for i, n in enumerate(shape) if i not in dims)


def _tile(local: Tile, op: str, dims: tuple[int, ...], keepdims: bool, t: ArrayType) -> Any:
    dtype = t.dtype.to_numpy()
    if op in ("sum", "prod"):
        function = np.sum if op == "sum" else np.prod
        return function(local, axis=dims, dtype=dtype, keepdims=keepdims)
    if any(local.shape[i] == 0 for i in dims):
        shape = [n for i, n in enumerate(local.shape) if i not in dims]
        if keepdims:
            shape = [1 if i in dims else n for i, n in enumerate(local.shape)]
        return np.full(shape, identity(op, t.dtype), dtype)
    return (np.max if op == "max" else np.min)(local, axis=dims, keepdims=keepdims)
