"""Bytes that are live at each time, as tables over the same choices as the costs of a network."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from redist.arrange.solving.network import FORBIDDEN, CostNetwork, Costs, CostTable
from redist.errors import RequestError

PRICE_UNIT = 2**20
"""Prices of bytes are whole numbers of this part of a picosecond."""
MOST_PENALTY = 2**50
"""What the bytes of one table cost at most; more would not be told from what is forbidden."""


@dataclass(frozen=True, slots=True, eq=False)
class LiveTable:
    """Bytes that some choices keep live from one time to another, both included."""

    table: CostTable
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class LiveRows:
    """What is live at each of ``n_rows`` times: the sum of the tables that span it.

    >>> one = LiveTable(CostTable((0,), np.array([8, 2])), 0, 1)
    >>> two = LiveTable(CostTable((1,), np.array([4, 6])), 1, 2)
    >>> rows = LiveRows(3, (one, two))
    >>> rows.at((0, 1)), rows.peak((1, 0)), rows.unit
    ([8, 14, 6], 6, 2)
    """

    n_rows: int
    tables: tuple[LiveTable, ...]

    def __post_init__(self) -> None:
        for one in self.tables:
            if not 0 <= one.first <= one.last < self.n_rows:
                raise RequestError(
                    f"cannot keep bytes from time {one.first} to {one.last}: there are {self.n_rows}"
                )

    def at(self, values: Sequence[int]) -> list[int]:
        """Bytes at every time if these values are chosen."""
        changes = [0] * (self.n_rows + 1)
        for one in self.tables:
            n_bytes = int(one.table.costs[tuple(values[v] for v in one.table.variables)])
            changes[one.first] += n_bytes
            changes[one.last + 1] -= n_bytes
        return list(itertools.accumulate(changes))[:-1]

    def peak(self, values: Sequence[int]) -> int:
        """The most bytes at a time."""
        return max(self.at(values), default=0)

    @property
    def unit(self) -> int:
        """What all numbers of bytes are multiples of."""
        arrays = {id(one.table.costs): one.table.costs for one in self.tables}
        return max(1, math.gcd(*(int(np.gcd.reduce(a, axis=None)) for a in arrays.values())))


@dataclass(slots=True, eq=False)
class PricedBytes:
    """A network whose choices pay for bytes, too. Tables that are one array stay so."""

    network: CostNetwork
    rows: LiveRows
    _known: dict[tuple[int, int], Costs] = field(default_factory=dict)

    def at(self, prices: Sequence[int]) -> CostNetwork:
        """The network if a byte costs this much at each time, in parts of a picosecond; rounded down."""
        return CostNetwork(self.network.sizes, (*self.network.tables, *self._penalties(prices)))

    def bytes_alone(self, prices: Sequence[int]) -> CostNetwork:
        """The same without costs, but for what is forbidden, and with whole prices."""
        hard = [
            CostTable(table.variables, self._forbidden(table.costs))
            for table in self.network.tables
            if table.costs.size and table.costs.max() >= FORBIDDEN
        ]
        scaled = [price * PRICE_UNIT for price in prices]
        return CostNetwork(self.network.sizes, (*hard, *self._penalties(scaled)))

    def _penalties(self, prices: Sequence[int]) -> list[CostTable]:
        sums = [0, *itertools.accumulate(prices)]
        found = []
        for one in self.rows.tables:
            price = sums[one.last + 1] - sums[one.first]
            if price:
                found.append(CostTable(one.table.variables, self._penalty(one.table.costs, price)))
        return found

    def _penalty(self, n_bytes: Costs, price: int) -> Costs:
        key = id(n_bytes), price
        if key not in self._known:
            if max(1, int(n_bytes.max(initial=0))) * price < 2**62:
                penalty = n_bytes * price // PRICE_UNIT
            else:
                exact = n_bytes.astype(np.float64) * (price / PRICE_UNIT * (1 - 2**-50))
                penalty = np.minimum(exact, MOST_PENALTY).astype(np.int64)
            self._known[key] = np.minimum(penalty, MOST_PENALTY)
        return self._known[key]

    def _forbidden(self, costs: Costs) -> Costs:
        key = id(costs), -1
        if key not in self._known:
            self._known[key] = np.where(costs >= FORBIDDEN, FORBIDDEN, 0).astype(np.int64)
        return self._known[key]
