"""Einstein sums of any number of operands: two at a time, in the order that costs least."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.pgas.elementwise.apply import astype
from redist.pgas.products.contract import contract
from redist.pgas.products.order import Term, find_order
from redist.pgas.reductions.reduce import reduce
from redist.pgas.shapes.diagonals import diagonal
from redist.pgas.shapes.permute import permute_dims
from redist.pgas.tiles.arguments import check_arrays
from redist.pgas.tiles.arranging import decided
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.tiled import T, Tiled

Labels = tuple[Any, ...]


def einsum(subscripts: str, /, *operands: T) -> T:
    """**Collective** if operands must move. ``pgas.einsum("ij,jk->ik", a, b)``, as NumPy's.

    A contracted label that is cut gives a pending sum. ``...`` stands for the dims not named.
    """
    if not isinstance(subscripts, str):
        raise ArgumentTypeError(
            f"cannot einsum {type(subscripts).__name__}: the labels come first, as text"
        )
    check_arrays("einsum", *operands)
    inputs, output = _parse(subscripts, tuple(x.ndim for x in operands))
    items = [
        _take_diagonals(x, labels, subscripts) for x, labels in zip(operands, inputs, strict=True)
    ]
    _check_sizes(subscripts, items)
    if len(items) > 1:
        items = [_multiply_all(_sum_lone_labels(items, output), output)]
    x, labels = items[0]
    gone = [i for i, label in enumerate(labels) if label not in output]
    if gone:
        x = _sum_dims(x, gone)
        labels = tuple(label for label in labels if label in output)
    if labels == output:
        return (
            x if x is not operands[0] else x.new(x.type, None if x.tile is None else x.tile.copy())
        )
    return permute_dims(x, [labels.index(label) for label in output])


@lru_cache(maxsize=256)
def _parse(subscripts: str, ndims: tuple[int, ...]) -> tuple[list[Labels], Labels]:
    """Read the labels of the operands and of the result; dims of ``...`` are numbered from the end."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ArgumentError(
            f"cannot einsum {subscripts!r}: {len(terms)} terms but {len(ndims)} operands"
        )
    inputs = []
    for term, ndim in zip(terms, ndims, strict=True):
        named = len(term.replace("...", ""))
        if named > ndim or (named < ndim and "..." not in term):
            raise ArgumentError(
                f"cannot einsum {subscripts!r}: {term!r} for an array of {ndim} dims"
            )
        inputs.append(_labels(subscripts, term, ndim - named))
    spread = max((len([1 for label in one if isinstance(label, int)]) for one in inputs), default=0)
    if arrow:
        output = _labels(subscripts, right, spread)
    else:
        counts = Counter(label for one in inputs for label in one if isinstance(label, str))
        once = tuple(sorted(label for label, n in counts.items() if n == 1))
        output = (*range(-spread, 0), *once)
    known = {label for one in inputs for label in one}
    if len(set(output)) < len(output) or not set(output) <= known:
        raise ArgumentError(
            f"cannot einsum {subscripts!r}: the result's labels must be the operands', once"
        )
    return inputs, output


def _labels(subscripts: str, term: str, spread: int) -> Labels:
    head, dots, tail = term.partition("...")
    if not set(head + tail) <= set(string.ascii_letters):
        raise ArgumentError(f"cannot einsum {subscripts!r}: {term!r} must be letters and one '...'")
    return (*head, *(range(-spread, 0) if dots else ()), *tail)


def _take_diagonals(x: T, labels: Labels, subscripts: str) -> tuple[T, Labels]:
    """Take the diagonals of dims with the same label, so that no label is repeated."""
    while len(set(labels)) < len(labels):
        label = next(label for label in labels if labels.count(label) > 1)
        i = labels.index(label)
        j = labels.index(label, i + 1)
        if x.shape[i] != x.shape[j]:
            raise ArgumentError(
                f"cannot einsum {subscripts!r}: sizes {x.shape[i]} and {x.shape[j]} of {label!r} differ"
            )
        x = diagonal(x, i, j)
        labels = (*(one for k, one in enumerate(labels) if k not in (i, j)), label)
    return x, labels


def _check_sizes(subscripts: str, items: Sequence[tuple[Tiled, Labels]]) -> None:
    sizes: dict[Any, int] = {}
    for x, labels in items:
        for label, n in zip(labels, x.shape, strict=True):
            if sizes.setdefault(label, n) != n and 1 not in (n, sizes[label]):
                raise ArgumentError(
                    f"cannot einsum {subscripts!r}: sizes {sizes[label]} and {n} of {label!r} differ"
                )
            sizes[label] = max(sizes[label], n) if n else n


def _sum_lone_labels(items: list[tuple[T, Labels]], output: Labels) -> list[tuple[T, Labels]]:
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


def _multiply_all(items: list[tuple[T, Labels]], output: Labels) -> tuple[T, Labels]:
    """**Collective** if operands must move. Multiply two at a time, in the cheapest order."""
    terms = tuple(Term(x.type, labels) for x, labels in items)
    pairs = decided(lambda: find_order(terms, output)) if len(items) > 2 else ((0, 1),)
    left: dict[int, tuple[T, Labels]] = dict(enumerate(items))
    for number, (i, j) in enumerate(pairs, start=len(items)):
        (a, la), (b, lb) = left.pop(i), left.pop(j)
        needed = {*output, *(label for _, labels in left.values() for label in labels)}
        lo = tuple(label for label in dict.fromkeys((*la, *lb)) if label in needed)
        lo = lo if left else output
        left[number] = contract(a, b, la, lb, lo, "einsum"), lo
    return left[number]
