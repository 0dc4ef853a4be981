"""The types of a program's values, what moves between them, and what that costs: the result of planning."""

from __future__ import annotations

from dataclasses import dataclass

from redist.arrange.ein_graph import EinGraph, EinNode
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.text.columns import table
from redist.text.units import format_bytes, format_time


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A move of a value to the type that a reader wants, or to the one in which several readers find it.

    A move without a value is made by a node itself, on the way; after the last node, a move goes round a
    loop.
    """

    value: int | None
    source: ArrayType
    target: ArrayType
    reader: int | None
    time_ps: int


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """Types for all values of a program (inputs and results of nodes), and what moves between them.

    No choice of types costs less than ``bound_ps`` at the same prices. ``compute_ps`` is what computing
    alone would take if all devices shared every node. ``peak_bytes`` is the most that tiles take at once on
    the fullest device (:mod:`redist.arrange.tile_lives` says which tiles count).
    """

    graph: EinGraph
    mesh: Mesh
    inputs: tuple[ArrayType, ...]
    made: tuple[ArrayType, ...]
    """Of every value that a node makes."""
    wanted: tuple[tuple[ArrayType, ...], ...]
    """Of every node, the types of its operands when it begins."""
    moves: tuple[PlannedMove, ...]
    inner: tuple[PlannedMove, ...]
    """Moves that nodes without a rule make by themselves."""
    work_ps: int
    time_ps: int
    bound_ps: int
    compute_ps: int
    peak_bytes: int
    later_ps: int = 0
    """What it takes to finish results that are pending, counted in ``time_ps``."""

    @property
    def search(self) -> str:
        """``exact`` if it is proved that no choice is better, else ``bounded``."""
        return "exact" if self.time_ps == self.bound_ps else "bounded"

    def home(self, value: int) -> ArrayType:
        """The type in which readers find a value."""
        for move in self.moves:
            if move.value == value and move.reader is None:
                return move.target
        return self.made[value] if value >= 0 else self.inputs[~value]

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("node", "what", "makes", "moves before it")]
        for number, t in enumerate(self.inputs):
            rows.append((f"input {number}", "", str(t), ""))
        for number, node in enumerate(self.graph.nodes):
            own = self.graph.results_of(number)
            texts = [
                f"{move.source} -> {move.target} ({format_time(move.time_ps)})"
                for move in self.moves
                if move.reader == number or (move.reader is None and move.value in own)
            ]
            what = node.name or (node.notation if isinstance(node, EinNode) else "")
            types = ", ".join(str(self.made[value]) for value in own)
            rows.append((str(number), what, types, "; ".join(texts)))
        head = (
            f"{len(self.graph.nodes)} nodes on {self.mesh}: modelled {format_time(self.time_ps)}, "
            f"{len(self.moves)} moves, {self.search}; at least {format_time(self.bound_ps)}, "
            f"computing alone {format_time(self.compute_ps)}; {format_bytes(self.peak_bytes)} at once"
        )
        return "\n".join([head, *table(rows, left=(0, 1, 2, 3))])
