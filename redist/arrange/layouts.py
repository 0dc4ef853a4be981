"""The best type for every value of a program: ways to do each node, with the prices of moves between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from redist.arrange.domain import TypeDomain, places_of
from redist.arrange.ein_graph import ADDING, SCALING, AskedNode, EinGraph, EinNode
from redist.arrange.layout_plan import LayoutPlan, PlannedMove
from redist.arrange.price_book import PriceBook, finish_prices
from redist.arrange.solving.elimination import eliminate
from redist.arrange.solving.memory_limit import fit_memory
from redist.arrange.solving.network import FORBIDDEN, CostNetwork, Costs, CostTable, Solution
from redist.arrange.solving.tangled import solve_tangled
from redist.arrange.strategies import Answered, Ways, ask, least_time_ps, list_ways
from redist.arrange.tile_lives import live_rows
from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.cuts import Ints
from redist.layout.mesh import Mesh
from redist.plan.rates import FLAT, GPU, DeviceCosts
from redist.plan.topology import Topology

MOST_CORRECTIONS = 8
"""So often prices of moves are corrected and layouts planned again; they are exact much sooner."""


def plan_layouts(
    graph: EinGraph,
    mesh: Mesh,
    parts: Sequence[SubAxis],
    topology: Topology = FLAT,
    device: DeviceCosts | None = None,
    pins: Mapping[int, ArrayType] | None = None,
    loops: Mapping[int, int] | None = None,
    ends: Collection[int] = (),
    limit_bytes: int | None = None,
    exact_memory: bool = False,
) -> LayoutPlan:
    """The types that make a program fastest, over these factors of a mesh.

    ``pins`` fixes the types of inputs (``~k``) and of results of nodes; the others are free, inputs
    included. ``loops`` says which values become which inputs of the next round: each is brought to the type
    of its input, which counts as time. Partial values that are ``ends`` of the program cost what it takes to
    finish them, sooner or later. A value with several readers is moved once to the type in which they find
    it, and from there to the type that each reader wants.

    With ``limit_bytes``, no more than that is live at once on a device, with nodes done in the given order.
    The plan is then the best that prices of bytes find, with its bound, or that of an integer program if
    ``exact_memory`` is asked for. :class:`redist.NoPlanError` says the smallest limit that would be enough.
    """
    book = PriceBook(mesh, tuple(parts), topology)
    planning = _Planning(graph, device or GPU, dict(pins or {}), book, dict(loops or {}), ends)
    return planning.run(limit_bytes, exact_memory)


@dataclass(slots=True, eq=False)
class _Planning:
    """One planning: tables for equal nodes and values are made once, and so worked on once."""

    graph: EinGraph
    device: DeviceCosts
    pins: dict[int, ArrayType]
    book: PriceBook
    loops: dict[int, int]
    ends: Collection[int]
    _domains: dict[int, TypeDomain] = field(default_factory=dict)
    """By value."""
    _ops: dict[int, str | None] = field(default_factory=dict)
    _ways: dict[object, Ways] = field(default_factory=dict)
    _answered: dict[object, Answered] = field(default_factory=dict)
    _said: dict[int, Answered] = field(default_factory=dict)
    """By node without a rule."""
    _tables: dict[object, Costs] = field(default_factory=dict)

    def run(self, limit_bytes: int | None, exact_memory: bool) -> LayoutPlan:
        """Solve it, with the exact prices of what is moved then put in, until they are all exact."""
        begin: Solution | None = None
        for _ in range(MOST_CORRECTIONS):
            plan, begin = self._solve(limit_bytes, exact_memory, begin)
            if not self.book.correct((m.source, m.target) for m in (*plan.moves, *plan.inner)):
                break
            self._ways.clear()
            self._tables.clear()
        return plan

    def _solve(
        self, limit_bytes: int | None, exact_memory: bool, begin: Solution | None
    ) -> tuple[LayoutPlan, Solution]:
        """Build the network, solve it, and say what was chosen; ``begin`` was, at other prices."""
        graph = self.graph
        ways = [
            self._asked_ways(n, node) if isinstance(node, AskedNode) else self._ways_of(n, node)
            for n, node in enumerate(graph.nodes)
        ]
        variables: dict[int, int] = {}
        """Of values with a type of their own: inputs, and those with several readers."""
        sizes = [len(one) for one in ways]
        for value in graph.values:
            if value < 0 or len(graph.readers(value)) + (value in self.loops) > 1:
                variables[value] = len(sizes)
                sizes.append(len(self._domain(value)))
        tables = [CostTable((n,), one.times) for n, one in enumerate(ways)]
        for value in graph.values:
            tables += self._tables_of(value, ways, variables)
        aspects = [self._aspects(number, one) for number, one in enumerate(ways)]
        aspects += [self._domain(value).places for value in variables]
        network = CostNetwork(tuple(sizes), tuple(tables), tuple(aspects))
        free = eliminate(network) or solve_tangled(network, begin)
        if free.cost >= FORBIDDEN:
            raise RequestError("cannot plan these layouts: no choice keeps to what is pinned")
        rows = live_rows(graph, ways, variables, self._domain)
        solution = free
        if limit_bytes is not None:
            solution = fit_memory(network, rows, limit_bytes, free, exact_memory)
        return self._plan(ways, variables, solution, rows.peak(solution.values)), free

    def _domain(self, value: int) -> TypeDomain:
        if value not in self._domains:
            shape, dtype = self.graph.shape_of(value), self.graph.dtype_of(value)
            named = tuple(self._named_types(value))
            self._domains[value] = self.book.domain(shape, dtype, self._pending_op(value), named)
        return self._domains[value]

    def _named_types(self, value: int) -> list[ArrayType]:
        """Types that someone names for a value: pinned, made or asked for by nodes without a rule."""
        found = [self.pins[value]] if value in self.pins else []
        for reader, place in self.graph.readers(value):
            node = self.graph.nodes[reader]
            if isinstance(node, AskedNode):
                found += [types[place] for types in node.only]
        if value >= 0:
            number, k = self.graph.maker(value)
            found += self._said[number].types_of(k) if number in self._said else []
        op = self._pending_op(value)
        named = (t for t in dict.fromkeys(found) if t.pending_op in (None, op))
        return [t for t in named if places_of(t, self.book.parts) is not None]

    def _pending_op(self, value: int) -> str | None:
        """How partial values of a value are combined; None if it has none.

        Sums may stay pending through linear nodes.
        """
        if value < 0:
            pin = self.pins.get(value)
            return None if pin is None else pin.pending_op
        if value not in self._ops:
            number, k = self.graph.maker(value)
            node = self.graph.nodes[number]
            if isinstance(node, AskedNode):
                self._ops[value] = self._said[number].pending_op(k)
                return self._ops[value]
            passes = node.agg == "sum" and node.join in (*ADDING, *SCALING)
            if node.aggregated:
                self._ops[value] = node.agg
            elif passes and any(self._pending_op(n) == "sum" for n in node.operands):
                self._ops[value] = "sum"
            else:
                self._ops[value] = None
        return self._ops[value]

    def _ways_of(self, number: int, node: EinNode) -> Ways:
        operands = [self._domain(n) for n in node.operands]
        (value,) = self.graph.results_of(number)
        result = self._domain(value)
        key = (
            node.notation, node.join, node.agg, tuple(node.sizes[label] for label in node.labels),
            tuple(map(id, operands)), id(result), node.worked_in,
        )  # fmt: skip
        if key not in self._ways:
            self._ways[key] = list_ways(node, operands, result, self.device)
        return self._ways[key]

    def _asked_ways(self, number: int, node: AskedNode) -> Ways:
        operands = [self._domain(n) for n in node.operands]
        key = node.key, tuple(map(id, operands)), node.only
        if key not in self._answered:
            self._answered[key] = ask(node, operands, self.book.parts)
        said = self._said[number] = self._answered[key]
        results = [self._domain(value) for value in self.graph.results_of(number)]
        own = key, tuple(map(id, results))
        if own not in self._ways:
            self._ways[own] = said.ways(operands, results, self.book)
        return self._ways[own]

    def _table(self, key: object, make: Callable[[], Costs]) -> Costs:
        if key not in self._tables:
            self._tables[key] = make()
        return self._tables[key]

    def _tables_of(
        self, value: int, ways: Sequence[Ways], variables: Mapping[int, int]
    ) -> list[CostTable]:
        """What it costs to bring a value from where it is made to where it is read."""
        domain, readers = self._domain(value), self.graph.readers(value)
        prices = self.book.prices(domain)
        found: list[CostTable] = []
        pin = self.pins.get(value)
        number = None if pin is None else domain.find(pin)
        if pin is not None and number is None:
            raise RequestError(f"cannot pin {pin}: it is not a type over these factors of the mesh")
        maker, made = self._maker(value, ways)
        if value in variables:
            own = variables[value]
            if pin is not None and value < 0:
                every = np.arange(len(domain))
                key: object = "pin", len(domain), number
                found.append(CostTable((own,), self._table(key, partial(_only, every, number))))
            if value >= 0:
                found.append(self._between(maker, own, made, prices, None))
            for reader, place in readers:
                wanted = ways[reader].operands[place]
                found.append(self._between(own, reader, None, prices, wanted))
        else:
            for reader, place in readers:
                wanted = ways[reader].operands[place]
                found.append(self._between(maker, reader, made, prices, wanted))
        if value in self.loops:
            end = self.loops[value]
            back = self._numbers_in(value, end)
            here = (variables[value], None) if value in variables else (maker, made)
            found.append(self._between(here[0], variables[end], here[1], prices, back))
        if value in self.ends and domain.op is not None:
            rest = self._table(("finish", id(prices)), lambda: finish_prices(domain, prices))
            if value in variables:
                found.append(CostTable((variables[value],), rest))
            else:
                key = "finish", id(prices), id(made)
                found.append(CostTable((maker,), self._table(key, lambda: rest[made])))
        if pin is not None and made is not None:
            key = "pin", id(made), number
            found.append(CostTable((maker,), self._table(key, partial(_only, made, number))))
        return found

    def _aspects(self, number: int, ways: Ways) -> Ints:
        """What the ways to do a node say about every factor of the mesh: where it is in all types."""
        values = (*self.graph.nodes[number].operands, *self.graph.results_of(number))
        domains = [self._domain(value) for value in values]

        def make() -> Ints:
            rows = zip(domains, (*ways.operands, *ways.results), strict=True)
            places = np.stack([domain.places[numbers] for domain, numbers in rows])
            columns = [
                np.unique(places[:, :, k], axis=1, return_inverse=True)[1].reshape(-1)
                for k in range(places.shape[2])
            ]
            return np.stack(columns, axis=1) if columns else np.zeros((len(ways), 0), np.int64)

        return self._table(("aspects", id(ways), *map(id, domains)), make)

    def _numbers_in(self, value: int, other: int) -> Ints:
        """The types of another value as types of a value; all must be."""
        domain, theirs = self._domain(value), self._domain(other)
        found = [domain.find(theirs.type(number)) for number in range(len(theirs))]
        if None in found:
            raise RequestError("cannot plan a loop whose ends have different kinds of types")
        return np.array(found, dtype=np.int64)

    def _maker(self, value: int, ways: Sequence[Ways]) -> tuple[int, Ints | None]:
        """The variable of the node that makes a value, and the type in which each of its ways does."""
        if value < 0:
            return value, None
        number, k = self.graph.maker(value)
        return number, ways[number].results[k]

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
        ways: Sequence[Ways],
        variables: Mapping[int, int],
        solution: Solution,
        peak_bytes: int,
    ) -> LayoutPlan:
        graph, values = self.graph, solution.values
        here = {
            value: values[variables[value]] if made is None else int(made[values[maker]])
            for value in graph.values
            for maker, made in [self._maker(value, ways)]
        }
        types = {value: self._domain(value).type(number) for value, number in here.items()}
        wanted = [
            tuple(
                self._domain(n).type(int(one.operands[place][values[number]]))
                for place, n in enumerate(graph.nodes[number].operands)
            )
            for number, one in enumerate(ways)
        ]
        moves: list[PlannedMove] = []
        later = 0
        for value in graph.values:
            domain = self._domain(value)
            prices, at = self.book.prices(domain), here[value]
            if value >= 0 and value in variables:
                home = values[variables[value]]
                moves += _move(domain, prices, value, at, home, None)
                at = home
            for reader, place in graph.readers(value):
                there = int(ways[reader].operands[place][values[reader]])
                moves += _move(domain, prices, value, at, there, reader)
            if value in self.loops:
                end = domain.find(types[self.loops[value]])
                assert end is not None
                moves += _move(domain, prices, value, at, end, len(graph.nodes))
            if value in self.ends and domain.op is not None:
                later += int(finish_prices(domain, prices)[at])
        inner = [
            PlannedMove(None, source, target, n, self.book.price(source, target))
            for n, said in self._said.items()
            for source, target in said.answer_to(wanted[n]).moves
        ]
        work = sum(int(one.times[values[n]]) for n, one in enumerate(ways))
        work -= sum(move.time_ps for move in inner)
        least = sum(
            least_time_ps(node, self.book.mesh.n_devices, self.device)
            for node in graph.nodes
            if isinstance(node, EinNode)
        )
        return LayoutPlan(
            graph, self.book.mesh, tuple(types[~k] for k in range(len(graph.inputs))),
            tuple(types[value] for value in graph.values if value >= 0), tuple(wanted), tuple(moves),
            tuple(inner), work, solution.cost, solution.bound, least, peak_bytes, later,
        )  # fmt: skip


def _only(types: Ints, number: int | None) -> Costs:
    """What choices cost of which one type is pinned: those of others are forbidden."""
    return np.where(types == number, 0, FORBIDDEN).astype(np.int64)


def _move(
    domain: TypeDomain, prices: Costs, value: int, a: int, b: int, reader: int | None
) -> list[PlannedMove]:
    if a == b:
        return []
    return [PlannedMove(value, domain.type(a), domain.type(b), reader, int(prices[a, b]))]
