"""Rules of sums, products and extremes over dims, and of running sums and products."""

from __future__ import annotations

import math
from typing import Any

from redist.pgas import reductions
from redist.pgas.creation import full_like
from redist.pgas.elementwise.apply import astype
from redist.pgas.elementwise.binary import logical_and, maximum, multiply, where
from redist.pgas.gradients.cotangents import along
from redist.pgas.gradients.recorder import back_through
from redist.pgas.gradients.rules.table import Owed, constant, rule, rule_of_one
from redist.pgas.indexing import dispatch
from redist.pgas.ordering.selecting import values_in_order
from redist.pgas.reductions.reduce import reduce
from redist.pgas.shapes.join import concat
from redist.pgas.shapes.permute import expand_dims
from redist.pgas.shapes.shift import flip
from redist.pgas.tiles.arguments import dims_of

constant(reductions.argmax, reductions.argmin, reductions.any, reductions.all)


@rule(reduce)
def _reduce(owed: Owed) -> list[Any]:
    x, op, axis, keepdims, _ = owed.args
    dims = tuple(sorted(dims_of(axis, x.ndim)))
    g, y = owed.g, owed.y
    if not keepdims and dims:
        g, y = (expand_dims(one, axis=dims) for one in (g, y))
    if op == "sum":
        return [g]
    if op == "prod":
        return [g * others(x, y, dims)]
    best = astype(x == y, x.dtype)
    return [g / reductions.sum(best, axis=dims, keepdims=True) * best]


def others(x: Any, y: Any, dims: tuple[int, ...]) -> Any:
    """The product of all other elements over dims: where one is 0, that of the rest, and 0 beside it.

    ::

        x  2 3 4     y / x  12 8 6          x  2 0 4     rest  0 8 0          x  0 0 4     rest  0 0 0
    """
    is_zero = x == 0
    n_zeros = reductions.sum(is_zero, axis=dims, keepdims=True)
    filled = where(is_zero, x.dtype.type(1), x)
    rest = reductions.prod(filled, axis=dims, keepdims=True, dtype=x.dtype)
    alone = logical_and(is_zero, n_zeros == 1)
    return where(n_zeros == 0, y / filled, where(alone, rest, x.dtype.type(0)))


@rule_of_one(reductions.cumulative_sum)
def _cumulative_sum(
    g: Any, y: Any, x: Any, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:  # fmt: skip
    dim = 0 if axis is None else axis % x.ndim
    g = flip(reductions.cumulative_sum(flip(g, axis=dim), axis=dim, dtype=g.dtype), axis=dim)
    return dispatch.get(g, along(dim, slice(1, None))) if include_initial else g


@rule_of_one(reductions.cumulative_prod)
def _cumulative_prod(
    g: Any, y: Any, x: Any, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:  # fmt: skip
    """Products of 1, 2, 4 ... neighbours, joined: that has no quotients, which zeros would spoil."""
    dim = 0 if axis is None else axis % x.ndim
    g = dispatch.get(g, along(dim, slice(1, None))) if include_initial else g

    def scan(x: Any) -> Any:
        for k in range(math.ceil(math.log2(max(1, x.shape[dim])))):
            ahead = full_like(dispatch.get(x, along(dim, slice(2**k))), 1)
            rest = dispatch.get(x, along(dim, slice(x.shape[dim] - 2**k)))
            x = multiply(x, concat([ahead, rest], axis=dim))
        return x

    return back_through(scan, x if dtype is None else astype(x, dtype), g)


@rule_of_one(values_in_order)
def _values_in_order(g: Any, y: Any, x: Any, places: Any, dims: Any) -> Any:
    """What a place owes is shared among the elements that are equal to its value, as of an extreme."""
    total = None
    for k in range(len(places)):
        value, owed = (expand_dims(dispatch.get(one, k), axis=dims) for one in (y, g))
        best = astype(x == value, x.dtype)
        n = maximum(reductions.sum(best, axis=dims, keepdims=True), 1.0)  # NaN equals nothing
        part = owed / n * best
        total = part if total is None else total + part
    return total
