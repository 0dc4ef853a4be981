"""Plan the layouts of a recorded program: calls become a graph; functions without a rule are asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redist.arrange.domain import list_groupings, places_of
from redist.arrange.ein_graph import AskedNode, EinGraph, EinInput, EinNode, Node, WayTaken
from redist.arrange.judge_layouts import node_time_ps
from redist.arrange.layout_plan import LayoutPlan
from redist.arrange.layouts import plan_layouts
from redist.arrange.price_book import PriceBook, finish_prices
from redist.errors import RedistError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, prime_parts
from redist.layout.mesh import Mesh
from redist.pgas.ghosts.memory import ghosts_for
from redist.pgas.ghosts.stand_ins import pretend
from redist.pgas.ghosts.tape import MoveOf, Tape, Task, taping
from redist.pgas.ghosts.traffic import Exchanger, GhostTraffic
from redist.pgas.global_array import Array
from redist.pgas.kinds import tile_dtype
from redist.pgas.products.contract import contract
from redist.pgas.products.contract_layout import worked_in
from redist.pgas.programs.planning.recorder import CallRecorder, ProgramCall
from redist.pgas.structures import found_in
from redist.pgas.tiles.arranging import Types, arranging
from redist.pgas.tiles.layouts import resolved_type
from redist.pgas.tiles.move import tile_shape
from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.seam import ElementExchange, through, traffic
from redist.plan.rates import DeviceCosts
from redist.plan.topology import Topology
from redist.planner import synthesize
from redist.runtime.ranks.world import Comm
from redist.text.units import ceil_div

MOST_FACTORS = 3
"""Meshes of more prime factors are planned in groups of them."""
MOST_TANGLED, NEAR = 2, 1.02
"""So many groupings of a program are tried that cannot be planned exactly; fewer if one is near its bound."""


@dataclass(frozen=True, slots=True)
class ProgramCosts:
    """What a program costs on its machine: moves, exchanges without a plan, and work."""

    book: PriceBook
    device: DeviceCosts

    @staticmethod
    def of(types: Sequence[ArrayType], topology: Topology, device: DeviceCosts) -> ProgramCosts:
        """The costs of a program whose arrays have these types; they must be on one mesh."""
        meshes = {t.mesh for t in types}
        if len(meshes) != 1:
            raise RequestError("cannot plan layouts over several meshes")
        axes = [axis for t in types for cut in (*t.dims, t.pending_axes) for axis in cut]
        (mesh,) = meshes
        parts = tuple(part for part in prime_parts(mesh, axes) if part.size > 1)
        return ProgramCosts(PriceBook(mesh, parts, topology), device)

    def move_ps(self, source: ArrayType, target: ArrayType) -> int:
        """What a move takes."""
        try:
            return self.book.exact_price(source, target)
        except RequestError:  # so many types that they are not listed
            return synthesize(source, target, topology=self.book.topology).time_ps

    def finish_ps(self, t: ArrayType) -> int:
        """What it takes to finish a result, wherever that is cheapest."""
        if t.pending_op is None:
            return 0
        try:
            domain = self.book.domain(t.shape, t.dtype, t.pending_op, (t,))
        except RequestError:
            return self.move_ps(t, resolved_type(t))
        number = domain.find(t)
        if number is None:
            return self.move_ps(t, resolved_type(t))
        return int(finish_prices(domain, self.book.prices(domain))[number])

    def exchange_ps(self, exchange: ElementExchange) -> int:
        """About what it takes to pass elements on without a plan: all of a tile, from everyone."""
        topology = self.book.topology
        n = exchange.target.mesh.n_devices
        return topology.levels[-1].time_ps(n - 1, exchange.target.tile_bytes) + topology.step_ps

    def tasks_ps(self, tasks: Sequence[Task]) -> int:
        """What the moves and exchanges among tasks take, one after another."""
        total = 0
        for task in tasks:
            if task.moves:
                total += self._moves_ps(task.moves)
            elif isinstance(task.function, Exchanger):
                total += self.exchange_ps(task.function.exchange)
        return total

    def _moves_ps(self, moves: Sequence[MoveOf]) -> int:
        """About what moves take that are one operation: the longest, and the bytes of the others."""
        prices = [self.move_ps(move.source, move.target) for move in moves]
        level = self.book.topology.levels[-1]
        rest = [
            min(price, level.time_ps(0, move.target.tile_bytes))
            for price, move in zip(prices, moves, strict=True)
        ]
        longest = max(range(len(prices)), key=prices.__getitem__)
        return prices[longest] + sum(rest) - rest[longest]

    def work_ps(self, one: ProgramCall) -> int:
        """What the busiest device computes in a call, as it was done."""
        node = ein_node(one)
        if node is None:
            return self.touch_ps((*one.types, *one.made))
        return node_time_ps(node, one.wanted, one.made[0], self.device)

    def touch_ps(self, types: Sequence[ArrayType]) -> int:
        """What it takes to read or write the tiles of these types once."""
        return ceil_div(sum(t.tile_bytes for t in types) * self.device.byte_fs, 1000)


def ein_node(one: ProgramCall) -> EinNode | None:
    """A call as an operation with a rule; None if it has none."""
    form = one.call.form
    if form is None:
        return None
    (made,) = one.made
    is_product = one.call.function is contract
    return EinNode(
        form.notation, one.operands, form.sizes, form.join, form.agg, made.dtype, one.call.name,
        worked_in(one.types) if is_product else None,
    )  # fmt: skip


def plan_calls(
    recorder: CallRecorder,
    left: Collection[int],
    costs: ProgramCosts,
    free: Collection[int] = (),
    loops: Mapping[int, int] | None = None,
    limit_bytes: int | None = None,
) -> LayoutPlan:
    """**Local.** The best types for the calls of a program, of which tiles keep a limit if there is one.

    Calls in ``left`` stay as they were; values in ``free``, which no call makes, may begin in any type;
    those in ``loops`` become others in the next round.
    """
    graph, pins = make_graph(recorder, left, costs)
    pins = {value: t for value, t in pins.items() if value not in free}
    best: LayoutPlan | None = None
    why: RequestError | None = None
    mesh, fine = costs.book.mesh, costs.book.parts
    ends = {n for n in recorder.results if n is not None and n >= 0} - set(loops or ())
    tangled = 0
    for parts in _factors(mesh, fine, list(pins.values())):
        try:
            plan = plan_layouts(
                graph,
                mesh,
                parts,
                costs.book.topology,
                costs.device,
                pins,
                loops,
                ends,
                limit_bytes,
            )
        except RequestError as problem:
            why = problem
            continue
        if best is None or plan.time_ps < best.time_ps:
            best = plan
        tangled += plan.search != "exact"
        if tangled and (tangled == MOST_TANGLED or plan.time_ps <= NEAR * plan.bound_ps):
            break
    if best is None:
        raise why or RequestError(f"cannot plan layouts on any factors of {mesh}")
    return best


def _factors(
    mesh: Mesh, fine: tuple[SubAxis, ...], pins: Sequence[ArrayType]
) -> list[tuple[SubAxis, ...]]:
    """The factors of a mesh to plan with: the finest if they are few, else groups that have all pins.

    Groups of even sizes come first, and of these the finest: they have most types.
    """
    if len(fine) <= MOST_FACTORS:
        return [fine]
    groups = list_groupings(mesh, MOST_FACTORS)
    groups.sort(key=lambda some: (max(part.size for part in some), -len(some)))
    return [some for some in groups if all(places_of(t, some) is not None for t in pins)]


def make_graph(
    recorder: CallRecorder, left: Collection[int], costs: ProgramCosts
) -> tuple[EinGraph, dict[int, ArrayType]]:
    """**Local.** The calls as a graph, and the types of what no call makes."""
    nodes: list[Node] = []
    for number, one in enumerate(recorder.calls):
        results = tuple(EinInput(t.shape, t.dtype) for t in one.made)
        call = one.call
        if number in left:
            answer = WayTaken(one.made, 0)
            nodes.append(
                AskedNode(
                    call.name, one.operands, results, lambda types, answer=answer: answer,  # type: ignore[misc]
                    ("left", number), (one.types,),
                )
            )  # fmt: skip
        elif (rule := ein_node(one)) is not None:
            nodes.append(rule)
        else:
            only = (call.only,) if call.only is not None else ()
            key = number if call.key is None else call.key
            nodes.append(
                AskedNode(call.name, one.operands, results, _asking(one, costs), key, only)
            )
    inputs = tuple(EinInput(t.shape, t.dtype) for t in recorder.sources)
    return EinGraph(inputs, tuple(nodes)), {~k: t for k, t in enumerate(recorder.sources)}


def _asking(one: ProgramCall, costs: ProgramCosts) -> Callable[[Types], WayTaken | None]:
    """A function that says what a call makes of operands of other types, and what that takes."""
    known: dict[Types, WayTaken | None] = {}

    def ask(types: Types) -> WayTaken | None:
        if types not in known:
            known[types] = _try_call(one, types, costs)
        return known[types]

    return ask


def _try_call(one: ProgramCall, types: Types, costs: ProgramCosts) -> WayTaken | None:
    """**Local.** Do a call on ghosts of other types; None if it refuses."""
    tape = Tape(explains=True)
    with taping(tape), through(GhostTraffic(traffic(), tape)), arranging(None):
        arrays = [_ghost(*kind, t, tape) for kind, t in zip(one.kinds, types, strict=True)]
        try:
            result = one.call.run(arrays, None)
        except RedistError:
            return None
    made = tuple(x.type for x in found_in(result, (Tiled,)))
    if [(t.shape, t.dtype, t.mesh) for t in made] != [(t.shape, t.dtype, t.mesh) for t in one.made]:
        return None
    moves = tuple((move.source, move.target) for task in tape.tasks for move in task.moves)
    exchangers = [task.function for task in tape.tasks if isinstance(task.function, Exchanger)]
    exchanged = sum(costs.exchange_ps(one.exchange) for one in exchangers)
    return WayTaken(made, exchanged + costs.touch_ps((*types, *made)), moves)


def _ghost(on_device: bool, comm: Comm, t: ArrayType, tape: Tape) -> Array:
    """An array of a type without values, on the host or on GPUs."""
    shape, ghosts = tile_shape(t, comm.rank), ghosts_for(on_device)
    tile: Any = None
    if shape is not None:
        tile = ghosts.ghost_kind(pretend(shape, tile_dtype(t.dtype)), tape)
    return Array(t, comm, tile, ghosts)
