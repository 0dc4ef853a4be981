"""Products of the standard: matrix products, tensor contractions and inner products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.errors import RequestError
from redist.pgas import elementwise
from redist.pgas.contracting import contract
from redist.pgas.manipulation import expand_dims
from redist.pgas.tiled import Tiled


def matmul(x1: Tiled, x2: Tiled, /) -> Any:
    """**Collective** where operands must move. Matrix product, over stacks of matrices.

    ``pgas.matmul(a, b)`` with a of ``f64[m{x}, k]`` and b of ``f64[k, n]`` is local; a contracted
    dim that is cut alike in both gives a pending sum.
    """
    check_arrays("matmul", x1, x2)
    if x1.ndim == 0 or x2.ndim == 0:
        raise ValueError(f"cannot matmul shapes {x1.shape} and {x2.shape}: each needs a dim")
    la = (*_stack(x1.ndim - 2), "row", "inner") if x1.ndim > 1 else ("inner",)
    lb = (*_stack(x2.ndim - 2), "inner", "column") if x2.ndim > 1 else ("inner",)
    if x1.shape[-1] != x2.shape[lb.index("inner")]:
        raise ValueError(
            f"cannot matmul shapes {x1.shape} and {x2.shape}: "
            f"sizes {x1.shape[-1]} and {x2.shape[lb.index('inner')]} differ"
        )
    stack = max(x1.ndim, x2.ndim, 2) - 2
    ends = [label for label in ("row", "column") if label in (*la, *lb)]
    return contract(x1, x2, la, lb, (*_stack(stack), *ends), "matmul")


def tensordot(
    x1: Tiled, x2: Tiled, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Any:
    """**Collective** where operands must move. The sum over pairs of dims."""
    check_arrays("tensordot", x1, x2)
    if isinstance(axes, (int, np.integer)):
        n = int(axes)
        if not 0 <= n <= min(x1.ndim, x2.ndim):
            raise ValueError(f"cannot tensordot {x1.ndim} and {x2.ndim} dims over {n} of them")
        first, second = list(range(x1.ndim - n, x1.ndim)), list(range(n))
    else:
        first, second = (_listed(one) for one in axes)
    if len(first) != len(second):
        raise ValueError(f"cannot tensordot over {len(first)} dims of one, {len(second)} of other")
    pairs = {_dim(i, x1.ndim): _dim(j, x2.ndim) for i, j in zip(first, second, strict=True)}
    for i, j in pairs.items():
        if x1.shape[i] != x2.shape[j]:
            raise ValueError(
                f"cannot tensordot {x1.shape} and {x2.shape}: sizes of dims {i} and {j} differ"
            )
    back = {j: i for i, j in pairs.items()}
    la = tuple(("a", i) for i in range(x1.ndim))
    lb = tuple(("a", back[j]) if j in back else ("b", j) for j in range(x2.ndim))
    lo = (*(("a", i) for i in range(x1.ndim) if i not in pairs),
          *(("b", j) for j in range(x2.ndim) if j not in back))  # fmt: skip
    return contract(x1, x2, la, lb, lo, "tensordot")


def vecdot(x1: Tiled, x2: Tiled, /, *, axis: int = -1) -> Any:
    """**Collective** where operands must move. Inner products along a dim, the first conjugated."""
    from redist.pgas.elementwise import apply

    check_arrays("vecdot", x1, x2)
    if not -min(x1.ndim, x2.ndim) <= axis < (0 if x1.ndim != x2.ndim else x1.ndim):
        raise ValueError(f"cannot vecdot along dim {axis} of shapes {x1.shape} and {x2.shape}")
    i, j = axis % x1.ndim, axis % x2.ndim
    if x1.shape[i] != x2.shape[j]:
        raise ValueError(f"cannot vecdot shapes {x1.shape} and {x2.shape} along dim {axis}")
    if x1.dtype.kind == "c":
        x1 = apply(np.conjugate, x1)
    la = _around(x1.ndim, i)
    lb = _around(x2.ndim, j)
    n = max(x1.ndim, x2.ndim) - 1
    return contract(x1, x2, la, lb, tuple(range(-n, 0)), "vecdot")


def outer(x1: Tiled, x2: Tiled, /) -> Any:
    """**Collective** where operands must move. All products of the elements of two vectors."""
    check_arrays("outer", x1, x2)
    if (x1.ndim, x2.ndim) != (1, 1):
        raise ValueError(f"cannot make an outer product of shapes {x1.shape} and {x2.shape}")
    return elementwise.apply(np.multiply, expand_dims(x1, axis=1), expand_dims(x2, axis=0))


def check_arrays(name: str, *operands: Any) -> None:
    for x in operands:
        if not isinstance(x, Tiled):
            raise RequestError(
                f"cannot {name} a global array and {type(x).__name__}; "
                "make it global with pgas.asarray"
            )


def _stack(n: int) -> tuple[int, ...]:
    """Labels of the dims before the matrices, counted from the end so that they broadcast."""
    return tuple(range(-n, 0))


def _around(ndim: int, dim: int) -> tuple[Any, ...]:
    """Labels of dims but one, which is the contracted one."""
    others = iter(range(-(ndim - 1), 0))
    return tuple("inner" if i == dim else next(others) for i in range(ndim))


def _listed(axes: int | Sequence[int]) -> list[int]:
    return [axes] if isinstance(axes, int) else list(axes)


def _dim(i: int, ndim: int) -> int:
    if not -ndim <= i < ndim:
        raise ValueError(f"there is no dim {i}: the array has {ndim}")
    return i % ndim
