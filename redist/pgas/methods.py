"""NumPy's methods of an array, with NumPy's order of arguments: each is a function of the namespace.

NumPy's arguments ``out`` and ``where`` are refused by name.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.layout.array_type import ArrayType
from redist.pgas import reductions
from redist.pgas.elementwise import unary
from redist.pgas.elementwise.apply import Number, apply, astype
from redist.pgas.indexing import boolean, dispatch
from redist.pgas.kinds import number_kind, real_dtype
from redist.pgas.operators import Operators
from redist.pgas.ordering import searching, sorting
from redist.pgas.products.matmul import matmul, tensordot
from redist.pgas.shapes import diagonals, permute
from redist.pgas.shapes.repeat import repeat
from redist.pgas.tiles.arguments import Axis, check_arrays, dim_of
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.layouts import dtype_of, with_dtype
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.reshape import reshape
from redist.pgas.tiles.tiled import T, Tiled

F = TypeVar("F", bound=Callable[..., Any])
REFUSED = {
    "out": "it is not written into another array; use what it returns",
    "where": "choose between results, as in pgas.where(mask, result, a)",
    "initial": "combine the result with the first value",
    "order": "tiles are in C order; a.transpose() has the dims the other way round",
    "mode": "indices must be in range",
    "casting": "values are converted as pgas.astype does it",
    "subok": "the result is a global array",
    "mean": "it is computed here",
}
"""Arguments of NumPy's methods and functions that are not offered, and what to do."""
AS_IT_IS = {"order": (None, "C", "A", "K")}
"""Values that ask for what is done anyway."""
_CHOSEN = {
    "sum": "0", "prod": "1", "any": "False", "all": "True", "max": "-pgas.inf", "min": "pgas.inf",
    **dict.fromkeys(("nansum", "nanmean", "nanstd", "nanvar", "nanmax", "nanmin"), "pgas.nan"),
}  # fmt: skip
"""What counts for nothing in a reduction."""
OF_FUNCTION = {
    "where": {
        **{
            name: f"write pgas.{name}(pgas.where(mask, a, {value}), axis=axis)"
            for name, value in _CHOSEN.items()
        },
        "mean": "write pgas.sum(pgas.where(mask, a, 0), axis=axis) / pgas.sum(mask, axis=axis)",
        **{
            name: f"write pgas.nan{name}(pgas.where(mask, a, pgas.nan), axis=axis), which leaves out "
            "every NaN of a too"
            for name in ("std", "var")
        },
    },
    "initial": {
        "sum": "write a.sum(...) + value",
        "prod": "write a.prod(...) * value",
        "max": "write pgas.maximum(a.max(...), value)",
        "min": "write pgas.minimum(a.min(...), value)",
    },
}
"""What to do instead in one function, where it matters which."""


def refuse_arguments(function: F, name: str | None = None) -> F:
    """Give a function an error of its own for arguments that only NumPy's has."""
    code = getattr(function, "__code__", None)
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code else ()
    refused = REFUSED.keys() - set(own)
    called_as = name or function.__name__

    def told(one: str) -> str:
        plain = called_as.removeprefix("a") if called_as in ("amax", "amin") else called_as
        return OF_FUNCTION.get(one, {}).get(plain, REFUSED[one])

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        for one in refused & options.keys():
            if options.pop(one) not in AS_IT_IS.get(one, (None,)):
                raise ArgumentTypeError(
                    f"cannot use {one}= in {called_as} of a global array: {told(one)}"
                )
        return function(*args, **options)

    return called  # type: ignore[return-value]


