"""Linear equations and least squares: through QR if the matrix is tall, else on whole matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.layout.array_type import ArrayType
from redist.pgas.elementwise.apply import apply, astype
from redist.pgas.linalg import panel_solve, tall_qr
from redist.pgas.linalg.matrices import check_matrices, make_whole, run_together
from redist.pgas.memory import SHARED_FROM, as_tile
from redist.pgas.products.contract import contract
from redist.pgas.shapes.permute import expand_dims, squeeze
from redist.pgas.tiles.arguments import check_arrays
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.devices import in_memory
from redist.pgas.tiles.layouts import dtype_of, free_dims
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.tiled import T, Tiled
from redist.runtime.ranks.collectives import all_fit

WHOLE_BYTES = 2**26
"""A matrix that is to be solved may be whole on every rank up to this size."""


@asked
@in_memory
def solve(x1: T, x2: T, /) -> T:
    """**Collective.** ``x`` of ``x1 x = x2``; a vector ``x2`` (one dim) or a stack of matrices.

    The matrices are whole on their ranks (a stack is spread); right sides stay cut by columns. One
    matrix of more than 64 MiB, or more than the memory limit has room for, stays cut by rows.
    """
    check_arrays("solve", x2)
    check_matrices("solve", x1, square=True)
    vector = x2.ndim == 1
    if x2.shape[0 if vector else -2] != x1.shape[-1]:
        raise ArgumentError(f"cannot solve shapes {x1.shape} and {x2.shape}: the rows differ")
    dtype = np.result_type(x1.dtype, x2.dtype)
    if dtype.kind not in "fc":
        raise ArgumentTypeError(f"cannot solve with {dtype}: need floating-point numbers")
    if x1.ndim == 2 and x2.ndim <= 2 and x1.size and x2.size and is_large(x1):
        a, sides = astype(x1, dtype, copy=False), astype(x2, dtype, copy=False)
        out = panel_solve.solve(a, expand_dims(sides, axis=1) if vector else sides)
        return squeeze(out, axis=1) if vector else out
    stack = np.broadcast_shapes(x1.shape[:-2], () if vector else x2.shape[:-2])
    a = make_whole("solve", x1)
    b = resolve_pending(x2)
    n = len(stack)
    lead = (*((),) * (n - a.ndim + 2), *(
        d if size == full else ()
        for d, size, full in zip(a.type.dims[:-2], a.shape[:-2], stack[n - a.ndim + 2 :], strict=True)
    ))  # fmt: skip
    a = move(a, a.type.with_dims((*_tail(lead, a.ndim - 2, a.shape, stack), (), ())))
    if vector:
        b = move(b, free_dims(b.type, frozenset({0})))
        b = move(b, b.type.with_dims(((),)))
        columns: Any = ()
    else:
        used = {part.name for dim in lead for part in dim}
        columns = () if used & {part.name for part in b.type.dims[-1]} else b.type.dims[-1]
        b = move(b, b.type.with_dims((*_tail(lead, b.ndim - 2, b.shape, stack), (), columns)))
    shape = (*stack, x1.shape[-1], *(() if vector else (x2.shape[-1],)))
    t = ArrayType(a.mesh, dtype_of(dtype), shape, (*lead, (), *(() if vector else (columns,))))
    tile_a: Any = a.tile
    tile_b: Any = b.tile
    tile = run_together("solve", a, np.linalg.solve, tile_a, tile_b)
    return a.new(t, None if tile is None else as_tile(tile, dtype))


def is_large(x: Tiled) -> bool:
    """**Collective** under a memory limit. Whether a matrix should not be whole on every rank."""
    size = x.size * x.dtype.itemsize
    if size > WHOLE_BYTES or x.memory.limit_bytes is None or size < SHARED_FROM:
        return size > WHOLE_BYTES
    return not all_fit(x.comm, 2 * size <= x.memory.limit_bytes - x.memory.live_bytes)


def _tail(lead: Any, n: int, shape: tuple[int, ...], stack: tuple[int, ...]) -> Any:
    """The cuts of the last ``n`` dims of a stack, where they are not stretched."""
    cut = lead[len(lead) - n :]
    sizes = stack[len(stack) - n :]
    return tuple(
        d if size == full else () for d, size, full in zip(cut, shape[:n], sizes, strict=True)
    )


@asked
@in_memory
def lstsq(a: T, b: T, /) -> T:
    """**Collective.** The ``x`` that makes ``a x - b`` smallest, for a tall ``a`` of full rank.

    ``pgas.linalg.lstsq(a, b)`` with a of ``f64[m{x}, n]``, b of ``f64[m{x}]`` or ``f64[m{x}, k]``.
    """
    check_arrays("lstsq", b)
    check_matrices("lstsq", a)
    m, n = a.shape[-2:]
    if a.ndim != 2 or b.ndim not in (1, 2) or b.shape[0] != m or m < n:
        raise ArgumentError(
            f"cannot solve the least squares of shapes {a.shape} and {b.shape}: "
            "need one tall matrix and as many right sides of its length"
        )
    dtype = np.result_type(a.dtype, b.dtype)
    a, b = astype(a, dtype, copy=False), astype(b, dtype, copy=False)
    q, r = tall_qr.qr(a)
    q = apply(np.conjugate, q) if dtype.kind == "c" else q
    labels = ("row",) if b.ndim == 1 else ("row", "side")
    y = contract(q, b, ("row", "k"), labels, ("k", *labels[1:]), "lstsq")
    return solve(r, y)
