"""The best route of named collectives alone: shortest path over all types of the space."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.tiles import Ints
from redist.plan.steps import AllPermute, AllReduce, ReduceScatter, Slice
from redist.synth.astar import shortest_path
from redist.synth.axis_moves import move_classes
from redist.synth.chains import Bools
from redist.synth.named_steps import name_step
from redist.synth.objective_costs import Prices
from redist.synth.plan_figures import Path


@dataclass(slots=True, eq=False)
class CollectiveSearch:
    """Steps that slice, all_gather, all_to_all or all_permute do alone; no exchange."""

    prices: Prices
    permute: bool
    _classes: Ints | None = None
    _routes: dict[tuple[int, int], Path] = field(default_factory=dict)

    def run(self, below: int) -> Path | None:
        """The cheapest route, None if none costs less than ``below``."""
        prices = self.prices
        every = np.arange(len(prices.space), dtype=np.int64)
        found = shortest_path(
            prices.start,
            prices.goal,
            np.append(prices.floor_to(every, prices.goal), 0),
            lambda u: self._edges(u, every),
            self._exact,
            below,
        )
        if found is None:
            return None
        nodes = found[1]
        return tuple(hop for u, v in itertools.pairwise(nodes) for hop in self._route(u, v))

    def _exact(self, u: int, v: int) -> int:
        prices = self.prices
        if prices.request.objective == "bytes" and u != len(prices.space):
            ends = np.array([u]), np.array([v])
            return int(prices.at_least(*ends, *prices.lacks_from(u, ends[1]), ends[0])[0])
        return prices.exact(u, v, self._route(u, v))

    def _edges(self, u: int, every: Ints) -> tuple[Ints, Ints]:
        """Neighbours of u and lower bounds of the costs of the edges."""
        prices = self.prices
        ids = every[every != u]
        ids = ids[self._legal(u, ids)]
        fixed = prices.fixed_bytes(np.full(len(ids), u), ids)
        fit = prices.fits(fixed)
        ids, fixed = ids[fit], fixed[fit]
        lack, messages = prices.lacks_from(u, ids)
        if u == len(prices.space):
            # From there to the plain source is an all_reduce, which costs less than this bound.
            lack = np.where((ids == prices.plain)[:, None], 0, lack)
            messages = np.where((ids == prices.plain)[:, None], 0, messages)
        return ids, prices.at_least(np.full(len(ids), u), ids, lack, messages, fixed)

    def _legal(self, u: int, ids: Ints) -> Bools:
        space = self.prices.space
        if u == len(space):
            return self._legal_first(ids)
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
        moves = self._move_classes()[ids] == self._move_classes()[u]
        permutes = same_shape if self.permute else same_shape & ~self._one_mesh(u, ids)
        return slices | gathers | moves | permutes | self._same_type(u, ids)

    def _move_classes(self) -> Ints:
        if self._classes is None:
            self._classes = move_classes(self.prices.space)
        return self._classes

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
        if (u, v) not in self._routes:
            before, after = self.prices.type(u), self.prices.space.type(v)
            if u == len(self.prices.space):
                self._routes[u, v] = self._first_route(before, after)
            elif before == after:
                self._routes[u, v] = ()
            else:
                named = name_step(before, after, 64, self.permute)
                if named is None and before.mesh != after.mesh:
                    named = AllPermute(after)
                assert named is not None, f"{before} -> {after} is no named collective"
                self._routes[u, v] = ((named, after),)
        return self._routes[u, v]

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
