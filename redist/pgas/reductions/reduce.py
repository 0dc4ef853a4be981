"""Reduce dims: each rank its tile; over cut dims the rest is pending until someone needs the value."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.pgas.elementwise.apply import astype
from redist.pgas.kinds import array_dtype, computing, is_half
from redist.pgas.memory import TileMemory
from redist.pgas.reductions.in_blocks import prod_in_f32, sum_in_f32
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
from redist.pgas.tiles.tiled import T, Tile, owing
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
        return arranger.call(_arranged(x, op, axis, keepdims, dtype), [x])
    if x.type.pending_op is not None and (x.type.pending_op != op or x.dtype != dtype):
        x = resolve_pending(x)  # partial values in another dtype would not wrap where the sum does
    dims = tuple(sorted(dims_of(axis, x.ndim)))
    if (
        op in ("max", "min")
        and 0 in x.shape
        and all(n for i, n in enumerate(x.shape) if i not in dims)
    ):
        raise ArgumentError(f"cannot take the {op} of nothing: dim of size 0 in {x.shape}")
    t = reduced_type(x.type, dims, op, keepdims, dtype)
    memory = x.memory
    if memory.limit_bytes is not None:
        memory.check_room(t.tile_bytes)
    if x.tile is None:
        return x.new(t, None)
    return x.new(t, memory.asarray(_tile(x.tile, op, dims, keepdims, t, memory)))


def accumulate(x: T, op: str, axis: Axis, keepdims: bool, dtype: np.dtype[Any]) -> T:
    """**Collective** if something else is pending. Add or multiply: 16-bit floats in f32, rounded once."""
    wide = computing(dtype)
    computing(x.dtype)  # 8-bit floats are refused
    out = reduce(x, op, axis, keepdims, wide)
    return out if wide == dtype else rounded_once(out, dtype)


def rounded_once(x: T, dtype: np.dtype[Any]) -> T:
    """**Local.** Cast values, or let what is pending owe the cast until its sum is finished.

    In a program the cast is a call of its own, behind the sum: a plan says where that is finished. So it is
    where gradients are recorded, which go back from call to call.
    """
    if x.dtype == dtype:
        return x
    if x.type.pending_op is None or x.memory.is_ghost or current_arranger() is not None:
        return astype(x, dtype)
    return owing(x, dtype)


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


def _tile(
    local: Tile, op: str, dims: tuple[int, ...], keepdims: bool, t: ArrayType, memory: TileMemory
) -> Any:
    dtype = array_dtype(t.dtype)
    if op in ("sum", "prod"):
        function: Any = np.sum if op == "sum" else np.prod
        if is_half(local.dtype) and not memory.on_device:  # CuPy adds up 16 bits in f32 itself
            function = sum_in_f32 if op == "sum" else prod_in_f32
            return memory.call(function, local, axis=dims, dtype=dtype, keepdims=keepdims)
        return function(local, axis=dims, dtype=dtype, keepdims=keepdims)
    if any(local.shape[i] == 0 for i in dims):
        shape = [n for i, n in enumerate(local.shape) if i not in dims]
        if keepdims:
            shape = [1 if i in dims else n for i, n in enumerate(local.shape)]
        nothing = np.asarray(identity(op, t.dtype)).view(dtype)
        return np.full(shape, nothing[()], dtype)
    return (np.max if op == "max" else np.min)(local, axis=dims, keepdims=keepdims)
