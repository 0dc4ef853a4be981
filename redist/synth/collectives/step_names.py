"""Steps between the types of a search over named collectives, by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.tiles import Ints
from redist.plan.steps import AllPermute, AllReduce, ReduceScatter, Slice
from redist.synth.chains import Bools
from redist.synth.named_steps import name_step
from redist.synth.objective_costs import Prices
from redist.synth.plan_figures import Path


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
                assert named is not None, f"{before} -> {after} is no named collective"
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
