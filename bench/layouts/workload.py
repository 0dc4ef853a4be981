"""A program as a user writes it: a function of any library's arrays, its arguments, where they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = Sequence[NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Workload:
    """A function ``f(xp, *arrays)``, what its arrays hold, and the dim of each that is cut over all ranks.

    A cut of None is an array that is whole on every rank. Results lie where the library likes. ``error`` is
    how far they may be from NumPy's in double precision, over the largest value. ``stay`` are the numbers of
    arguments that are the same arrays in every call, such as weights; the others are new ones.
    """

    name: str
    what: str
    function: Callable[..., Any]
    make: Callable[[], Values]
    cuts: tuple[int | None, ...]
    error: float
    aims: Aims = field(default_factory=lambda: Aims())
    stay: tuple[int, ...] = ()

    def reference(self) -> list[NDArray[Any]]:
        """The results of NumPy, in double precision."""
        return arrays_in(self.function(NUMPY, *map(doubled, self.make())))

    def of(self, xp: Any) -> Callable[..., Any]:
        """The function for one library."""
        return partial(self.function, xp)


@dataclass(frozen=True, slots=True)
class Aims:
    """What planned layouts should not exceed: bytes and time over those of eager calls, and moves."""

    received: float | None = None
    time: float | None = None
    moves: int | None = None


class PairwiseNumPy:
    """NumPy, with Einstein sums of several operands computed two at a time."""

    einsum = staticmethod(partial(np.einsum, optimize=True))

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


NUMPY = PairwiseNumPy()


def largest(shape: Sequence[int]) -> int:
    """The dim by which a new global array is cut if nobody says where it should lie.

    >>> largest((4, 32, 64)), largest((8, 8))
    (2, 0)
    """
    return list(shape).index(max(shape))


def as_new(shapes: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Cuts of arrays that lie as new ones lie."""
    return tuple(map(largest, shapes))


def cut_text(cut: int | None, ndim: int) -> str:
    """A cut as redist's type of an array on the default mesh.

    >>> cut_text(1, 3), cut_text(None, 2)
    ('{}, {x}, {}', '{}, {}')
    """
    return ", ".join("{x}" if dim == cut else "{}" for dim in range(ndim))


def doubled(array: NDArray[Any]) -> NDArray[Any]:
    """The same values in double precision; integers stay."""
    if array.dtype.kind not in "fc":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def arrays_in(result: Any) -> list[Any]:
    """The arrays of a result, in order."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def error_of(found: Sequence[Any], want: Sequence[NDArray[Any]]) -> float:
    """The largest difference over the largest value, of the worst result; integers must be equal.

    >>> error_of([np.array([1.0, 2.5])], [np.array([1.0, 2.0])])
    0.25
    >>> error_of([np.array([1, 2])], [np.array([1, 3])])
    inf
    """
    worst = 0.0
    for one, other in zip(found, want, strict=True):
        if one.shape != other.shape:
            return float("inf")
        if other.dtype.kind in "fc":
            far = np.abs(np.asarray(one).astype(other.dtype) - other).max(initial=0.0)
            worst = max(worst, float(far / np.abs(other).max(initial=1e-300)))
        elif not np.array_equal(one, other):
            return float("inf")
    return float("inf") if np.isnan(worst) else worst
