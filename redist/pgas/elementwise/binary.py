"""The standard's functions of two or more operands, element by element; they move only if types differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.errors import ArgumentError
from redist.pgas.elementwise import standard_limits
from redist.pgas.elementwise.apply import Number, apply, astype
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.elementwise.unary import imag, positive, real
from redist.pgas.kinds import float_limits, number_kind, promote
from redist.pgas.tiles.arguments import check_arrays
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.tiled import T, Tiled

# Whether values are equal within a tolerance.


@in_f32
def isclose(
    x1: T | Number, x2: T | Number, /, *, rtol: float = 1e-5, atol: float = 1e-8,
    equal_nan: bool = False,
) -> T:  # fmt: skip
    """**Collective** if operands must move. Where ``|x1 - x2| <= atol + rtol * |x2|``, as ``numpy.isclose``.

    Infinities are close to themselves, and NaN to nothing unless ``equal_nan``. Three temporary arrays of
    the size of the operands are made.
    """
    a, b = (resolve_pending(x) if isinstance(x, Tiled) else x for x in (x1, x2))
    kind = promote(b.dtype if isinstance(b, Tiled) else b, 1.0)
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


__all__ = [
    "add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "copysign", "divide", "equal", "floor_divide", "greater", "greater_equal",
    "hypot", "less", "less_equal", "logaddexp", "logical_and", "logical_or", "logical_xor",
    "maximum", "minimum", "multiply", "nextafter", "not_equal", "pow", "remainder", "subtract",
]  # fmt: skip


def add(x1: T | Number, x2: T | Number, /) -> T:
    """``x1 + x2``."""
    return apply(np.add, x1, x2)


def atan2(x1: T | Number, x2: T | Number, /) -> T:
    """The angle of the point (x2, x1), in radians."""
    return apply(np.arctan2, x1, x2)


def bitwise_and(x1: T | Number, x2: T | Number, /) -> T:
    """The bits set in both values."""
    return apply(np.bitwise_and, x1, x2)


def bitwise_left_shift(x1: T | Number, x2: T | Number, /) -> T:
    """The bits of ``x1`` moved up by ``x2`` places."""
    return apply(np.left_shift, x1, x2)


def bitwise_or(x1: T | Number, x2: T | Number, /) -> T:
    """The bits set in at least one of the two."""
    return apply(np.bitwise_or, x1, x2)


def bitwise_right_shift(x1: T | Number, x2: T | Number, /) -> T:
    """The bits of ``x1`` moved down by ``x2`` places."""
    return apply(np.right_shift, x1, x2)


def bitwise_xor(x1: T | Number, x2: T | Number, /) -> T:
    """The bits set in exactly one of the two."""
    return apply(np.bitwise_xor, x1, x2)


def copysign(x1: T | Number, x2: T | Number, /) -> T:
    """``x1`` with the sign of ``x2``."""
    return apply(np.copysign, x1, x2)


def divide(x1: T | Number, x2: T | Number, /) -> T:
    """``x1 / x2``."""
    return apply(np.divide, x1, x2)


def equal(x1: T | Number, x2: T | Number, /) -> T:
    """Whether ``x1 == x2``."""
    return apply(np.equal, x1, x2)


def floor_divide(x1: T | Number, x2: T | Number, /) -> T:
    """``x1 // x2``, rounded down."""
    return apply(standard_limits.floor_divide, x1, x2)


def greater(x1: T | Number, x2: T | Number, /) -> T:
    """Whether ``x1 > x2``."""
    return apply(np.greater, x1, x2)


def greater_equal(x1: T | Number, x2: T | Number, /) -> T:
    """Whether ``x1 >= x2``."""
    return apply(np.greater_equal, x1, x2)


def hypot(x1: T | Number, x2: T | Number, /) -> T:
    """``sqrt(x1 ** 2 + x2 ** 2)``, without intermediate overflow."""
    return apply(np.hypot, x1, x2)


