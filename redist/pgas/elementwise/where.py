"""Values chosen between operands, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.pgas.elementwise.apply import Number, apply, astype
from redist.pgas.elementwise.unary import positive
from redist.pgas.tiles.tiled import T


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


def _apply_in(function: np.ufunc, x: T, bound: T | Number, dtype: np.dtype[Any]) -> T:
    """Apply a function to values and a bound; the result has the dtype of the values."""
    out: T = apply(function, x, bound)
    return out if out.dtype == dtype else astype(out, dtype)
