"""Products of the standard: matrix products, tensor contractions and inner products."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import leaves_of
from redist.pgas.elementwise.apply import apply
from redist.pgas.kinds import array_dtype, can_cast, computing, is_half, number_kind, promote
from redist.pgas.products.contract import contract
from redist.pgas.products.contract_layout import Labels
from redist.pgas.products.in_f32 import product_in_f32
from redist.pgas.reductions.reduce import rounded_once
from redist.pgas.shapes.permute import expand_dims
from redist.pgas.tiles.arguments import check_arrays, dim_of
from redist.pgas.tiles.arranging import current_arranger, left_alone
from redist.pgas.tiles.layouts import dtype_of, with_dtype
from redist.pgas.tiles.move import as_plain, move, resolve_pending
from redist.pgas.tiles.tiled import T, tile_in


def matmul(x1: T, x2: T, /) -> T:
    """**Collective** if operands must move. Multiply matrices, or stacks of them.

    ``pgas.matmul(a, b)`` with ``a`` of type ``f64[m{x}, k]`` and ``b`` of type ``f64[k, n]`` is local; a
    contracted dim that is cut in the same way in both gives a pending sum.
    """
    check_arrays("matmul", x1, x2)
    if x1.ndim == 0 or x2.ndim == 0:
        raise ArgumentError(
            f"cannot use shapes {x1.shape} and {x2.shape} in matmul: each needs a dim"
        )
    la, lb, lo = _matrix_labels(x1.ndim, x2.ndim)
    if x1.shape[-1] != x2.shape[lb.index("inner")]:
        raise ArgumentError(
            f"cannot use shapes {x1.shape} and {x2.shape} in matmul: "
            f"sizes {x1.shape[-1]} and {x2.shape[lb.index('inner')]} differ"
        )
    if x1.type.segments or x2.type.segments:
        return _by_segments(x1, x2)
    return contract(x1, x2, la, lb, lo, "matmul")


def _by_segments(a: T, b: T) -> T:
    """Multiply where a dim has segments: tile by tile if each rank has all that its part needs.

    ::

        x[n, k] @ w[k, 8{tp}+4+4]                  n x (8{tp}+4+4), nothing moves
        y[n, 8{tp}+4{tp}] @ v[8{tp}+4{tp}, m]      n x m, a sum over tp is pending

    Otherwise operands are moved to plain types.
    """
    made = _type_by_segments(a.type, b.type) if a.comm == b.comm and a.memory is b.memory else None
    one, other = tile_in(a), tile_in(b)
    if made is None or a.memory.on_device or current_arranger() is not None:
        return matmul(as_plain(a), as_plain(b))
    if one is None or other is None:
        return rounded_once(a.new(made, None), promote(a.dtype, b.dtype))
    a.memory.check_room(made.tile_bytes)
    dtype = promote(a.dtype, b.dtype)
    if is_half(dtype):
        return rounded_once(a.new(made, product_in_f32(one, other)), dtype)
    return a.new(made, np.matmul(one, other))


def _type_by_segments(a: ArrayType, b: ArrayType) -> ArrayType | None:
    """The type of a product of matrices that every rank computes from its own tiles; None if none can."""
    if a.ndim != 2 or b.ndim != 2 or a.mesh != b.mesh or a.pending_op or b.pending_op:
        return None
    inner_a, inner_b = (a.dims[1], a.segments_of(1)), (b.dims[0], b.segments_of(0))
    if inner_a != inner_b or any(cut.n_tiles != a.cuts[1] for _, cut in leaves_of(a, 1)):
        return None
    outer = [part.name for part in (*a.dims[0], *b.dims[1], *a.dims[1])]
    if len(set(outer)) < len(outer):
        return None
    dtype = dtype_of(computing(promote(array_dtype(a.dtype), array_dtype(b.dtype))))
    shape, dims = (a.shape[0], b.shape[1]), (a.dims[0], b.dims[1])
    segments = a.segments_of(0), b.segments_of(1)
    op = "sum" if a.dims[1] else None
    return ArrayType(a.mesh, dtype, shape, dims, op, a.dims[1], segments if any(segments) else ())


@lru_cache(maxsize=256)
def _matrix_labels(n: int, m: int) -> tuple[Labels, Labels, Labels]:
    """Labels of the dims of both operands of a matrix product, and of the result."""
    la = (*_stack(n - 2), "row", "inner") if n > 1 else ("inner",)
    lb = (*_stack(m - 2), "inner", "column") if m > 1 else ("inner",)
    ends = [label for label in ("row", "column") if label in (*la, *lb)]
    return la, lb, (*_stack(max(n, m, 2) - 2), *ends)


@left_alone
def update_by_product(a: T, other: Any) -> T:
    """**Collective** if operands must move. Write ``a @ other`` into a's own tile."""
    out = matmul(a, other)
    if out.shape != a.shape:
        raise ArgumentError(
            f"cannot update {a.shape} with a product of {out.shape}: it would change"
        )
    if not can_cast(out.dtype, a.dtype, "same_kind"):
        raise ArgumentTypeError(f"cannot update an array of {a.dtype} with values of {out.dtype}")
    here = resolve_pending(a)
    out = move(out, with_dtype(here.type, out.type.dtype))
    if here.tile is not None and out.tile is not None:
        np.copyto(here.tile, out.tile, casting="unsafe")  # by can_cast
    a._take_over(here)
    return a


