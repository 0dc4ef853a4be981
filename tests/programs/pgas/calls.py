"""Calls by name that mean the same in NumPy and in the namespace, on operands drawn at random."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from redist.pgas.elementwise import binary, unary
from tests.programs.pgas.drawing import Draw, Values

Shape = tuple[int, ...]
Call = Callable[..., Any]
"""``call(namespace, *operands)``"""
Case = Callable[["Operands"], tuple[list[Any], Call]]
"""Operands as NumPy arrays and numbers, and what is done with them."""

ARITHMETIC = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift",
)  # fmt: skip
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
ALL = ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16")
REAL = ALL[1:11]
FLOATS = ("f4", "f8", "c8", "c16")
TWO = set(binary.__all__)
MOVED = {"floor_divide", "expm1", "tanh", "tan"}
"""The standard has other limits than NumPy for these: their arguments are finite here."""


class Operands:
    """Random shapes, values and arguments."""

    def __init__(self, draw: Draw) -> None:
        self.draw, self.rng = draw, draw.rng

    def shape(self, least: int = 0, most: int = 3) -> Shape:
        """Any number of dims between two."""
        return tuple(self.draw.size() for _ in range(self.rng.integers(least, most + 1)))

    def filled(self, least: int = 1, most: int = 3) -> Shape:
        """A shape without sizes of 0."""
        return tuple(max(1, n) for n in self.shape(least, most))

    def one_of(self, things: Any) -> Any:
        """One of several things."""
        return things[self.rng.integers(len(things))]

    def axis(self, shape: Shape) -> int:
        """A dim, from either end."""
        return int(self.rng.integers(-len(shape), len(shape)))

    def values(self, shape: Shape, dtype: str, finite: bool = False) -> Values:
        """Numbers of a dtype: integers over its whole range, floats with NaN and infinities."""
        kind = np.dtype(dtype)
        if kind.kind == "b":
            return np.asarray(self.rng.random(shape) < 0.5)
        if kind.kind in "iu":
            info = np.iinfo(kind)
            wide = self.rng.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
            return np.asarray(np.where(self.rng.random(shape) < 0.5, wide, wide % 7), kind)
        out = np.asarray(self.rng.standard_normal(shape) * 4).astype(kind)
        if kind.kind == "c":
            out = np.asarray(out + 1j * self.rng.standard_normal(shape)).astype(kind)
        if not finite and self.rng.random() < 0.4:
            odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0]
            out = np.where(self.rng.random(shape) < 0.3, self.rng.choice(odd, shape), out)
        return np.asarray(out, kind)

    def pair(self, kinds: tuple[str, str], finite: bool = False) -> list[Any]:
        """Two operands that broadcast; one may be a number."""
        shape = self.shape()
        other = tuple(1 if self.rng.random() < 0.2 else n for n in shape)
        other = other[self.rng.integers(0, len(shape) + 1) :] if self.rng.random() < 0.3 else other
        out: list[Any] = [
            self.values(s, k, finite) for s, k in zip((shape, other), kinds, strict=True)
        ]
        if self.rng.random() < 0.5:
            out.reverse()
        if self.rng.random() < 0.2:
            kind = out[0].dtype.kind
            out[1] = {"b": True, "i": 3, "u": 3, "f": 2.5, "c": 1.5}[kind]
        return out


def _kinds(of: Operands) -> tuple[str, str]:
    first = of.one_of(ALL)
    return first, of.one_of(ALL) if of.rng.random() < 0.3 else first


def elementwise(name: str) -> Case:
    """A function of the standard, element by element."""

    def case(of: Operands) -> tuple[list[Any], Call]:
        finite = name in MOVED
        if name in TWO:
            operands = of.pair(_kinds(of), finite)
            if name in ("pow", "bitwise_left_shift", "bitwise_right_shift"):
                operands[1] = _small(operands[1])
        else:
            operands = [of.values(of.shape(), of.one_of(ALL), finite)]
        if name == "reciprocal" and operands[0].dtype.kind in "iu":
            # Of 0 it is whatever the processor makes of infinity, which NumPy's loops differ in.
            operands[0] = np.where(operands[0] == 0, operands[0].dtype.type(3), operands[0])
        return operands, lambda m, *x: getattr(m, name)(*x)

    return case


def _small(x: Any) -> Any:
    """Exponents and shifts: integers from 0 to 6."""
    if not isinstance(x, np.ndarray):
        return x
    return np.asarray(np.abs(x) % 7, x.dtype) if x.dtype.kind in "iu" else x


def operators(short: str) -> Case:
    """An operator, its reflection with a number on the left, and its update in place."""

    def case(of: Operands) -> tuple[list[Any], Call]:
        operands = of.pair(_kinds(of), finite=short == "floordiv")
        if short in ("pow", "lshift", "rshift"):
            operands[1] = _small(operands[1])
        symbol = getattr(operator, {"and": "and_", "or": "or_"}.get(short, short))
        if short in ARITHMETIC and of.rng.random() < 0.4:
            symbol = getattr(operator, "i" + short)
        if np.ndim(operands[1]) == 0 and of.rng.random() < 0.5 and short not in ("pow",):
            operands.reverse()
        return operands, lambda m, *x: symbol(*x)

    return case


def reduction(name: str, dtypes: tuple[str, ...], some: bool = False, finite: bool = False) -> Case:
    """A reduction over any dims."""

    def case(of: Operands) -> tuple[list[Any], Call]:
        shape = of.filled(0) if some else of.shape()
        given: dict[str, Any] = {"keepdims": bool(of.rng.integers(2))}
        if shape and of.rng.random() < 0.7:
            dims = [int(i) for i in of.rng.permutation(len(shape))]
            given["axis"] = of.one_of([dims[0], dims[0] - len(shape), tuple(dims[:2])])
        if name in ("sum", "prod") and of.rng.random() < 0.2:
            given["dtype"] = np.dtype(of.one_of(("f8", "c16")))
        if name in ("var", "std") and of.rng.random() < 0.3:
            given["correction"] = 1
        values = of.values(shape, of.one_of(dtypes), finite)
        return [values], lambda m, x: getattr(m, name)(x, **given)

    return case


def along(name: str, dtypes: tuple[str, ...], **given: Any) -> Case:
    """A function along one dim."""

    def case(of: Operands) -> tuple[list[Any], Call]:
        shape = of.filled(1)
        options: dict[str, Any] = {"axis": of.axis(shape), **given}
        if name.startswith("cumulative") and of.rng.random() < 0.3:
            options["include_initial"] = True
        return [of.values(shape, of.one_of(dtypes))], lambda m, x: getattr(m, name)(x, **options)

    return case


def _clip(of: Operands) -> tuple[list[Any], Call]:
    x = of.values(of.shape(), of.one_of(("i4", "i8", "f4", "f8")), finite=True)
    low, high = (2, 5) if x.dtype.kind == "i" else (-0.5, 1.5)
    low, high = of.one_of([(low, high), (None, high), (low, None)])
    return [x], lambda m, x: m.clip(x, low, high)


def _where(of: Operands) -> tuple[list[Any], Call]:
    kinds = _kinds(of)
    shape = of.shape()
    other = tuple(1 if of.rng.random() < 0.3 else n for n in shape)
    operands = [of.values(shape, "bool"), of.values(other, kinds[0]), of.values(shape, kinds[1])]
    return operands, lambda m, c, x, y: m.where(c, x, y)


def _astype(of: Operands) -> tuple[list[Any], Call]:
    kind = of.one_of(("bool", "i8", "f4", "f8", "c8", "c16"))
    first = of.one_of(("bool", "i1", "u2") if kind == "i8" else ("bool", "i4", "f4"))
    copy = bool(of.rng.integers(2))
    return [of.values(of.shape(), first)], lambda m, x: m.astype(x, np.dtype(kind), copy=copy)


def _any(of: Operands, least: int = 0, filled: bool = False) -> Values:
    return of.values(of.filled(least) if filled else of.shape(least), of.one_of(ALL))


def _concat(of: Operands) -> tuple[list[Any], Call]:
    shape = of.shape(1)
    axis = of.axis(shape)
    shapes = [tuple(of.draw.size() if i == axis % len(shape) else n for i, n in enumerate(shape))
              for _ in range(of.rng.integers(1, 4))]  # fmt: skip
    return [of.values(s, of.one_of(ALL)) for s in shapes], lambda m, *x: m.concat(x, axis=axis)


def _stack(of: Operands) -> tuple[list[Any], Call]:
    shape = of.shape(0, 2)
    axis = int(of.rng.integers(-len(shape) - 1, len(shape) + 1))
    kind = of.one_of(ALL)
    arrays: list[Any] = [of.values(shape, kind) for _ in range(of.rng.integers(1, 4))]
    return arrays, lambda m, *x: m.stack(x, axis=axis)


def _permute(of: Operands) -> tuple[list[Any], Call]:
    x = _any(of, 1)
    order = tuple(int(i) for i in of.rng.permutation(x.ndim))
    return [x], lambda m, x: m.permute_dims(x, order)


def _moveaxis(of: Operands) -> tuple[list[Any], Call]:
    x = _any(of, 1)
    ends = of.axis(x.shape), of.axis(x.shape)
    return [x], lambda m, x: m.moveaxis(x, *ends)


def _expand(of: Operands) -> tuple[list[Any], Call]:
    x = _any(of)
    axis = int(of.rng.integers(-x.ndim - 1, x.ndim + 1))
    return [x], lambda m, x: m.expand_dims(x, axis=axis)


def _squeeze(of: Operands) -> tuple[list[Any], Call]:
    shape = list(of.shape(1))
    at = int(of.rng.integers(len(shape)))
    shape[at] = 1
    return [of.values(tuple(shape), of.one_of(ALL))], lambda m, x: m.squeeze(x, axis=at)


def _flip(of: Operands) -> tuple[list[Any], Call]:
    x = _any(of, 1)
    axis = of.one_of([None, of.axis(x.shape)])
    return [x], lambda m, x: m.flip(x, axis=axis)


def _roll(of: Operands) -> tuple[list[Any], Call]:
    x = _any(of, 1)
    by = int(of.rng.integers(-9, 10))
    axis = of.one_of([None, of.axis(x.shape)])
    return [x], lambda m, x: m.roll(x, by, axis=axis)


def _reshape(of: Operands) -> tuple[list[Any], Call]:
    x = of.values((of.draw.size(), 6), of.one_of(ALL))
    shape = of.one_of([(-1,), (2, -1), (3, 2, -1)]) if x.size else (0, 5)
    return [x], lambda m, x: m.reshape(x, shape)


def _broadcast(of: Operands) -> tuple[list[Any], Call]:
    shape = of.shape(1)
    x = of.values(tuple(1 if of.rng.random() < 0.4 else n for n in shape), of.one_of(ALL))
    return [x], lambda m, x: m.broadcast_to(x, (2, *shape))


def _tile(of: Operands) -> tuple[list[Any], Call]:
    times = tuple(int(n) for n in of.rng.integers(0, 3, of.rng.integers(1, 4)))
    return [_any(of)], lambda m, x: m.tile(x, times)


def _repeat(of: Operands) -> tuple[list[Any], Call]:
    x = _any(of, 1)
    times, axis = int(of.rng.integers(0, 4)), of.one_of([None, of.axis(x.shape)])
    return [x], lambda m, x: m.repeat(x, times, axis=axis)


def _take(of: Operands) -> tuple[list[Any], Call]:
    x = _any(of, 1, filled=True)
    axis = of.axis(x.shape)
    at = of.rng.integers(0, x.shape[axis], of.rng.integers(0, 9))
    return [x, at], lambda m, x, i: m.take(x, i, axis=axis)


def _take_along(of: Operands) -> tuple[list[Any], Call]:
    x = _any(of, 1, filled=True)
    axis = of.axis(x.shape)
    at = of.rng.integers(0, x.shape[axis], x.shape)
    return [x, at], lambda m, x, i: m.take_along_axis(x, i, axis=axis)


def _half(name: str) -> Case:
    def case(of: Operands) -> tuple[list[Any], Call]:
        k = int(of.rng.integers(-3, 4))
        return [of.values(of.shape(2), of.one_of(ALL))], lambda m, x: getattr(m, name)(x, k=k)

    return case


def _search(of: Operands) -> tuple[list[Any], Call]:
    x = np.sort(of.values(of.filled(1, 1), "f8", finite=True))
    side = of.one_of(["left", "right"])
    return [x, of.values(of.shape(), "f8", finite=True)], lambda m, x, y: m.searchsorted(
        x, y, side=side
    )


def _product(name: str) -> Case:
    def case(of: Operands) -> tuple[list[Any], Call]:
        m_, k, n = (of.draw.size() for _ in range(3))
        kind = of.one_of(ALL if "matmul" in name else ALL[1:])
        x, y = of.values((m_, k), kind, finite=True), of.values((k, n), kind, finite=True)
        calls: dict[str, tuple[list[Any], Call]] = {
            "__matmul__": ([x, y], lambda m, x, y: x @ y),
            "matmul": ([x, y], lambda m, x, y: m.matmul(x, y)),
            "tensordot": ([x, y], lambda m, x, y: m.tensordot(x, y, axes=1)),
            "vecdot": ([x, x], lambda m, x, y: m.vecdot(x, y)),
            "einsum": ([x, y], lambda m, x, y: m.einsum("ij,jk->ki", x, y)),
        }
        return calls[name]

    return case


def _unary(name: str, least: int = 0, finite: bool = False) -> Case:
    return lambda of: (
        [of.values(of.shape(least), of.one_of(ALL), finite)],
        lambda m, x: getattr(m, name)(x),
    )


def _compress(of: Any) -> Any:
    x = of.values(of.shape(1), of.one_of(ALL))
    keep = np.arange(x.shape[0]) % 3 != 1
    return [x], lambda m, x: m.compress(keep, x, axis=0)


def _like(name: str) -> Case:
    given: tuple[Any, ...] = (1,) if name == "full_like" else ()
    return lambda of: ([_any(of)], lambda m, x: getattr(m, name)(x, *given))


def _method(call: Callable[[Any], Any], least: int = 0, most: int = 3) -> Case:
    return lambda of: (
        [of.values(of.shape(least, most), of.one_of(ALL))],
        lambda m, x: call(x),
    )


CASES: dict[str, Case] = {
    **{name: elementwise(name) for name in (*unary.__all__, *binary.__all__)},
    **{f"__{name}__": operators(name) for name in (*ARITHMETIC, *COMPARISONS)},
    "__neg__": _method(operator.neg), "__pos__": _method(operator.pos),
    "__abs__": _method(operator.abs), "__invert__": _method(operator.invert),
    "sum": reduction("sum", ALL), "prod": reduction("prod", ALL),
    "max": reduction("max", REAL), "min": reduction("min", REAL),
    "any": reduction("any", ALL), "all": reduction("all", ALL),
    "count_nonzero": reduction("count_nonzero", ALL),
    "mean": reduction("mean", ALL, some=True), "var": reduction("var", ALL, some=True),
    "std": reduction("std", REAL, some=True, finite=True),
    "argmax": along("argmax", REAL), "argmin": along("argmin", REAL),
    "cumulative_sum": along("cumulative_sum", REAL),
    "cumulative_prod": along("cumulative_prod", REAL[:8]),
    "sort": along("sort", REAL), "argsort": along("argsort", REAL, stable=True),
    "diff": along("diff", REAL), "unstack": along("unstack", ALL),
    "clip": _clip, "where": _where, "astype": _astype, "concat": _concat, "stack": _stack,
    "permute_dims": _permute, "moveaxis": _moveaxis, "expand_dims": _expand, "squeeze": _squeeze,
    "flip": _flip, "roll": _roll, "reshape": _reshape, "broadcast_to": _broadcast, "tile": _tile,
    "repeat": _repeat, "take": _take, "take_along_axis": _take_along, "tril": _half("tril"),
    "triu": _half("triu"), "searchsorted": _search, "nonzero": _unary("nonzero", 1), "compress": _compress,
    "matrix_transpose": _unary("matrix_transpose", 2), "unique_all": _unary("unique_all", finite=True),
    "unique_inverse": _unary("unique_inverse", finite=True), "zeros_like": _like("zeros_like"),
    "ones_like": _like("ones_like"), "full_like": _like("full_like"),
    "__matmul__": _product("__matmul__"), "matmul": _product("matmul"), "tensordot": _product("tensordot"),
    "vecdot": _product("vecdot"), "einsum": _product("einsum"),
    "T": _method(lambda x: x.T, 2, 2), "mT": _method(lambda x: x.mT, 2),
    "copy": _method(lambda x: x.copy()),
    "broadcast_arrays": lambda of: (of.pair(("f8", "i4"))[:1], lambda m, x: m.broadcast_arrays(x, x)),
    "meshgrid": lambda of: (
        [of.values(of.shape(1, 1), "i4"), of.values(of.shape(1, 1), "i4")],
        lambda m, x, y: m.meshgrid(x, y, indexing="ij"),
    ),
}  # fmt: skip
