"""Reductions by their names in the standard; the names hide Python's own in this module."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import ArgumentError
from redist.pgas.elementwise.apply import Number, apply, astype
from redist.pgas.elementwise.binary import isclose
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.kinds import (
    computing,
    dtype_asked,
    is_half,
    is_stored,
    number_kind,
    refuse_if_stored,
)
from redist.pgas.memory import as_tile
from redist.pgas.reductions import along
from redist.pgas.reductions.reduce import accumulate, reduce, reduced_type, rounded_once
from redist.pgas.shapes.join import concat
from redist.pgas.tiles.arguments import Axis, dims_of, takes_array
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.layouts import default_dims, make_type
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import T, Tiled
from redist.runtime.cuda.arrays import fill_with


def _sum_dtype(x: Tiled, dtype: Any) -> np.dtype[Any]:
    """The dtype of a sum: small integers grow to the default one."""
    return grown_dtype(x.dtype) if dtype is None else dtype_asked(dtype)


@lru_cache(maxsize=64)
def grown_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of a sum or a product of values of a dtype."""
    return dtype if is_half(dtype) or is_stored(dtype) else np.sum(np.ones(1, dtype)).dtype


@takes_array
def sum(x: T, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> T:
    """The sum over dims; pending over the axes that cut them until someone needs it."""
    return accumulate(x, "sum", axis, keepdims, _sum_dtype(x, dtype))


@takes_array
def prod(x: T, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> T:
    """The product over dims."""
    return accumulate(x, "prod", axis, keepdims, _sum_dtype(x, dtype))


@takes_array
def max(x: T, /, *, axis: Axis = None, keepdims: bool = False) -> T:
    """The largest value over dims."""
    refuse_if_stored("take the largest", x.dtype)
    return reduce(x, "max", axis, keepdims, x.dtype)


@takes_array
def min(x: T, /, *, axis: Axis = None, keepdims: bool = False) -> T:
    """The smallest value over dims."""
    refuse_if_stored("take the smallest", x.dtype)
    return reduce(x, "min", axis, keepdims, x.dtype)


@asked
@takes_array
def any(x: T, /, *, axis: Axis = None, keepdims: bool = False) -> T:
    """Whether any value is nonzero."""
    return _logical(x, "max", axis, keepdims)


@asked
@takes_array
def all(x: T, /, *, axis: Axis = None, keepdims: bool = False) -> T:
    """Whether all values are nonzero."""
    return _logical(x, "min", axis, keepdims)


def allclose(
    x1: T | Number, x2: T | Number, /, *, rtol: float = 1e-5, atol: float = 1e-8,
    equal_nan: bool = False,
) -> T:  # fmt: skip
    """Whether all values are equal within a tolerance, as an array without dims that works in an ``if``."""
    return all(isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan))


@takes_array
def count_nonzero(x: T, /, *, axis: Axis = None, keepdims: bool = False) -> T:
    """The number of nonzero values."""
    return sum(_truth(x), axis=axis, keepdims=keepdims, dtype=np.int64)


@takes_array
def mean(x: T, /, *, axis: Axis = None, keepdims: bool = False) -> T:
    """The average over dims."""
    n = math.prod(x.shape[i] for i in dims_of(axis, x.ndim))
    out = _divide(sum(x, axis=axis, keepdims=keepdims, dtype=_mean_dtype(x.dtype)), n)
    return rounded_once(out, x.dtype) if is_half(x.dtype) else out


@in_f32
@takes_array
def var(x: T, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> T:
    """The variance over dims, with ``n - correction`` in the denominator."""
    n = math.prod(x.shape[i] for i in dims_of(axis, x.ndim))
    off = apply(np.subtract, x, mean(x, axis=axis, keepdims=True))
    off = apply(np.abs, off) if number_kind(off.dtype) == "c" else off
    squares = apply(np.multiply, off, off)
    total = sum(squares, axis=axis, keepdims=keepdims, dtype=off.dtype)
    return _divide(total, n - correction)


@in_f32
@takes_array
def std(x: T, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> T:
    """The standard deviation over dims."""
    return apply(np.sqrt, var(x, axis=axis, correction=correction, keepdims=keepdims))


@in_f32
@asked
@takes_array
def argmax(x: T, /, *, axis: int | None = None, keepdims: bool = False) -> T:
    """The index of the first largest value along a dim, or in the whole array."""
    return _argument(x, np.argmax, axis, keepdims)


@in_f32
@asked
@takes_array
def argmin(x: T, /, *, axis: int | None = None, keepdims: bool = False) -> T:
    """The index of the first smallest value along a dim, or in the whole array."""
    return _argument(x, np.argmin, axis, keepdims)


def _mean_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which an average is summed: integers as float64, as NumPy does."""
    if number_kind(dtype) in "biu":
        return np.dtype(np.float64)
    return computing(dtype)


def _divide(total: Any, n: float) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return apply(np.true_divide, total, total.dtype.type(max0(n)))


def max0(n: float) -> float:
    """A denominator that is not negative."""
    return n if n > 0 else 0


def _truth(x: T) -> T:
    return x if x.dtype == np.bool_ else apply(np.not_equal, x, x.dtype.type(0))


def _logical(x: T, op: str, axis: Axis, keepdims: bool) -> T:
    """Any and all, as the largest and the smallest of truth values; of nothing, as usual."""
    x = resolve_pending(_truth(x))
    dims = tuple(sorted(dims_of(axis, x.ndim)))
    t = reduced_type(x.type, dims, op, keepdims, np.bool_)
    if x.tile is None:
        return x.new(t, None)
    function = np.any if op == "max" else np.all
    return x.new(t, as_tile(function(x.tile, axis=dims, keepdims=keepdims)))


def _argument(x: T, function: Any, axis: int | None, keepdims: bool) -> T:
    if axis is not None:
        return along.argument(x, function, axis, keepdims)
    return along.argument_of_all(resolve_pending(x), function, keepdims)


@in_f32
@asked
@takes_array
def cumulative_sum(
    x: T, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> T:
    """Running sums along a dim."""
    return _cumulate(x, np.add, axis, dtype, include_initial)


@in_f32
@asked
@takes_array
def cumulative_prod(
    x: T, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> T:
    """Running products along a dim."""
    return _cumulate(x, np.multiply, axis, dtype, include_initial)


def _cumulate(x: T, function: np.ufunc, axis: int | None, dtype: Any, initial: bool) -> T:
    if axis is None:
        if x.ndim != 1:
            raise ArgumentError(f"cannot run along {x.ndim} dims: name one with axis=")
        axis = 0
    kind = _sum_dtype(x, dtype)
    out = along.cumulate(x, function, axis, computing(kind))
    out = out if out.dtype == kind else astype(out, kind)
    if not initial:
        return out
    shape = tuple(1 if i == axis % x.ndim else n for i, n in enumerate(x.shape))
    t = make_type(x.mesh, out.type.dtype, shape, default_dims(x.mesh, shape))
    first = x.new(t, new_tile(x, t))
    if first.tile is not None:
        fill_with(first.tile, np.asarray(function.identity, out.dtype))
    return concat([first, out], axis=axis)
