"""The standard's functions of one operand, element by element: **local** unless a reduction is pending."""

from __future__ import annotations

import numpy as np

from redist.pgas.elementwise import standard_limits
from redist.pgas.elementwise.apply import apply
from redist.pgas.tiles.tiled import T

__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_invert", "ceil", "conj", "cos", "cosh",
    "exp", "expm1", "floor", "imag", "isfinite", "isinf", "isnan", "log", "log1p", "log2", "log10",
    "logical_not", "negative", "positive", "real", "reciprocal", "round", "sign", "signbit", "sin", "sinh",
    "sqrt", "square", "tan", "tanh", "trunc",
]  # fmt: skip


def abs(x: T, /) -> T:
    """The absolute value."""
    return apply(np.abs, x)


def acos(x: T, /) -> T:
    """The angle with this cosine, in radians."""
    return apply(np.arccos, x)


def acosh(x: T, /) -> T:
    """The inverse of the hyperbolic cosine."""
    return apply(np.arccosh, x)


def asin(x: T, /) -> T:
    """The angle with this sine, in radians."""
    return apply(np.arcsin, x)


def asinh(x: T, /) -> T:
    """The inverse of the hyperbolic sine."""
    return apply(np.arcsinh, x)


def atan(x: T, /) -> T:
    """The angle with this tangent, in radians."""
    return apply(np.arctan, x)


def atanh(x: T, /) -> T:
    """The inverse of the hyperbolic tangent."""
    return apply(np.arctanh, x)


def bitwise_invert(x: T, /) -> T:
    """Every bit inverted; for truth values, their negation."""
    return apply(np.invert, x)


def ceil(x: T, /) -> T:
    """The smallest whole number that is not below the value."""
    return apply(np.ceil, x)


def conj(x: T, /) -> T:
    """The complex conjugate."""
    return apply(np.conj, x)


def cos(x: T, /) -> T:
    """The cosine of an angle in radians."""
    return apply(np.cos, x)


def cosh(x: T, /) -> T:
    """The hyperbolic cosine."""
    return apply(np.cosh, x)


def exp(x: T, /) -> T:
    """``e ** x``."""
    return apply(np.exp, x)


def expm1(x: T, /) -> T:
    """``exp(x) - 1``, precise near 0."""
    return apply(standard_limits.expm1, x)


def floor(x: T, /) -> T:
    """The largest whole number that is not above the value."""
    return apply(np.floor, x)


def imag(x: T, /) -> T:
    """The imaginary part, as a new array."""
    return apply(standard_limits.imag, x)


def isfinite(x: T, /) -> T:
    """Whether a value is neither infinite nor NaN."""
    return apply(np.isfinite, x)


def isinf(x: T, /) -> T:
    """Whether a value is infinite."""
    return apply(np.isinf, x)


def isnan(x: T, /) -> T:
    """Whether a value is NaN."""
    return apply(np.isnan, x)


def log(x: T, /) -> T:
    """The natural logarithm."""
    return apply(np.log, x)


def log10(x: T, /) -> T:
    """The logarithm to base 10."""
    return apply(np.log10, x)


def log1p(x: T, /) -> T:
    """``log(1 + x)``, precise near 0."""
    return apply(np.log1p, x)


def log2(x: T, /) -> T:
    """The logarithm to base 2."""
    return apply(np.log2, x)


def logical_not(x: T, /) -> T:
    """Whether a value is zero or false."""
    return apply(np.logical_not, x)


def negative(x: T, /) -> T:
    """The value with its sign changed."""
    return apply(np.negative, x)


def positive(x: T, /) -> T:
    """The value itself, in a new array."""
    return apply(np.positive, x)


def real(x: T, /) -> T:
    """The real part, as a new array."""
    return apply(standard_limits.real, x)


def reciprocal(x: T, /) -> T:
    """``1 / x``."""
    return apply(np.reciprocal, x)


def round(x: T, /) -> T:
    """The nearest whole number; halves go to the even one."""
    return apply(np.round, x)


def sign(x: T, /) -> T:
    """-1, 0 or 1; for complex numbers, ``x / abs(x)``."""
    return apply(np.sign, x)


def signbit(x: T, /) -> T:
    """Whether the sign bit is set, as in -0.0."""
    return apply(np.signbit, x)


def sin(x: T, /) -> T:
    """The sine of an angle in radians."""
    return apply(np.sin, x)


def sinh(x: T, /) -> T:
    """The hyperbolic sine."""
    return apply(np.sinh, x)


def sqrt(x: T, /) -> T:
    """The square root."""
    return apply(np.sqrt, x)


def square(x: T, /) -> T:
    """``x * x``."""
    return apply(np.square, x)


def tan(x: T, /) -> T:
    """The tangent of an angle in radians."""
    return apply(standard_limits.tan, x)


def tanh(x: T, /) -> T:
    """The hyperbolic tangent."""
    return apply(standard_limits.tanh, x)


def trunc(x: T, /) -> T:
    """The value rounded towards 0 to a whole number."""
    return apply(np.trunc, x)
