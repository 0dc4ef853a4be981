"""A good choice without proof, for networks that are too tangled: improve one variable after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from redist.arrange.solving.network import FORBIDDEN, CostNetwork, Costs, Solution

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
    for number, table in enumerate(network.tables):
        for v in table.variables:
            of[v].append(number)
    values = [0] * len(network.sizes) if begin is None else list(begin)
    known = [begin is not None] * len(network.sizes)
    for _ in range(MOST_ROUNDS):
        before = list(values)
        for v in range(len(values)):
            total = np.zeros(network.sizes[v], dtype=np.int64)
            for number in of[v]:
                total += _costs_of(network, number, v, values, known)
                np.minimum(total, FORBIDDEN, out=total)
            values[v], known[v] = int(np.argmin(total)), True
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
