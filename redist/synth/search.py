"""Search among the types of a space for the cheapest route."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.tiles import Ints
from redist.plan.memory import default_staging_bytes, holder_classes
from redist.plan.request import Request
from redist.plan.steps import AllPermute, AllReduce, ReduceScatter, Slice
from redist.synth.assemble import Pricer, Route
from redist.synth.astar import shortest_path
from redist.synth.naming import general_step, name_step
from redist.synth.space import Bools, Space

MESSAGE_BITS = 20
"""Under objective ``bytes``, elements count first; messages break ties in the low bits."""


@dataclass(slots=True, eq=False)
class Search:
    """One search: from the source (with ``resolved`` axes pending, if any) to ``goal``.

    Nodes are the types of the space; one more node stands for a source with pending axes.
    """

    request: Request
    space: Space
    pricer: Pricer
    resolved: tuple[SubAxis, ...]
    start_type: ArrayType
    goal: int
    _routes: dict[tuple[int, int], Route] = field(default_factory=dict)

    @property
    def plain(self) -> int:
        """The source without its pending axes."""
        return self.space.find(self.start_type)

    @property
    def start(self) -> int:
        """The node where the search begins."""
        return len(self.space) if self.resolved else self.plain

    def run(self, below: int) -> Route | None:
        """The cheapest route, None if none costs less than ``below``."""
        to_goal = self._to_goal()
        viable = np.flatnonzero(self._from_start() + to_goal[: len(self.space)] < below)
        found = shortest_path(
            self.start,
            self.goal,
            to_goal,
            lambda u: self._edges(u, viable),
            self._exact,
            below,
        )
        if found is None:
            return None
        nodes = found[1]
        return tuple(
            hop for u, v in zip(nodes, nodes[1:], strict=False) for hop in self._route(u, v)
        )

    # Costs in bulk -------------------------------------------------------------------------

    def _lacks(self, u: int, ids: Ints) -> tuple[Ints, Ints]:
        """Elements to receive and messages, for each rank and each edge u -> ids."""
        space = self.space
        g = 1
        if u == len(space):
            u = self.plain
            for part in self.resolved:
                g *= part.size
        both = space.overlap(u, ids)
        lack = g * space.volumes[ids] - both
        messages = np.where(lack > 0, g * space.pieces(u, ids) - (both > 0), 0)
        return lack, messages

    def _from_start(self) -> Ints:
        ids = np.arange(len(self.space), dtype=np.int64)
        lack, messages = self._lacks(self.start, ids)
        return self._floor(lack, messages + 1)

    def _to_goal(self) -> Ints:
        """At most the cost from every node to the goal; 0 for the extra node."""
        ids = np.arange(len(self.space), dtype=np.int64)
        both = self.space.overlap(self.goal, ids)
        lack = self.space.volumes[self.goal] - both
        floor = self._floor(lack, np.where(lack > 0, self.space.pieces_to(ids, self.goal), 0))
        return np.append(floor, 0)

    def _floor(self, lack: Ints, pieces: Ints) -> Ints:
        """No sequence of steps gets these elements out of so many tiles for less."""
        if self.request.objective == "bytes":
            return lack.sum(axis=1) << MESSAGE_BITS
        latency, byte_fs = self._cheapest_level()
        doublings = np.ceil(np.log2(np.maximum(pieces.max(axis=1), 1))).astype(np.int64)
        itemsize = self.request.source.dtype.itemsize
        return latency * doublings - (-lack.max(axis=1) * itemsize * byte_fs // 1000)

    def _cheapest_level(self) -> tuple[int, int]:
        levels = self.request.topology.levels
        return min(level.latency_ps for level in levels), min(level.byte_fs for level in levels)

    def _edges(self, u: int, viable: Ints) -> tuple[Ints, Ints]:
        """Neighbours of u and lower bounds of the costs of the edges."""
        ids = viable[viable != u]
        if self.request.strategy != "auto":
            ids = ids[self._legal(u, ids)]
        fixed = self._fixed_bytes(u, ids)
        limit = self.request.limit_bytes
        if limit is not None:
            ids, fixed = ids[fixed <= limit], fixed[fixed <= limit]
        lack, messages = self._lacks(u, ids)
        if u == len(self.space):
            # The extra node reaches the plain source by all_reduce, which beats the general step.
            lack, messages = lack.copy(), messages.copy()
            at = np.flatnonzero(ids == self.plain)
            lack[at] = 0
            messages[at] = 0
        return ids, self._price(u, lack, messages, fixed)

    def _price(self, u: int, lack: Ints, messages: Ints, fixed: Ints) -> Ints:
        if self.request.objective == "bytes":
            return (lack.sum(axis=1) << MESSAGE_BITS) + messages.max(axis=1) + 1
        latency, byte_fs = self._cheapest_level()
        itemsize = self.request.source.dtype.itemsize
        senders = self.space.senders(self.plain if u == len(self.space) else u)
        worst = lack.max(axis=1)
        busiest = np.maximum(worst, -(-lack.sum(axis=1) // senders)) * itemsize
        many = np.maximum(messages.max(axis=1), -(-messages.sum(axis=1) // senders))
        budget = np.full(len(lack), default_staging_bytes(self.request.source, self.request.target))
        if self.request.limit_bytes is not None:
            budget = np.minimum(budget, self.request.limit_bytes - fixed)
        staging = np.minimum(2 * worst * itemsize, budget) // itemsize * itemsize
        rounds = np.where(staging > 0, -(-2 * busiest // np.maximum(staging, 1)), 1)
        extra = np.where(many > 0, np.maximum(rounds, 1) - 1, 0)
        return latency * (many + extra) - (-busiest * byte_fs // 1000) + 1

    def _fixed_bytes(self, u: int, ids: Ints) -> Ints:
        """Live bytes of each edge without staging, on the worst kind of rank."""
        request, space = self.request, self.space
        itemsize = request.source.dtype.itemsize
        from_start = u in (self.start, self.plain) and not (self.resolved and u == self.plain)
        one_set = request.source.mesh.ranks == request.target.mesh.ranks
        worst = np.zeros(len(ids), dtype=np.int64)
        node = self.plain if u == len(space) else u
        for kind in holder_classes(request.source.mesh, request.target.mesh):
            here = np.array(
                [
                    one_set or kind == "both" or (kind == "source") == (t.mesh == request.source.mesh)
                    for t in space.like
                ],
                dtype=np.int64,
            )
            live = space.tile_elems[ids] * here[space.mesh_of[ids]]
            live += space.tile_elems[node] * here[space.mesh_of[node]]
            if not request.donate and not from_start and kind != "target":
                live += space.tile_elems[self.plain]
            worst = np.maximum(worst, live)
        return worst * itemsize

    # Exact costs ---------------------------------------------------------------------------

    def _exact(self, u: int, v: int) -> int:
        route = self._route(u, v)
        before = self._type(u)
        cost = 0
        for action, after in route:
            if self.request.objective == "bytes":
                traffic = self.pricer.traffic(action, before, after)
                cost += (traffic.received_elems << MESSAGE_BITS) + traffic.messages_range[1] + 1
            else:
                cost += self.pricer.hop_time_ps(action, before, after) + 1
            before = after
        return cost

    def _type(self, u: int) -> ArrayType:
        return self.request.source if u == len(self.space) else self.space.type(u)

    def _route(self, u: int, v: int) -> Route:
        if (u, v) not in self._routes:
            self._routes[u, v] = self._make_route(u, v)
        return self._routes[u, v]

    def _make_route(self, u: int, v: int) -> Route:
        before, after = self._type(u), self.space.type(v)
        if u == len(self.space):
            return self._first_route(after)
        free = self.request.strategy == "auto"
        named = name_step(
            before, after, 4 if free else 64, self.request.strategy != "no_permute"
        )
        general = general_step(before, after)
        if named is None:
            assert free or before.mesh != after.mesh, f"{before} -> {after} has no name"
            general = general if free else AllPermute(after)
            return ((general, after),)
        if free and len(self.request.topology.levels) > 1:
            if self.pricer.hop_time_ps(general, before, after) < self.pricer.hop_time_ps(
                named, before, after
            ):
                return ((general, after),)
        return ((named, after),)

    def _first_route(self, after: ArrayType) -> Route:
        """Out of the source with pending axes."""
        source = self.request.source
        if after == self.start_type:
            return ((AllReduce(self.resolved), after),)
        last = (ReduceScatter(after), after)
        if self.request.strategy == "auto":
            return (last,)
        row = self.space.rows[self.space.find(after)]
        parts = self.space.factors[0]
        begun = [self.space.chains[c][1] for c in self.space.rows[self.plain]]
        early = tuple(
            (parts[f], dim)
            for dim, c in enumerate(row)
            for f in self.space.chains[c][1][len(begun[dim]) :]
            if not self._is_resolved(parts[f])
        )
        if not early:
            return (last,)
        sliced = source.with_dims(
            (*dim, *(part for part, at in early if at == i)) for i, dim in enumerate(source.dims)
        )
        return ((Slice(early), sliced), last)

    def _is_resolved(self, part: SubAxis) -> bool:
        return any(
            part.name == whole.name and whole.pre <= part.pre and part.end <= whole.end
            for whole in self.resolved
        )

    # Which edges are named collectives ------------------------------------------------------

    def _legal(self, u: int, ids: Ints) -> Bools:
        space = self.space
        if u == len(space):
            return self._legal_first(ids)
        same_mesh = space.mesh_of[ids] == space.mesh_of[u]
        slices = same_mesh.copy()
        gathers = same_mesh.copy()
        same_shape = np.ones(len(ids), dtype=np.bool_)
        for i, n in enumerate(space.shape):
            c = int(space.rows[u, i])
            others = space.rows[ids, i]
            prefix = space.nested_prefix(i)
            slices &= prefix[c][others]
            gathers &= prefix[:, c][others]
            tile = -(-n // space.cuts)
            same_shape &= tile[others] == tile[c]
        moves = space.move_classes()[ids] == space.move_classes()[u]
        if self.request.strategy == "no_permute":
            return slices | gathers | moves | (same_shape & ~same_mesh)
        return slices | gathers | moves | same_shape

    def _legal_first(self, ids: Ints) -> Bools:
        """slice by idle axes, then reduce_scatter of all resolved axes; or all_reduce."""
        space = self.space
        legal = np.ones(len(ids), dtype=np.bool_)
        for i in range(len(space.shape)):
            legal &= space.nested_prefix(i)[int(space.rows[self.plain, i])][space.rows[ids, i]]
        for at in np.flatnonzero(legal):
            mesh = int(space.mesh_of[ids[at]])
            late = [
                [self._is_resolved(space.factors[mesh][f]) for f in space.chains[c][1]]
                for c in space.rows[ids[at]]
            ]
            found = sum(sum(flags) for flags in late)
            wanted = sum(self._is_resolved(part) for part in space.factors[mesh])
            legal[at] = found == wanted and all(flags == sorted(flags) for flags in late)
        return legal | (ids == self.plain)
