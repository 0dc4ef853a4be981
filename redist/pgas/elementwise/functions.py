"""The element-wise functions of the array API standard: NumPy's, or ours where those differ from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from redist.pgas.elementwise import apply as elementwise
from redist.pgas.elementwise import standard_limits as special

NAMES = {
    "abs": "abs", "acos": "arccos", "acosh": "arccosh", "add": "add", "asin": "arcsin",
    "asinh": "arcsinh", "atan": "arctan", "atan2": "arctan2", "atanh": "arctanh",
    "bitwise_and": "bitwise_and", "bitwise_invert": "invert",
    "bitwise_left_shift": "left_shift", "bitwise_or": "bitwise_or",
    "bitwise_right_shift": "right_shift", "bitwise_xor": "bitwise_xor", "ceil": "ceil",
    "conj": "conj", "copysign": "copysign", "cos": "cos", "cosh": "cosh", "divide": "divide",
    "equal": "equal", "exp": "exp", "expm1": "expm1", "floor": "floor",
    "floor_divide": "floor_divide", "greater": "greater", "greater_equal": "greater_equal",
    "hypot": "hypot", "imag": "imag", "isfinite": "isfinite", "isinf": "isinf", "isnan": "isnan",
    "less": "less", "less_equal": "less_equal", "log": "log", "log10": "log10", "log1p": "log1p",
    "log2": "log2", "logaddexp": "logaddexp", "logical_and": "logical_and",
    "logical_not": "logical_not", "logical_or": "logical_or", "logical_xor": "logical_xor",
    "maximum": "maximum", "minimum": "minimum", "multiply": "multiply", "negative": "negative",
    "nextafter": "nextafter", "not_equal": "not_equal", "positive": "positive", "pow": "power",
    "real": "real", "reciprocal": "reciprocal", "remainder": "remainder", "round": "round",
    "sign": "sign", "signbit": "signbit", "sin": "sin", "sinh": "sinh", "sqrt": "sqrt",
    "square": "square", "subtract": "subtract", "tan": "tan", "tanh": "tanh", "trunc": "trunc",
}  # fmt: skip
"""Names in the standard and in NumPy."""


def _function(name: str) -> Callable[..., Any]:
    function = special.function(NAMES[name])

    def one(x: Any, /) -> Any:
        return elementwise.apply(function, x)

    def two(x1: Any, x2: Any, /) -> Any:
        return elementwise.apply(function, x1, x2)

    apply = two if getattr(getattr(np, NAMES[name]), "nin", 1) == 2 else one
    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"``{name}``, element by element; operands move only if their types differ."
    return apply


FUNCTIONS: dict[str, Callable[..., Any]] = {name: _function(name) for name in NAMES}


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Values below ``min`` and above ``max`` are brought to them."""
    out = x
    if min is not None:
        out = _keeping(np.maximum, out, min, x.dtype)
    if max is not None:
        out = _keeping(np.minimum, out, max, x.dtype)
    return out if out is not x else FUNCTIONS["positive"](x)


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """Values of ``x1`` where the condition holds, else of ``x2``."""
    return elementwise.apply(np.where, condition, x1, x2)


def _keeping(function: np.ufunc, x: Any, bound: Any, dtype: np.dtype[Any]) -> Any:
    out = elementwise.apply(function, x, bound)
    return out if out.dtype == dtype else elementwise.astype(out, dtype)
