"""Which dims an ``axis`` argument names: one rule and one error for all functions."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from redist.errors import DimError

Axis = int | Sequence[int] | None


def dim_of(axis: int, ndim: int) -> int:
    """A dim by its number, negative from the end.

    >>> dim_of(-1, 3)
    2
    """
    try:
        i = operator.index(axis)
    except TypeError:
        raise TypeError(f"cannot use {axis!r} as a dim: need an int") from None
    if not -ndim <= i < ndim:
        raise DimError(f"there is no dim {i}: the array has {ndim}")
    return i % ndim


def dims_of(axis: Axis, ndim: int) -> tuple[int, ...]:
    """The dims that an axis argument names, in its order; all of them for None.

    >>> dims_of((-1, 0), 3), dims_of(None, 2)
    ((2, 0), (0, 1))
    """
    if axis is None:
        return tuple(range(ndim))
    if not isinstance(axis, (tuple, list, range)):
        return (dim_of(axis, ndim),)  # type: ignore[arg-type]
    out = tuple(dim_of(i, ndim) for i in axis)
    if len(set(out)) < len(out):
        raise DimError(f"a dim is named twice in {tuple(axis)}")
    return out
