"""Sums, averages, extremes and medians that leave NaN out, by NumPy's names."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from redist.errors import ArgumentError
from redist.pgas import reductions
from redist.pgas.elementwise.apply import apply, astype
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.kinds import number_kind
from redist.pgas.methods import correction_of
from redist.pgas.ordering.sorting import sort
from redist.pgas.shapes.permute import expand_dims, moveaxis, squeeze
from redist.pgas.shapes.take import take_along_axis
from redist.pgas.statistics.averages import along_one
from redist.pgas.statistics.quantiles import (
    WHOLE,
    beside,
    median,
    method_of,
    mix,
    places_of,
    quantile_at,
    shares_of,
)
from redist.pgas.tiles.arguments import Axis, takes_array
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.reshape import reshape
from redist.pgas.tiles.tiled import T


@in_f32
@takes_array
def nansum(x: T, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> T:
    """The sum over dims without NaN; 0 where all values are NaN.

    A temporary copy of the values is made, as in the other reductions that leave out NaN.
    """
    return reductions.sum(_filled(resolve_pending(x), 0), axis=axis, dtype=dtype, keepdims=keepdims)


@in_f32
@takes_array
def nanprod(x: T, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> T:
    """The product over dims without NaN; 1 where all values are NaN.

    ``pgas.nanprod(a, axis=0)``.
    """
    return reductions.prod(
        _filled(resolve_pending(x), 1), axis=axis, dtype=dtype, keepdims=keepdims
    )


@in_f32
@takes_array
def nanmean(x: T, /, *, axis: Axis = None, keepdims: bool = False) -> T:
    """**Collective** if a dim is cut. The average over dims without NaN; NaN where all values are.

    ``pgas.nanmean(a, axis=0)`` divides the sum of each column by the number of its values that are not NaN.
    """
    x = resolve_pending(x)
    if not _can_be_nan(x):
        return reductions.mean(x, axis=axis, keepdims=keepdims)
    wide = np.float32 if x.dtype == np.float16 else x.dtype
    total = reductions.sum(_filled(x, 0), axis=axis, keepdims=keepdims, dtype=wide)
    return _divide(total, _count(x, axis, keepdims), x.dtype)


@in_f32
@takes_array
def nanvar(
    x: T, /, *, axis: Axis = None, ddof: float | None = None, correction: float | None = None,
    keepdims: bool = False,
) -> T:  # fmt: skip
    """**Collective** if a dim is cut. The variance over dims without NaN.

    The denominator is ``n - ddof``, where ``n`` values are not NaN; ``correction`` means the same. The result
    is NaN where the denominator is not positive.
    """
    x, less = resolve_pending(x), correction_of(ddof, correction)
    if not _can_be_nan(x):
        return reductions.var(x, axis=axis, correction=less, keepdims=keepdims)
    off = _filled(
        apply(np.subtract, x, nanmean(x, axis=axis, keepdims=True)), 0, apply(np.isnan, x)
    )
    off = apply(np.abs, off) if number_kind(off.dtype) == "c" else off
    squares = apply(np.multiply, off, off)
    total = reductions.sum(squares, axis=axis, keepdims=keepdims, dtype=off.dtype)
    n = apply(np.subtract, _count(x, axis, keepdims), float(less))
    n = apply(np.where, apply(np.greater, n, 0.0), n, np.asarray(np.nan))
    return _divide(total, n, off.dtype)


@in_f32
@takes_array
def nanstd(
    x: T, /, *, axis: Axis = None, ddof: float | None = None, correction: float | None = None,
    keepdims: bool = False,
) -> T:  # fmt: skip
    """**Collective** if a dim is cut. The standard deviation over dims without NaN, like :func:`nanvar`."""
    return apply(np.sqrt, nanvar(x, axis=axis, ddof=ddof, correction=correction, keepdims=keepdims))


@in_f32
@takes_array
def nanmax(x: T, /, *, axis: Axis = None, keepdims: bool = False) -> T:
    """**Collective** if a dim is cut. The largest value over dims without NaN; NaN where all values are."""
    x = resolve_pending(x)
    largest = reductions.max(_filled(x, -np.inf), axis=axis, keepdims=keepdims)
    return _or_nan(x, largest, axis, keepdims)


@in_f32
@takes_array
def nanmin(x: T, /, *, axis: Axis = None, keepdims: bool = False) -> T:
    """**Collective** if a dim is cut. The smallest value over dims without NaN; NaN where all values are."""
    x = resolve_pending(x)
    smallest = reductions.min(_filled(x, np.inf), axis=axis, keepdims=keepdims)
    return _or_nan(x, smallest, axis, keepdims)


@in_f32
@takes_array
def nanmedian(x: T, /, *, axis: Axis = None, keepdims: bool = False) -> T:
    """**Collective** if a dim is cut. The middle value over dims without NaN; NaN where all values are.

    It takes as much memory as :func:`sort`: a sorted copy, and temporarily as much again.
    """
    x = resolve_pending(x)
    if not _can_be_nan(x) or 0 in x.shape:
        return median(x, axis=axis, keepdims=keepdims)
    x, dim, dims = along_one(x, axis)
    ordered = sort(x, axis=dim)  # NaN come last
    n = resolve_pending(_count(x, dim, True))
    low = apply(np.maximum, apply(np.floor_divide, apply(np.subtract, n, 1), 2), 0)
    high = apply(np.minimum, apply(np.floor_divide, n, 2), x.shape[dim] - 1)
    two = (take_along_axis(ordered, at, axis=dim) for at in (low, high))
    out = astype(apply(np.multiply, apply(np.add, *two), 0.5), x.dtype, copy=False)
    out = squeeze(out, dim)
    return expand_dims(out, axis=dims) if keepdims else out


@in_f32
@takes_array
def nanquantile(
    x: T, q: Any, /, *, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> T:
    """**Collective** if a dim is cut. Like :func:`pgas.quantile`, without NaN; NaN where all values are.

    ``pgas.nanquantile(a, [0.1, 0.9], axis=0)``. It takes as much memory as :func:`sort`: a
    sorted copy, and temporarily as much again.
    """
    return _nanquantile(x, q, shares_of(x, q, 1), axis, method_of(method, q), keepdims)


@in_f32
@takes_array
def nanpercentile(
    x: T, q: Any, /, *, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> T:
    """**Collective** if a dim is cut. Like :func:`nanquantile`, with shares in percent."""
    return _nanquantile(x, q, shares_of(x, q, 100), axis, method_of(method, None), keepdims)


def _nanquantile(x: T, q: Any, shares: Any, axis: Axis, method: str, keepdims: bool) -> T:
    x = resolve_pending(x)
    if not _can_be_nan(x):
        return quantile_at(x, shares, axis, method, keepdims)
    shape, (x, dim, dims) = x.shape, along_one(x, axis)
    if x.shape[dim] == 0:
        raise ArgumentError("cannot take quantiles of nothing: a dim has size 0")
    ordered = sort(x, axis=dim)  # NaN come last
    n = astype(resolve_pending(_count(x, dim, True)), shares.dtype)
    some = beside(n, shares.reshape(-1), dim)
    found = places_of(n, some, method, LIKE_NUMPY)
    share = astype(found.share, shares.dtype, copy=False)
    low, high = (
        take_along_axis(ordered, astype(at, np.int64), axis=dim) for at in (found.low, found.high)
    )
    out = low if method in WHOLE else mix(low, high, share, apply(np.subtract, 1.0, share))
    out = moveaxis(out, dim, 0)
    rest = (1 if i in dims else m for i, m in enumerate(shape)) if keepdims else out.shape[1:]
    return reshape(out, (*shares.shape, *rest))


LIKE_NUMPY = SimpleNamespace(
    **{
        name: partial(apply, getattr(np, name))
        for name in ("ceil", "floor", "round", "where", "minimum", "maximum")
    }
)


def _can_be_nan(x: T) -> bool:
    return number_kind(x.dtype) in "fc"


def _filled(x: T, value: float, where: T | None = None) -> T:
    """Values with another in place of NaN, or of those at a mask."""
    if not _can_be_nan(x):
        return x
    mask = apply(np.isnan, x) if where is None else where
    return apply(np.where, mask, np.asarray(value, x.dtype), x)


def _count(x: T, axis: Axis, keepdims: bool) -> T:
    """How many values over dims are numbers."""
    numbers = apply(np.logical_not, apply(np.isnan, x))
    return reductions.sum(numbers, axis=axis, keepdims=keepdims, dtype=np.int64)


def _divide(total: T, n: T, dtype: np.dtype[Any]) -> T:
    with np.errstate(divide="ignore", invalid="ignore"):
        out: T = apply(np.true_divide, total, n)
    return astype(out, dtype, copy=False)


def _or_nan(x: T, out: T, axis: Axis, keepdims: bool) -> T:
    """NaN in place of the extreme of nothing but NaN."""
    if not _can_be_nan(x):
        return out
    no_number = reductions.all(apply(np.isnan, x), axis=axis, keepdims=keepdims)
    return apply(np.where, no_number, np.asarray(np.nan, x.dtype), out)
