"""Steps that named collectives do alone, as edges between types: which there are, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations, pairwise

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, merge_parts
from redist.layout.tiles import Ints
from redist.plan.steps import AllPermute, AllReduce, ReduceScatter, Slice
from redist.synth.chains import Bools
from redist.synth.collectives.graph import Budget
from redist.synth.collectives.narrowing import Narrowing
from redist.synth.collectives.prices import CollectivePrices
from redist.synth.named_steps import name_step
from redist.synth.objective_costs import Prices
from redist.synth.plan_figures import Path
from redist.synth.type_space import TypeSpace

# Which types an all_to_all joins: those that moves of minor-most axes lead to.


def move_classes(space: TypeSpace, blocks: bool) -> Ints:
    """A number for every type; equal where minor-end moves lead from one to the other.

    Unless ``blocks``, each of them moves one axis.
    On the way they may pass types that are not in the space: only the net effect happens.
    """
    label = np.arange(len(space.every.chains), dtype=np.int64)
    pairs = _block_moves(space, blocks)
    while True:
        new = label.copy()
        for here, there in pairs:
            # No two types lead to the same one by the same move.
            new[there] = np.minimum(new[there], new[here])
            new[here] = np.minimum(new[here], new[there])
        new = new[new]
        if bool(np.all(new == label)):
            return label[space.kept_rows]
        label = new


def _block_moves(space: TypeSpace, blocks: bool) -> list[tuple[Ints, Ints]]:
    """Pairs of types that one move of a block of minor-most factors joins, tiles nesting all the way.

    A chain is read as a number, a digit for each factor behind one for its mesh, so that a block moves by
    division and multiplication::

        chain (0, 2, 1) = 1 1 3 2      less its last two: 1 1      behind (3): 1 4 3 2
    """
    n_chains, n_dims = len(space.table), space.n_dims
    sizes = np.array([n_chains**i for i in reversed(range(n_dims))], dtype=np.int64)
    keys = space.every.chains @ sizes
    prefixes = [space.table.nested_prefix(i) for i in range(n_dims)]
    base = 2 + max(map(len, space.factors))
    codes = np.array([_read(mesh, chain, base) for mesh, chain in space.table.chains])
    chain_of = np.zeros(int(codes.max()) + 1, dtype=np.int64)
    chain_of[codes] = np.arange(n_chains)
    lengths = np.array([_movable(space, *chain, blocks) for chain in space.table.chains])
    pairs = []
    for n_factors in range(1, base - 1):
        shift = base**n_factors
        for i, j in combinations(range(n_dims), 2):
            rows = np.flatnonzero(lengths[space.every.chains[:, i]] >= n_factors)
            old, other = space.every.chains[rows, i], space.every.chains[rows, j]
            left = chain_of[codes // shift][old]
            right = chain_of[codes[other] * shift + (codes % shift)[old]]
            nested = prefixes[i][left, old] & prefixes[j][other, right]
            key = keys[rows] + (left - old) * sizes[i] + (right - other) * sizes[j]
            at = np.minimum(np.searchsorted(keys, key[nested]), len(keys) - 1)
            found = keys[at] == key[nested]
            pairs.append((rows[nested][found], at[found]))
    return pairs


def _movable(space: TypeSpace, mesh: int, chain: tuple[int, ...], blocks: bool) -> int:
    """How many factors at its minor end can move together, and any fewer as well."""
    n = len(chain)
    parts = [space.factors[mesh][factor] for factor in chain]
    return n if blocks else max(k for k in range(n + 1) if len(merge_parts(parts[n - k :])) <= 1)


def _read(mesh: int, chain: tuple[int, ...], base: int) -> int:
    number = mesh + 1
    for factor in chain:
        number = number * base + factor + 1
    return number


# Steps between the types of a search over named collectives, by name.


@dataclass(slots=True, eq=False)
class CollectiveRoutes:
    """Names of steps, each found once; ``permute`` says whether an all_permute may be one."""

    prices: Prices
    permute: bool
    _names: dict[tuple[int, int], Path] = field(default_factory=dict)

    def along(self, nodes: tuple[int, ...]) -> Path:
        """The steps along some nodes."""
        return tuple(hop for u, v in pairwise(nodes) for hop in self.between(u, v))

    def between(self, u: int, v: int) -> Path:
        """The step from u to v; two, if a slice precedes a reduction; none, if they are one type."""
        if (u, v) not in self._names:
            before, after = self.prices.type(u), self.prices.space.type(v)
            if u == len(self.prices.space):
                self._names[u, v] = self._first_route(before, after)
            elif before == after:
                self._names[u, v] = ()
            else:
                parts = self.prices.space.factors[int(self.prices.space.mesh_of[u])]
                named = name_step(before, after, 64, self.permute, parts)
                if named is None and before.mesh != after.mesh:
                    named = AllPermute(after)
                assert named is not None, f"{before} -> {after} is not a named collective"
                self._names[u, v] = ((named, after),)
        return self._names[u, v]

    def legal_first(self, ids: Ints) -> Bools:
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


MANY_TYPES, MANY_NEIGHBOURS = 12_500, 3_000
"""Of more types that a route may pass, or that a step leads to, only those are looked at more closely that
come up."""
REMEMBERED_TYPES = 20_000
"""Prices are remembered while there are not more types."""
STEP_WORK, TYPES_PER_WORK = 2_500, 6
"""What every type counts whose neighbours are looked at, and how many that may be these count one more."""
BATCH_WORK = 8_000
"""What every batch of these counts that is priced."""
LOOK_WORK, RANK_WORK = 2, 4
"""For every level of the topology and every rank: what a type counts that is looked at, and a step that is
priced."""
EXACT_WORK = 15_000
"""What a step counts whose pieces are listed one by one."""


@dataclass(slots=True, eq=False)
class CollectiveEdges:
    """The graph of a search: slice, all_gather, all_to_all and all_permute; no exchange.

    Unless ``permutes``, no edge is an all_permute alone.
    """

    space_prices: Prices
    permute: bool
    kept: tuple[SubAxis, ...]
    routes: CollectiveRoutes = field(init=False)
    narrowing: Narrowing = field(init=False)
    alive: Ints = field(init=False)
    permutes: bool = True
    work: Budget = field(default_factory=lambda: Budget(0))
    _closed: CollectivePrices = field(init=False)
    _classes: Ints = field(init=False)
    _lacks: Ints = field(init=False)
    _priced: dict[int, tuple[Ints, Bools]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        prices = self.space_prices
        self.routes = CollectiveRoutes(prices, self.permute)
        self._closed = CollectivePrices.of(prices, self.kept)
        self._classes = move_classes(prices.space, self.permute)
        blocks = self._closed.told_apart()
        self.narrowing = Narrowing(prices, blocks, self._classes, self.permute)
        self._lacks = np.full((2, len(prices.space) + 1), -1, dtype=np.int64)
        self._lacks[:, -1] = 0
        self.alive = np.arange(len(prices.space), dtype=np.int64)

    @property
    def to_goal(self) -> Ints:
        """What no way from each type to the goal costs less than, if it is part of a route that may do."""
        return self.narrowing.to_goal

    @property
    def patterns(self) -> Ints:
        """The pattern of every type."""
        return self.narrowing.number

    def look_at(self, ids: Ints) -> Ints:
        """Lower bounds to the goal from some types, raised by what ranks and blocks lack there."""
        new = ids[self._lacks[0, ids] < 0]
        if len(new):
            prices, ends = self.space_prices, (self.space_prices.start, self.space_prices.goal)
            far = self._closed.far_floor(new, prices.goal)
            self._lacks[0, new] = prices.floor_to(new, prices.goal, far)
            if not prices.resolved:
                self._lacks[1, new] = self._closed.floor_from(ends[0], new)
            self.work.spend(LOOK_WORK * self._cells * len(new))
        narrowing = self.narrowing
        narrowing.to_goal[ids] = np.maximum(narrowing.to_goal[ids], self._lacks[0, ids])
        narrowing.from_start[ids] = np.maximum(narrowing.from_start[ids], self._lacks[1, ids])
        return narrowing.to_goal[ids]

    def narrow(self, below: int) -> bool:
        """Leave out types whose pattern no route has which costs less; whether any is left."""
        self.narrowing.begin(below, self.work)
        self.alive = self.narrowing.alive()
        return len(self.alive) > 0

    def refine(self, below: int) -> bool:
        """Leave out more of them, telling more apart; whether any is left."""
        if len(self.alive) <= MANY_TYPES:
            self.look_at(self.alive)
            self.narrowing.drop(self.alive, below)
        self.narrowing.refine(below, self.work)
        self.alive = self.narrowing.alive()
        return len(self.alive) > 0

    def bounds(self, u: int, room: Ints, left: int) -> tuple[Ints, Ints]:
        """Neighbours of u that steps may lead to within the room there is, and what these cost at least."""
        prices, space = self.space_prices, self.space_prices.space
        room = room[:-1]
        self.work.spend(STEP_WORK + len(self.alive) // TYPES_PER_WORK)
        if u == len(space):
            ids = self.alive[room[self.alive] > 0]
            ids = ids[self.routes.legal_first(ids)]
            ids = ids[prices.fits(prices.fixed_bytes(np.full(len(ids), u), ids))]
            return ids, self._first_floors(ids)
        ids = self.alive
        floors = self.narrowing.floors[self.patterns[u]][self.patterns[ids]]
        keep = (floors < room[ids]) & (ids != u)
        ids, floors = ids[keep], floors[keep]
        legal, _, _ = self._legal(u, ids)
        if np.count_nonzero(legal) <= MANY_NEIGHBOURS:
            legal[legal] = self.look_at(ids[legal]) + floors[legal] < left
        ids, floors = ids[legal], floors[legal]
        fit = prices.fits(prices.fixed_bytes(np.full(len(ids), u), ids))
        fit = fit[floors[fit] < np.minimum(room[ids[fit]], left - self.to_goal[ids[fit]])]
        return ids[fit], floors[fit]

    def prices(self, u: int, ids: Ints) -> tuple[Ints, Bools]:
        """Costs of the steps u -> ids, or lower bounds of them; and which are the costs."""
        n = len(self.space_prices.space)
        if n > REMEMBERED_TYPES or u == n:
            return self._prices(u, ids)
        if u not in self._priced:
            self._priced[u] = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.bool_)
        low, known = self._priced[u]
        new = ids[low[ids] < 0]
        if len(new):
            low[new], known[new] = self._prices(u, new)
        return low[ids], known[ids]

    def _prices(self, u: int, ids: Ints) -> tuple[Ints, Bools]:
        prices, space = self.space_prices, self.space_prices.space
        if u == len(space):
            return self._first_floors(ids), np.zeros(len(ids), dtype=np.bool_)
        _, slices, permutes = self._legal(u, ids)
        fixed = prices.fixed_bytes(np.full(len(ids), u), ids)
        low, known = np.ones(len(ids), dtype=np.int64), slices.copy()
        ask = ~slices & (space.mesh_of[ids] == space.mesh_of[u])
        if ask.any():
            low[ask], known[ask] = self._closed.many(u, ids[ask], permutes[ask], fixed[ask])
        low[~(ask | slices)] = 0
        self.work.spend(BATCH_WORK + RANK_WORK * self._cells * int(np.count_nonzero(ask)))
        return low, known

    def exact(self, u: int, v: int) -> int:
        """The cost of a step, its pieces listed one by one."""
        self.work.spend(EXACT_WORK)
        return self.space_prices.exact(u, v, self.routes.between(u, v))

    @property
    def _cells(self) -> int:
        """Ranks times levels."""
        prices = self.space_prices
        return len(prices.space.table.ranks) * len(prices.request.topology.levels)

    def _first_floors(self, ids: Ints) -> Ints:
        """No step out of a source with pending axes costs less."""
        prices, u = self.space_prices, len(self.space_prices.space)
        fixed = prices.fixed_bytes(np.full(len(ids), u), ids)
        # From there to the plain source is an all_reduce, which costs less than this bound.
        lack, messages = prices.lacks_from(u, ids)
        lack = np.where((ids == prices.plain)[:, None], 0, lack)
        messages = np.where((ids == prices.plain)[:, None], 0, messages)
        return prices.at_least(np.full(len(ids), u), ids, lack, messages, fixed)

    def _legal(self, u: int, ids: Ints) -> tuple[Bools, Bools, Bools]:
        """Which types one step leads to; of these which are slices, and which permutes."""
        space = self.space_prices.space
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
        permute = self.permute and self.permutes
        permutes = same_shape if permute else same_shape & ~self._one_mesh(u, ids)
        legal = slices | gathers | moves | permutes
        if len(space.like) > 1:
            legal |= self._same_type(u, ids)
        # What could be either is a permute, if these are allowed at all.
        return legal, slices, same_shape & ~gathers if self.permute else permutes

    def _one_mesh(self, u: int, ids: Ints) -> Bools:
        """Types on the same mesh as u, be it cut into other factors."""
        space = self.space_prices.space
        number = np.array(
            [space.like.index(next(t for t in space.like if t.mesh == s.mesh)) for s in space.like]
        )
        return number[space.mesh_of[ids]] == number[space.mesh_of[u]]

    def _same_type(self, u: int, ids: Ints) -> Bools:
        """Other nodes for the type u itself, where one mesh is cut into two sets of factors."""
        space = self.space_prices.space
        other = self._one_mesh(u, ids) & (space.mesh_of[ids] != space.mesh_of[u])
        other &= space.tile_elems[ids] == space.tile_elems[u]
        here = space.type(u)
        for at in np.flatnonzero(other):
            other[at] = space.type(int(ids[at])) == here
        return other
