"""Arguments of functions: which dims an ``axis`` names, that operands are global arrays, or go with one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from redist.errors import ArgumentTypeError, DimError, RequestError
from redist.pgas.kinds import number_kind
from redist.pgas.tiles.layouts import dtype_of, make_type
from redist.pgas.tiles.move import as_plain, paid
from redist.pgas.tiles.tiled import T, Tile, Tiled
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import as_device, to_host

Axis = int | Sequence[int] | None
F = TypeVar("F", bound=Callable[..., Any])


def dim_of(axis: int, ndim: int) -> int:
    """A dim by its number, negative from the end.

    >>> dim_of(-1, 3)
    2
    """
    try:
        i = operator.index(axis)
    except TypeError:
        raise ArgumentTypeError(f"cannot use {axis!r} as a dim: need an int") from None
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


def takes_array(function: F) -> F:
    """Give a function an error of its own if its first argument is not a global array.

    An array whose dims have segments is moved to a plain type first.
    """
    return _checked(function, knows_segments=False)


def takes_any_array(function: F) -> F:
    """The same for a function that knows of segments."""
    return _checked(function, knows_segments=True)


def _checked(function: F, knows_segments: bool) -> F:
    @wraps(function)
    def checked(x: Any, /, *args: Any, **options: Any) -> Any:
        if not isinstance(x, Tiled):
            check_arrays(function.__name__, x)
        if x._type.segments and not knows_segments:
            x = as_plain(x)
        return function(x, *args, **options)

    return checked  # type: ignore[return-value]


def takes_arrays(function: F) -> F:
    """Give a function an error of its own if one of its arguments is not a global array."""

    @wraps(function)
    def checked(*arrays: Any, **options: Any) -> Any:
        check_arrays(function.__name__, *arrays)
        return function(*(paid(as_plain(x)) for x in arrays), **options)

    return checked  # type: ignore[return-value]


def check_arrays(name: str, *arrays: Any) -> None:
    """Raise if one is not a global array."""
    for x in arrays:
        if not isinstance(x, Tiled):
            raise RequestError(
                f"cannot use {kind_of_value(x)} in {name}: it is not a global array; "
                "make it one with pgas.asarray"
            )


def check_one_mesh(name: str, *arrays: Tiled) -> None:
    """Raise unless arrays are over the same ranks, on one mesh."""
    first = arrays[0]
    for x in arrays[1:]:
        if x.comm != first.comm or x.mesh != first.mesh:
            raise RequestError(
                f"cannot use arrays on {first.mesh} and on {x.mesh} in {name}: "
                "bring them to one mesh with .to(type)"
            )


def kind_of_value(x: Any) -> str:
    """What a value is that is not a global array, as errors call it.

    >>> kind_of_value([1.0, 2]), kind_of_value(3)
    ('a list', 'an int')
    """
    name = type(x).__name__
    if name == "ndarray":
        return f"a NumPy array of shape {x.shape}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def numbers_of(values: Any, name: str) -> Tile:
    """Numbers that all ranks have alike, as an array of NumPy."""
    given = np.asarray(values)
    if number_kind(given.dtype) not in "biufc":
        raise ArgumentTypeError(
            f"cannot use {kind_of_value(values)} in {name}: need numbers, a list or an array of them"
        )
    return given


def beside(x: T, values: Any, name: str) -> T:
    """**Local.** Values over the ranks of an array: global ones as they are, others whole on every rank."""
    if isinstance(values, Tiled):
        return values  # type: ignore[return-value]
    if is_device(values):
        stays = x.memory.on_device and not x.memory.is_ghost
        values = as_device(values) if stays else to_host(values)
    given = values if is_device(values) else numbers_of(values, name)
    t = make_type(x.mesh, dtype_of(given.dtype), given.shape, ((),) * given.ndim)
    return x.new(t, None if x.tile is None else x.memory.asarray(given))
