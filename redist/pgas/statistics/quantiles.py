"""Medians and quantiles: sorted over all ranks, then a few elements of the order are taken."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.layout.array_type import ArrayType
from redist.pgas import reductions
from redist.pgas.conversion import asarray
from redist.pgas.elementwise.apply import apply, astype
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.indexing import dispatch
from redist.pgas.kinds import number_kind
from redist.pgas.ordering.sorting import sort
from redist.pgas.shapes.permute import expand_dims, moveaxis
from redist.pgas.statistics.averages import along_one
from redist.pgas.tiles.arguments import Axis, takes_array
from redist.pgas.tiles.devices import in_memory
from redist.pgas.tiles.layouts import dtype_of
from redist.pgas.tiles.reshape import reshape
from redist.pgas.tiles.tiled import T, Tile, Tiled

METHODS = ("linear", "lower", "higher", "midpoint")


@in_f32
@takes_array
@in_memory
def median(x: T, /, *, axis: Axis = None, keepdims: bool = False) -> T:
    """**Collective** if a dim is cut. The middle value over dims, or the mean of two; NaN if there is one.

    It takes the memory of :func:`sort`: a sorted copy, and as much on the way.
    """
    x, dim, dims = along_one(x, axis)
    n = x.shape[dim]
    if n == 0:
        out = reductions.mean(x, axis=dim)
    else:
        ordered = sort(x, axis=dim)
        out = reductions.mean(_part(ordered, dim, slice((n - 1) // 2, n // 2 + 1)), axis=dim)
        out = _or_nan(out, _part(ordered, dim, n - 1))
    return expand_dims(out, axis=dims) if keepdims else out


@in_f32
@takes_array
@in_memory
def quantile(
    x: T, q: Any, /, *, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> T:
    """**Collective** if a dim is cut. Values below which a share ``q`` of all lies; NaN if there is one.

    ``q`` is one number in [0, 1] or a sequence of them, the same on every rank, which is then the first
    dim of the result. It takes the memory of :func:`sort`: a sorted copy, and as much on the way.
    Whole numbers stay whole where ``q`` is, 0 or 1.
    """
    shares = _shares(x, q, 1)
    if method in METHODS and number_kind(np.asarray(q).dtype) in "iu":
        method = "lower"
    return _quantile(x, shares, axis, method, keepdims)


@in_f32
@takes_array
@in_memory
def percentile(
    x: T, q: Any, /, *, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> T:
    """**Collective** if a dim is cut. As :func:`quantile`, with shares in percent."""
    return _quantile(x, _shares(x, q, 100), axis, method, keepdims)


def _shares(x: Tiled, q: Any, whole: int) -> Tile:
    """Shares of 1 as NumPy computes them: one number in the dtype of floats, several in float64."""
    if isinstance(q, Tiled):
        raise ArgumentTypeError("cannot use a global array as q: give numbers, as in q.tolist()")
    is_float = number_kind(x.dtype) == "f"
    given = np.asarray(q, x.dtype if is_float and isinstance(q, (int, float)) else None)
    shares = np.asarray(given / (x.dtype.type(whole) if is_float else whole))
    if number_kind(shares.dtype) != "f" or not ((shares >= 0) & (shares <= 1)).all():
        raise ArgumentError(f"cannot take quantiles at {q!r}: need numbers from 0 to {whole}")
    return shares


def _quantile(x: T, shares: Tile, axis: Axis, method: str, keepdims: bool) -> T:
    if method not in METHODS:
        raise ArgumentError(
            f"cannot take quantiles by method {method!r}: known are {', '.join(METHODS)}"
        )
    if number_kind(x.dtype) == "c":
        raise ArgumentTypeError(f"cannot take quantiles of {x.dtype}: need real numbers")
    x, dim, dims = along_one(x, axis)
    n = x.shape[dim]
    if n == 0:
        raise ArgumentError("cannot take quantiles of nothing: a dim has size 0")
    ordered = sort(x, axis=dim)
    at = np.atleast_1d((n - 1) * shares.reshape(-1))
    low = np.floor(at).astype(np.int64)
    between = at - low
    if method in ("lower", "higher"):
        picked = low if method == "lower" else np.ceil(at).astype(np.int64)
        out = _part(ordered, dim, picked)
    else:
        if method == "midpoint":
            between = np.where(between > 0, 0.5, 0.0).astype(between.dtype)
        below = _as_floats(_part(ordered, dim, low))
        above = _as_floats(_part(ordered, dim, np.minimum(low + 1, n - 1)))
        out = _mix(below, above, between, dim)
    out = _or_nan(out, _part(ordered, dim, slice(n - 1, n)))
    out = moveaxis(out, dim, 0)
    kept = (
        tuple(1 if i in dims else m for i, m in enumerate(_full(x, dim, dims)))
        if keepdims
        else out.shape[1:]
    )
    return reshape(out, (*shares.shape, *kept))


def _full(x: Tiled, dim: int, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes of the dims that were, with 1 for those that are gone."""
    rest = iter(n for i, n in enumerate(x.shape) if i != dim)
    return tuple(1 if i in dims else next(rest) for i in range(x.ndim - 1 + len(dims)))


def _part(x: T, dim: int, key: Any) -> T:
    return dispatch.get(x, (*(slice(None),) * dim, key))


def _as_floats(x: T) -> T:
    return x if number_kind(x.dtype) == "f" else astype(x, np.float64)


def _beside(x: Tiled, values: Tile, dim: int) -> Any:
    """Values along a dim, on every rank, that go with an array."""
    shape = tuple(-1 if i == dim else 1 for i in range(x.ndim))
    t = ArrayType(x.mesh, dtype_of(values.dtype), values.reshape(shape).shape, ((),) * x.ndim)
    return asarray(values.reshape(shape), type=t, comm=x.comm)


def _mix(below: T, above: T, between: Tile, dim: int) -> T:
    """Between two values, from the nearer end, as NumPy does it."""
    t = _beside(below, between, dim)
    rest = _beside(below, 1 - between, dim)
    step = apply(np.subtract, above, below)
    first = apply(np.add, below, apply(np.multiply, step, t))
    second = apply(np.subtract, above, apply(np.multiply, step, rest))
    return apply(np.where, _beside(below, between >= 0.5, dim), second, first)


def _or_nan(out: T, last: T) -> T:
    """NaN where the largest value is NaN, which sorts last."""
    if number_kind(last.dtype) not in "fc":
        return out
    return apply(np.where, apply(np.isnan, last), np.asarray(np.nan, out.dtype), out)