def tensordot(x1: T, x2: T, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> T:
    """**Collective** if operands must move. Multiply two arrays, and sum over pairs of their dims."""
    check_arrays("tensordot", x1, x2)
    if isinstance(axes, (int, np.integer)):
        n = int(axes)
        if not 0 <= n <= min(x1.ndim, x2.ndim):
            raise ArgumentError(
                f"cannot sum over {n} dims in tensordot: the arrays have {x1.ndim} and {x2.ndim}"
            )
        first, second = list(range(x1.ndim - n, x1.ndim)), list(range(n))
    else:
        first, second = (_as_list(one) for one in axes)
    if len(first) != len(second):
        raise ArgumentError(
            f"cannot sum over {len(first)} dims of one array and {len(second)} of the other in tensordot: "
            "name as many of both"
        )
    pairs = {dim_of(i, x1.ndim): dim_of(j, x2.ndim) for i, j in zip(first, second, strict=True)}
    for i, j in pairs.items():
        if x1.shape[i] != x2.shape[j]:
            raise ArgumentError(
                f"cannot use shapes {x1.shape} and {x2.shape} in tensordot: sizes of dims {i} and {j} differ"
            )
    back = {j: i for i, j in pairs.items()}
    la = tuple(("a", i) for i in range(x1.ndim))
    lb = tuple(("a", back[j]) if j in back else ("b", j) for j in range(x2.ndim))
    lo = (*(("a", i) for i in range(x1.ndim) if i not in pairs),
          *(("b", j) for j in range(x2.ndim) if j not in back))  # fmt: skip
    return contract(x1, x2, la, lb, lo, "tensordot")


def vecdot(x1: T, x2: T, /, *, axis: int = -1) -> T:
    """**Collective** if operands must move. The inner products along a dim, with ``x1`` conjugated."""
    check_arrays("vecdot", x1, x2)
    if not -min(x1.ndim, x2.ndim) <= axis < (0 if x1.ndim != x2.ndim else x1.ndim):
        raise ArgumentError(f"cannot use dim {axis} of shapes {x1.shape} and {x2.shape} in vecdot")
    i, j = axis % x1.ndim, axis % x2.ndim
    if x1.shape[i] != x2.shape[j]:
        raise ArgumentError(
            f"cannot use shapes {x1.shape} and {x2.shape} in vecdot: sizes of dim {axis} differ"
        )
    if number_kind(x1.dtype) == "c":
        x1 = apply(np.conjugate, x1)
    la = _around(x1.ndim, i)
    lb = _around(x2.ndim, j)
    n = max(x1.ndim, x2.ndim) - 1
    return contract(x1, x2, la, lb, tuple(range(-n, 0)), "vecdot")


def outer(x1: T, x2: T, /) -> T:
    """**Collective** if operands must move. Multiply every element of ``x1`` by every element of ``x2``."""
    check_arrays("outer", x1, x2)
    if (x1.ndim, x2.ndim) != (1, 1):
        raise ArgumentError(f"cannot make an outer product of shapes {x1.shape} and {x2.shape}")
    return apply(np.multiply, expand_dims(x1, axis=1), expand_dims(x2, axis=0))


def _stack(n: int) -> tuple[int, ...]:
    """Labels of the dims before the matrices, counted from the end so that they broadcast."""
    return tuple(range(-n, 0))


def _around(ndim: int, dim: int) -> tuple[Any, ...]:
    """Labels of dims but one, which is the contracted one."""
    others = iter(range(-(ndim - 1), 0))
    return tuple("inner" if i == dim else next(others) for i in range(ndim))


def _as_list(axes: int | Sequence[int]) -> list[int]:
    return [axes] if isinstance(axes, int) else list(axes)
