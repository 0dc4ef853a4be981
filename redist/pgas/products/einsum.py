"""Einstein sums of any number of operands: two at a time, in the order that costs least."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from redist.errors import ArgumentTypeError
from redist.layout.array_type import ArrayType
from redist.pgas.elementwise.apply import astype
from redist.pgas.kinds import computing, is_half, promote
from redist.pgas.products.contract import contract
from redist.pgas.products.contract_layout import (
    Labels,
    NamedLabels,
    Product,
    check_sizes,
    label_operands,
    place,
    read_labels,
)
from redist.pgas.reductions.reduce import reduce, rounded_once
from redist.pgas.shapes.permute import permute_dims
from redist.pgas.tiles.arguments import check_arrays
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.tiled import T

# In which order many operands are multiplied: work and moves of all products together cost least.


MOST_EXACT = 5
"""Of more operands, the first are joined by the size of what they make until this many are left."""
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Term:
    """An operand or the product of some: its type and its labels."""

    type: ArrayType
    labels: Labels


@lru_cache(maxsize=512)
def find_order(
    terms: tuple[Term, ...], output: Labels, on_device: bool = False
) -> tuple[Pair, ...]:
    """Which two are multiplied next; results are numbered after the operands.

    >>> from redist.layout.mesh import Mesh
    >>> m = Mesh(x=2)
    >>> shapes = {"ij": "f64[999{x}, 9]", "jk": "f64[9{x}, 999]", "kl": "f64[999{x}, 9]"}
    >>> terms = [Term(ArrayType.parse(t, m), tuple(labels)) for labels, t in shapes.items()]
    >>> find_order(tuple(terms), tuple("il"))
    ((1, 2), (0, 3))
    """
    known = dict(enumerate(terms))
    left, pairs = list(known), []
    while len(left) > MOST_EXACT:
        i, j = min(
            itertools.combinations(left, 2), key=lambda pair: _growth(known, left, pair, output)
        )
        left = [k for k in left if k not in (i, j)]
        needed = {*output, *(label for k in left for label in known[k].labels)}
        left.append(len(known))
        known[left[-1]] = _join(known[i], known[j], needed, None, on_device)[1]
        pairs.append((i, j))
    pairs += _best(known, left, output, on_device)
    return tuple(pairs)


def _best(
    known: dict[int, Term], left: Sequence[int], output: Labels, on_device: bool
) -> Iterator[Pair]:
    """The cheapest order of a few: the best of every set of them, from those of its halves."""
    every = (1 << len(left)) - 1
    found: dict[int, tuple[int, Term, Pair | None]] = {
        1 << k: (0, known[number], None) for k, number in enumerate(left)
    }
    for group in sorted(range(1, every + 1), key=lambda mask: (mask.bit_count(), mask)):
        if group in found:
            continue
        rest = [known[left[k]] for k in range(len(left)) if not group >> k & 1]
        needed = {*output, *(label for term in rest for label in term.labels)}
        for half in _halves(group):
            (x, a, _), (y, b, _) = found[half], found[group ^ half]
            cost, made = _join(a, b, needed, output if group == every else None, on_device)
            if group not in found or x + y + cost < found[group][0]:
                found[group] = x + y + cost, made, (half, group ^ half)
    names = {1 << k: number for k, number in enumerate(left)}
    fresh = itertools.count(len(known))

    def visit(group: int) -> Iterator[Pair]:
        halves = found[group][2]
        if halves is not None:
            for half in halves:
                yield from visit(half)
            yield names[halves[0]], names[halves[1]]
            names[group] = next(fresh)

    yield from visit(every)


def _halves(group: int) -> Iterator[int]:
    """Every way to divide a set in two, once: the part that has its first member."""
    first = group & -group
    rest = group ^ first
    part = rest
    while part:
        part = (part - 1) & rest
        yield first | part


def _join(
    a: Term, b: Term, needed: set[object], output: Labels | None, on_device: bool
) -> tuple[int, Term]:
    """What the product of two costs, and what it makes."""
    labels = tuple(label for label in dict.fromkeys((*a.labels, *b.labels)) if label in needed)
    labels = labels if output is None else output
    placed = place(Product.of(a.type, b.type, a.labels, b.labels, labels, on_device))
    return placed.time_ps, Term(placed.result, labels)


def _growth(
    known: dict[int, Term], left: Sequence[int], pair: Pair, output: Labels
) -> tuple[int, int]:
    """How much larger the product of two is than both, then the work that it takes."""
    sizes: dict[object, int] = {}
    for number in pair:
        term = known[number]
        for label, n in zip(term.labels, term.type.shape, strict=True):
            sizes[label] = max(n, sizes.get(label, 0))
    rest = {*output, *(label for k in left if k not in pair for label in known[k].labels)}
    made = math.prod(n for label, n in sizes.items() if label in rest)
    return made - sum(known[k].type.global_elems for k in pair), math.prod(sizes.values())


def einsum(subscripts: str, /, *operands: T) -> T:
    """**Collective** if operands must move. Einstein sum ``pgas.einsum("ij,jk->ik", a, b)``, as in NumPy.

    A contracted label that is cut gives a pending sum. ``...`` stands for the dims without a label. The
    result is always a new array, even if only the order of the dims changes.
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
        return copied(out)
    return out


