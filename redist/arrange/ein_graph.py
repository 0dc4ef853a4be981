"""Programs in extended Einstein notation: joins of operands, element by element, then aggregations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
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
    what is done with labels that are not kept. Labels of size 1 may be new in the result. It is priced by
    ``worked_in``, if that is another dtype than that of the result: bf16 is multiplied as it is, and added
    up in f32.

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
    worked_in: DType | None = None

    def __post_init__(self) -> None:
        terms, arrow, kept = self.notation.partition("->")
        several = terms.split(",")
        if not arrow or len(several) != len(self.operands):
            raise RequestError(
                f"cannot read {self.notation!r}: need the labels of {len(self.operands)} operands, '->' "
                "and those that are kept"
            )
        labels = set("".join(several))
        new = {label for label in set(kept) - labels if self.sizes.get(label) != 1}
        if len(set(kept)) != len(kept) or new or labels - self.sizes.keys():
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

    @property
    def results(self) -> tuple[EinInput, ...]:
        """What it makes: one array."""
        return (EinInput(self.shape, self.dtype),)

    @property
    def aggregated(self) -> str:
        """The labels that the result lacks; those of size 1 are no matter."""
        return "".join(
            label for label in self.labels if label not in self.kept and self.sizes[label] > 1
        )

    def n_elems(self, labels: str) -> int:
        """Elements of an array with these labels."""
        return math.prod(self.sizes[label] for label in labels)


@dataclass(frozen=True, slots=True)
class WayTaken:
    """What an operation without a rule does with operands of some types: what it makes and moves.

    ``time_ps`` is what it takes beside these moves.
    """

    made: tuple[ArrayType, ...]
    time_ps: int
    moves: tuple[tuple[ArrayType, ArrayType], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class AskedNode:
    """An operation without a rule: asked what it makes of operands of given types, and what that takes.

    ``ask`` gives None for types that it cannot do. ``only`` lists the types of operands that it may be
    asked for; without it, it is asked for all. Nodes with equal ``key`` are asked once.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[EinInput, ...]
    ask: Callable[[tuple[ArrayType, ...]], WayTaken | None]
    key: Hashable
    only: tuple[tuple[ArrayType, ...], ...] = ()


Node = EinNode | AskedNode


@dataclass(frozen=True, slots=True)
class EinGraph:
    """Inputs, and operations in an order in which operands come before those that read them.

    Values are numbered as they are made: that of a node, if every node makes one. ``~k`` is input k.
    """

    inputs: tuple[EinInput, ...]
    nodes: tuple[Node, ...]
    _makers: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)
    """Of every value: the node that makes it, and which of its results it is."""
    _made: tuple[range, ...] = field(init=False, repr=False, compare=False)
    """Of every node: the values that it makes."""
    _readers: Mapping[int, list[tuple[int, int]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        makers = [(n, k) for n, node in enumerate(self.nodes) for k in range(len(node.results))]
        readers: dict[int, list[tuple[int, int]]] = {}
        for number, node in enumerate(self.nodes):
            for place, operand in enumerate(node.operands):
                readers.setdefault(operand, []).append((number, place))
        firsts = [0, *itertools.accumulate(len(node.results) for node in self.nodes)]
        object.__setattr__(self, "_makers", tuple(makers))
        object.__setattr__(
            self, "_made", tuple(itertools.starmap(range, itertools.pairwise(firsts)))
        )
        object.__setattr__(self, "_readers", readers)
        n_before = 0
        for number, node in enumerate(self.nodes):
            for operand in node.operands:
                if not -len(self.inputs) <= operand < n_before:
                    raise RequestError(
                        f"cannot use value {operand} in node {number}: it comes later, or from nowhere"
                    )
            n_before += len(node.results)
            if isinstance(node, AskedNode):
                continue
            for operand, term in zip(node.operands, node.terms, strict=True):
                shape = self.shape_of(operand)
                if shape != tuple(node.sizes[label] for label in term):
                    raise RequestError(
                        f"cannot use value {operand} of shape {shape} as {term!r} of node {number}"
                    )

    @property
    def values(self) -> tuple[int, ...]:
        """All values: inputs, then what nodes make."""
        return (*range(-len(self.inputs), 0), *range(len(self._makers)))

    def maker(self, value: int) -> tuple[int, int]:
        """The node that makes a value, and which of its results it is."""
        return self._makers[value]

    def results_of(self, number: int) -> range:
        """The values that a node makes."""
        return self._made[number]

    def shape_of(self, value: int) -> tuple[int, ...]:
        """The shape of what a node makes, or of input ``~value``."""
        return self._value(value).shape

    def dtype_of(self, value: int) -> DType:
        """The dtype of what a node makes, or of input ``~value``."""
        return self._value(value).dtype

    def _value(self, value: int) -> EinInput:
        if value < 0:
            return self.inputs[~value]
        node, k = self._makers[value]
        return self.nodes[node].results[k]

    def readers(self, value: int) -> Sequence[tuple[int, int]]:
        """Who reads a value: nodes, and as which of their operands."""
        return self._readers.get(value, ())

    @property
    def ein_nodes(self) -> tuple[EinNode, ...]:
        """The nodes, all of which must have a rule."""
        found = tuple(node for node in self.nodes if isinstance(node, EinNode))
        if len(found) < len(self.nodes):
            raise RequestError("cannot use a graph with operations that have no rule")
        return found
