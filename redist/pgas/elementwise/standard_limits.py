"""Element-wise functions with our result if NumPy's differs: the standard's values, and new arrays.

=================  ==============================  ====================  ==================
function           of                              the standard, here    NumPy
=================  ==============================  ====================  ==================
``floor_divide``   infinity and a finite number    infinity, their sign  NaN
``floor_divide``   finite and -infinity, or < 0    zero, their sign      -1 if signs differ
                   and +infinity
``expm1``          -0 + 0j                         0 + 0j                -0 + 0j
``expm1``          +infinity + 0j                  infinity + 0j         infinity + NaN j
``expm1``          +infinity + infinity j, NaN j   infinity + NaN j      NaN + NaN j
``expm1``          -infinity + infinity j, NaN j   -1 + 0j               NaN + NaN j
``expm1``          NaN + 0j                        NaN + 0j              NaN + NaN j
``tanh``           infinity + bj, b > 0            1 + 0j                1 + 0j or 1 - 0j
=================  ==============================  ====================  ==================

Conjugates of the arguments give conjugates; ``tanh`` is odd; ``tan(x)`` is ``-1j * tanh(1j * x)``.
``real`` and ``imag`` give new arrays, as all functions of elements do; NumPy gives views.
All other values are NumPy's, bit for bit. Integers and real arguments of ``expm1`` and ``tanh`` are
not looked at; for others, one look at the operands finds whether there is anything to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from redist.pgas.elementwise.rounded import Rounded
from redist.pgas.kinds import number_kind, promote
from redist.pgas.tiles.tiled import Tile


def floor_divide(x1: Any, x2: Any, /, out: Tile | None = None, **options: Any) -> Any:
    """**Local.** ``numpy.floor_divide``; of one infinity and one finite number, their quotient.

    >>> floor_divide(np.array([np.inf, 1.0, 7.0]), np.array([2.0, -np.inf, 2.0])).tolist()
    [inf, -0.0, 3.0]
    """
    odd = _infinite(x1) ^ _infinite(x2)
    if odd is False or (odd is not True and not odd.any()):
        return np.floor_divide(x1, x2, out=out, **options)
    if out is None:
        shape = np.broadcast_shapes(np.shape(x1), np.shape(x2))
        out = np.empty(shape, promote(x1, x2))
    np.floor_divide(x1, x2, out=out, where=np.logical_not(odd), **options)
    return np.divide(x1, x2, out=out, where=odd, **options)


def _infinite(x: Any) -> Any:
    if isinstance(x, float):
        return math.isinf(x)
    return np.isinf(x) if isinstance(x, np.ndarray) and number_kind(x.dtype) == "f" else False


def expm1(x: Tile, /, out: Tile | None = None) -> Any:
    """**Local.** ``numpy.expm1``, with the standard's limits of complex numbers.

    >>> expm1(np.array([complex(-np.inf, np.nan), complex(np.inf, 0)])).tolist()
    [(-1+0j), (inf+0j)]
    """
    if number_kind(x.dtype) != "c":
        return np.expm1(x, out=out)
    got = _apply_limits(np.expm1, _expm1_limits, x, out)
    np.copyto(got.real, 0.0, where=x == 0)
    return got


def tanh(x: Tile, /, out: Tile | None = None) -> Any:
    """**Local.** ``numpy.tanh``, with the standard's limits of complex numbers.

    >>> tanh(np.array([complex(np.inf, 2.0), complex(-np.inf, -2.0)])).tolist()
    [(1+0j), (-1-0j)]
    """
    if number_kind(x.dtype) != "c":
        return np.tanh(x, out=out)
    return _apply_limits(np.tanh, _tanh_limits, x, out)


def tan(x: Tile, /, out: Tile | None = None) -> Any:
    """**Local.** ``numpy.tan``, with the standard's limits of complex numbers.

    >>> tan(np.array([complex(2.0, np.inf)])).tolist()
    [1j]
    """
    if number_kind(x.dtype) != "c":
        return np.tan(x, out=out)
    return _apply_limits(np.tan, _tan_limits, x, out)


def _apply_limits(
    function: np.ufunc, limits: Callable[[Tile, Tile], tuple[Any, Any]], x: Tile, out: Tile | None
) -> Tile:
    """Apply a function of complex numbers, with ``limits`` for those that are not finite."""
    got = np.empty_like(x) if out is None else out
    odd = np.logical_not(np.isfinite(x))
    if not odd.any():
        function(x, out=got)
        return got
    with np.errstate(invalid="ignore"):
        function(x, out=got)
        there = x[odd]
        got.real[odd], got.imag[odd] = limits(there.real, there.imag)
    return got


def _expm1_limits(a: Tile, b: Tile) -> tuple[Any, Any]:
    """Of a + bj, one of them not finite: infinity or 0 times cos(b) + j sin(b), less 1."""
    known = np.isfinite(b)
    angle = np.where(known, b, 0.0)
    up, down = a == np.inf, a == -np.inf
    real = np.where(up, np.inf * np.cos(angle), np.where(down, -1.0, np.nan))
    small = np.copysign(0.0, np.where(known, np.sin(angle), b))
    large = np.where(up & known, np.inf * np.sin(angle), np.nan)
    return real, np.where(b == 0, b, np.where(down, small, large))


def _tanh_limits(a: Tile, b: Tile) -> tuple[Any, Any]:
    """Of a + bj, one of them not finite: 1 and 0 with their signs where a is infinite."""
    far = np.isinf(a)
    real = np.where(far, np.copysign(1.0, a), np.where(a == 0, a, np.nan))
    return real, np.where(far, np.copysign(0.0, b), np.where(b == 0, b, np.nan))


def _tan_limits(a: Tile, b: Tile) -> tuple[Any, Any]:
    real, imag = _tanh_limits(-b, a)
    return imag, -real


def real(x: Tile, /, out: Tile | None = None) -> Any:
    """**Local.** ``numpy.real``, as a new array.

    >>> x = np.array([1 + 2j])
    >>> y = real(x)
    >>> x += 1
    >>> y.tolist()
    [1.0]
    """
    return _new(x.real, out)


def imag(x: Tile, /, out: Tile | None = None) -> Any:
    """**Local.** ``numpy.imag``, as a new array.

    >>> imag(np.array([1 + 2j])).tolist()
    [2.0]
    """
    return _new(x.imag, out)


def _new(part: Tile, out: Tile | None) -> Tile:
    if out is None:
        return part.copy()
    np.copyto(out, part)
    return out


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "expm1": expm1,
    "floor_divide": floor_divide,
    "imag": imag,
    "real": real,
    "tan": tan,
    "tanh": tanh,
}


def function_on_tiles(name: str) -> Callable[..., Any]:
    """**Local.** Find a function on tiles by its name in NumPy: NumPy's own unless the standard differs.

    >>> function_on_tiles("sin") is np.sin, function_on_tiles("tanh") is tanh
    (True, True)
    """
    return FUNCTIONS.get(name) or getattr(np, name)


def takes_out(function: Callable[..., Any]) -> bool:
    """**Local.** Whether a function on tiles writes its result into ``out``."""
    return isinstance(function, (np.ufunc, Rounded)) or function in FUNCTIONS.values()
