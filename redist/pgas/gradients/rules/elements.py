"""Rules of element-wise functions: a line for each, with a cotangent for every operand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from redist.pgas.elementwise import standard_limits
from redist.pgas.elementwise.apply import astype
from redist.pgas.elementwise.binary import floor_divide, greater, less, where
from redist.pgas.elementwise.unary import (
    conj,
    cos,
    cosh,
    exp,
    log,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
)  # fmt: skip
from redist.pgas.gradients.cotangents import unstretched
from redist.pgas.gradients.rules.table import RULES, Owed, Rule, constant, rule, same
from redist.pgas.kinds import number_kind
from redist.pgas.tiles.tiled import Tiled

# What a cotangent becomes: of the result, the result and the operands, that of each operand.


Part = Callable[..., Any]


def _none(*_: Any) -> None:
    return None


def _zero_of(g: Any) -> Any:
    return np.zeros((), g.dtype)


def _absolute(g: Any, y: Any, x: Any) -> Any:
    if number_kind(x.dtype) != "c":
        return g * sign(x)
    return g * (conj(x) / where(y == 0, y.dtype.type(1), y))


def _is_number(x: Any) -> bool:
    return not isinstance(x, Tiled)


def _base(g: Any, y: Any, x: Any, p: Any) -> Any:
    """Of ``x ** p``: ``p x ** (p - 1)``, and 0 where p is 0."""
    if _is_number(p):
        if p == 0:
            return None
        return g * p if p == 1 else g * (2 * x) if p == 2 else g * (p * x ** (p - 1))
    is_zero = p == 0
    slope = p * x ** where(is_zero, p.dtype.type(1), p - 1)
    return g * where(is_zero, slope.dtype.type(0), slope)


def _exponent(g: Any, y: Any, x: Any, p: Any) -> Any:
    """Of ``x ** p``: ``y log x``, and 0 where x is 0."""
    if _is_number(x):
        return None if x == 0 else g * (y * np.log(x).item())
    return g * (y * log(where(x == 0, x.dtype.type(1), x)))


def _share(g: Any, a: Any, b: Any, is_first: Any) -> Any:
    """Of the larger or smaller of two: all of it where the first is that, half of it where both are."""
    return where(is_first, g, where(_equal(a, b), g * 0.5, _zero_of(g)))


def _equal(a: Any, b: Any) -> Any:
    return a == b if isinstance(a, Tiled) else b == a


def _same_sign(a: Any, b: Any) -> Any:
    first, second = (signbit(x) if isinstance(x, Tiled) else bool(np.signbit(x)) for x in (a, b))
    return _equal(first, second)


def _square_sum(a: Any, b: Any) -> Any:
    return a * a + b * b


PARTS: dict[Any, tuple[Part, ...]] = {
    np.add: (lambda g, y, a, b: g, lambda g, y, a, b: g),
    np.subtract: (lambda g, y, a, b: g, lambda g, y, a, b: -g),
    np.multiply: (lambda g, y, a, b: g * b, lambda g, y, a, b: g * a),
    np.true_divide: (lambda g, y, a, b: g / b, lambda g, y, a, b: -(g * y) / b),
    np.power: (_base, _exponent),
    np.float_power: (_base, _exponent),
    np.remainder: (lambda g, y, a, b: g, lambda g, y, a, b: -g * floor_divide(a, b)),
    np.arctan2: (
        lambda g, y, a, b: g * (b / _square_sum(a, b)),
        lambda g, y, a, b: -g * (a / _square_sum(a, b)),
    ),
    np.hypot: (lambda g, y, a, b: g * (a / y), lambda g, y, a, b: g * (b / y)),
    np.logaddexp: (lambda g, y, a, b: g * exp(a - y), lambda g, y, a, b: g * exp(b - y)),
    np.maximum: (
        lambda g, y, a, b: _share(g, a, b, greater(a, b)),
        lambda g, y, a, b: _share(g, a, b, less(a, b)),
    ),
    np.minimum: (
        lambda g, y, a, b: _share(g, a, b, less(a, b)),
        lambda g, y, a, b: _share(g, a, b, greater(a, b)),
    ),
    np.copysign: (lambda g, y, a, b: where(_same_sign(a, b), g, -g), _none),
    np.where: (
        _none,
        lambda g, y, c, a, b: where(c, g, _zero_of(g)),
        lambda g, y, c, a, b: where(c, _zero_of(g), g),
    ),
    np.negative: (lambda g, y, x: -g,),
    np.positive: (lambda g, y, x: g,),
    np.absolute: (_absolute,),
    np.fabs: (_absolute,),
    np.conjugate: (lambda g, y, x: conj(g),),
    standard_limits.real: (lambda g, y, x: g,),
    standard_limits.imag: (lambda g, y, x: g * -1j,),
    np.exp: (lambda g, y, x: g * y,),
    np.exp2: (lambda g, y, x: g * (y * math.log(2)),),
    standard_limits.expm1: (lambda g, y, x: g * (y + 1),),
    np.log: (lambda g, y, x: g / x,),
    np.log2: (lambda g, y, x: g / (x * math.log(2)),),
    np.log10: (lambda g, y, x: g / (x * math.log(10)),),
    np.log1p: (lambda g, y, x: g / (1 + x),),
    np.sqrt: (lambda g, y, x: g / (2 * y),),
    np.cbrt: (lambda g, y, x: g / (3 * y * y),),
    np.square: (lambda g, y, x: g * (2 * x),),
    np.reciprocal: (lambda g, y, x: -g * (y * y),),
    np.sin: (lambda g, y, x: g * cos(x),),
    np.cos: (lambda g, y, x: -g * sin(x),),
    standard_limits.tan: (lambda g, y, x: g * (1 + y * y),),
    np.arcsin: (lambda g, y, x: g / sqrt(1 - x * x),),
    np.arccos: (lambda g, y, x: -g / sqrt(1 - x * x),),
    np.arctan: (lambda g, y, x: g / (1 + x * x),),
    np.sinh: (lambda g, y, x: g * cosh(x),),
    np.cosh: (lambda g, y, x: g * sinh(x),),
    standard_limits.tanh: (lambda g, y, x: g * (1 - y * y),),
    np.arcsinh: (lambda g, y, x: g / sqrt(x * x + 1),),
    np.arccosh: (lambda g, y, x: g / (sqrt(x - 1) * sqrt(x + 1)),),
    np.arctanh: (lambda g, y, x: g / (1 - x * x),),
    np.degrees: (lambda g, y, x: g * (180 / math.pi),),
    np.rad2deg: (lambda g, y, x: g * (180 / math.pi),),
    np.radians: (lambda g, y, x: g * (math.pi / 180),),
    np.deg2rad: (lambda g, y, x: g * (math.pi / 180),),
}  # fmt: skip


def _rule(parts: Sequence[Part]) -> Rule:
    """The rule of an element-wise function: its parts, summed over the dims along which operands stretch."""

    def found(owed: Owed) -> list[Any]:
        out: list[Any] = []
        for part, x in zip(parts, owed.args, strict=True):
            if not isinstance(x, Tiled):
                continue
            g = part(owed.g, owed.y, *owed.args) if len(out) in owed.needed else None
            out.append(None if g is None else unstretched(g, x.shape, owed.y.shape))
        return out

    return found


for _function, _parts in PARTS.items():
    RULES[_function] = _rule(_parts)

constant(
    np.ceil, np.floor, np.rint, np.round, np.trunc, standard_limits.floor_divide, np.floor_divide,
    np.nextafter, np.spacing, np.signbit, np.isfinite, np.isinf, np.isnan, np.equal, np.not_equal,
    np.less, np.less_equal, np.greater, np.greater_equal, np.logical_and, np.logical_or,
    np.logical_xor, np.logical_not, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert,
    np.left_shift, np.right_shift, np.heaviside,
)  # fmt: skip
"""Steps: between them nothing changes."""


@rule(np.sign)
def _sign(owed: Owed) -> list[Any]:
    if number_kind(owed.y.dtype) == "c":
        raise owed.refuse("a sign of complex numbers has no gradient here; write x / abs(x)")
    return [None]


rule(astype)(same)
