"""Weighted averages, ranges of values, covariances and correlations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.pgas import reductions
from redist.pgas.elementwise import unary
from redist.pgas.elementwise.apply import apply, astype
from redist.pgas.elementwise.binary import clip
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.kinds import number_kind, promote
from redist.pgas.products.matmul import matmul
from redist.pgas.shapes import diagonals
from redist.pgas.shapes.join import concat
from redist.pgas.shapes.permute import expand_dims, permute_dims
from redist.pgas.tiles.arguments import Axis, beside, check_arrays, dim_of, dims_of, takes_array
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.reshape import reshape
from redist.pgas.tiles.tiled import T


@in_f32
@takes_array
def ptp(x: T, /, *, axis: Axis = None, keepdims: bool = False) -> T:
    """**Collective** if a dim is cut. The largest value over dims minus the smallest."""
    largest = reductions.max(x, axis=axis, keepdims=keepdims)
    return apply(np.subtract, largest, reductions.min(x, axis=axis, keepdims=keepdims))


@in_f32
@takes_array
def average(x: T, /, *, axis: Axis = None, weights: T | None = None, keepdims: bool = False) -> T:
    """**Collective** if dims are cut. The average over dims, with each value weighted.

    ``weights`` has the shape of ``x``, or of the one dim that ``axis`` names. Where the weights
    sum to 0, the result is not finite. A temporary product as large as ``x`` is made.
    """
    if weights is None:
        return reductions.mean(x, axis=axis, keepdims=keepdims)
    check_arrays("average", weights)
    own = _as_weights(x, axis, weights)
    dtype = promote(x.dtype, own.dtype, *(["f8"] if number_kind(x.dtype) in "biu" else []))
    total = reductions.sum(apply(np.multiply, x, own), axis=axis, keepdims=keepdims, dtype=dtype)
    if own.shape != x.shape:
        own = apply(np.multiply, own, apply(np.logical_or, x, True))  # ones of 1 byte
    scale = reductions.sum(own, axis=axis, keepdims=keepdims, dtype=dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        out: T = apply(np.true_divide, total, scale)
    return out


def _as_weights(x: T, axis: Axis, weights: T) -> T:
    """Weights in a shape that goes with an array."""
    if weights.shape == x.shape:
        return weights
    dims = dims_of(axis, x.ndim)
    if axis is None or len(dims) != 1 or weights.shape != (x.shape[dims[0]],):
        raise ArgumentError(
            f"cannot average shape {x.shape} with weights of shape {weights.shape}: give weights of "
            "the same shape, or name the one dim that they go along with axis="
        )
    return reshape(weights, tuple(-1 if i == dims[0] else 1 for i in range(x.ndim)))


@in_f32
@takes_array
def cov(
    m: T, /, y: T | None = None, *, rowvar: bool = True, bias: bool = False,
    ddof: float | None = None, fweights: Any = None, aweights: Any = None,
) -> T:  # fmt: skip
    """**Collective** if operands must move. The covariances of variables, by default the rows.

    ``pgas.cov(x, rowvar=False)`` with samples in rows, such as ``f64[n{x}, k]``, moves only ``k * k`` partial
    sums. A temporary centred copy of the values is made; the result is float64 or complex128.

    ``fweights`` says how often each observation counts, and ``aweights`` how much: each is a global array of
    one dim, or a NumPy array that is the same on all ranks. With weights, the call is **collective**, because
    they are checked, and a second copy of the values is made.
    """
    x = _variables(m, rowvar)
    if y is not None:
        x = concat([x, _variables(y, rowvar)], axis=0)
    n = x.shape[1]
    less = (0 if bias else 1) if ddof is None else ddof
    kind = promote(x.dtype, np.float64)
    x = x if x.dtype == kind else astype(x, kind)
    if fweights is not None or aweights is not None:
        out = _weighted_cov(x, fweights, aweights, less)
    else:
        off = apply(np.subtract, x, reductions.mean(x, axis=1, keepdims=True))
        product = matmul(off, permute_dims(unary.conj(off), (1, 0)))
        with np.errstate(divide="ignore", invalid="ignore"):
            out = apply(np.true_divide, product, product.dtype.type(max(0, n - less)))
    return reshape(out, ()) if out.shape == (1, 1) else out


def _weighted_cov(x: T, fweights: Any, aweights: Any, less: float) -> T:
    """**Collective.** Covariances of rows whose observations count by their weights, as NumPy's."""
    often = None if fweights is None else _checked_weights(x, "fweights", fweights)
    much = None if aweights is None else _checked_weights(x, "aweights", aweights)
    given = [one for one in (often, much) if one is not None]
    w = given[0] if len(given) == 1 else apply(np.multiply, *given)
    total = resolve_pending(reductions.sum(w, dtype=np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = apply(np.subtract, total, float(less))
        if much is not None:
            squares = reductions.sum(apply(np.multiply, w, much), dtype=np.float64)
            share = apply(np.true_divide, apply(np.multiply, squares, float(less)), total)
            scale = apply(np.subtract, total, share)
        sums = reductions.sum(apply(np.multiply, x, w), axis=1, keepdims=True)
        off = apply(np.subtract, x, apply(np.true_divide, sums, total))
        weighted = apply(np.multiply, unary.conj(off), w)
        product = matmul(off, permute_dims(weighted, (1, 0)))
        out: T = apply(np.true_divide, product, apply(np.maximum, scale, 0.0))
    return out


def _checked_weights(x: T, name: str, weights: Any) -> T:
    """**Collective.** A weight for each observation of rows, not below 0."""
    w = beside(x, weights, "cov")
    n = x.shape[1]
    if w.shape != (n,):
        raise ArgumentError(
            f"cannot take the covariance of {n} observations with {name} of shape {w.shape}: give "
            f"one weight for each, of shape ({n},)"
        )
    if number_kind(w.dtype) not in ("iu" if name == "fweights" else "biuf"):
        need = "integers" if name == "fweights" else "real numbers"
        raise ArgumentTypeError(f"cannot use {name} of {w.dtype} in cov: need {need}")
    known = not w.memory.is_ghost  # nobody knows the values of a program before it runs
    if known and bool(reductions.any(apply(np.less, w, 0))._element()):
        raise ArgumentError(f"cannot use {name} below 0 in cov: weights must not be negative")
    return w


def _variables(x: T, rowvar: bool) -> T:
    """An array with one row for each variable."""
    check_arrays("cov", x)
    if x.ndim > 2:
        raise ArgumentError(f"cannot take the covariance of {x.ndim} dims: need 1 or 2")
    if x.ndim < 2:
        return expand_dims(x if x.ndim else reshape(x, (1,)), axis=0)
    return x if rowvar else permute_dims(x, (1, 0))


@in_f32
@takes_array
def corrcoef(x: T, /, y: T | None = None, *, rowvar: bool = True) -> T:
    """**Collective** if operands must move. The correlations of variables: :func:`cov`, scaled."""
    c = resolve_pending(cov(x, y, rowvar=rowvar))
    with np.errstate(divide="ignore", invalid="ignore"):
        if c.ndim == 0:
            return apply(np.true_divide, c, c)
        variance = diagonals.diagonal(c, 0, 1)
        real = unary.real(variance) if number_kind(c.dtype) == "c" else variance
        deviation = resolve_pending(apply(np.sqrt, real))
        c = apply(np.true_divide, c, expand_dims(deviation, axis=1))
        c = apply(np.true_divide, c, expand_dims(deviation, axis=0))
    if number_kind(c.dtype) != "c":
        return clip(c, -1, 1)
    first, second = (clip(part, -1, 1) for part in (unary.real(c), unary.imag(c)))
    return apply(np.add, first, apply(np.multiply, second, 1j))


def along_one(x: T, axis: Axis) -> tuple[T, int, tuple[int, ...]]:
    """**Collective** if elements must move. The array with all dims of an axis as one, it, and these dims."""
    dims = tuple(sorted(dims_of(axis, x.ndim)))
    if len(dims) == 1:
        return x, dim_of(dims[0], x.ndim), dims
    kept = [i for i in range(x.ndim) if i not in dims]
    if kept:
        x = permute_dims(x, (*kept, *dims))
    n = math.prod(x.shape[len(kept) :])
    return reshape(x, (*x.shape[: len(kept)], n)), len(kept), dims
