"""Programs in extended Einstein notation: joins of operands, element by element, then aggregations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redist.errors import RequestError
from redist.layout.dtype import DType

AGGREGATIONS = ("sum", "max", "min", "prod")
ADDING = ("add", "subtract")
"""Joins that are linear in all operands together."""
SCALING = ("multiply", "copy", "negate")
"""Joins that are linear in each operand by itself."""
F32 = DType.parse("f32")


@dataclass(frozen=True, slots=True)
class EinInput:
    """An array that a program is given."""

    shape: tuple[int, ...]
    dtype: DType = F32


@dataclass(frozen=True, slots=True)
class EinNode:
    """An operation: labels of each operand, labels that it keeps, and which values its operands are.

    ``operands`` are numbers of earlier nodes; ``~k`` is input k of the program. ``join`` is what is done
    element by element (``multiply``, ``add`` and other names that say whether it is linear), ``agg``
    what is done with labels that are not kept.

    >>> product = EinNode("ij,jk->ik", (~0, ~1), {"i": 4, "j": 8, "k": 2})
    >>> product.terms, product.kept, product.labels, product.shape
    (('ij', 'jk'), 'ik', 'ijk', (4, 2))
    """

    notation: str
    operands: tuple[int, ...]
    sizes: Mapping[str, int]
    join: str = "multiply"
    agg: str = "sum"
    dtype: DType = F32
    name: str = ""

    def __post_init__(self) -> None:
        terms, arrow, kept = self.notation.partition("->")
        several = terms.split(",")
        if not arrow or len(several) != len(self.operands):
            raise RequestError(
                f"cannot read {self.notation!r}: need the labels of {len(self.operands)} operands, '->' "
                "and those that are kept"
            )
        labels = set("".join(several))
        if len(set(kept)) != len(kept) or set(kept) - labels or labels - self.sizes.keys():
            raise RequestError(
                f"cannot read {self.notation!r}: a label twice, from nowhere or without a size"
            )
        if any(len(set(term)) != len(term) for term in several):
            raise RequestError(f"cannot read {self.notation!r}: an operand has a label twice")
        if self.agg not in AGGREGATIONS:
            raise RequestError(f"cannot aggregate by {self.agg!r}: {', '.join(AGGREGATIONS)}")

    @property
    def terms(self) -> tuple[str, ...]:
        """The labels of every operand."""
        return tuple(self.notation.partition("->")[0].split(","))

    @property
    def kept(self) -> str:
        """The labels of the result."""
        return self.notation.partition("->")[2]

    @property
    def labels(self) -> str:
        """All labels, in the order in which they come up."""
        return "".join(dict.fromkeys("".join(self.terms)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(self.sizes[label] for label in self.kept)

    def n_elems(self, labels: str) -> int:
        """Elements of an array with these labels."""
        return math.prod(self.sizes[label] for label in labels)


@dataclass(frozen=True, slots=True)
class EinGraph:
    """Inputs, and operations in an order in which operands come before those that read them."""

    inputs: tuple[EinInput, ...]
    nodes: tuple[EinNode, ...]

    def __post_init__(self) -> None:
        for number, node in enumerate(self.nodes):
            for operand, term in zip(node.operands, node.terms, strict=True):
                if not -len(self.inputs) <= operand < number:
                    raise RequestError(
                        f"cannot use value {operand} in node {number}: it comes later, or from nowhere"
                    )
                shape = self.shape_of(operand)
                if shape != tuple(node.sizes[label] for label in term):
                    raise RequestError(
                        f"cannot use value {operand} of shape {shape} as {term!r} of node {number}"
                    )

    def shape_of(self, value: int) -> tuple[int, ...]:
        """The shape of a node's result, or of input ``~value``."""
        return self.nodes[value].shape if value >= 0 else self.inputs[~value].shape

    def dtype_of(self, value: int) -> DType:
        """The dtype of a node's result, or of input ``~value``."""
        return self.nodes[value].dtype if value >= 0 else self.inputs[~value].dtype

    def readers(self, value: int) -> list[tuple[int, int]]:
        """Who reads a value: nodes, and as which of their operands."""
        return [
            (reader, place)
            for reader, node in enumerate(self.nodes)
            for place, operand in enumerate(node.operands)
            if operand == value
        ]


def chain_of_products(rows: int, b: int, columns: int, d: int, e: int) -> EinGraph:
    """(A B) + (C (D E)): rows x b, b x columns, rows x d, d x e and e x columns."""

    def product(left: int, right: int, sides: Sequence[int]) -> EinNode:
        return EinNode("ij,jk->ik", (left, right), dict(zip("ijk", sides, strict=True)))

    sides = ((rows, b), (b, columns), (rows, d), (d, e), (e, columns))
    return EinGraph(
        tuple(EinInput(pair) for pair in sides),
        (
            product(~0, ~1, (rows, b, columns)),
            product(~3, ~4, (d, e, columns)),
            product(~2, 1, (rows, d, columns)),
            EinNode("ik,ik->ik", (0, 2), {"i": rows, "k": columns}, "add"),
        ),
    )
