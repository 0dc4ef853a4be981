"""Joins of labelled dims, such as products: what each is, and in which layout it is done.

Dims carry labels. A label that the result lacks is aggregated; cut alike in all operands that have it, it
gives a pending reduction. Which axes cut which label is decided by :mod:`redist.arrange`, as in a program.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.pgas.kinds import array_dtype, computing, is_half, number_kind, promote, tile_dtype
from redist.pgas.memory import SHARED_FROM
from redist.pgas.shapes.diagonals import diagonal
from redist.pgas.tiles.arranging import label_dims
from redist.pgas.tiles.layouts import dtype_of
from redist.pgas.tiles.tiled import T, Tiled
from redist.plan.rates import ONE_NODE, device_costs
from redist.runtime.ranks.collectives import all_fit, least_available

if TYPE_CHECKING:  # brought along by the first join, which is planned
    from redist.arrange.ein_graph import EinNode
    from redist.arrange.one_operation import PlacedOperation

# Labels of dims as text: ``ij,jk->ik``; which operand has which, and what the result keeps.


NamedLabels = tuple[Any, ...]
"""Letters, and negative numbers for the dims of ``...``, from the end."""


@lru_cache(maxsize=256)
def read_labels(
    what: str, subscripts: str, ndims: tuple[int, ...]
) -> tuple[tuple[NamedLabels, ...], NamedLabels]:
    """Read the labels of the operands and of the result; ``what`` begins an error, after "cannot".

    >>> read_labels("sum", "...k,kj->...j", (3, 2))
    (((-2, -1, 'k'), ('k', 'j')), (-2, -1, 'j'))
    """
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ArgumentError(f"cannot {what}: {len(terms)} terms but {len(ndims)} operands")
    inputs = []
    for term, ndim in zip(terms, ndims, strict=True):
        named = len(term.replace("...", ""))
        if named > ndim or (named < ndim and "..." not in term):
            raise ArgumentError(f"cannot {what}: {term!r} for an array of {ndim} dims")
        inputs.append(_labels(what, term, ndim - named))
    spread = max((len([1 for label in one if isinstance(label, int)]) for one in inputs), default=0)
    if arrow:
        output = _labels(what, right, spread)
    else:
        counts = Counter(label for one in inputs for label in one if isinstance(label, str))
        once = tuple(sorted(label for label, n in counts.items() if n == 1))
        output = (*range(-spread, 0), *once)
    known = {label for one in inputs for label in one}
    if len(set(output)) < len(output) or not set(output) <= known:
        raise ArgumentError(f"cannot {what}: the result's labels must be the operands', once")
    return tuple(inputs), output


def _labels(what: str, term: str, spread: int) -> NamedLabels:
    head, dots, tail = term.partition("...")
    if not set(head + tail) <= set(string.ascii_letters):
        raise ArgumentError(f"cannot {what}: {term!r} must be letters and one '...'")
    return (*head, *(range(-spread, 0) if dots else ()), *tail)


def check_sizes(
    what: str, shapes: Sequence[Sequence[int]], inputs: Sequence[NamedLabels]
) -> dict[Any, int]:
    """The size of every label; an error if operands do not agree. A size of 1 stretches."""
    sizes: dict[Any, int] = {}
    for shape, labels in zip(shapes, inputs, strict=True):
        own: dict[Any, int] = {}
        for label, n in zip(labels, shape, strict=True):
            known = sizes.get(label, 1)
            if own.setdefault(label, n) != n or (n != known and 1 not in (n, known)):
                other = known if own[label] == n else own[label]
                raise ArgumentError(f"cannot {what}: sizes {other} and {n} of {label!r} differ")
            sizes[label] = n if known == 1 else known
    return sizes


def label_operands(
    operands: Sequence[T], inputs: Sequence[NamedLabels]
) -> list[tuple[T, NamedLabels]]:
    """**Collective** if diagonals must move. The operands with their labels, none of which is repeated."""
    return [_take_diagonals(x, labels) for x, labels in zip(operands, inputs, strict=True)]


def _take_diagonals(x: T, labels: NamedLabels) -> tuple[T, NamedLabels]:
    """Take the diagonals of dims with the same label, so that no label is repeated."""
    while len(set(labels)) < len(labels):
        label = next(label for label in labels if labels.count(label) > 1)
        i = labels.index(label)
        j = labels.index(label, i + 1)
        x = diagonal(x, i, j)
        labels = (*(one for k, one in enumerate(labels) if k not in (i, j)), label)
    return x, labels


Labels = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """Operand types, their labels, those of the result, the dtype of its elements, and how they are made.

    Elements are joined by ``join`` and aggregated by ``op``, as nodes of a program are.
    """

    types: tuple[ArrayType, ...]
    labels: tuple[Labels, ...]
    lo: Labels
    dtype: DType
    op: str = "sum"
    join: str = "product"
    on_device: bool = False

    @staticmethod
    def of(
        a: ArrayType, b: ArrayType, la: Labels, lb: Labels, lo: Labels, on_device: bool = False
    ) -> Product:
        """The matrix product of two operands; truth values are not added up, but joined by "or".

        Products of 16-bit floats are added up, and are partial values, in f32.
        """
        dtype = computing(promote(array_dtype(a.dtype), array_dtype(b.dtype)))
        op = "max" if number_kind(dtype) == "b" else "sum"
        return Product((a, b), (la, lb), lo, dtype_of(dtype), op, on_device=on_device)

    @property
    def sizes(self) -> dict[Hashable, int]:
        """The size of every label; a size of 1 stretches."""
        return sizes_of(zip(self.labels, (t.shape for t in self.types), strict=True))

    @property
    def node(self) -> EinNode:
        """The same as the only node of a program."""
        from redist.arrange.ein_graph import EinNode

        notation, sizes = label_dims([t.shape for t in self.types], self.labels, self.lo)
        operands = tuple(~k for k in range(len(self.types)))
        made = self.dtype, "", worked_in(self.types)
        return EinNode(notation, operands, sizes, self.join, self.op, *made)


def worked_in(types: Sequence[ArrayType]) -> DType | None:
    """The dtype of 16-bit floats that are multiplied as they are, and added up in f32; else None."""
    first, *others = {t.dtype for t in types}
    return None if others or not is_half(tile_dtype(first)) else first


def sizes_of(terms: Iterable[tuple[Labels, Sequence[int]]]) -> dict[Hashable, int]:
    """The size of every label, from the labels and the shapes of operands; a size of 1 stretches.

    >>> sizes_of([("ij", (4, 1)), ("jk", (3, 2))])
    {'i': 4, 'j': 3, 'k': 2}
    """
    out: dict[Hashable, int] = {}
    for labels, shape in terms:
        for label, n in zip(labels, shape, strict=True):
            out[label] = n if out.get(label, 1) == 1 else out[label]
    return out


@lru_cache(maxsize=4096)
def place(product: Product, free_bytes: int | None = None) -> PlacedOperation:
    """Find the cheapest layout of a product, at the prices of one node.

    A type does not depend on the machine: so ranks agree on it without a word, and what ``explain`` says of
    a machine that is not here holds there. A planned program is priced for the machine that it runs on.

    >>> from redist.layout.mesh import Mesh
    >>> m = Mesh(x=4)
    >>> a, b = (ArrayType.parse(t, m) for t in ("f64[4096, 64{x}]", "f64[64{x}, 8]"))
    >>> print(place(Product.of(a, b, (0, 1), (1, 2), (0, 2))).result)
    f64[4096, 8] sum{x}
    """
    from redist.arrange.one_operation import place_operation

    costs = device_costs(product.on_device)
    return place_operation(product.node, product.types, ONE_NODE, costs, free_bytes)


def place_within(x: Tiled, product: Product, found: PlacedOperation) -> PlacedOperation:
    """**Collective** under a memory limit. A layout that fits where the best one, ``found``, does not.

    ``x`` is one of the operands.
    """
    memory = x.memory
    if memory.limit_bytes is None:
        return found
    room = memory.limit_bytes - memory.live_bytes
    pairs = zip(product.types, found.operands, strict=True)
    moved = [end for t, end in pairs if t != end]
    needed = sum(t.tile_bytes for t in (*moved, found.result))
    if needed < SHARED_FROM or all_fit(x.comm, needed <= room):
        return found
    return place(product, least_available(x.comm, room))
