"""Prices of steps between the types of a space: lower bounds in bulk, exact ones one at a time."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.tiles import Ints
from redist.plan.memory import default_staging_bytes, holder_classes
from redist.plan.request import Request
from redist.synth.plan_figures import Path, Pricer
from redist.synth.type_space import TypeSpace
from redist.text.units import ceil_div

MORE_THAN_ANY_COST = 2**62
"""What a route costs that there is not; costs of routes that exist stay below it, and in 64 bits."""
MESSAGE_BITS = 20
"""Under objective ``bytes``, elements count first; messages break ties in the low bits."""


def route_cost(request: Request, pricer: Pricer, before: ArrayType, route: Path) -> int:
    """What the objective minimises, as one number; a step more costs at least one unit more."""
    cost = 0
    for action, after in route:
        if request.objective == "bytes":
            traffic = pricer.traffic(action, before, after)
            cost += (traffic.received_elems << MESSAGE_BITS) + traffic.messages_range[1] + 1
        else:
            cost += pricer.hop_time_ps(action, before, after) + 1
        before = after
    return cost


@dataclass(slots=True, eq=False)
class Prices:
    """One search: from the source (with ``resolved`` axes pending, if any) to ``goal``.

    Nodes are the types of the space; one more node, ``len(space)``, stands for a source with
    pending axes; ``plain`` is the source without them.
    """

    request: Request
    space: TypeSpace
    pricer: Pricer
    resolved: tuple[SubAxis, ...]
    plain: int
    goal: int

    @property
    def start(self) -> int:
        """The node where the search begins."""
        return len(self.space) if self.resolved else self.plain

    def type(self, u: int) -> ArrayType:
        """The type of a node."""
        return self.request.source if u == len(self.space) else self.space.type(u)

    def lacks_from(self, u: int, ids: Ints) -> tuple[Ints, Ints]:
        """Elements to receive and messages, for each rank and each edge u -> ids."""
        space, g = self.space, 1
        if u == len(space):
            u, g = self.plain, math.prod(part.size for part in self.resolved)
        both = space.overlap(u, ids)
        lack = g * space.volumes(ids) - both
        messages = np.where(lack > 0, g * space.pieces(u, ids) - (both > 0), 0)
        return lack, messages

    def lacks_to(self, ids: Ints, v: int) -> tuple[Ints, Ints]:
        """The same for each edge ids -> v."""
        both = self.space.overlap(v, ids)
        lack = self.space.volumes(np.array([v])) - both
        messages = np.where(lack > 0, self.space.pieces_to(ids, v) - (both > 0), 0)
        return lack, messages

    def at_least(self, u: Ints, v: Ints, lack: Ints, messages: Ints, fixed_bytes: Ints) -> Ints:
        """No step u -> v that moves this costs less; exact but for senders that share unevenly.

        Ranks that hold something send all there is to send, and a tile with c holders now and d
        after the step is asked for at least d - c times; its holders share that.
        """
        if self.request.objective == "bytes":
            return (lack.sum(axis=1) << MESSAGE_BITS) + messages.max(axis=1) + 1
        itemsize = self.request.source.dtype.itemsize
        u = np.where(u == len(self.space), self.plain, u)
        volumes, copies = self.space.volumes(u), self.space.copies()
        senders = np.maximum(1, np.count_nonzero(volumes, axis=1))
        now, more = copies[u], np.maximum(copies[v] - copies[u], 0)
        worst = lack.max(axis=1)
        busiest = np.maximum(worst, ceil_div(lack.sum(axis=1), senders))
        busiest = np.maximum(busiest, ceil_div(volumes.max(axis=1) * more, now)) * itemsize
        many = np.maximum(messages.max(axis=1), ceil_div(messages.sum(axis=1), senders))
        many = np.maximum(many, ceil_div(more, now))
        extra = self.extra_rounds(worst * itemsize, busiest, fixed_bytes)
        many = many + np.where(many > 0, extra, 0)
        return self.request.topology.cheapest.time_ps(many, busiest) + 1 + self._far(u, v)

    def extra_rounds(self, worst: Ints, busiest: Ints, fixed_bytes: Ints) -> Ints | int:
        """Rounds that a limit adds, in bytes of the busiest receiver and the busiest rank."""
        request = self.request
        if request.limit_bytes is None:
            return 0
        itemsize = request.source.dtype.itemsize
        usual = default_staging_bytes(request.source, request.target)
        rounds = []
        for budget in (np.minimum(usual, request.limit_bytes - fixed_bytes), usual):
            staging = np.minimum(2 * worst, budget) // itemsize * itemsize
            filled = ceil_div(2 * busiest, np.maximum(staging, 1))
            rounds.append(np.where(staging > 0, np.maximum(filled, 1), 1))
        return np.maximum(rounds[0] - rounds[1], 0)

    def _far(self, u: Ints, v: Ints) -> Ints:
        """What must be added because blocks of the topology lack elements under u that v gives them.

        They enter the block over a slower level at least once, one rank taking its share or more. If
        the ranks of a block share a link of the last level, all of them pass through it; of that time
        only the share counts that the busiest rank's bytes are not counted for already.
        """
        levels = self.request.topology.levels
        extra = np.zeros(len(u), dtype=np.int64)
        for near, far in itertools.pairwise(levels):
            assert near.size is not None
            before, after = (self.space.block_volumes(near.size, ids) for ids in (u, v))
            enter = np.maximum(after - before, 0)
            share = ceil_div(enter, self.space.block_sizes(near.size)).max(axis=1)
            slower = max(0, far.byte_fs - near.byte_fs) * self.request.source.dtype.itemsize
            waits = max(0, far.latency_ps - near.latency_ps)
            longer = share * slower // 1000
            if far is levels[-1] and far.link_fs and far.byte_fs:
                itemsize = self.request.source.dtype.itemsize
                link = enter.max(axis=1) * itemsize * far.link_fs // 1000
                rest = max(0, far.byte_fs - near.byte_fs)
                longer = np.maximum(longer, link // far.byte_fs * rest)
            extra += longer + np.where(share > 0, waits, 0)
        return extra

    def floor_to(self, ids: Ints, v: int, far: Ints | int = 0) -> Ints:
        """No sequence of steps from ids to v costs less; obeys the triangle inequality.

        ``far`` is what has to be added at least because farther levels are slower, if that is known.
        """
        space = self.space
        lack, _ = self.lacks_to(ids, v)
        if self.request.objective == "bytes":
            return lack.sum(axis=1) << MESSAGE_BITS
        # What only the copies of one tile have, beyond what they may keep, leaves the one that sends most.
        held = space.volumes(ids).max(axis=1) // np.maximum(space.copies()[ids], 1)
        leaves = np.maximum(held - int(space.volumes(np.array([v])).max()), 0)
        worst = np.maximum(lack.max(axis=1), leaves) * self.request.source.dtype.itemsize
        # With m messages a step joins at most m + 1 tiles into one, and makes at most m + 1 holders
        # of one, be it of an element or of anything at all. Who lacks something gets a message.
        pieces = np.where(lack > 0, space.pieces_to(ids, v), 0).max(axis=1)
        waits = np.maximum(_doublings(pieces), worst > 0)
        both = np.append(ids, v)
        for count in (space.copies()[both], np.count_nonzero(space.volumes(both), axis=1)):
            waits = np.maximum(waits, _doublings(ceil_div(count[-1:], np.maximum(count[:-1], 1))))
        time = self.request.topology.cheapest.time_ps(waits, worst)
        return time + np.maximum(self._far(ids, np.full(len(ids), v)), far)

    def floor(self) -> int:
        """No sequence of steps from the source to the goal costs less, through whatever types."""
        if self.resolved:
            return 0
        return int(self.floor_to(np.array([self.plain], dtype=np.int64), self.goal)[0])

    def fixed_bytes(self, u: Ints, v: Ints) -> Ints:
        """Live bytes of each edge u -> v without staging, on the worst kind of rank."""
        request, space = self.request, self.space
        one_set = request.source.mesh.ranks == request.target.mesh.ranks
        starting = u == self.start
        node = np.where(u == len(space), self.plain, u)
        worst = np.zeros(len(v), dtype=np.int64)
        for kind in holder_classes(request.source.mesh, request.target.mesh):
            here = np.array(
                [
                    one_set
                    or kind == "both"
                    or (kind == "source") == (t.mesh == request.source.mesh)
                    for t in space.like
                ],
                dtype=np.int64,
            )
            live = space.tile_elems[v] * here[space.mesh_of[v]]
            live = live + space.tile_elems[node] * here[space.mesh_of[node]]
            if not request.donate and kind != "target":
                live = live + np.where(starting, 0, space.tile_elems[self.plain])
            worst = np.maximum(worst, live)
        return worst * request.source.dtype.itemsize

    def fits(self, fixed_bytes: Ints) -> Ints:
        """Rows whose live bytes stay within the limit."""
        limit = self.request.limit_bytes
        if limit is None:
            return np.arange(len(fixed_bytes), dtype=np.int64)
        return np.flatnonzero(fixed_bytes <= limit)

    def exact(self, u: int, v: int, route: Path) -> int:
        """The cost of a route from u to v."""
        return route_cost(self.request, self.pricer, self.type(u), route)


def _doublings(counts: Ints) -> Ints:
    """How often one must double to get there; in integers, so that all machines agree."""
    rest = np.maximum(counts, 1) - 1
    out = np.zeros_like(rest)
    while bool(np.any(rest > 0)):
        out += rest > 0
        rest >>= 1
    return out
