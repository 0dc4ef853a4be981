"""Einstein sums of any number of operands: two at a time, in the order that costs least."""

from __future__ import annotations

import numpy as np

from redist.errors import ArgumentTypeError
from redist.pgas.elementwise.apply import astype
from redist.pgas.products.contract import contract
from redist.pgas.products.notation import NamedLabels, check_sizes, label_operands, read_labels
from redist.pgas.products.order import Term, find_order
from redist.pgas.reductions.reduce import reduce
from redist.pgas.shapes.permute import permute_dims
from redist.pgas.tiles.arguments import check_arrays
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.tiled import T


def einsum(subscripts: str, /, *operands: T) -> T:
    """**Collective** if operands must move. ``pgas.einsum("ij,jk->ik", a, b)``, as NumPy's.

    A contracted label that is cut gives a pending sum. ``...`` stands for the dims not named. The result is a
    new array, also if dims only change their order.
    """
    if not isinstance(subscripts, str):
        raise ArgumentTypeError(
            f"cannot einsum {type(subscripts).__name__}: the labels come first, as text"
        )
    check_arrays("einsum", *operands)
    what = f"einsum {subscripts!r}"
    inputs, output = read_labels(what, subscripts, tuple(x.ndim for x in operands))
    check_sizes(what, [x.shape for x in operands], inputs)
    out = sum_products(label_operands(operands, inputs), output)
    if len(operands) == 1 and out.ndim == operands[0].ndim:  # itself, or a view of it
        return out.new(out.type, None if out.tile is None else out.tile.copy())
    return out


def sum_products(items: list[tuple[T, NamedLabels]], output: NamedLabels) -> T:
    """**Collective** if operands must move. Multiply operands, and sum over the labels that ``output`` lacks.

    No operand has a label twice. One that has nothing to sum over, in this order, is given back as it is.
    """
    if len(items) > 1:
        items = [_multiply_all(_sum_lone_labels(items, output), output)]
    x, labels = items[0]
    gone = [i for i, label in enumerate(labels) if label not in output]
    if gone:
        x = _sum_dims(x, gone)
        labels = tuple(label for label in labels if label in output)
    return x if labels == output else permute_dims(x, [labels.index(label) for label in output])


def _sum_lone_labels(
    items: list[tuple[T, NamedLabels]], output: NamedLabels
) -> list[tuple[T, NamedLabels]]:
    """Sum operands over the labels that only they have and the result lacks."""
    out = []
    for k, (x, labels) in enumerate(items):
        rest = {*output, *(one for i, (_, other) in enumerate(items) if i != k for one in other)}
        gone = [i for i, label in enumerate(labels) if label not in rest]
        if gone:
            x = _sum_dims(x, gone)
            labels = tuple(label for label in labels if label in rest)
        out.append((x, labels))
    return out


def _sum_dims(x: T, dims: list[int]) -> T:
    op = "max" if x.dtype == np.bool_ else "sum"
    if op == "max" and any(x.shape[i] == 0 for i in dims):
        return astype(reduce(astype(x, np.int64), "sum", dims, False, np.int64), bool)
    x = resolve_pending(x) if x.type.pending_op != "sum" else x
    return reduce(x, op, dims, False, x.dtype)


def _multiply_all(items: list[tuple[T, NamedLabels]], output: NamedLabels) -> tuple[T, NamedLabels]:
    """**Collective** if operands must move. Multiply two at a time, in the cheapest order."""
    terms = tuple(Term(x.type, labels) for x, labels in items)
    pairs = find_order(terms, output) if len(items) > 2 else ((0, 1),)
    left: dict[int, tuple[T, NamedLabels]] = dict(enumerate(items))
    for number, (i, j) in enumerate(pairs, start=len(items)):
        (a, la), (b, lb) = left.pop(i), left.pop(j)
        needed = {*output, *(label for _, labels in left.values() for label in labels)}
        lo = tuple(label for label in dict.fromkeys((*la, *lb)) if label in needed)
        lo = lo if left else output
        left[number] = contract(a, b, la, lb, lo, "einsum"), lo
    return left[number]