class Methods(Operators):
    """Methods such as ``a.sum(axis=0)`` and ``a.reshape(2, 3)``; **collective** when the functions are."""

    __slots__ = ()

    # Reductions

    @refuse_arguments
    def sum(self: T, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> T:
        """The sum over dims; pending over the axes that cut them until someone needs it."""
        return reductions.sum(self, axis=axis, dtype=dtype, keepdims=keepdims)

    @refuse_arguments
    def prod(self: T, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> T:
        """The product over dims."""
        return reductions.prod(self, axis=axis, dtype=dtype, keepdims=keepdims)

    @refuse_arguments
    def mean(self: T, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> T:
        """The average over dims."""
        return reductions.mean(_in_dtype(self, dtype), axis=axis, keepdims=keepdims)

    @refuse_arguments
    def var(
        self: T, axis: Axis = None, dtype: Any = None, *, ddof: float | None = None,
        correction: float | None = None, keepdims: bool = False,
    ) -> T:  # fmt: skip
        """The variance over dims, with ``n - ddof`` in the denominator; ``correction`` means the same."""
        less = correction_of(ddof, correction)
        return reductions.var(_in_dtype(self, dtype), axis=axis, correction=less, keepdims=keepdims)

    @refuse_arguments
    def std(
        self: T, axis: Axis = None, dtype: Any = None, *, ddof: float | None = None,
        correction: float | None = None, keepdims: bool = False,
    ) -> T:  # fmt: skip
        """The standard deviation over dims, with ``n - ddof`` in the denominator."""
        less = correction_of(ddof, correction)
        return reductions.std(_in_dtype(self, dtype), axis=axis, correction=less, keepdims=keepdims)

    @refuse_arguments
    def max(self: T, axis: Axis = None, *, keepdims: bool = False) -> T:
        """The largest value over dims."""
        return reductions.max(self, axis=axis, keepdims=keepdims)

    @refuse_arguments
    def min(self: T, axis: Axis = None, *, keepdims: bool = False) -> T:
        """The smallest value over dims."""
        return reductions.min(self, axis=axis, keepdims=keepdims)

    @refuse_arguments
    def any(self: T, axis: Axis = None, *, keepdims: bool = False) -> T:
        """Whether any value is nonzero."""
        return reductions.any(self, axis=axis, keepdims=keepdims)

    @refuse_arguments
    def all(self: T, axis: Axis = None, *, keepdims: bool = False) -> T:
        """Whether all values are nonzero."""
        return reductions.all(self, axis=axis, keepdims=keepdims)

    @refuse_arguments
    def argmax(self: T, axis: int | None = None, *, keepdims: bool = False) -> T:
        """The index of the first largest value along a dim, or in the whole array."""
        return reductions.argmax(self, axis=axis, keepdims=keepdims)

    @refuse_arguments
    def argmin(self: T, axis: int | None = None, *, keepdims: bool = False) -> T:
        """The index of the first smallest value along a dim, or in the whole array."""
        return reductions.argmin(self, axis=axis, keepdims=keepdims)

    @refuse_arguments
    def cumsum(self: T, axis: int | None = None, dtype: Any = None) -> T:
        """Running sums along a dim, or of all elements, row by row."""
        x, dim = _along(self, axis)
        return reductions.cumulative_sum(x, axis=dim, dtype=dtype)

    @refuse_arguments
    def cumprod(self: T, axis: int | None = None, dtype: Any = None) -> T:
        """Running products along a dim, or of all elements, row by row."""
        x, dim = _along(self, axis)
        return reductions.cumulative_prod(x, axis=dim, dtype=dtype)

    # Shapes

    @refuse_arguments
    def reshape(self: T, *shape: int | Sequence[int], copy: bool | None = None) -> T:
        """The same elements, row by row, in another shape: ``a.reshape(2, -1)``, ``a.reshape((2, -1))``."""
        return reshape(self, _one_or_many(shape), copy=copy)

    @refuse_arguments
    def ravel(self: T, order: str = "C") -> T:
        """All elements in one dim, row by row; as in NumPy, a view if nothing must move."""
        _check_order("ravel", order)
        return reshape(self, (-1,))

    @refuse_arguments
    def flatten(self: T, order: str = "C") -> T:
        """All elements in one dim, row by row, in new tiles."""
        _check_order("flatten", order)
        return reshape(self, (-1,), copy=True)

    def transpose(self: T, *axes: Any) -> T:
        """The dims in another order, by default reversed: ``a.transpose(1, 0)``; the tile is a view."""
        order = _one_or_many(axes) if axes and axes != (None,) else range(self.ndim)[::-1]
        return permute.permute_dims(self, (order,) if isinstance(order, int) else tuple(order))

    def swapaxes(self: T, axis1: int, axis2: int, /) -> T:
        """The array with two dims exchanged; the tile is a view."""
        order = list(range(self.ndim))
        i, j = dim_of(axis1, self.ndim), dim_of(axis2, self.ndim)
        order[i], order[j] = j, i
        return permute.permute_dims(self, order)

    def squeeze(self: T, axis: int | Sequence[int] | None = None) -> T:
        """The array without dims of size 1: those named, or all of them."""
        ones = tuple(i for i, n in enumerate(self.shape) if n == 1) if axis is None else axis
        return permute.squeeze(self, ones)

    def diagonal(self: T, offset: int = 0, axis1: int = 0, axis2: int = 1) -> T:
        """The elements ``i, i + offset`` of two dims, as a new last dim."""
        return diagonal_of(self, offset, axis1, axis2)

    @refuse_arguments
    def trace(self: T, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> T:
        """The sum of a diagonal."""
        return reductions.sum(diagonal_of(self, offset, axis1, axis2), axis=-1, dtype=dtype)

    @refuse_arguments
    def repeat(self: T, repeats: Any, axis: int | None = None) -> T:
        """Each element this many times, one copy after another."""
        return repeat(self, repeats, axis=axis)

    @refuse_arguments
    def take(self: T, indices: Any, axis: int | None = None) -> T:
        """The parts at given indices along a dim; without ``axis``, elements numbered row by row."""
        x, dim = _along(self, axis)
        key = indices if isinstance(indices, (Tiled, int)) else np.asarray(indices)
        return dispatch.get(x, (*(slice(None),) * dim, key))

    # Elements

    @refuse_arguments
    def astype(self: T, dtype: Any, *, copy: bool = True) -> T:
        """The values converted to another dtype."""
        return astype(self, dtype, copy=copy)

    @refuse_arguments
    def clip(self: T, min: T | Number | None = None, max: T | Number | None = None) -> T:
        """Values below ``min`` or above ``max`` become these bounds; the dtype is that of ``maximum``."""
        if min is max is None:
            return unary.positive(self)
        out = self if min is None else apply(np.maximum, self, min)
        return out if max is None else apply(np.minimum, out, max)

    @refuse_arguments
    def round(self: T, decimals: int = 0) -> T:
        """The values rounded to this many decimals, halves to even."""
        return round_to(self, operator.index(decimals))

    def conj(self: T) -> T:
        """The complex conjugate of each value; for real values the array itself, as in NumPy."""
        return unary.conj(self) if number_kind(self.dtype) == "c" else self

    conjugate = conj

    @property
    def real(self: T) -> T:
        """The real part of each value; the tile is a view, as in NumPy."""
        return real_part(self) if number_kind(self.dtype) == "c" else self

    @property
    def imag(self: T) -> T:
        """The imaginary part of each value; the tile is a view. For real values, zeros in new tiles."""
        if number_kind(self.dtype) == "c":
            return imaginary_part(self)
        return astype(apply(np.logical_and, self, False), self.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return self.size * self.dtype.itemsize

    def nonzero(self: T) -> tuple[T, ...]:
        """The indices of the nonzero elements, one array for each dim."""
        return boolean.nonzero(self)

    def dot(self: T, b: T | Number, /) -> T:
        """The array times a number, or the product of matrices or vectors, like ``numpy.dot``."""
        return dot(self, b)

    def fill(self, value: Any) -> None:
        """**Collective** if a reduction is pending. Set every element to one value."""
        dispatch.put(self, ..., value)

    # Order

    @refuse_arguments
    def sort(self, axis: int = -1, kind: str | None = None, *, stable: bool | None = None) -> None:
        """Sort in place along a dim, as NumPy's method does; :func:`pgas.sort` returns a new array."""
        keep = sorting.is_stable(kind, stable)
        dispatch.put(self, ..., sorting.sort(self, axis=axis, stable=keep))

    @refuse_arguments
    def argsort(
        self: T, axis: int | None = -1, kind: str | None = None, *, stable: bool | None = None
    ) -> T:
        """The indices that sort along a dim, or that sort all elements if ``axis`` is None."""
        keep = sorting.is_stable(kind, stable)
        x, dim = _along(self, axis)
        return sorting.argsort(x, axis=dim, stable=keep)

    def searchsorted(self: T, v: Any, side: str = "left", sorter: T | None = None) -> T:
        """The indices at which values would be inserted into this sorted array."""
        return searching.searchsorted(self, v, side=side, sorter=sorter)


def dot(a: Any, b: Any, name: str = "dot") -> Any:
    """**Collective** if operands must move. Like ``numpy.dot``: a product with a number, or of matrices."""
    check_arrays(name, *(x for x in (a, b) if not isinstance(x, Tiled) and np.ndim(x)))
    if not all(isinstance(x, Tiled) and x.ndim for x in (a, b)):
        return apply(np.multiply, a, b)
    if max(a.ndim, b.ndim) <= 2:
        return matmul(a, b)
    return tensordot(a, b, axes=([a.ndim - 1], [max(0, b.ndim - 2)]))


@asked
def real_part(x: T) -> T:
    """**Collective** if a reduction is pending. The real parts of complex values, as a view."""
    x = resolve_pending(x)
    return x.sharing(_parts_type(x), None if x.tile is None else x.tile.real)


@asked
def imaginary_part(x: T) -> T:
    """**Collective** if a reduction is pending. The imaginary parts of complex values, as a view."""
    x = resolve_pending(x)
    return x.sharing(_parts_type(x), None if x.tile is None else x.tile.imag)


def _parts_type(x: Tiled) -> ArrayType:
    return with_dtype(x.type, dtype_of(real_dtype(x.dtype)))


def round_to(x: T, decimals: int) -> T:
    """**Local.** Round as NumPy does: scaled by a power of ten, rounded, scaled back."""
    if decimals == 0 or (decimals > 0 and number_kind(x.dtype) in "iub"):
        return unary.round(x)
    scale = 10.0 ** abs(decimals)
    up, down = (np.multiply, np.true_divide) if decimals > 0 else (np.true_divide, np.multiply)
    out: T = apply(down, apply(np.rint, apply(up, x, scale)), scale)
    return out if out.dtype == x.dtype else astype(out, x.dtype)


def diagonal_of(x: T, offset: int, axis1: int, axis2: int) -> T:
    """**Collective** if both dims are cut. The diagonal of two dims."""
    i, j = dim_of(axis1, x.ndim), dim_of(axis2, x.ndim)
    if i == j:
        raise ArgumentError(f"cannot take a diagonal of dim {i} alone: name two dims")
    return diagonals.diagonal(x, i, j, offset)


def _check_order(what: str, order: str | None) -> None:
    if order not in AS_IT_IS["order"]:
        raise ArgumentError(
            f"cannot {what} in order {order!r}: tiles are in C order; write a.transpose().{what}()"
        )


def _along(x: T, axis: int | None) -> tuple[T, int]:
    """The array and the dim that an axis names; for None, its elements in one dim."""
    if axis is None:
        return (x if x.ndim == 1 else reshape(x, (math.prod(x.shape),))), 0
    return x, dim_of(axis, x.ndim)


def _in_dtype(x: T, dtype: Any) -> T:
    return x if dtype is None else astype(x, dtype, copy=False)


def correction_of(ddof: float | None, correction: float | None) -> float:
    """What is taken off the number of values, by NumPy's name or by that of the standard."""
    if ddof is not None and correction is not None:
        raise ArgumentError("cannot use ddof= and correction= together: they are the same")
    return next((one for one in (ddof, correction) if one is not None), 0.0)


def _one_or_many(given: Sequence[Any]) -> Any:
    """What ``f(2, 3)`` and ``f((2, 3))`` both mean."""
    return given[0] if len(given) == 1 else tuple(given)
