"""Better choices for tangled networks: a part of the choice is held, the best of all else is found exactly.

::

    held    x . . x . x        those left form pieces that are no longer tangled: elimination solves them,
    free    . o o . o .        all together, and the choice is never worse than before

Two things are held. One is what values say about some questions: with the factors of a mesh as questions,
all variables may change what one factor cuts, while the others cut what they did. A variable then has a
handful of values, and a network of any length is soon solved. The other is whole variables: in turn some
drawn at random, those with many neighbours first, and all that are far from one, so that a whole region may
change at once. How many, is decided by what elimination could do so far. The random numbers are the same
everywhere, and work is counted in sums, not in seconds: all ranks find the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from redist.arrange.solving.elimination import Elimination
from redist.arrange.solving.network import (
    FORBIDDEN,
    CostNetwork,
    Costs,
    CostTable,
    Solution,
    narrow,
)
from redist.layout.cuts import Ints

MOST_WORK = 2**28
"""Sums that are looked at, all together: about a second and a half of one core."""
STEP_WORK = 2**22
"""Sums that one elimination may look at."""
STEP_CELLS = 2**18
VARIABLE_WORK = 2**16
"""What a variable that is eliminated counts at least: about what Python's own work is worth."""
PATIENCE = 24
"""After so many tries in a row that find nothing better, it is over."""


def improve_by_conditioning(
    network: CostNetwork, begin: Sequence[int], most_work: int = MOST_WORK
) -> Solution:
    """A choice that is no worse than ``begin``; its bound is 0, for nothing is proved.

    >>> near = np.array([[0, 3], [3, 1]])
    >>> ring = [CostTable(pair, near) for pair in ((0, 1), (1, 2), (0, 2))]
    >>> network = CostNetwork((2, 2, 2), (*ring, CostTable((0,), np.array([9, 0]))))
    >>> improve_by_conditioning(network, (1, 0, 0))
    Solution(values=(1, 1, 1), cost=3, bound=0)
    """
    return _Search(network, most_work).run(begin)


@dataclass(slots=True, eq=False)
class _Search:
    network: CostNetwork
    most_work: int
    work: int = 0
    _around: list[set[int]] = field(default_factory=list)
    _degrees: list[int] = field(default_factory=list)
    _alone: dict[int, Ints] = field(default_factory=dict)
    """By value: an array of it alone."""
    _rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def run(self, begin: Sequence[int]) -> Solution:
        """Hold some, solve the others, until the work or the patience is spent."""
        network, sizes = self.network, self.network.sizes
        around: list[set[int]] = [set() for _ in sizes]
        for table in network.tables:
            for v in table.variables:
                around[v].update(table.variables)
        self._around, self._degrees = around, [len(one) for one in around]
        open_ones = [v for v, n in enumerate(sizes) if n > 1]
        values, cost = list(begin), network.cost(begin)
        n_questions = max(1, network.aspects[0].shape[1]) if network.aspects else 1
        shares = [0.0] + [0.2] * (n_questions - 1) if network.aspects else [0.2]
        """Of variables that are held, by how many questions are open beside one."""
        falls = [0.6] * n_questions
        """How quickly fewer are held: quickly until elimination fails for the first time."""
        idle = tries = 0
        while idle < PATIENCE and self.work < self.most_work and open_ones:
            more = tries % n_questions if tries >= n_questions else 0
            first = tries if tries < n_questions else int(self._rng.integers(n_questions))
            asked = [(first + k) % n_questions for k in range(more + 1)]
            draw = self._far if more and tries % 2 else self._drawn
            held = draw(open_ones, shares[more])
            tries += 1
            found = self._solve(values, held, asked)
            if found is None:  # too tangled
                idle += shares[more] >= 0.9
                shares[more], falls[more] = min(0.9, shares[more] * 1.3 + 0.02), 0.93
                continue
            if found.cost < cost:
                values, cost, idle = list(found.values), found.cost, 0
            else:
                idle += 1
                if found.cost == cost:  # another choice as good: a way out of where it stands
                    values = list(found.values)
            if not held and len(asked) == n_questions:
                break
            shares[more] *= falls[more]
        return Solution(tuple(values), cost, 0)

    def _drawn(self, variables: Sequence[int], share: float) -> list[int]:
        """A share of the variables, those with many neighbours more often."""
        n = round(share * len(variables))
        weights = np.array([self._degrees[v] for v in variables], dtype=float) ** 2
        keys = self._rng.exponential(size=len(variables)) / np.maximum(weights, 1e-9)
        order = np.argsort(keys, kind="stable")
        return sorted(variables[int(k)] for k in order[:n])

    def _far(self, variables: Sequence[int], share: float) -> list[int]:
        """A share of the variables, those furthest from a random one: a whole region is left free."""
        order = [variables[int(self._rng.integers(len(variables)))]]
        seen = set(order)
        for one in order:  # it grows
            new = sorted(self._around[one] - seen)
            seen.update(new)
            order += new
        open_ones = set(variables)
        order += sorted(open_ones - seen)
        n = round(share * len(variables))
        return sorted([v for v in order if v in open_ones][len(variables) - n :])

    def _solve(
        self, values: Sequence[int], held: Collection[int], asked: Collection[int]
    ) -> Solution | None:
        """The best choice that holds some variables, and all but some questions; None if too tangled."""
        kept = self._kept(values, held, asked)
        less = CostNetwork(tuple(map(len, kept)), narrow(self.network.tables, kept))
        found = Elimination(less, STEP_CELLS, STEP_WORK)
        best = found.run()
        self.work += found.work + VARIABLE_WORK * (len(less.sizes) - len(held))
        if best is None:
            return None
        chosen = (int(some[k]) for some, k in zip(kept, best.values, strict=True))
        return Solution(tuple(chosen), best.cost, 0)

    def _kept(
        self, values: Sequence[int], held: Collection[int], asked: Collection[int]
    ) -> list[Ints]:
        """The values that variables may have. Equal ones are one array, so that equal tables are."""
        known: dict[object, Ints] = {}
        fixed = set(held)
        kept = []
        for v, n in enumerate(self.network.sizes):
            if v in fixed:
                kept.append(self._alone.setdefault(values[v], np.array([values[v]])))
                continue
            if not self.network.aspects:
                kept.append(known.setdefault(n, np.arange(n)))
                continue
            own = self.network.aspects[v]
            rest = [k for k in range(own.shape[1]) if k not in asked]
            row = own[values[v], rest]
            key = id(own), tuple(row.tolist())
            if key not in known:
                known[key] = np.flatnonzero((own[:, rest] == row).all(axis=1))
            kept.append(known[key])
        return kept


