"""Which types a cheaper route can pass: bounds from the start and to the goal, made better step by step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from redist.layout.tiles import Ints
from redist.synth.chains import Bools
from redist.synth.collectives.alike_factors import Blocks, Kinds, kinds_of_factors, told_apart
from redist.synth.collectives.graph import Budget
from redist.synth.collectives.pattern_bounds import Patterns
from redist.synth.objective_costs import MORE_THAN_ANY_COST, Prices

MOST_PATTERNS = 1_500
"""More are not looked at if there is a bound already."""
MANY_TYPES = 4_000
"""Of this many types, patterns are looked at first that tell nothing but sizes of factors apart."""
MANY_MEMBERS = 20_000
"""Of more types it is not looked up which an all_to_all joins, if it is known roughly."""
FEW_TYPES = 120
"""So few are not narrowed down any more."""
PATTERNS_WORK, PAIRS_PER_WORK, ASK_WORK = 50_000, 3, 3
"""What patterns count together, how many pairs of them count one that a step may join, and what a pair
counts whose step is bounded."""
MOST_WORK = 2_400_000
"""What these count together at most if there is a bound already."""


@dataclass(slots=True, eq=False)
class KnownFloors:
    """Patterns, and what is known of steps ``a`` -> ``b`` between them; ``final`` where it is all.

    ``joined`` has the pairs that an all_to_all joins, if these were looked for.
    """

    patterns: Patterns
    joined: Bools | None = None
    a: Ints = field(init=False)
    b: Ints = field(init=False)
    floors: Ints = field(init=False)
    final: Bools = field(init=False)

    def begin(self, may: Bools) -> None:
        """Nothing is known of the steps that may be [a, b]."""
        self.a, self.b = np.nonzero(may)
        self.floors = np.zeros(len(self.a), dtype=np.int64)
        self.final = np.zeros(len(self.a), dtype=np.bool_)

    def forget(self) -> None:
        """Leave out steps that there are not."""
        keep = self.floors < MORE_THAN_ANY_COST
        self.a, self.b = self.a[keep], self.b[keep]
        self.floors, self.final = self.floors[keep], self.final[keep]

    def may(self) -> Bools:
        """Which steps [a, b] are left."""
        out = np.zeros((len(self.patterns),) * 2, dtype=np.bool_)
        out[self.a, self.b] = True
        return out


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
        several = [self.blocks.last, self.blocks] if self.blocks.nearer else [self.blocks]
        self._stages = [(blocks, kinds_of_factors(self.prices.space, blocks)) for blocks in several]

    def begin(self, below: int, budget: Budget) -> None:
        """Narrow down with all factors alike that may be; if these are many, with all of one size first."""
        self.from_start[:], self.to_goal[:], self.number[:-1] = 0, 0, 0
        self.floors = np.zeros((1, 1), dtype=np.int64)
        for number in range(len(self._stages)):
            if number + 1 < len(self._stages) and len(self.number) < MANY_TYPES:
                continue
            new = number not in self._known
            if new:
                every = np.arange(len(self.number) - 1, dtype=np.int64)
                patterns = Patterns.of(self.prices, *self._stages[number], every)
                budget.spend(len(every))
                self._known[number] = KnownFloors(patterns, patterns.joined(self.classes))
            known = self._known[number]
            if self.floors.size > 1 and len(known.patterns) > MOST_PATTERNS:
                break
            if new:
                coarser = self._known.get(number - 1)
                one = np.ones((1, 1), dtype=np.bool_)
                known.begin(self._finer(known, one if coarser is None else coarser.may()))
            floors = self._narrow(known, below, budget)
            if floors is None:
                break
            self.number[:-1], self.floors, self._stage = known.patterns.number, floors, number

    def refine(self, below: int, budget: Budget) -> None:
        """Narrow down further, telling one factor more apart at a time, while that helps."""
        blocks, kinds = self._stages[self._stage]
        vain, least = 0, budget.left // 2
        for mesh, own in enumerate(kinds):
            for f in range(len(own)):
                finer, ids = told_apart(kinds, mesh, frozenset({f})), self.alive()
                if finer == kinds or len(ids) <= FEW_TYPES or budget.left <= least or vain > 1:
                    continue
                patterns = Patterns.of(self.prices, blocks, finer, ids)
                budget.spend(len(ids))
                if len(patterns) <= MOST_PATTERNS:
                    known = KnownFloors(patterns)
                    known.begin(self._finer(known, self.floors < MORE_THAN_ANY_COST))
                    self._narrow(known, below, budget)
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
        reach, rest = patterns.least(self.from_start[ids]), patterns.least(self.to_goal[ids])
        a, b, old = known.a, known.b, self.number[patterns.first]
        room = (below - rest)[b] - reach[a]
        worth = self.floors[old[a], old[b]] < room
        ask = np.flatnonzero(worth & (known.floors < room) & ~known.final)
        budget.spend(PATTERNS_WORK + len(a) // PAIRS_PER_WORK)
        if self.floors.size > 1 and ASK_WORK * len(ask) > min(MOST_WORK, budget.left):
            return None
        budget.spend(ASK_WORK * len(ask))
        if len(ask):
            joined = self._may_join(known, a[ask], b[ask])
            known.floors[ask], known.final[ask] = patterns.edge_floors(
                joined, self.permute, room[ask], a[ask], b[ask], budget
            )
        # Only these may be part of a route that costs less.
        some = np.flatnonzero(worth & (known.floors < room))
        a, b, floors = a[some], b[some], known.floors[some]
        known.forget()
        ends = [np.flatnonzero(ids == end) for end in (self.prices.start, self.prices.goal)]
        for ways, u, v, end in zip(
            (self.from_start, self.to_goal), (a, b), (b, a), ends, strict=True
        ):
            if len(end):
                way = _distances(len(patterns), u, v, floors, int(patterns.number[end[0]]))
                ways[ids] = np.maximum(ways[ids], way[patterns.number])
        self.drop(ids, below)
        every = np.full((len(patterns),) * 2, MORE_THAN_ANY_COST, dtype=np.int64)
        every[a, b] = floors
        return every

    def _finer(self, known: KnownFloors, may: Bools) -> Bools:
        """Which steps there may be between patterns, given those between coarser ones."""
        old = self.number[known.patterns.first]
        finer: Bools = may[old][:, old]
        return finer


def _distances(n: int, a: Ints, b: Ints, costs: Ints, start: int) -> Ints:
    """The least cost of ways from a node to each of n, over edges a -> b."""
    out = np.full(n, MORE_THAN_ANY_COST, dtype=np.int64)
    out[start] = 0
    while True:
        new = out.copy()
        np.minimum.at(new, b, out[a] + costs)
        if np.array_equal(new, out):
            return out
        out = new
