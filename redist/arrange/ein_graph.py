"""Programs in extended Einstein notation: joins of operands, element by element, then aggregations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redist.errors import RequestError


@dataclass(frozen=True, slots=True)
class EinNode:
    """An operation: labels of each operand, labels that it keeps, and which values its operands are.

    Operands are numbers of earlier nodes, or None for an input of the program.

    >>> product = EinNode("ij,jk->ik", (None, None), {"i": 4, "j": 8, "k": 2})
    >>> product.terms, product.kept, product.labels
    (('ij', 'jk'), 'ik', 'ijk')
    """

    notation: str
    operands: tuple[int | None, ...]
    sizes: dict[str, int]

    def __post_init__(self) -> None:
        terms, arrow, kept = self.notation.partition("->")
        several = terms.split(",")
        if not arrow or len(several) != len(self.operands):
            raise RequestError(
                f"cannot read {self.notation!r}: need the labels of {len(self.operands)} operands, '->' and "
                "those that are kept"
            )
        labels = set("".join(several))
        if len(set(kept)) != len(kept) or set(kept) - labels or labels - self.sizes.keys():
            raise RequestError(
                f"cannot read {self.notation!r}: a label twice, from nowhere or without a size"
            )
        if any(len(set(term)) != len(term) for term in several):
            raise RequestError(f"cannot read {self.notation!r}: an operand has a label twice")

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

    def n_elems(self, labels: str) -> int:
        """Elements of an array with these labels."""
        out = 1
        for label in labels:
            out *= self.sizes[label]
        return out


@dataclass(frozen=True, slots=True)
class EinGraph:
    """Operations in an order in which operands come before those that read them."""

    nodes: tuple[EinNode, ...]

    def __post_init__(self) -> None:
        for number, node in enumerate(self.nodes):
            for operand, term in zip(node.operands, node.terms, strict=True):
                if operand is None:
                    continue
                if not 0 <= operand < number:
                    raise RequestError(
                        f"cannot use node {operand} in node {number}: it comes later"
                    )
                made = self.nodes[operand]
                shape = [made.sizes[label] for label in made.kept]
                if shape != [node.sizes[label] for label in term]:
                    raise RequestError(
                        f"cannot use node {operand} of shape {tuple(shape)} as {term!r} of node {number}"
                    )

    def readers(self, number: int) -> list[int]:
        """The nodes that read a node's result, once for every operand that it is."""
        return [
            reader
            for reader, node in enumerate(self.nodes)
            for operand in node.operands
            if operand == number
        ]


def chain_of_products(rows: int, b: int, columns: int, d: int, e: int) -> EinGraph:
    """(A B) + (C (D E)): rows x b, b x columns, rows x d, d x e and e x columns."""

    def product(left: int | None, right: int | None, sides: Sequence[int]) -> EinNode:
        return EinNode("ij,jk->ik", (left, right), dict(zip("ijk", sides, strict=True)))

    return EinGraph(
        (
            product(None, None, (rows, b, columns)),
            product(None, None, (d, e, columns)),
            product(None, 1, (rows, d, columns)),
            EinNode("ik,ik->ik", (0, 2), {"i": rows, "k": columns}),
        )
    )