@asked
def copied(x: T) -> T:
    """**Local.** The same values in a new tile."""
    return x.new(x.type, None if x.tile is None else x.tile.copy())


def sum_products(items: list[tuple[T, NamedLabels]], output: NamedLabels) -> T:
    """**Collective** if operands must move. Multiply operands, and sum over the labels that ``output`` lacks.

    No operand has a label twice. One that has nothing to sum over, in this order, is given back as it is.
    """
    dtype = promote(*(x.dtype for x, _ in items))
    if len(items) > 1:
        items = [_multiply_all(_sum_lone_labels(items, output), output)]
    x, labels = items[0]
    x, labels = _sum_others(x, labels, output)
    if is_half(dtype):
        x = rounded_once(x, dtype)
    return x if labels == output else permute_dims(x, [labels.index(label) for label in output])


def _sum_lone_labels(
    items: list[tuple[T, NamedLabels]], output: NamedLabels
) -> list[tuple[T, NamedLabels]]:
    """Sum operands over the labels that only they have and the result lacks."""
    out = []
    for k, (x, labels) in enumerate(items):
        rest = {*output, *(one for i, (_, other) in enumerate(items) if i != k for one in other)}
        out.append(_sum_others(x, labels, rest))
    return out


def _sum_others(x: T, labels: NamedLabels, kept: Collection[object]) -> tuple[T, NamedLabels]:
    """Sum an operand over its labels that are not kept."""
    dims = [i for i, label in enumerate(labels) if label not in kept]
    left = tuple(label for label in labels if label in kept)
    if not dims:
        return x, left
    op = "max" if x.dtype == np.bool_ else "sum"
    if op == "max" and any(x.shape[i] == 0 for i in dims):
        return astype(reduce(astype(x, np.int64), "sum", dims, False, np.int64), bool), left
    x = resolve_pending(x) if x.type.pending_op != "sum" else x
    kind = computing(x.dtype)  # 16-bit floats are rounded at the end
    return reduce(x, op, dims, False, kind), left


def _multiply_all(items: list[tuple[T, NamedLabels]], output: NamedLabels) -> tuple[T, NamedLabels]:
    """**Collective** if operands must move. Multiply two at a time, in the cheapest order."""
    terms = tuple(Term(x.type, labels) for x, labels in items)
    on_device = items[0][0].memory.on_device
    pairs = find_order(terms, output, on_device) if len(items) > 2 else ((0, 1),)
    left: dict[int, tuple[T, NamedLabels]] = dict(enumerate(items))
    rounds = len(items) == 2
    for number, (i, j) in enumerate(pairs, start=len(items)):
        (a, la), (b, lb) = left.pop(i), left.pop(j)
        needed = {*output, *(label for _, labels in left.values() for label in labels)}
        lo = tuple(label for label in dict.fromkeys((*la, *lb)) if label in needed)
        lo = lo if left else output
        left[number] = contract(a, b, la, lb, lo, "einsum", rounds), lo
    return left[number]
