"""The best route of named collectives alone: shortest path over all types of the space."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.tiles import Ints
from redist.plan.steps import AllPermute, AllReduce, ReduceScatter, Slice
from redist.synth.astar import Budget, ShortestPath
from redist.synth.axis_moves import move_classes
from redist.synth.chains import Bools
from redist.synth.collective_prices import CollectivePrices
from redist.synth.named_steps import name_step
from redist.synth.objective_costs import MORE_THAN_ANY_COST, Prices
from redist.synth.plan_figures import Path
from redist.synth.shape_bounds import Shapes

EXACT_WORK = 4_500_000
"""How much a search may look at to prove its route the best: types, and ranks of neighbours."""
CELL_WORK = 2
"""Of that, what every type counts for every rank before the search begins."""
LEAST_WORK = 1_000_000
"""What is left of it at least."""
BEAM_WORK = 1_500_000
"""The same for a few routes that are followed before, to have a good one early, and after."""
STEP_WORK = 8_000
"""What every type counts whose neighbours are looked at."""
PRICE_WORK = 15_000
"""What a step counts whose pieces are listed one by one."""
EARLY_BEAMS = ((3, False), (2, True))
"""How many routes are followed at a time before, and whether over permutes."""
LATE_BEAM = 10
"""How many are followed at a time after, from where the search has come to."""
BEAM_WEIGHT = 2
"""How often the cost still to come counts in their choice."""


@dataclass(slots=True, eq=False)
class CollectiveSearch:
    """Steps that slice, all_gather, all_to_all or all_permute do alone; no exchange."""

    prices: Prices
    permute: bool
    kept: tuple[SubAxis, ...]
    _closed: CollectivePrices = field(init=False)
    _to_goal: Ints = field(init=False)
    _kinds: Ints = field(init=False)
    _classes: Ints = field(init=False)
    _permutes: bool = True
    _work: Budget = field(default_factory=lambda: Budget(EXACT_WORK))
    _names: dict[tuple[int, int], Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        prices, every = self.prices, np.arange(len(self.prices.space), dtype=np.int64)
        self._closed = CollectivePrices.of(prices, self.kept)
        self._classes = move_classes(prices.space)
        shapes = Shapes.of(prices, self._closed.told_apart())
        floors = (
            prices.floor_to(every, prices.goal, self._closed.far_floor(every, prices.goal)),
            shapes.floor_to_goal(self._classes, self.permute),
        )
        self._kinds = np.append(shapes.number, -1)
        self._to_goal = np.append(np.maximum(*floors), 0)

    def run(self, below: int, prove: bool = True) -> tuple[Path | None, int]:
        """The best route that was found to cost less than ``below``, and what no route costs less than.

        A few routes are followed first, so that the search after them need not look at what costs
        more. If its budget of work ends before it has proved a route the best, the bound is less than
        what the route costs; it is 0 if nothing was to be proved.
        """
        start, goal = self.prices.start, self.prices.goal
        search = ShortestPath(start, goal, self._to_goal, self._edges, self._exact)
        self._work = Budget(BEAM_WORK)
        nodes: tuple[int, ...] | None = None
        cost = below
        for width, self._permutes in EARLY_BEAMS:
            found, cost = search.beam(cost, self._kinds, width, BEAM_WEIGHT, self._work)
            nodes = found or nodes
        if nodes is None and below == MORE_THAN_ANY_COST:
            some = search.run(below, None, BEAM_WEIGHT)
            nodes, cost = some.nodes, some.bound
        if not prove:
            return None if nodes is None else self._named(nodes), 0
        cells = self.prices.space.volumes.size
        self._work = Budget(max(LEAST_WORK, EXACT_WORK - CELL_WORK * cells))
        best = search.run(below if nodes is None else cost + 1, self._work)
        nodes = best.nodes or nodes
        if best.nodes is None and best.bound < cost:
            self._work = Budget(BEAM_WORK)
            late = (self._kinds, LATE_BEAM, BEAM_WEIGHT, self._work, best.begun)
            nodes = search.beam(cost, *late)[0] or nodes
        if nodes is None:
            return None, best.bound
        return self._named(nodes), best.bound

    def _named(self, nodes: tuple[int, ...]) -> Path:
        """The steps along some nodes."""
        return tuple(hop for u, v in pairwise(nodes) for hop in self._route(u, v))

    def _exact(self, u: int, v: int) -> int:
        self._work.spend(PRICE_WORK)
        return self.prices.exact(u, v, self._route(u, v))

    def _edges(self, u: int, slack: int) -> tuple[Ints, Ints, Bools]:
        """Neighbours of u, lower bounds of the costs of the edges, and which of them are the costs."""
        prices, space = self.prices, self.prices.space
        ids = np.flatnonzero(self._to_goal[:-1] < slack)
        ids = ids[ids != u]
        self._work.spend(len(ids) + STEP_WORK)
        if u == len(space):
            ids, low = self._first_edges(ids)
            return ids, low, np.zeros(len(ids), dtype=np.bool_)
        legal, slices, permutes = self._legal(u, ids)
        ids, slices, permutes = ids[legal], slices[legal], permutes[legal]
        fixed = prices.fixed_bytes(np.full(len(ids), u), ids)
        fit = prices.fits(fixed)
        ids, slices, permutes, fixed = ids[fit], slices[fit], permutes[fit], fixed[fit]
        levels, before = len(prices.request.topology.levels), self._closed.work
        self._work.spend(levels * space.volumes.shape[1] * len(ids))
        low, known = np.ones(len(ids), dtype=np.int64), slices.copy()
        ask = ~slices & (space.mesh_of[ids] == space.mesh_of[u])
        low[ask], known[ask] = self._closed.many(u, ids[ask], permutes[ask], fixed[ask])
        low[~(ask | slices)] = 0
        self._work.spend((self._closed.work - before) // 2)
        return ids, low, known

    def _first_edges(self, ids: Ints) -> tuple[Ints, Ints]:
        """The same out of a source with pending axes."""
        prices, u = self.prices, len(self.prices.space)
        ids = ids[self._legal_first(ids)]
        fixed = prices.fixed_bytes(np.full(len(ids), u), ids)
        fit = prices.fits(fixed)
        ids, fixed = ids[fit], fixed[fit]
        # From there to the plain source is an all_reduce, which costs less than this bound.
        lack, messages = prices.lacks_from(u, ids)
        lack = np.where((ids == prices.plain)[:, None], 0, lack)
        messages = np.where((ids == prices.plain)[:, None], 0, messages)
        return ids, prices.at_least(np.full(len(ids), u), ids, lack, messages, fixed)

    def _legal(self, u: int, ids: Ints) -> tuple[Bools, Bools, Bools]:
        """Which types one step leads to; of these which are slices, and which permutes."""
        space = self.prices.space
        same_mesh = space.mesh_of[ids] == space.mesh_of[u]
        slices = same_mesh.copy()
        gathers = same_mesh.copy()
        same_shape = np.ones(len(ids), dtype=np.bool_)
        for i in range(space.n_dims):
            c = int(space.rows[u, i])
            others = space.rows[ids, i]
            prefix = space.table.nested_prefix(i)
            slices &= prefix[c][others]
            gathers &= prefix[:, c][others]
            same_shape &= space.table.same_tiles(i, c)[others]
        moves = self._classes[ids] == self._classes[u]
        permute = self.permute and self._permutes
        permutes = same_shape if permute else same_shape & ~self._one_mesh(u, ids)
        legal = slices | gathers | moves | permutes
        if len(space.like) > 1:
            legal |= self._same_type(u, ids)
        # What could be either is a permute, if these are allowed at all.
        return legal, slices, same_shape & ~gathers if self.permute else permutes

    def _one_mesh(self, u: int, ids: Ints) -> Bools:
        """Types on the same mesh as u, be it cut into other factors."""
        space = self.prices.space
        number = np.array(
            [space.like.index(next(t for t in space.like if t.mesh == s.mesh)) for s in space.like]
        )
        return number[space.mesh_of[ids]] == number[space.mesh_of[u]]

    def _same_type(self, u: int, ids: Ints) -> Bools:
        """Other nodes for the type u itself, where one mesh is cut into two sets of factors."""
        space = self.prices.space
        other = self._one_mesh(u, ids) & (space.mesh_of[ids] != space.mesh_of[u])
        other &= space.tile_elems[ids] == space.tile_elems[u]
        here = space.type(u)
        for at in np.flatnonzero(other):
            other[at] = space.type(int(ids[at])) == here
        return other

    def _legal_first(self, ids: Ints) -> Bools:
        """slice by idle axes, then reduce_scatter of all resolved axes; or all_reduce."""
        space, plain = self.prices.space, self.prices.plain
        legal = space.mesh_of[ids] == space.mesh_of[plain]
        for i in range(space.n_dims):
            legal &= space.table.nested_prefix(i)[int(space.rows[plain, i])][space.rows[ids, i]]
        for at in np.flatnonzero(legal):
            parts = space.factors[int(space.mesh_of[ids[at]])]
            late = [
                [self._is_resolved(parts[f]) for f in space.chain(c)] for c in space.rows[ids[at]]
            ]
            wanted = sum(self._is_resolved(part) for part in parts)
            found = sum(sum(flags) for flags in late)
            legal[at] = found == wanted and all(flags == sorted(flags) for flags in late)
        return legal | (ids == plain)

    def _route(self, u: int, v: int) -> Path:
        if (u, v) not in self._names:
            before, after = self.prices.type(u), self.prices.space.type(v)
            if u == len(self.prices.space):
                self._names[u, v] = self._first_route(before, after)
            elif before == after:
                self._names[u, v] = ()
            else:
                named = name_step(before, after, 64, self.permute)
                if named is None and before.mesh != after.mesh:
                    named = AllPermute(after)
                assert named is not None, f"{before} -> {after} is no named collective"
                self._names[u, v] = ((named, after),)
        return self._names[u, v]

    def _first_route(self, source: ArrayType, after: ArrayType) -> Path:
        """Out of the source with pending axes."""
        prices, space = self.prices, self.prices.space
        if after == space.type(prices.plain):
            return ((AllReduce(prices.resolved), after),)
        last = (ReduceScatter(after), after)
        parts = space.factors[0]
        begun = [len(space.chain(c)) for c in space.rows[prices.plain]]
        early = tuple(
            (parts[f], dim)
            for dim, c in enumerate(space.rows[space.find(after)])
            for f in space.chain(c)[begun[dim] :]
            if not self._is_resolved(parts[f])
        )
        if not early:
            return (last,)
        sliced = source.with_dims(
            (*dim, *(part for part, at in early if at == i)) for i, dim in enumerate(source.dims)
        )
        return ((Slice(early), sliced), last)

    def _is_resolved(self, part: SubAxis) -> bool:
        return any(part.inside(whole) for whole in self.prices.resolved)
