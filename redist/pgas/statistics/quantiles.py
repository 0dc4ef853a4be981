"""Medians and quantiles: values at a few places of the sorted order, interpolated as in NumPy."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.layout.array_type import ArrayType
from redist.pgas import reductions
from redist.pgas.conversion import asarray
from redist.pgas.elementwise.apply import apply, astype
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.indexing import dispatch
from redist.pgas.kinds import number_kind
from redist.pgas.ordering.selecting import values_in_order
from redist.pgas.shapes.permute import expand_dims
from redist.pgas.tiles.arguments import Axis, dims_of, takes_array
from redist.pgas.tiles.devices import kind_of
from redist.pgas.tiles.layouts import dtype_of
from redist.pgas.tiles.reshape import reshape
from redist.pgas.tiles.tiled import T, Tile, Tiled

BETWEEN = {
    "interpolated_inverted_cdf": (0, 1), "hazen": (0.5, 0.5), "weibull": (0, 0),
    "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8),
}  # fmt: skip
"""Methods of Hyndman and Fan that interpolate, by their alpha and beta."""
WHOLE = ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")
"""Methods that take an element as it is."""
METHODS = ("linear", *WHOLE, "midpoint", "averaged_inverted_cdf", *BETWEEN)


@in_f32
@takes_array
def median(x: T, /, *, axis: Axis = None, keepdims: bool = False) -> T:
    """**Collective** if a dim is cut. The median over dims; NaN if any value is.

    Of an even number of values, it is the mean of the middle two. ``pgas.median(a, axis=0)`` with ``a`` of
    type ``f64[n{x}, k]`` sends only a few samples between ranks, however large ``n`` is. Meanwhile, each rank
    holds a sorted copy of its tile.
    """
    dims = tuple(sorted(dims_of(axis, x.ndim)))
    n = math.prod(x.shape[i] for i in dims)
    if n == 0:
        return reductions.mean(x, axis=axis, keepdims=keepdims)
    middle = (n // 2,) if n % 2 else (n // 2 - 1, n // 2)
    ordered = values_in_order(x, (*middle, n - 1), dims)
    out = reductions.mean(dispatch.get(ordered, slice(len(middle))), axis=0)
    out = or_nan(out, dispatch.get(ordered, -1))
    return expand_dims(out, axis=dims) if keepdims else out


@in_f32
@takes_array
def quantile(
    x: T, q: Any, /, *, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> T:
    """**Collective** if a dim is cut. The values below which a share ``q`` of all lies; NaN if any value is.

    ``pgas.quantile(a, [0.25, 0.75], axis=0, method="nearest")``. ``q`` is one number in [0, 1] or a sequence
    of them, the same on every rank; a sequence adds a first dim to the result. ``method`` is any of NumPy's.
    It sends and holds as much as :func:`median` does. Integers stay integers if ``q`` is an integer, 0 or 1.
    """
    return quantile_at(x, shares_of(x, q, 1), axis, method_of(method, q), keepdims)


@in_f32
@takes_array
def percentile(
    x: T, q: Any, /, *, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> T:
    """**Collective** if a dim is cut. Like :func:`quantile`, with shares in percent."""
    return quantile_at(x, shares_of(x, q, 100), axis, method_of(method, None), keepdims)


def method_of(method: str, q: Any) -> str:
    """The method by which NumPy goes: shares that are whole numbers take elements as they are."""
    if method not in METHODS:
        raise ArgumentError(
            f"cannot take quantiles by method {method!r}: known are {', '.join(METHODS)}"
        )
    is_whole = q is not None and number_kind(np.asarray(q).dtype) in "iu"
    return "lower" if is_whole and method == "linear" else method


def shares_of(x: Tiled, q: Any, whole: int) -> Tile:
    """Shares of 1 as NumPy computes them: one number in the dtype of floats, several in float64."""
    if isinstance(q, Tiled):
        raise ArgumentTypeError("cannot use a global array as q: give numbers, as in q.tolist()")
    if number_kind(x.dtype) == "c":
        raise ArgumentTypeError(f"cannot take quantiles of {x.dtype}: need real numbers")
    is_float = number_kind(x.dtype) == "f"
    given = np.asarray(q, x.dtype if is_float and isinstance(q, (int, float)) else None)
    shares = np.asarray(given / (x.dtype.type(whole) if is_float else whole))
    if number_kind(shares.dtype) != "f" or not ((shares >= 0) & (shares <= 1)).all():
        raise ArgumentError(f"cannot take quantiles at {q!r}: need numbers from 0 to {whole}")
    return shares


class Between(NamedTuple):
    """Where a quantile lies: at a place, or a share of the way from it to a place above."""

    low: Any
    high: Any
    share: Any


def places_of(n: Any, shares: Any, method: str, xp: Any = np) -> Between:
    """Where quantiles of ``n`` values lie, as NumPy has it; ``n`` may be a global array.

    >>> places_of(5, np.array([0.3]), "linear")
    Between(low=array([1.]), high=array([2.]), share=array([0.2]))
    >>> places_of(5, np.array([0.3]), "nearest").low
    array([1.])
    """
    match method:
        case "linear" | "lower" | "higher" | "nearest" | "midpoint":
            at = (n - 1) * shares
        case "inverted_cdf" | "averaged_inverted_cdf":
            at = n * shares - 1
        case "closest_observation":
            at = n * shares - 1 - 0.5
        case _:
            alpha, beta = BETWEEN[method]
            at = n * shares + (alpha + shares * (1 - alpha - beta)) - 1
    low = xp.floor(at)
    share = at - low
    match method:
        case "lower":
            share = share * 0
        case "higher":
            low, share = xp.ceil(at), share * 0
        case "nearest":
            low, share = xp.round(at), share * 0
        case "midpoint":
            share = xp.where(share > 0, 0.5, 0.0)
        case "averaged_inverted_cdf":
            share = xp.where(share > 0, 1.0, 0.5)
        case "inverted_cdf":
            low, share = xp.where(share > 0, low + 1, low), share * 0
        case "closest_observation":
            stays = (share == 0) & (low % 2 == 1)
            low, share = xp.where(stays, low, low + 1), share * 0
    last = n - 1
    low, high = (xp.minimum(xp.maximum(one, 0), last) for one in (low, low + 1))
    return Between(low, xp.where(at < 0, low, high), share)


def quantile_at(x: T, shares: Tile, axis: Axis, method: str, keepdims: bool) -> T:
    """**Collective** if a dim is cut. Quantiles at shares of 1, which were checked."""
    dims = tuple(sorted(dims_of(axis, x.ndim)))
    n = math.prod(x.shape[i] for i in dims)
    if n == 0:
        raise ArgumentError("cannot take quantiles of nothing: a dim has size 0")
    flat = np.atleast_1d(shares.reshape(-1))
    found = places_of(n, flat, method)
    share = found.share.astype(flat.dtype, copy=False)
    low, high = (one.astype(np.int64).tolist() for one in (found.low, found.high))
    high = [] if method in WHOLE else high
    ordered = values_in_order(x, (*low, *high, n - 1), dims)
    out = dispatch.get(ordered, slice(len(low)))
    if high:
        above = dispatch.get(ordered, slice(len(low), -1))
        out = mix(as_floats(out), as_floats(above), beside(out, share), beside(out, 1 - share))
    out = or_nan(out, dispatch.get(ordered, slice(-1, None)))
    rest = (1 if i in dims else m for i, m in enumerate(x.shape)) if keepdims else out.shape[1:]
    return reshape(out, (*shares.shape, *rest))


def as_floats(x: T) -> T:
    """**Local.** Values that can be mixed: whole numbers as floats."""
    return x if number_kind(x.dtype) == "f" else astype(x, np.float64)


def beside(x: Tiled, values: Tile, dim: int = 0) -> Any:
    """**Local.** Values along a dim, on every rank, that go with an array."""
    given = values.reshape([-1 if i == dim else 1 for i in range(x.ndim)])
    t = ArrayType(x.mesh, dtype_of(given.dtype), given.shape, ((),) * x.ndim)
    return asarray(given, type=t, comm=x.comm, device=kind_of(x))


def mix(below: T, above: T, share: Any, rest: Any) -> T:
    """Between two values, from the nearer end, as NumPy does it; ``rest`` is 1 less the share."""
    step = apply(np.subtract, above, below)
    first = apply(np.add, below, apply(np.multiply, step, share))
    second = apply(np.subtract, above, apply(np.multiply, step, rest))
    return apply(np.where, apply(np.greater_equal, share, 0.5), second, first)


def or_nan(out: T, last: T) -> T:
    """NaN where the largest value is NaN, which sorts last."""
    if number_kind(last.dtype) not in "fc":
        return out
    return apply(np.where, apply(np.isnan, last), np.asarray(np.nan, out.dtype), out)
