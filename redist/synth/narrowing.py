"""Which types a cheaper route can pass: bounds from the start and to the goal, made better step by step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from redist.layout.tiles import Ints
from redist.synth.alike import Blocks, Kinds, kinds_of_factors, told_apart
from redist.synth.chains import Bools
from redist.synth.graph import Budget
from redist.synth.objective_costs import MORE_THAN_ANY_COST, Prices
from redist.synth.patterns import Patterns

MOST_PATTERNS = 1_500
"""More are not looked at if there is a bound already."""
MANY_TYPES = 4_000
"""Of so many types, patterns are looked at first that tell nothing but sizes of factors apart."""
MANY_MEMBERS = 20_000
"""Of more types it is not looked up which an all_to_all joins, if it is known roughly."""
FEW_TYPES = 120
"""So few are not narrowed down any more."""
PATTERNS_WORK, CELLS_PER_WORK, PAIR_WORK = 100_000, 2, 3
"""What patterns count together, how many pairs of them count one, and what a pair counts that a step may
join."""
MOST_WORK = 2_400_000
"""What these count together at most if there is a bound already."""


@dataclass(slots=True, eq=False)
class KnownFloors:
    """Patterns, and what is known of steps [A, B] between them; ``final`` where it is all.

    ``joined`` has the pairs that an all_to_all joins, if these were looked for.
    """

    patterns: Patterns
    joined: Bools | None = None
    floors: Ints = field(init=False)
    final: Bools = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.patterns)
        self.floors, self.final = np.zeros((n, n), dtype=np.int64), np.zeros((n, n), dtype=np.bool_)


@dataclass(slots=True, eq=False)
class Narrowing:
    """What ways cost at least, from the start to every type and from there to the goal.

    The bounds hold for routes that cost less than the ``below`` of every call so far; a type that no such
    route passes is as good as endlessly far from the goal. ``number`` has a pattern of every type, and
    ``floors`` what steps between these patterns cost at least. One more node stands for a source with
    pending axes; nothing is known of it.
    """

    prices: Prices
    blocks: Blocks
    classes: Ints
    permute: bool
    from_start: Ints = field(init=False)
    to_goal: Ints = field(init=False)
    number: Ints = field(init=False)
    floors: Ints = field(init=False)
    _stages: list[tuple[Blocks, Kinds]] = field(init=False)
    _stage: int = 0
    _known: dict[int, KnownFloors] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.prices.space) + 1
        self.from_start, self.to_goal, self.number = np.zeros((3, n), dtype=np.int64)
        self.floors = np.zeros((1, 1), dtype=np.int64)
        self.number[-1] = -1
        several = [self.blocks.last, self.blocks][-len(self.blocks.within) :]
        self._stages = [(blocks, kinds_of_factors(self.prices.space, blocks)) for blocks in several]

    def begin(self, below: int, budget: Budget) -> None:
        """Narrow down with all factors alike that may be; if these are many, with all of one size first."""
        self.from_start[:], self.to_goal[:], self.number[:-1] = 0, 0, 0
        self.floors = np.zeros((1, 1), dtype=np.int64)
        for number in range(len(self._stages)):
            if number + 1 < len(self._stages) and len(self.number) < MANY_TYPES:
                continue
            if number not in self._known:
                every = np.arange(len(self.number) - 1, dtype=np.int64)
                patterns = Patterns.of(self.prices, *self._stages[number], every)
                budget.spend(len(every))
                self._known[number] = KnownFloors(patterns, patterns.joined(self.classes))
            known = self._known[number]
            if self.floors.size > 1 and len(known.patterns) > MOST_PATTERNS:
                break
            floors = self._narrow(known, below, budget)
            if floors is None:
                break
            self.number[:-1], self.floors, self._stage = known.patterns.number, floors, number

    def refine(self, below: int, budget: Budget) -> None:
        """Narrow down further, telling one factor more apart at a time, while that helps."""
        blocks, kinds = self._stages[self._stage]
        vain, most = 0, 0 if blocks.wide else 1
        for mesh, own in enumerate(kinds):
            for f in range(len(own)):
                finer, ids = told_apart(kinds, mesh, frozenset({f})), self.alive()
                if finer == kinds or len(ids) <= FEW_TYPES or budget.left <= 0 or vain > most:
                    continue
                patterns = Patterns.of(self.prices, blocks, finer, ids)
                budget.spend(len(ids))
                if len(patterns) <= MOST_PATTERNS:
                    self._narrow(KnownFloors(patterns), below, budget)
                vain = 0 if len(self.alive()) < len(ids) else vain + 1

    def alive(self) -> Ints:
        """Types that a route may pass."""
        return np.flatnonzero(self.to_goal[:-1] < MORE_THAN_ANY_COST)

    def _may_join(self, known: KnownFloors, a: Ints, b: Ints) -> Bools:
        """Whether an all_to_all may lead from patterns a to patterns b."""
        if known.joined is None and len(known.patterns.ids) <= MANY_MEMBERS:
            known.joined = known.patterns.joined(self.classes)
        if known.joined is not None:
            return known.joined[a, b]
        stage = self._known[self._stage].joined
        assert stage is not None
        used, old = known.patterns.used(), self.number[known.patterns.first]
        may: Bools = (used[a] == used[b]) & stage[old[a], old[b]]
        return may

    def drop(self, ids: Ints, below: int) -> None:
        """Leave out those of some types that no route passes which costs less."""
        dead = ids[self.from_start[ids] >= below - self.to_goal[ids]]
        self.to_goal[dead] = MORE_THAN_ANY_COST

    def _narrow(self, known: KnownFloors, below: int, budget: Budget) -> Ints | None:
        """Make the bounds better by those of some patterns, which tell more apart; these' floors.

        None if there is a bound already, and too many pairs of patterns are left that a step may join.
        """
        patterns, ids = known.patterns, known.patterns.ids
        n = len(patterns)
        reach, rest = patterns.least(self.from_start[ids]), patterns.least(self.to_goal[ids])
        some = np.flatnonzero(reach < below - rest)
        here, old = np.ix_(some, some), self.number[patterns.first[some]]
        room = (below - rest[some])[None, :] - reach[some][:, None]
        known_here, worth = known.floors[here], self.floors[np.ix_(old, old)] < room
        a, b = np.nonzero(worth & (known_here < room) & ~known.final[here])
        budget.spend(PATTERNS_WORK + room.size // CELLS_PER_WORK)
        if self.floors.size > 1 and PAIR_WORK * len(a) > min(MOST_WORK, budget.left):
            return None
        budget.spend(PAIR_WORK * len(a))
        if len(a):
            joined = self._may_join(known, some[a], some[b])
            found, final = patterns.edge_floors(
                joined, self.permute, room[a, b], some[a], some[b], budget
            )
            known_here[a, b] = known.floors[some[a], some[b]] = found
            known.final[some[a], some[b]] = final
        # Only these may be part of a route that costs less.
        floors = np.where(worth & (known_here < room), known_here, MORE_THAN_ANY_COST)
        ends = [np.flatnonzero(ids == end) for end in (self.prices.start, self.prices.goal)]
        for ways, costs, end in zip(
            (self.from_start, self.to_goal), (floors, floors.T), ends, strict=True
        ):
            if len(end):
                first = np.flatnonzero(some == patterns.number[end[0]])
                way = np.full(n, MORE_THAN_ANY_COST, dtype=np.int64)
                if len(first):
                    way[some] = _distances(np.ascontiguousarray(costs), int(first[0]), below)
                ways[ids] = np.maximum(ways[ids], way[patterns.number])
        self.drop(ids, below)
        if len(some) == n:
            return floors
        every = np.full((n, n), MORE_THAN_ANY_COST, dtype=np.int64)
        every[here] = floors
        return every


def _distances(costs: Ints, start: int, below: int) -> Ints:
    """The least cost of ways from a node, given that of every step [from, to]; right where below a limit."""
    n = len(costs)
    out = np.full(n, MORE_THAN_ANY_COST, dtype=np.int64)
    out[start] = 0
    left = np.zeros(n, dtype=np.int64)
    for _ in range(n):
        v = int(np.argmin(out + left))
        if left[v] or out[v] >= below:
            break
        left[v] = MORE_THAN_ANY_COST
        out = np.minimum(out, costs[v] + out[v])
    return out
