"""The best type for every value of a program: ways to do each node, prices of moves between them, solved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from redist.arrange.domain import TypeDomain
from redist.arrange.ein_graph import ADDING, SCALING, EinGraph, EinNode
from redist.arrange.elimination import Elimination
from redist.arrange.linear_program import solve_by_program
from redist.arrange.memory_limit import fit_memory
from redist.arrange.move_prices import price_moves
from redist.arrange.network import FORBIDDEN, CostNetwork, Costs, CostTable, Solution
from redist.arrange.strategies import (
    BUILT_IN,
    DeviceCosts,
    Strategies,
    least_time_ps,
    list_strategies,
)
from redist.arrange.tile_lives import live_rows
from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.cuts import Ints
from redist.layout.mesh import Mesh
from redist.plan.topology import FLAT, Topology
from redist.text.columns import table
from redist.text.units import format_bytes, format_time


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A move of a value to the type that a reader wants, or to the one in which several find it."""

    value: int
    source: ArrayType
    target: ArrayType
    reader: int | None
    time_ps: int


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """Types for all values of a program: inputs, what nodes make, and what moves between them.

    ``bound_ps`` is what no choice of types costs less than under the same prices; ``compute_ps`` what
    computing alone would take if every node were shared by all devices. ``peak_bytes`` are the most that
    tiles take at once on the fullest device (:mod:`redist.arrange.tile_lives` says which count).
    """

    graph: EinGraph
    mesh: Mesh
    inputs: tuple[ArrayType, ...]
    made: tuple[ArrayType, ...]
    wanted: tuple[tuple[ArrayType, ...], ...]
    """Of every node, the types of its operands when it begins."""
    moves: tuple[PlannedMove, ...]
    work_ps: int
    time_ps: int
    bound_ps: int
    compute_ps: int
    peak_bytes: int

    @property
    def search(self) -> str:
        """``exact`` if it is proved that no choice is better, else ``bounded``."""
        return "exact" if self.time_ps == self.bound_ps else "bounded"

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("node", "what", "makes", "moves before it")]
        for number, t in enumerate(self.inputs):
            rows.append((f"input {number}", "", str(t), ""))
        for number, (node, t) in enumerate(zip(self.graph.nodes, self.made, strict=True)):
            texts = [
                f"{move.source} -> {move.target} ({format_time(move.time_ps)})"
                for move in self.moves
                if move.reader == number or (move.reader is None and move.value == number)
            ]
            rows.append((str(number), node.name or node.notation, str(t), "; ".join(texts)))
        head = (
            f"{len(self.graph.nodes)} nodes on {self.mesh}: modelled {format_time(self.time_ps)}, "
            f"{len(self.moves)} moves, {self.search}; at least {format_time(self.bound_ps)}, "
            f"computing alone {format_time(self.compute_ps)}; {format_bytes(self.peak_bytes)} at once"
        )
        return "\n".join([head, *table(rows, left=(0, 1, 2, 3))])


def plan_layouts(
    graph: EinGraph,
    mesh: Mesh,
    parts: Sequence[SubAxis],
    topology: Topology = FLAT,
    device: DeviceCosts | None = None,
    pins: Mapping[int, ArrayType] | None = None,
    limit_bytes: int | None = None,
    exact_memory: bool = False,
) -> LayoutPlan:
    """The types that make a program quickest, over these factors of a mesh.

    ``pins`` fixes the types of inputs (``~k``) and of what nodes make; the others are free, inputs
    included. A value with several readers is moved once to the type in which they find it, and from there
    to what each wants. With ``limit_bytes``, no more is live at once on a device, nodes in the given
    order; the plan is then the best that prices of bytes find, with its bound, or that of an integer program
    if ``exact_memory`` is asked for. :class:`redist.NoPlanError` says the least limit that would do.
    """
    planning = _Planning(graph, mesh, tuple(parts), topology, device or BUILT_IN, dict(pins or {}))
    return planning.run(limit_bytes, exact_memory)


