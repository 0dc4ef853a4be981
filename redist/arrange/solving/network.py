"""Costs that add up, each of a few choices: tables over variables with few values each.

Bytes that are live at each time are tables over the same choices; priced, they are costs like others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from redist.errors import RequestError
from redist.layout.cuts import Ints

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
    aspects: tuple[Ints, ...] = ()
    """Of every variable, if that is known: what its values say about each of a few independent questions,
    a row for every value. Of layouts, a question is a factor of the mesh: which dim or label it cuts."""

    def __post_init__(self) -> None:
        sound: set[int] = set()
        for table in self.tables:
            shape = tuple(self.sizes[v] for v in table.variables)
            if table.costs.shape != shape:
                raise RequestError(
                    f"cannot use a table of shape {table.costs.shape} over {table.variables}: "
                    f"these have {shape} values"
                )
            if id(table.costs) in sound:
                continue
            if table.costs.size and (table.costs.min() < 0 or table.costs.max() > FORBIDDEN):
                raise RequestError("cannot use costs below 0, or beyond FORBIDDEN")
            sound.add(id(table.costs))

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


def narrow(tables: Iterable[CostTable], kept: Sequence[Ints]) -> tuple[CostTable, ...]:
    """The tables for some values of each variable. Those cut alike, by the same arrays, are one array again.

    >>> pays, few = CostTable((0, 1), np.array([[5, 1], [2, 7]])), np.array([1])
    >>> narrow([pays], [few, np.arange(2)])[0].costs.tolist()
    [[2, 7]]
    """
    known: dict[tuple[int, ...], Costs] = {}
    found = []
    for table in tables:
        if not table.variables:
            found.append(table)
            continue
        own = [kept[v] for v in table.variables]
        key = id(table.costs), *map(id, own)
        if key not in known:
            known[key] = table.costs[np.ix_(*own)]
        found.append(CostTable(table.variables, known[key]))
    return tuple(found)


# Bytes that are live at each time.


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
