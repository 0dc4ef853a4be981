"""Rules of products by labelled dims, and of joins: the cotangent takes the place of the result."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from redist.pgas.elementwise.apply import apply, astype
from redist.pgas.elementwise.binary import where
from redist.pgas.elementwise.on_device import compute
from redist.pgas.ghosts.tape import Ref
from redist.pgas.gradients.cotangents import full, unstretched
from redist.pgas.gradients.recorder import back_through
from redist.pgas.gradients.rules.table import Owed, rule
from redist.pgas.joins.ein import BlockedEin
from redist.pgas.joins.trace_join import Join, trace_join
from redist.pgas.kinds import F32, is_half
from redist.pgas.linalg.powers import cross
from redist.pgas.products.contract import contract
from redist.pgas.products.contract_layout import Labels, sizes_of
from redist.pgas.products.convolve import lags, slide
from redist.pgas.shapes.permute import expand_dims
from redist.pgas.tiles.layouts import dtype_of


@rule(contract)
def _contract(owed: Owed) -> list[Any]:
    """``ij,jk->ik`` gives ``ik,jk->ij`` for the first operand, and ``ij,ik->jk`` for the second.

    The f32 product of 16-bit floats is rounded to them, so its cotangent has no more digits than they have.
    """
    a, b, la, lb, lo, name = owed.args
    sizes = sizes_of([(la, a.shape), (lb, b.shape)])
    g = owed.g
    if is_half(a.dtype) and a.dtype == b.dtype and g.dtype == F32:
        g = astype(g, a.dtype)
    return [
        _one_side(owed, g, own, labels, other, beside, lo, sizes, name)
        if i in owed.needed
        else None
        for i, (own, labels, other, beside) in enumerate(((a, la, b, lb), (b, lb, a, la)))
    ]


def _one_side(
    owed: Owed, g: Any, own: Any, labels: Labels, other: Any, beside: Labels, lo: Labels,
    sizes: dict[Hashable, int], name: str,
) -> Any:  # fmt: skip
    """The cotangent of an operand, with dims of size 1 for labels that nobody else has or that stretch."""
    kept = tuple(
        one
        for one, n in zip(labels, own.shape, strict=True)
        if (one in lo or one in beside) and n == sizes[one]
    )
    thin = [one for one, n, m in zip(lo, g.shape, owed.y.shape, strict=True) if n != m]
    if any(one not in beside and one not in kept for one in thin):  # nothing would sum over it
        g = full(g, owed.y.shape)
    out = contract(g, other, lo, beside, kept, name)
    missing = tuple(i for i, one in enumerate(labels) if one not in kept)
    return expand_dims(out, axis=missing) if missing else out


@rule(cross)
def _cross(owed: Owed) -> list[Any]:
    (a, b), g = owed.args, owed.whole
    axis = owed.options.get("axis", -1)
    pairs = (a, (b, g)), (b, (g, a))
    return [
        unstretched(cross(*two, axis=axis), x.shape, owed.y.shape) if i in owed.needed else None
        for i, (x, two) in enumerate(pairs)
    ]


@rule(slide)
def _slide(owed: Owed) -> list[Any]:
    """Of sums of ``w[k] x[i - k]``: for x those of ``w[k] g[i + k]``, for w :func:`lags` of x and g."""
    (x, w, ahead), g = owed.args, owed.whole
    return [
        slide(g, w, not ahead) if 0 in owed.needed else None,
        lags(*((g, x) if ahead else (x, g)), w.size) if 1 in owed.needed else None,
    ]


@rule(lags)
def _lags(owed: Owed) -> list[Any]:
    (x, g, _), h = owed.args, owed.whole
    return [
        slide(g, h, True) if 0 in owed.needed else None,
        slide(x, h, False) if 1 in owed.needed else None,
    ]


# Joins: the rules of their steps make joins of the same operands and the cotangent.


@rule(BlockedEin)
def _ein(owed: Owed) -> list[Any]:
    ein, *arrays = owed.args
    g, y, labels = owed.whole, owed.y, ein.output
    terms: list[tuple[Any, Labels]] = [*zip(arrays, ein.labels, strict=True), (g, labels)]
    sizes = sizes_of([(own, x.shape) for x, own in terms])
    n, gone = len(arrays), [one for one in sizes if one not in labels]

    def joined(elements: Sequence[Any]) -> Any:
        return run_join(ein.join, elements)

    def of_sum(elements: Sequence[Any]) -> Any:
        return elements[n]

    def of_best(elements: Sequence[Any]) -> Any:
        is_best = joined(elements[:n]) == elements[n + 1]
        return where(is_best, elements[n], y.dtype.type(0))

    def of_product(elements: Sequence[Any]) -> Any:
        value, (own, n_zeros, product) = joined(elements[:n]), elements[n : n + 3]
        zero = y.dtype.type(0)
        alone = where(value == 0, where(n_zeros == 1, product, zero), zero)
        return own * where(n_zeros == 0, product / _filled(value), alone)

    weight: Any = of_sum
    if gone and ein.agg in ("max", "min"):
        terms.append((y, labels))
        count = _blocked(ein, lambda *e: astype(joined(e[:n]) == e[n + 1], y.dtype), terms, labels)
        terms[n], weight = (g / count, labels), of_best
    elif gone and ein.agg == "prod":
        zeros = _blocked(ein, lambda *e: astype(joined(e[:n]) == 0, y.dtype), terms, labels)
        rest = _blocked(
            replace(ein, agg="prod"), lambda *e: _filled(joined(e[:n])), terms, labels, "prod"
        )
        terms += [(zeros, labels), (rest, labels)]
        weight = of_product
    return [
        _operand(ein, i, joined, weight, terms, sizes) if i in owed.needed else None
        for i in range(n)
    ]


def _filled(value: Any) -> Any:
    return where(value == 0, value.dtype.type(1), value)


def _operand(
    ein: BlockedEin, i: int, joined: Any, weight: Any, terms: Sequence[Any], sizes: Any
) -> Any:
    """The cotangent of an operand: the slope of the join, times what an element owes, summed."""
    x, own = terms[i]
    n = len(ein.labels)

    def slope(*elements: Any) -> Any:
        def of_one(element: Any) -> Any:
            return joined([element if k == i else elements[k] for k in range(n)])

        g = weight(elements)
        found = back_through(of_one, elements[i], g)
        return found if found is not None else g * 0

    kept = tuple(one for one, m in zip(own, x.shape, strict=True) if m == sizes[one])
    out = _blocked(ein, slope, terms, kept)
    missing = tuple(k for k, one in enumerate(own) if one not in kept)
    return expand_dims(out, axis=missing) if missing else out


def _blocked(
    ein: BlockedEin, join: Any, terms: Sequence[tuple[Any, Labels]], kept: Labels, agg: str = "sum"
) -> Any:
    """**Collective** if operands must move. Another join of these operands, aggregated in blocks."""
    arrays = [x for x, _ in terms]
    dtypes = tuple(x.dtype for x in arrays)
    steps, dtype = trace_join(ein.what, join, dtypes, arrays[0].memory.on_device)
    found = BlockedEin(
        ein.what, steps, tuple(own for _, own in terms), dtype_of(np.dtype(dtype)), kept, agg
    )
    return found(arrays)


def run_join(join: Join, elements: Sequence[Any]) -> Any:
    """**Local.** Do the steps of a join with arrays in the places of its elements."""
    values: dict[int, Any] = dict(zip(join.leaves, elements, strict=True))

    def value(one: Any) -> Any:
        return values[one.number] if isinstance(one, Ref) else one

    for step in join.steps:
        function, args = step.function, step.args
        if function is compute:
            function, args = args[0], tuple(args[1])
        if getattr(function, "__name__", "") == "_convert":
            values[step.out] = astype(value(args[0]), args[1])
        else:
            values[step.out] = apply(function, *map(value, args))
    return values[join.joined]
