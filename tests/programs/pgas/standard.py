"""What the array API standard says where NumPy says something else, case by case, number by number.

``expected(name)`` is NumPy's function, or, for these, the standard's: ``floor_divide``, ``expm1``,
``tan``, ``tanh``. Written from its lists of special cases, without a look at
:mod:`redist.pgas.elementwise.standard_limits`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

INF, NAN = math.inf, math.nan


def floor_divide(a: float, b: float) -> float | None:
    """Of numbers of which one is infinite; None where NumPy is right."""
    if math.isinf(a) and math.isfinite(b):
        return INF if _negative(a) == _negative(b) else -INF
    if math.isfinite(a) and math.isinf(b):
        return 0.0 if _negative(a) == _negative(b) else -0.0
    return None


def expm1(z: complex) -> complex | None:
    """Of a complex number; None where NumPy is right."""
    if _negative(z.imag):
        return _conjugate(expm1(_conjugate(z)))
    match (_word(z.real), _word(z.imag)):
        case "0", "0":
            return complex(0.0, z.imag)
        case "inf", "0":
            return complex(INF, 0.0)
        case "-inf", "inf" | "nan":
            return complex(-1.0, 0.0)
        case "-inf", _:
            return complex(-1.0, math.copysign(0.0, math.sin(z.imag)))
        case "inf", "inf" | "nan":
            return complex(INF, NAN)
        case "nan", "0":
            return complex(NAN, 0.0)
    return None


def tanh(z: complex) -> complex | None:
    """Of a complex number; None where NumPy is right."""
    if _negative(z.imag):
        return _conjugate(tanh(_conjugate(z)))
    if _negative(z.real):
        found = tanh(complex(-z.real, z.imag))  # tanh(-conj(z)) = -conj(tanh(z))
        return None if found is None else complex(-found.real, found.imag)
    match (_word(z.real), _word(z.imag)):
        case "inf", _:
            return complex(1.0, 0.0)
        case "0", "inf" | "nan":
            return complex(z.real, NAN)
    return None


def tan(z: complex) -> complex | None:
    """Of a complex number, ``-1j * tanh(1j * z)``; None where NumPy is right."""
    found = tanh(complex(-z.imag, z.real))
    return None if found is None else complex(found.imag, -found.real)


OTHERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "expm1": ("c", expm1),
    "floor_divide": ("f", floor_divide),
    "tan": ("c", tan),
    "tanh": ("c", tanh),
}
"""Functions that differ from NumPy's: for which kind of dtype, and their values there."""


def expected(name: str) -> Callable[..., Any]:
    """A function of NumPy arrays and numbers, by its name in NumPy."""
    function: Callable[..., Any] = getattr(np, name)
    if name not in OTHERS:
        return function
    kind, special = OTHERS[name]

    def right(*values: Any) -> Any:
        with np.errstate(all="ignore"):
            out = np.array(function(*values))
        if out.dtype.kind == kind:
            operands = np.broadcast_arrays(*(np.asarray(x, out.dtype) for x in values))
            for at in np.ndindex(out.shape):
                found = special(*(x[at].item() for x in operands))
                out[at] = out[at] if found is None else found
        return out

    right.__name__ = name
    return right


def _word(x: float) -> str:
    """``0``, ``nan``, ``inf``, ``-inf``, or ``finite``."""
    if x == 0:
        return "0"
    return "finite" if math.isfinite(x) else str(x).removeprefix("-") if x != x else str(x)


def _negative(x: float) -> bool:
    return math.copysign(1.0, x) < 0


def _conjugate(z: complex | None) -> Any:
    return None if z is None else complex(z.real, -z.imag)
