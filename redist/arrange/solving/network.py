"""Costs that add up, each of a few choices: tables over variables with few values each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from redist.errors import RequestError

Costs = NDArray[np.int64]
FORBIDDEN = 2**60
"""What a choice costs that must not be made; more counts as much. Costs are below it."""
SUMMED = 6
"""This many costs are added before what is beyond FORBIDDEN is cut back: fewer than would overflow."""


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """What some choices cost together: an axis for every variable, in the order of ``variables``.

    Tables with the same ``costs`` (the same array, not an equal one) are worked on once.
    """

    variables: tuple[int, ...]
    costs: Costs

    def __post_init__(self) -> None:
        if len(set(self.variables)) != len(self.variables) or self.costs.ndim != len(
            self.variables
        ):
            raise RequestError(
                f"cannot use a table of {self.costs.ndim} axes over {self.variables}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class CostNetwork:
    """Variables, each with this many values, and the tables whose sum is to be as small as possible.

    >>> pays = CostTable((0, 1), np.array([[5, 1], [2, 7]]))
    >>> CostNetwork((2, 2), (pays,)).cost((0, 1))
    1
    """

    sizes: tuple[int, ...]
    tables: tuple[CostTable, ...]

    def __post_init__(self) -> None:
        for table in self.tables:
            shape = tuple(self.sizes[v] for v in table.variables)
            if table.costs.shape != shape:
                raise RequestError(
                    f"cannot use a table of shape {table.costs.shape} over {table.variables}: "
                    f"these have {shape} values"
                )
            if table.costs.size and (table.costs.min() < 0 or table.costs.max() > FORBIDDEN):
                raise RequestError("cannot use costs below 0, or beyond FORBIDDEN")

    def cost(self, choice: Sequence[int]) -> int:
        """What a choice of a value for every variable costs."""
        total = sum(int(t.costs[tuple(choice[v] for v in t.variables)]) for t in self.tables)
        return min(total, FORBIDDEN)


@dataclass(frozen=True, slots=True)
class Solution:
    """A value for every variable, what it costs, and what no choice costs less than."""

    values: tuple[int, ...]
    cost: int
    bound: int

    @property
    def is_exact(self) -> bool:
        """Whether it is proved that none is better."""
        return self.cost == self.bound


def added(tables: Iterable[CostTable], variables: tuple[int, ...], sizes: Sequence[int]) -> Costs:
    """The sum of tables, with an axis for each of ``variables``; what is FORBIDDEN or beyond is forbidden.

    Small ones are added first, so that few steps are done at full size.

    >>> one, two = CostTable((0,), np.array([1, 2])), CostTable((1, 0), np.array([[0, 10]]))
    >>> added([one, two], (0, 1), (2, 1)).tolist()
    [[1], [12]]
    """
    place = {v: i for i, v in enumerate(variables)}
    out = np.zeros([1] * len(variables), dtype=np.int64)
    for number, table in enumerate(sorted(tables, key=lambda one: one.costs.size), 1):
        order = sorted(range(len(table.variables)), key=lambda i: place[table.variables[i]])
        shape = [1] * len(variables)
        for i in order:
            shape[place[table.variables[i]]] = sizes[table.variables[i]]
        more = table.costs.transpose(order).reshape(shape)
        is_large = out.shape == np.broadcast_shapes(out.shape, more.shape)
        out = np.add(out, more, out=out if is_large else None, order="C")
        if number % SUMMED == 0:
            np.minimum(out, FORBIDDEN, out=out)
    full: Costs = np.broadcast_to(out, [sizes[v] for v in variables])
    return full


def try_all(network: CostNetwork) -> Solution:
    """The best choice by looking at every one: for few, and to check others."""
    variables = tuple(range(len(network.sizes)))
    if math.prod(network.sizes) > 2**22:
        raise RequestError("cannot look at so many choices one by one")
    total = added(network.tables, variables, network.sizes)
    best = int(np.argmin(total))
    values = tuple(int(i) for i in np.unravel_index(best, total.shape)) if variables else ()
    cost = min(int(total.flat[best]), FORBIDDEN)
    return Solution(values, cost, cost)
