"""The best choice exactly: variables are eliminated one after another.

A variable goes by adding up its tables and keeping, for every choice of its neighbours, the least. What is
left is a table over the neighbours. The cheapest variable goes first, so that tables stay small where the
network allows it: chains, trees and what is made of them side by side and one after another need tables of
two variables only. Equal tables, those of repeated layers, are worked on once.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from redist.arrange.solving.network import FORBIDDEN, CostNetwork, Costs, CostTable, Solution, added

MOST_CELLS = 2**24
"""Entries of a table that is made."""
MOST_WORK = 2**29
"""Sums that are looked at, all together."""
BLOCK_CELLS = 2**21
"""Sums that are looked at in one go."""
Picks = NDArray[np.int32]
Key = tuple[tuple[int, tuple[int, ...]], ...]
"""The tables of a variable: which array, and which axis is whose."""


@dataclass(frozen=True, slots=True, eq=False)
class _Eliminated:
    """A variable that is gone: its neighbours, and the best of its values for each of their choices."""

    variable: int
    neighbours: tuple[int, ...]
    picks: Picks


@dataclass(slots=True, eq=False)
class Elimination:
    """A network while its variables go. ``work`` counts the sums that were looked at."""

    network: CostNetwork
    most_cells: int = MOST_CELLS
    most_work: int = MOST_WORK
    work: int = 0
    reused: int = 0
    """Variables whose tables had been worked on before."""
    _tables: dict[int, CostTable] = field(default_factory=dict)
    _of: list[set[int]] = field(default_factory=list)
    """By variable: its tables, by number."""
    _near: dict[int, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    """By variable, until its tables change: its neighbours, and how many choices these have together."""
    _gone: list[_Eliminated] = field(default_factory=list)
    _keys: dict[int, Key] = field(default_factory=dict)
    """Of the variables that are left."""
    _alike: Counter[Key] = field(default_factory=Counter)
    """How many variables have a key: those that many have go first, so that much is worked on once."""
    _known: dict[Key, tuple[Costs, Picks]] = field(default_factory=dict)
    _worked_on: list[CostTable] = field(default_factory=list)
    """Tables that are gone: they stay, so that no other array gets their number."""
    only_counts: bool = False
    """Whether sums are only counted, to see whether it is worth beginning."""

    def run(self) -> Solution | None:
        """The best choice; None if the network is too tangled for tables of this size."""
        sizes = self.network.sizes
        self._of = [set() for _ in sizes]
        tables = without_single_values(self.network.tables)
        for number, table in enumerate(tables):
            self._add(number, table)
        self._keys = {v: self._key(v) for v, n in enumerate(sizes) if n != 1}
        self._alike = Counter(self._keys.values())
        fixed = sum(int(t.costs) for t in tables if not t.variables)
        queue = [self._rank(v) for v in self._keys]
        heapq.heapify(queue)
        while queue:
            entry = heapq.heappop(queue)
            cells, _, variable = entry
            if variable not in self._keys:
                continue
            if cells != self._cells(variable):  # neighbours have gone, or come nearer
                heapq.heappush(queue, self._rank(variable))
                continue
            if cells > self.most_cells:
                return None
            if self.work + cells * sizes[variable] > self.most_work:
                return None
            neighbours = self._neighbours(variable)
            fixed += self._eliminate(variable)
            for v in neighbours:
                heapq.heappush(queue, self._rank(v))
        cost = min(fixed, FORBIDDEN)
        return Solution(self._walk_back(), cost, cost)

    def _add(self, number: int, table: CostTable) -> None:
        self._tables[number] = table
        for v in table.variables:
            self._of[v].add(number)
            self._near.pop(v, None)

    def _neighbours(self, variable: int) -> tuple[int, ...]:
        return self._nearby(variable)[0]

    def _nearby(self, variable: int) -> tuple[tuple[int, ...], int]:
        if variable not in self._near:
            found: set[int] = set()
            for number in self._of[variable]:
                found.update(self._tables[number].variables)
            found.discard(variable)
            cells = math.prod([self.network.sizes[v] for v in found])
            self._near[variable] = tuple(sorted(found)), cells
        return self._near[variable]

    def _key(self, variable: int) -> Key:
        """Equal for variables with the same tables, whose neighbours have the same places in them."""
        place = {v: i for i, v in enumerate((*self._neighbours(variable), variable))}
        own = (self._tables[number] for number in self._of[variable])
        return tuple(
            sorted((id(table.costs), tuple(place[v] for v in table.variables)) for table in own)
        )

    def _rank(self, variable: int) -> tuple[int, int, int]:
        """Which variables go first: small tables, then those that many are like."""
        return self._cells(variable), -self._alike[self._keys[variable]], variable

    def _cells(self, variable: int) -> int:
        return self._nearby(variable)[1]

    def _eliminate(self, variable: int) -> int:
        """Let a variable go; what it costs if it has no neighbours, else 0."""
        neighbours, key = self._neighbours(variable), self._keys.pop(variable)
        own = self._take_tables(variable)
        if key not in self._known:
            self._known[key] = self._least(own, neighbours, variable)
            self._worked_on += own
        else:
            self.reused += 1
        costs, picks = self._known[key]
        self._alike[key] -= 1
        self._gone.append(_Eliminated(variable, neighbours, picks))
        if not neighbours:
            return int(costs)
        self._add(len(self.network.tables) + len(self._gone), CostTable(neighbours, costs))
        for v in neighbours:
            self._alike[self._keys[v]] -= 1
            self._keys[v] = self._key(v)
            self._alike[self._keys[v]] += 1
        return 0

    def _take_tables(self, variable: int) -> list[CostTable]:
        """The tables of a variable, which nobody has any more."""
        numbers = sorted(self._of[variable])
        own = [self._tables.pop(number) for number in numbers]
        for number, table in zip(numbers, own, strict=True):
            for v in table.variables:
                self._of[v].discard(number)
                self._near.pop(v, None)
        return own

    def _least(
        self, tables: Sequence[CostTable], neighbours: tuple[int, ...], variable: int
    ) -> tuple[Costs, Picks]:
        """For every choice of the neighbours: the least sum, and the first value that gives it."""
        sizes = self.network.sizes
        n = sizes[variable]
        shape = tuple(sizes[v] for v in neighbours)
        self.work += math.prod(shape) * n
        if self.only_counts:
            return np.broadcast_to(np.int64(0), shape), np.broadcast_to(np.int32(0), shape)
        if not neighbours:
            total = added(tables, (variable,), sizes)
            pick = np.argmin(total)
            least = np.asarray(np.minimum(total[pick], FORBIDDEN))
            return least, np.asarray(pick, dtype=np.int32)
        costs = np.empty(shape, dtype=np.int64)
        picks = np.empty(shape, dtype=np.int32)
        first, rest = neighbours[0], math.prod(shape[1:])
        rows = max(1, BLOCK_CELLS // max(1, rest * n))
        for lo in range(0, shape[0], rows):
            hi = min(shape[0], lo + rows)
            part = [_rows_of(table, first, lo, hi) for table in tables]
            here = [hi - lo if v == first else size for v, size in enumerate(sizes)]
            total = added(part, (*neighbours, variable), here)
            best = np.argmin(total, axis=-1)
            picks[lo:hi] = best
            costs[lo:hi] = np.take_along_axis(total, best[..., None], axis=-1)[..., 0]
        return np.minimum(costs, FORBIDDEN), picks

    def _walk_back(self) -> tuple[int, ...]:
        """The values of all variables, the last that went first."""
        values = [0] * len(self.network.sizes)
        for one in reversed(self._gone):
            values[one.variable] = int(one.picks[tuple(values[v] for v in one.neighbours)])
        return tuple(values)


def without_single_values(tables: Sequence[CostTable]) -> list[CostTable]:
    """The tables without the axes of variables that have one value: tables may have many, arrays 64 axes.

    Those with one array have one array again.

    >>> long = CostTable(tuple(range(40)), np.zeros((1,) * 39 + (2,), np.int64))
    >>> [(one.variables, one.costs.shape) for one in without_single_values([long])]
    [((39,), (2,))]
    """
    known: dict[int, Costs] = {}
    found = []
    for table in tables:
        shape = table.costs.shape
        if 1 in shape:
            kept = tuple(v for v, n in zip(table.variables, shape, strict=True) if n != 1)
            small = known.setdefault(id(table.costs), table.costs.squeeze())
            table = CostTable(kept, small)
        found.append(table)
    return found


def _rows_of(table: CostTable, variable: int, lo: int, hi: int) -> CostTable:
    """A table for some values of a variable only, if it has that."""
    if variable not in table.variables:
        return table
    at = table.variables.index(variable)
    return CostTable(table.variables, table.costs[(slice(None),) * at + (slice(lo, hi),)])


def eliminate(
    network: CostNetwork, most_cells: int = MOST_CELLS, most_work: int = MOST_WORK
) -> Solution | None:
    """The best choice for every variable of a network; None, at once, if it is too tangled.

    >>> near = np.array([[0, 3], [3, 0]])
    >>> ends = CostTable((0,), np.array([0, 9])), CostTable((2,), np.array([9, 1]))
    >>> chain = CostNetwork((2, 2, 2), (*ends, CostTable((0, 1), near), CostTable((1, 2), near)))
    >>> eliminate(chain), eliminate(chain, most_work=5)
    (Solution(values=(0, 0, 1), cost=4, bound=4), None)
    """
    if Elimination(network, most_cells, most_work, only_counts=True).run() is None:
        return None
    return Elimination(network, most_cells, most_work).run()