@dataclass(slots=True, eq=False)
class _Planning:
    """One planning: tables for equal nodes and values are made once, and so worked on once."""

    graph: EinGraph
    mesh: Mesh
    parts: tuple[SubAxis, ...]
    topology: Topology
    device: DeviceCosts
    pins: dict[int, ArrayType]
    _domains: dict[object, TypeDomain] = field(default_factory=dict)
    _ops: dict[int, str | None] = field(default_factory=dict)
    _prices: dict[int, Costs] = field(default_factory=dict)
    _ways: dict[object, Strategies] = field(default_factory=dict)
    _tables: dict[object, Costs] = field(default_factory=dict)

    def run(self, limit_bytes: int | None = None, exact_memory: bool = False) -> LayoutPlan:
        """Build the network, solve it, and say what was chosen."""
        graph = self.graph
        ways = [self._ways_of(n, node) for n, node in enumerate(graph.nodes)]
        variables: dict[int, int] = {}
        """Of values with a type of their own: inputs, and those with several readers."""
        sizes = [len(one) for one in ways]
        for value in (*range(-len(graph.inputs), 0), *range(len(graph.nodes))):
            if value < 0 or len(graph.readers(value)) > 1:
                variables[value] = len(sizes)
                sizes.append(len(self._domain(value)))
        tables = [
            CostTable((n,), self._table(("work", id(one)), partial(one.time_ps, self.device)))
            for n, one in enumerate(ways)
        ]
        for value in (*range(-len(graph.inputs), 0), *range(len(graph.nodes))):
            tables += self._tables_of(value, ways, variables)
        network = CostNetwork(tuple(sizes), tuple(tables))
        solution = Elimination(network).run() or solve_by_program(network)
        if solution is None:
            raise RequestError(
                "cannot plan these layouts: the program is too tangled for tables; join factors of the "
                "mesh, or pip install redist[arrange]"
            )
        if solution.cost >= FORBIDDEN:
            raise RequestError("cannot plan these layouts: no choice keeps to what is pinned")
        rows = live_rows(graph, ways, variables, self._domain)
        if limit_bytes is not None:
            solution = fit_memory(network, rows, limit_bytes, solution, exact_memory)
        return self._plan(ways, variables, solution, rows.peak(solution.values))

    def _domain(self, value: int) -> TypeDomain:
        shape, dtype = self.graph.shape_of(value), self.graph.dtype_of(value)
        op = self._pending_op(value)
        key = shape, dtype, op
        if key not in self._domains:
            self._domains[key] = TypeDomain.of(self.mesh, self.parts, shape, dtype, op)
        return self._domains[key]

    def _pending_op(self, value: int) -> str | None:
        """How partial values of a value are combined; None if it has none.

        Sums may stay pending through linear nodes.
        """
        if value < 0:
            pin = self.pins.get(value)
            return None if pin is None else pin.pending_op
        if value not in self._ops:
            node = self.graph.nodes[value]
            passes = node.agg == "sum" and node.join in (*ADDING, *SCALING)
            if set(node.labels) != set(node.kept):
                self._ops[value] = node.agg
            elif passes and any(self._pending_op(n) == "sum" for n in node.operands):
                self._ops[value] = "sum"
            else:
                self._ops[value] = None
        return self._ops[value]

    def _ways_of(self, number: int, node: EinNode) -> Strategies:
        operands = [self._domain(n) for n in node.operands]
        result = self._domain(number)
        key = (
            node.notation, node.join, node.agg, tuple(node.sizes[label] for label in node.labels),
            tuple(map(id, operands)), id(result),
        )  # fmt: skip
        if key not in self._ways:
            self._ways[key] = list_strategies(node, operands, result)
        return self._ways[key]

    def _prices_of(self, domain: TypeDomain) -> Costs:
        if id(domain) not in self._prices:
            self._prices[id(domain)] = price_moves(domain, self.topology)
        return self._prices[id(domain)]

    def _table(self, key: object, make: Callable[[], Costs]) -> Costs:
        if key not in self._tables:
            self._tables[key] = make()
        return self._tables[key]

    def _tables_of(
        self, value: int, ways: Sequence[Strategies], variables: Mapping[int, int]
    ) -> list[CostTable]:
        """What it costs to bring a value from where it is made to where it is read."""
        domain, readers = self._domain(value), self.graph.readers(value)
        prices = self._prices_of(domain)
        found: list[CostTable] = []
        pin = self.pins.get(value)
        if pin is not None:
            number = domain.find(pin)
            if number is None:
                raise RequestError(
                    f"cannot pin {pin}: it is no type over these factors of the mesh"
                )
        if value in variables:
            own = variables[value]
            if pin is not None and value < 0:
                only = np.full(len(domain), FORBIDDEN, dtype=np.int64)
                only[number] = 0
                found.append(CostTable((own,), only))
            if value >= 0:
                found.append(self._between(value, own, ways[value].result, prices, None))
            for reader, place in readers:
                wanted = ways[reader].operands[place]
                found.append(self._between(own, reader, None, prices, wanted))
        else:
            for reader, place in readers:
                wanted = ways[reader].operands[place]
                found.append(self._between(value, reader, ways[value].result, prices, wanted))
        if pin is not None and value >= 0:
            made = ways[value].result
            found.append(
                CostTable((value,), np.where(made == number, 0, FORBIDDEN).astype(np.int64))
            )
        return found

    def _between(
        self, a: int, b: int, made: Ints | None, prices: Costs, wanted: Ints | None
    ) -> CostTable:
        """A table of prices from the types of one variable to those of another."""
        key = (
            "move",
            id(prices),
            None if made is None else id(made),
            None if wanted is None else id(wanted),
        )

        def make() -> Costs:
            rows = prices if made is None else prices[made]
            return np.ascontiguousarray(rows if wanted is None else rows[:, wanted])

        return CostTable((a, b), self._table(key, make))

    def _plan(
        self,
        ways: Sequence[Strategies],
        variables: Mapping[int, int],
        solution: Solution,
        peak_bytes: int,
    ) -> LayoutPlan:
        graph, values = self.graph, solution.values
        inputs = [self._domain(~k).type(values[variables[~k]]) for k in range(len(graph.inputs))]
        made = [self._domain(n).type(int(one.result[values[n]])) for n, one in enumerate(ways)]
        wanted = [
            tuple(
                self._domain(n).type(int(one.operands[place][values[number]]))
                for place, n in enumerate(graph.nodes[number].operands)
            )
            for number, one in enumerate(ways)
        ]
        moves: list[PlannedMove] = []
        for value in (*range(-len(graph.inputs), 0), *range(len(graph.nodes))):
            domain = self._domain(value)
            prices = self._prices_of(domain)
            here = values[variables[value]] if value < 0 else int(ways[value].result[values[value]])
            if value >= 0 and value in variables:
                home = values[variables[value]]
                moves += _move(domain, prices, value, here, home, None)
                here = home
            for reader, place in graph.readers(value):
                there = int(ways[reader].operands[place][values[reader]])
                moves += _move(domain, prices, value, here, there, reader)
        work = sum(int(one.time_ps(self.device)[values[n]]) for n, one in enumerate(ways))
        least = sum(least_time_ps(node, self.mesh.n_devices, self.device) for node in graph.nodes)
        return LayoutPlan(
            graph, self.mesh, tuple(inputs), tuple(made), tuple(wanted), tuple(moves), work,
            solution.cost, solution.bound, least, peak_bytes,
        )  # fmt: skip


def _move(
    domain: TypeDomain, prices: Costs, value: int, a: int, b: int, reader: int | None
) -> list[PlannedMove]:
    if a == b:
        return []
    return [PlannedMove(value, domain.type(a), domain.type(b), reader, int(prices[a, b]))]