def less(x1: T | Number, x2: T | Number, /) -> T:
    """Whether ``x1 < x2``."""
    return apply(np.less, x1, x2)


def less_equal(x1: T | Number, x2: T | Number, /) -> T:
    """Whether ``x1 <= x2``."""
    return apply(np.less_equal, x1, x2)


def logaddexp(x1: T | Number, x2: T | Number, /) -> T:
    """``log(exp(x1) + exp(x2))``, without intermediate overflow."""
    return apply(np.logaddexp, x1, x2)


def logical_and(x1: T | Number, x2: T | Number, /) -> T:
    """Whether both are true."""
    return apply(np.logical_and, x1, x2)


def logical_or(x1: T | Number, x2: T | Number, /) -> T:
    """Whether at least one of the two is true."""
    return apply(np.logical_or, x1, x2)


def logical_xor(x1: T | Number, x2: T | Number, /) -> T:
    """Whether exactly one of the two is true."""
    return apply(np.logical_xor, x1, x2)


def maximum(x1: T | Number, x2: T | Number, /) -> T:
    """The larger of the two; NaN if either is NaN."""
    return apply(np.maximum, x1, x2)


def minimum(x1: T | Number, x2: T | Number, /) -> T:
    """The smaller of the two; NaN if either is NaN."""
    return apply(np.minimum, x1, x2)


def multiply(x1: T | Number, x2: T | Number, /) -> T:
    """``x1 * x2``."""
    return apply(np.multiply, x1, x2)


def nextafter(x1: T | Number, x2: T | Number, /) -> T:
    """The next representable number after ``x1`` towards ``x2``."""
    return apply(np.nextafter, x1, x2)


def not_equal(x1: T | Number, x2: T | Number, /) -> T:
    """Whether ``x1 != x2``."""
    return apply(np.not_equal, x1, x2)


def pow(x1: T | Number, x2: T | Number, /) -> T:
    """``x1`` to the power ``x2``."""
    return apply(np.power, x1, x2)


def remainder(x1: T | Number, x2: T | Number, /) -> T:
    """``x1 % x2``, with the sign of ``x2``."""
    return apply(np.remainder, x1, x2)


def subtract(x1: T | Number, x2: T | Number, /) -> T:
    """``x1 - x2``."""
    return apply(np.subtract, x1, x2)


# Values chosen between operands.


def clip(x: T, /, min: T | Number | None = None, max: T | Number | None = None) -> T:
    """Replace values below ``min`` or above ``max`` by these bounds."""
    out = x
    if min is not None:
        out = _apply_in(np.maximum, out, min, x.dtype)
    if max is not None:
        out = _apply_in(np.minimum, out, max, x.dtype)
    return out if out is not x else positive(x)


def where(condition: T, x1: T | Number, x2: T | Number, /) -> T:
    """Take values from ``x1`` where the condition holds, and from ``x2`` elsewhere."""
    return apply(np.where, condition, x1, x2)


@in_f32
def nan_to_num(
    x: T, /, *, copy: bool = True, nan: T | Number = 0.0, posinf: T | Number | None = None,
    neginf: T | Number | None = None,
) -> T:  # fmt: skip
    """Replace NaN by ``nan``, and infinities by ``posinf`` and ``neginf``, or by the largest finite numbers.

    ``pgas.nan_to_num(a, nan=-1.0)``. In complex numbers, each part is replaced by finite numbers. The
    result is a new array: ``copy=False`` is refused.
    """
    check_arrays("nan_to_num", x)
    if not copy:
        raise ArgumentError("cannot use copy=False in nan_to_num: write a = pgas.nan_to_num(a)")
    if number_kind(x.dtype) not in "fc":
        return positive(x) if number_kind(x.dtype) != "b" else astype(x, x.dtype)
    ends = float_limits(x.dtype)
    most, least = ends.max if posinf is None else posinf, ends.min if neginf is None else neginf
    if number_kind(x.dtype) == "f":
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
