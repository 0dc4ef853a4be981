"""Whether values are equal within a tolerance."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.pgas.elementwise.apply import Number, apply
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.tiled import T, Tiled


def isclose(
    x1: T | Number, x2: T | Number, /, *, rtol: float = 1e-5, atol: float = 1e-8,
    equal_nan: bool = False,
) -> T:  # fmt: skip
    """**Collective** if operands must move. Where ``|x1 - x2| <= atol + rtol * |x2|``, as ``numpy.isclose``.

    Infinities are close to themselves, NaN to nothing unless ``equal_nan``. Three arrays of the size of
    the operands are made on the way.
    """
    a, b = (resolve_pending(x) if isinstance(x, Tiled) else x for x in (x1, x2))
    kind = np.result_type(b.dtype if isinstance(b, Tiled) else b, 1.0)
    b = _in_kind(b, kind)
    far = apply(np.abs, apply(np.subtract, a, b))
    if isinstance(b, Tiled):
        most: Any = apply(np.add, apply(np.multiply, apply(np.abs, b), rtol), atol)
        within = apply(np.logical_and, apply(np.less_equal, far, most), apply(np.isfinite, b))
    else:
        within = apply(np.less_equal, far, atol + rtol * abs(b))
        within = apply(np.logical_and, within, bool(np.isfinite(b)))
    out = apply(np.logical_or, within, apply(np.equal, a, b))
    if not equal_nan:
        return out
    if isinstance(a, Tiled) and isinstance(b, Tiled):
        return apply(np.logical_or, out, apply(np.logical_and, _is_nan(a), _is_nan(b)))
    array, number = (a, b) if isinstance(a, Tiled) else (b, a)
    return apply(np.logical_or, out, _is_nan(array)) if np.isnan(number) else out


def _in_kind(b: Any, kind: np.dtype[Any]) -> Any:
    """The second operand as NumPy compares it: never an integer, whose differences could wrap."""
    if not isinstance(b, Tiled) or b.dtype == kind:
        return b if isinstance(b, Tiled) else kind.type(b)
    return apply(np.true_divide, b, kind.type(1))


def _is_nan(x: T) -> T:
    return apply(np.not_equal, x, x)