# Repeated layers: variables that have the same place in each are given one value.


ROUNDS = 1
"""So far around a variable it is looked for what tells it from others."""


def alike(network: CostNetwork, rounds: int = ROUNDS) -> list[int]:
    """A class for each variable: those of a class have the same tables, and neighbours that are alike.

    Layers in the middle are alike; those so near to an end that it is seen are not.

    >>> near, end = np.array([[0, 3], [3, 1]]), np.array([9, 0])
    >>> chain = [CostTable((k, k + 1), near) for k in range(6)]
    >>> alike(CostNetwork((2,) * 7, (*chain, CostTable((0,), end))), 1)
    [0, 1, 2, 2, 2, 3, 4]
    """
    n = len(network.sizes)
    says = [id(one) for one in network.aspects] or [0] * n
    colours = _numbered(list(zip(network.sizes, says, strict=True)))
    for _ in range(rounds + 1):
        seen: list[list[tuple[int, ...]]] = [[] for _ in range(n)]
        for table in network.tables:
            around = tuple(colours[v] for v in table.variables)
            for place, v in enumerate(table.variables):
                seen[v].append((id(table.costs), place, *around))
        colours = _numbered([(colours[v], *sorted(one)) for v, one in enumerate(seen)])
    return colours


def _numbered(keys: Sequence[object]) -> list[int]:
    numbers: dict[object, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def tie(network: CostNetwork, classes: Sequence[int]) -> CostNetwork:
    """The network of one variable for each class: what all its members cost if they have one value.

    >>> near = np.array([[0, 3], [3, 1]])
    >>> ring = [CostTable(pair, near) for pair in ((0, 1), (1, 2), (0, 2))]
    >>> tied = tie(CostNetwork((2, 2, 2), tuple(ring)), [0, 0, 1])
    >>> tied.sizes, [(t.variables, t.costs.tolist()) for t in tied.tables]
    ((2, 2), [((0,), [0, 1]), ((0, 1), [[0, 6], [6, 2]])])
    """
    counts: dict[tuple[int, tuple[int, ...]], int] = {}
    arrays: dict[int, Costs] = {}
    for table in network.tables:
        key = id(table.costs), tuple(classes[v] for v in table.variables)
        counts[key] = counts.get(key, 0) + 1
        arrays[id(table.costs)] = table.costs
    sizes = dict(zip(classes, network.sizes, strict=True))
    aspects = dict(zip(classes, network.aspects, strict=False))
    known: dict[object, Costs] = {}
    tables = []
    for (at, variables), n in counts.items():
        own = tuple(dict.fromkeys(variables))
        places = tuple(own.index(v) for v in variables)
        kind = at, places, n
        if kind not in known:
            known[kind] = _times(np.einsum(arrays[at], places, range(len(own))), n)
        tables.append(CostTable(own, known[kind]))
    numbers = range(len(sizes))
    says = tuple(aspects[k] for k in numbers) if aspects else ()
    return CostNetwork(tuple(sizes[k] for k in numbers), tuple(tables), says)


def _times(costs: Costs, n: int) -> Costs:
    most = FORBIDDEN // n
    return np.where(costs > most, FORBIDDEN, np.minimum(costs, most) * n).astype(np.int64)
