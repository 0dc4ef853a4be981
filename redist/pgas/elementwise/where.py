"""Values chosen between operands, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.errors import ArgumentError
from redist.pgas.elementwise.apply import Number, apply, astype
from redist.pgas.elementwise.unary import imag, positive, real
from redist.pgas.tiles.arguments import check_arrays
from redist.pgas.tiles.tiled import T, Tiled


def clip(x: T, /, min: T | Number | None = None, max: T | Number | None = None) -> T:
    """Replace values below ``min`` and above ``max`` by these bounds."""
    out = x
    if min is not None:
        out = _apply_in(np.maximum, out, min, x.dtype)
    if max is not None:
        out = _apply_in(np.minimum, out, max, x.dtype)
    return out if out is not x else positive(x)


def where(condition: T, x1: T | Number, x2: T | Number, /) -> T:
    """Take values of ``x1`` where the condition holds, else of ``x2``."""
    return apply(np.where, condition, x1, x2)


def nan_to_num(
    x: T, /, *, copy: bool = True, nan: T | Number = 0.0, posinf: T | Number | None = None,
    neginf: T | Number | None = None,
) -> T:  # fmt: skip
    """Replace nan by ``nan``, and infinities by ``posinf`` and ``neginf``, or by the largest finite numbers.

    ``pgas.nan_to_num(a, nan=-1.0)``. Of complex numbers both parts are replaced, by finite numbers. The
    result is a new array: ``copy=False`` is refused.
    """
    check_arrays("nan_to_num", x)
    if not copy:
        raise ArgumentError("cannot use copy=False in nan_to_num: write a = pgas.nan_to_num(a)")
    if x.dtype.kind not in "fc":
        return positive(x) if x.dtype.kind != "b" else astype(x, x.dtype)
    ends = np.finfo(x.dtype)
    most, least = ends.max if posinf is None else posinf, ends.min if neginf is None else neginf
    if x.dtype.kind == "f":
        return _without(x, nan, most, least)
    if not all(isinstance(one, Tiled) or np.isfinite(one) for one in (nan, most, least)):
        raise ArgumentError(
            "cannot use infinity or nan in nan_to_num of complex numbers: give finite numbers"
        )
    first, second = (_without(part, nan, most, least) for part in (real(x), imag(x)))
    made = apply(np.add, first, apply(np.multiply, second, x.dtype.type(1j)))
    return apply(np.where, apply(np.isfinite, x), x, made)


def _without(x: T, nan: T | Number, most: T | Number, least: T | Number) -> T:
    """Real floats with others in the place of nan and infinities."""
    inf = x.dtype.type(np.inf)
    masks = apply(np.isnan, x), apply(np.equal, x, inf), apply(np.equal, x, -inf)
    out = x
    for mask, value in zip(masks, (nan, most, least), strict=True):
        with np.errstate(over="ignore"):
            own: Any = np.asarray(value, x.dtype) if not isinstance(value, Tiled) else value
        own = astype(own, x.dtype) if isinstance(own, Tiled) else own
        out = apply(np.where, mask, own, out)
    return out


def _apply_in(function: np.ufunc, x: T, bound: T | Number, dtype: np.dtype[Any]) -> T:
    """Apply a function to values and a bound; the result has the dtype of the values."""
    out: T = apply(function, x, bound)
    return out if out.dtype == dtype else astype(out, dtype)
