"""What every rank must hold, from a formula of the global index: no run is asked for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.axes import Ints, coordinates
from redist.layout.tiles import boxes_of

AnyArray: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ValueBox:
    """A block of global indices, from ``lo`` up to ``hi``.

    >>> ValueBox((0, 2), (4, 6)).meet(ValueBox((1, 0), (9, 3)))
    ValueBox(lo=(1, 2), hi=(4, 3))
    >>> ValueBox((0,), (2,)).meet(ValueBox((2,), (4,))) is None
    True
    """

    lo: tuple[int, ...]
    hi: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its size along every dim."""
        return tuple(b - a for a, b in zip(self.lo, self.hi, strict=True))

    def meet(self, other: ValueBox) -> ValueBox | None:
        """What two boxes share; None if that is nothing."""
        lo = tuple(map(max, self.lo, other.lo))
        hi = tuple(map(min, self.hi, other.hi))
        return ValueBox(lo, hi) if all(a < b for a, b in zip(lo, hi, strict=True)) else None


def boxes(t: ArrayType) -> dict[int, ValueBox]:
    """What every rank of a type holds.

    >>> from redist.layout.mesh import Mesh
    >>> boxes(ArrayType.parse("f64[5{x}]", Mesh(x=2)))
    {0: ValueBox(lo=(0,), hi=(3,)), 1: ValueBox(lo=(3,), hi=(5,))}
    """
    return {
        rank: ValueBox(tuple(lo for lo, _ in box), tuple(hi for _, hi in box))
        for rank, box in boxes_of(t).items()
    }


def parts(t: ArrayType) -> dict[int, int]:
    """Which partial value every rank holds where a reduction is pending; 0 elsewhere."""
    numbers = coordinates(t.mesh, t.pending_axes)
    return {int(rank): int(numbers[row]) for row, rank in enumerate(t.mesh.rank_array())}


def source_values(t: ArrayType, box: ValueBox, part: int) -> AnyArray:
    """A box of the source: the row-major number of every index; partial values differ by one.

    >>> from redist.layout.mesh import Mesh
    >>> t = ArrayType.parse("f64[4, 3{x}]", Mesh(x=3))
    >>> source_values(t, ValueBox((2, 1), (4, 2)), 0)
    array([[ 7.],
           [10.]])

    Where the dtype cannot hold all these numbers, rows and columns repeat, each after a prime.
    """
    return values_at(t, [np.arange(lo, hi) for lo, hi in zip(box.lo, box.hi, strict=True)], part)


def values_at(t: ArrayType, indices: Sequence[Ints], part: int) -> AnyArray:
    """The same for any indices of every dim."""
    dtype = t.dtype.to_numpy()
    if not t.shape:
        return np.full((), part, dtype)
    most = _most_exact(dtype)
    columns = t.shape[-1]
    if t.global_elems > most:
        columns = min(columns, _prime(math.isqrt(most) if t.ndim > 1 else most))
    rows = np.zeros((), np.int64)
    for n, own in zip(t.shape[:-1], indices, strict=False):
        rows = rows[..., None] * n + own
    if t.global_elems > most:
        rows %= _prime(max(2, most // max(1, columns)))
    column = indices[-1] % max(1, columns) + part
    return (rows * columns).astype(dtype)[..., None] + column.astype(dtype)


def target_values(source: ArrayType, indices: Sequence[Ints]) -> AnyArray:
    """A tile of the target: the numbers, or the sum of all partial values of them."""
    n_parts = max(parts(source).values()) + 1
    values = values_at(source, indices, 0)
    if source.pending_op is None:
        return values
    if source.pending_op != "sum" or source.dtype.name != "f64":
        raise RequestError(f"cannot check {source}: written for sums of f64")
    return values * n_parts + n_parts * (n_parts - 1) / 2


def _most_exact(dtype: np.dtype[Any]) -> int:
    """The dtype holds whole numbers up to this exactly, and a few beyond.

    >>> _most_exact(np.dtype("f4")) < 2**24, _most_exact(np.dtype("u1"))
    (True, 239)
    """
    if dtype.kind in "fc":
        return 2 ** int(np.finfo(dtype).nmant) - 16
    if dtype.kind in "iu":
        return min(int(np.iinfo(dtype).max), 2**50) - 16
    return 2


def _prime(n: int) -> int:
    """The largest prime up to n.

    >>> _prime(100), _prime(2)
    (97, 2)
    """
    while any(n % k == 0 for k in range(2, math.isqrt(n) + 1)):
        n -= 1
    return n
