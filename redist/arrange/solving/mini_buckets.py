"""A good choice and an honest bound for tangled networks, in a number of steps that is known before.

Variables go one after another, as in :mod:`redist.arrange.solving.elimination`. Where the tables of one are
too many for a table over all its neighbours, they are taken in several buckets: each has a least of its own,
as if the variable could have a value for each of them. The sum of these is no more than the least of all, so
what is left in the end is a bound. On the way back a variable gets the value that is best in all its tables.
Only integers are compared, and no clock: all ranks find the same.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from redist.arrange.solving.elimination import Elimination
from redist.arrange.solving.network import FORBIDDEN, CostNetwork, Costs, CostTable, Solution

# A good choice without proof, for networks that are too tangled: improve one variable after another.


MOST_ROUNDS = 50


def improve(network: CostNetwork, begin: Sequence[int] | None = None) -> Solution:
    """A choice that no change of one variable improves, and the sum of the least of all tables as a bound.

    ``begin`` is a choice to begin with.

    >>> from redist.arrange.solving.network import CostTable
    >>> near = np.array([[0, 3], [3, 1]])
    >>> improve(CostNetwork((2, 2), (CostTable((0, 1), near),)))
    Solution(values=(0, 0), cost=0, bound=0)
    """
    of: list[list[int]] = [[] for _ in network.sizes]
    around: list[set[int]] = [set() for _ in network.sizes]
    for number, table in enumerate(network.tables):
        for v in table.variables:
            of[v].append(number)
            around[v].update(table.variables)
    values = [0] * len(network.sizes) if begin is None else list(begin)
    known = [begin is not None] * len(network.sizes)
    stale = set(range(len(values)))
    """Variables with a neighbour that has changed since they were looked at."""
    for _ in range(MOST_ROUNDS):
        before = list(values)
        for v in range(len(values)):
            if v not in stale:
                continue
            stale.discard(v)
            was = values[v] if known[v] else None
            total = np.zeros(network.sizes[v], dtype=np.int64)
            for number in of[v]:
                total += _costs_of(network, number, v, values, known)
                np.minimum(total, FORBIDDEN, out=total)
            values[v], known[v] = int(np.argmin(total)), True
            if values[v] != was:
                stale |= around[v] - {v}
        if values == before:
            break
    bound = sum(int(table.costs.min()) for table in network.tables if table.costs.size)
    cost = network.cost(values)
    return Solution(tuple(values), cost, min(bound, cost))


def _costs_of(
    network: CostNetwork, number: int, variable: int, values: list[int], known: list[bool]
) -> Costs:
    """What each value of a variable costs in a table; of variables not yet chosen, the least."""
    table = network.tables[number]
    index = tuple(values[v] if v != variable and known[v] else slice(None) for v in table.variables)
    part = table.costs[index]
    left = [v for v in table.variables if v == variable or not known[v]]
    others = tuple(i for i, v in enumerate(left) if v != variable)
    least: Costs = part.min(axis=others) if others else part
    return least


BUCKET_CELLS = 2**19
"""Sums that are looked at for one bucket; more only if one table alone has more."""


@dataclass(slots=True, eq=False)
class _InBuckets(Elimination):
    """A network while its variables go, some of them in several buckets."""

    bucket_cells: int = BUCKET_CELLS
    _own: dict[int, list[CostTable]] = field(default_factory=dict)
    """Of variables that went in several buckets: their tables."""

    def bound(self) -> int:
        """What no choice costs less than; all variables are gone after it."""
        sizes = self.network.sizes
        self._of = [set() for _ in sizes]
        for number, table in enumerate(self.network.tables):
            self._add(number, table)
        self._n_tables = len(self.network.tables)
        total = sum(int(t.costs) for t in self.network.tables if not t.variables)
        queue = [(self._cells(v), v) for v in range(len(sizes))]
        heapq.heapify(queue)
        while queue:
            entry = heapq.heappop(queue)
            variable = entry[1]
            if variable in self._own:
                continue
            now = self._cells(variable), variable
            if now != entry:  # neighbours have gone, or come nearer
                heapq.heappush(queue, now)
                continue
            around = self._neighbours(variable)
            total += self._let_go(variable)
            for v in around:
                heapq.heappush(queue, (self._cells(v), v))
        return min(total, FORBIDDEN)

    _n_tables: int = 0

    def _let_go(self, variable: int) -> int:
        own = self._take_tables(variable)
        self._own[variable] = own
        total = 0
        for bucket in self._buckets(variable, own):
            around = {v for table in bucket for v in table.variables} - {variable}
            neighbours = tuple(sorted(around))
            costs = self._least_of_bucket(bucket, neighbours, variable)
            if neighbours:
                self._add(self._n_tables, CostTable(neighbours, costs))
                self._n_tables += 1
            else:
                total += int(costs)
        return total

    def _least_of_bucket(
        self, bucket: list[CostTable], neighbours: tuple[int, ...], variable: int
    ) -> Costs:
        """The least of some tables together; equal buckets, those of repeated layers, are worked on once."""
        place = {v: i for i, v in enumerate((*neighbours, variable))}
        key = tuple((id(table.costs), tuple(place[v] for v in table.variables)) for table in bucket)
        if key not in self._known:
            self._known[key] = self._least(bucket, neighbours, variable)
            self._worked_on += bucket
        else:
            self.reused += 1
        return self._known[key][0]

    def _buckets(self, variable: int, own: Sequence[CostTable]) -> list[list[CostTable]]:
        """The tables of a variable, few enough together to be added; large ones first."""
        sizes, found = self.network.sizes, list[tuple[set[int], list[CostTable]]]()
        for table in sorted(own, key=lambda one: -one.costs.size):
            scope = {variable, *table.variables}
            for around, several in found:
                if math.prod(sizes[v] for v in around | scope) <= self.bucket_cells:
                    around |= scope
                    several.append(table)
                    break
            else:
                found.append((scope, [table]))
        return [several for _, several in found]

    def choose(self) -> tuple[int, ...]:
        """A value for every variable: the last that went first, each as is best beside those before."""
        values = [0] * len(self.network.sizes)
        for variable in reversed(self._own):
            total = np.zeros(self.network.sizes[variable], dtype=np.int64)
            for table in self._own[variable]:
                key = tuple(slice(None) if v == variable else values[v] for v in table.variables)
                total = np.minimum(total + table.costs[key], FORBIDDEN)
            values[variable] = int(np.argmin(total))
        return tuple(values)


def bound_in_buckets(network: CostNetwork, bucket_cells: int = BUCKET_CELLS) -> int:
    """What no choice costs less than, without a choice."""
    return _InBuckets(network, bucket_cells=bucket_cells).bound()


def solve_in_buckets(network: CostNetwork, bucket_cells: int = BUCKET_CELLS) -> Solution:
    """A choice that no change of one variable improves, and a bound that no choice is below.

    >>> near = np.array([[0, 3], [3, 1]])
    >>> ring = [CostTable(pair, near) for pair in ((0, 1), (1, 2), (0, 2))]
    >>> solve_in_buckets(CostNetwork((2, 2, 2), (*ring, CostTable((0,), np.array([9, 0])))), 4)
    Solution(values=(1, 1, 1), cost=3, bound=3)
    """
    tables = _InBuckets(network, bucket_cells=bucket_cells)
    bound = tables.bound()
    found = min(improve(network, tables.choose()), improve(network), key=lambda one: one.cost)
    return Solution(found.values, found.cost, min(max(bound, found.bound), found.cost))
