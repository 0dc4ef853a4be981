"""The best route through one middle type, with gathers of one factor at a time at the end."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from redist.errors import StepError
from redist.layout.array_type import ArrayType
from redist.layout.axes import prime_parts
from redist.layout.tiles import Ints
from redist.plan.rules import type_after
from redist.plan.steps import AllGather, AllReduce, Exchange, ReduceScatter
from redist.synth.named_steps import name_step
from redist.synth.objective_costs import MORE_THAN_ANY_COST, Prices
from redist.synth.plan_figures import Hop, Path
from redist.synth.type_space import TypeSpace


class Priced(IntEnum):
    """How much of a route has its exact price; the rest counts with lower bounds."""

    NOTHING = 0
    TAIL = 1
    FIRST_LEG = 2
    ALL = 3


class OpenRoute(NamedTuple):
    """start -> middle -> end -> gathers, waiting under a lower bound of its cost; the least is next."""

    bound: int
    priced: Priced
    middle: int
    end: int


@dataclass(slots=True, eq=False)
class MiddleSearch:
    """source -> any type -> goal, or goal with idle axes still cut -> gathers -> goal.

    Lower bounds of all routes come in bulk; they are priced exactly in that order until none left
    can be better, or ``most_prices`` of them have been.
    """

    prices: Prices
    most_prices: int | None = None
    _hops: dict[tuple[int, int], tuple[int, Hop]] = field(default_factory=dict)
    """Exact costs of steps between two types."""
    _tails: dict[int, tuple[int, Path]] = field(default_factory=dict)
    """Exact costs of the gathers from an end to the goal."""
    _floors: dict[int, int] = field(default_factory=dict)
    """Lower bounds of these."""
    _bounds: dict[int, int] = field(default_factory=dict)
    """Lower bounds of the first leg to a type."""

    def run(self, below: int) -> Path | None:
        """The cheapest route, None if none costs less than ``below``."""
        prices, start = self.prices, self.prices.start
        ends = self._ends()
        floors = prices.floor_to(np.array(ends, dtype=np.int64), prices.goal)
        self._floors = {end: int(floor) for end, floor in zip(ends, floors, strict=True)}
        queue: list[OpenRoute] = []
        for end in ends:
            alone = 0 if end == start else self._first_leg(end)
            if alone is not None and alone + self._floors[end] < below:
                queue.append(OpenRoute(alone + self._floors[end], Priced.NOTHING, end, end))
                self._bounds[end] = alone
        for route in sorted(queue)[:3]:
            # What a route without a middle costs bounds the search for one with.
            alone = self._leg(start, route.end) + self._tail(route.end)[0]
            below = min(below, alone + 1)
        first, ids = self._first_legs(below)
        for end in ends:
            bound, middles = self._second_legs(first, ids, end, self._floors[end], below)
            queue += [
                OpenRoute(c, Priced.NOTHING, v, end)
                for c, v in zip(bound.tolist(), middles.tolist(), strict=True)
            ]
        self._bounds |= {int(v): int(c) for v, c in zip(ids, first, strict=True)}
        return self._cheapest(queue, below)

    def _cheapest(self, queue: list[OpenRoute], below: int) -> Path | None:
        """Price what comes up: first the tail, then the first leg, then the second."""
        heapq.heapify(queue)
        start = self.prices.start
        while queue:
            if self.most_prices is not None and len(self._hops) > self.most_prices:
                queue = sorted(route for route in queue if route.priced is Priced.ALL)[:1]
                if not queue:
                    break
            bound, priced, middle, end = heapq.heappop(queue)
            match priced:
                case Priced.ALL:
                    return self._name_steps(self._route(middle, end))
                case Priced.NOTHING:
                    bound += self._tail(end)[0] - self._floors[end]
                case Priced.TAIL:
                    bound += self._leg(start, middle) - self._bounds[middle]
                case Priced.FIRST_LEG:
                    if middle != end:
                        exact = self._tail(end)[0] + self._leg(start, middle)
                        bound = max(bound, exact + self._hop(middle, end)[0])
            if bound < below:
                heapq.heappush(queue, OpenRoute(bound, Priced(priced + 1), middle, end))
        return None

    def _route(self, middle: int, end: int) -> Path:
        stops = (self.prices.start, middle, end)
        hops = (self._hop(u, v)[1] for u, v in pairwise(stops) if u != v)
        return (*hops, *self._tail(end)[1])

    def _ends(self) -> list[int]:
        """The goal, and the goal with some idle axes appended to one dim."""
        goal = self.prices.goal
        ends = [goal]
        if self.prices.request.objective == "time":
            ends += [v for v in _types_before_gather(self.prices.space, goal) if v != goal]
        return ends

    def _first_legs(self, below: int) -> tuple[Ints, Ints]:
        """Lower bounds of the first leg and the types it may lead to."""
        prices = self.prices
        every = np.arange(len(prices.space), dtype=np.int64)
        ids = every[(every != prices.start) & (every != prices.goal)]
        fixed = prices.fixed_bytes(np.full(len(ids), prices.start), ids)
        fit = prices.fits(fixed)
        ids, fixed = ids[fit], fixed[fit]
        lack, messages = prices.lacks_from(prices.start, ids)
        if prices.start == len(prices.space):
            lack = np.where((ids == prices.plain)[:, None], 0, lack)
            messages = np.where((ids == prices.plain)[:, None], 0, messages)
        first = prices.at_least(np.full(len(ids), prices.start), ids, lack, messages, fixed)
        viable = first + prices.floor_to(ids, prices.goal) < below
        return first[viable], ids[viable]

    def _first_leg(self, v: int) -> int | None:
        """Lower bound of the leg from the start to one type, None if it breaks the limit."""
        prices, node = self.prices, np.array([v], dtype=np.int64)
        start = np.array([prices.start])
        fixed = prices.fixed_bytes(start, node)
        if len(prices.fits(fixed)) == 0:
            return None
        lack, messages = prices.lacks_from(prices.start, node)
        return int(prices.at_least(start, node, lack, messages, fixed)[0])

    def _second_legs(
        self, first: Ints, ids: Ints, end: int, floor: int, below: int
    ) -> tuple[Ints, Ints]:
        """Lower bounds of the whole, and the middle types that stay below."""
        prices = self.prices
        first, ids = first[ids != end], ids[ids != end]
        quick = first + prices.floor_to(ids, end) + floor < below
        first, ids = first[quick], ids[quick]
        fixed = prices.fixed_bytes(ids, np.full(len(ids), end))
        fit = prices.fits(fixed)
        first, ids, fixed = first[fit], ids[fit], fixed[fit]
        lack, messages = prices.lacks_to(ids, end)
        ends = np.full(len(ids), end)
        total = first + prices.at_least(ids, ends, lack, messages, fixed) + floor
        return total[total < below], ids[total < below]

    def _leg(self, u: int, v: int) -> int:
        """Exact cost of a leg, 0 where it is left out."""
        return 0 if u == v else self._hop(u, v)[0]

    def _hop(self, u: int, v: int) -> tuple[int, Hop]:
        if (u, v) not in self._hops:
            after = self.prices.space.type(v)
            hop: Hop = (Exchange(after), after)
            if u == len(self.prices.space):
                general = v != self.prices.plain
                action = ReduceScatter(after) if general else AllReduce(self.prices.resolved)
                hop = (action, after)
            self._hops[u, v] = (self.prices.exact(u, v, (hop,)), hop)
        return self._hops[u, v]

    def _tail(self, end: int) -> tuple[int, Path]:
        """From a goal with idle axes still cut: gather them all at once or one factor at a time."""
        if end not in self._tails:
            best: tuple[int, Path] = (0, ())
            if end != self.prices.goal:
                goal = self.prices.space.type(self.prices.goal)
                routes = [_gathers(self.prices.space.type(end), goal, n) for n in (None, 1)]
                costs = [
                    (self._tail_cost(end, route), len(route), route) for route in routes if route
                ]
                cost, _, route = min(costs, key=lambda item: item[:2])
                best = (cost, route)
            self._tails[end] = best
        return self._tails[end]

    def _tail_cost(self, end: int, route: Path) -> int:
        """Cost of the gathers; out of reach where one breaks the limit."""
        limit = self.prices.request.limit_bytes
        before = self.prices.type(end)
        for _, after in route:
            if limit is not None and self.prices.pricer.fixed_bytes(before, after) > limit:
                return MORE_THAN_ANY_COST
            before = after
        return self.prices.exact(end, self.prices.goal, route)

    def _name_steps(self, route: Path) -> Path:
        """General steps under the name of a collective where that does the same for no more."""
        pricer = self.prices.pricer
        out: list[Hop] = []
        before = self.prices.request.source
        for action, after in route:
            named = name_step(before, after) if isinstance(action, Exchange) else None
            if named is not None:
                as_named = pricer.hop_time_ps(named, before, after)
                action = named if as_named <= pricer.hop_time_ps(action, before, after) else action
            out.append((action, after))
            before = after
        return tuple(out)


def _types_before_gather(space: TypeSpace, goal: int) -> Iterator[int]:
    """Types from which gathering the minor end of one dim leads to the goal."""
    number = int(space.mesh_of[goal])
    row = space.rows[goal]
    used = {f for c in row for f in space.chain(c)}
    idle = [f for f in range(len(space.factors[number])) if f not in used]
    known = {tuple(r): v for v, r in enumerate(space.rows.tolist()) if space.mesh_of[v] == number}
    for k in range(1, len(idle) + 1):
        for extra in combinations(idle, k):
            for dim in range(space.n_dims):
                chain = (*space.chain(row[dim]), *extra)
                c = space.chain_number(number, chain)
                if not space.table.cut(dim, c).nests_in(space.table.cut(dim, int(row[dim]))):
                    continue
                v = known.get((*row[:dim].tolist(), c, *row[dim + 1 :].tolist()))
                if v is not None:
                    yield v


def _gathers(before: ArrayType, goal: ArrayType, at_once: int | None) -> Path:
    """Gathers from one type to the goal, this many factors at once, the minor ones first."""
    whole = name_step(before, goal)
    if not isinstance(whole, AllGather):
        return ()
    if at_once is None:
        return ((whole, goal),)
    hops: list[Hop] = []
    here = before
    for part, dim in reversed(whole.moves):
        for piece in reversed(prime_parts(here.mesh, [part])):
            if piece.inside(part):
                action = AllGather(((piece, dim),))
                try:
                    here = type_after(action, here)
                except StepError:
                    return ()
                hops.append((action, here))
    return tuple(hops)
