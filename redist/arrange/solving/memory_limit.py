"""The best choice that keeps at most this many bytes live at any time.

Bytes get prices, at every time its own, and choices are made as before: what no choice costs less than at
such prices, less what the limit is worth, no choice within the limit costs less than. Prices rise where there
is too much; the cheapest choice within the limit is kept, or a mixture of it and of others. An integer
program closes the gap if that is asked for. If nothing fits, the least limit that something keeps is said.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from redist.arrange.solving.elimination import eliminate
from redist.arrange.solving.linear_program import least_peak_by_program, solve_by_program
from redist.arrange.solving.network import (
    FORBIDDEN,
    PRICE_UNIT,
    CostNetwork,
    CostTable,
    LiveRows,
    LiveTable,
    PricedBytes,
    Solution,
    narrow,
)
from redist.errors import NoPlanError
from redist.text.extras import install_line
from redist.text.units import ceil_div, format_bytes

# Mixtures of two choices: one from the beginning of a program, the other from some point on.


@dataclass(frozen=True, slots=True, eq=False)
class Mixer:
    """A network with its variables in the order of time, and the tables of each."""

    network: CostNetwork
    rows: LiveRows
    order: tuple[int, ...]
    costs_of: tuple[tuple[int, ...], ...]
    bytes_of: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(network: CostNetwork, rows: LiveRows) -> Mixer:
        """Variables go by the first time at which they meet another one in the rows."""
        first = [rows.n_rows] * len(network.sizes)
        costs_of: list[list[int]] = [[] for _ in network.sizes]
        bytes_of: list[list[int]] = [[] for _ in network.sizes]
        for number, table in enumerate(network.tables):
            for v in table.variables:
                costs_of[v].append(number)
        for number, one in enumerate(rows.tables):
            for v in one.table.variables:
                bytes_of[v].append(number)
                if len(one.table.variables) > 1:
                    first[v] = min(first[v], one.first)
        order = sorted(range(len(first)), key=lambda v: (first[v], v))
        return Mixer(
            network, rows, tuple(order), tuple(map(tuple, costs_of)), tuple(map(tuple, bytes_of))
        )

    def best(
        self, limit_bytes: int, cheap: Sequence[int], dear: Sequence[int]
    ) -> tuple[int, tuple[int, ...]] | None:
        """The cheapest mixture within the limit, and its cost; None if none keeps it."""
        found = [
            self._walk(limit_bytes, dear, cheap, self.order),
            self._walk(limit_bytes, dear, cheap, self.order[::-1]),
        ]
        return min((one for one in found if one is not None), default=None)

    def _walk(
        self, limit_bytes: int, here: Sequence[int], there: Sequence[int], order: Sequence[int]
    ) -> tuple[int, tuple[int, ...]] | None:
        """Go from one choice to another, variable by variable; the cheapest on the way within the limit."""
        values, best = list(here), None
        live = np.array(self.rows.at(values), dtype=np.int64)
        cost = sum(_entry(table, values) for table in self.network.tables)
        for v in order:
            if values[v] == there[v]:
                continue
            cost -= sum(_entry(self.network.tables[n], values) for n in self.costs_of[v])
            self._add(live, v, values, -1)
            values[v] = there[v]
            cost += sum(_entry(self.network.tables[n], values) for n in self.costs_of[v])
            self._add(live, v, values, 1)
            keeps = cost < FORBIDDEN and int(live.max(initial=0)) <= limit_bytes
            if keeps and (best is None or cost < best[0]):
                best = cost, tuple(values)
        return best

    def _add(self, live: np.ndarray, v: int, values: Sequence[int], sign: int) -> None:
        for number in self.bytes_of[v]:
            one = self.rows.tables[number]
            live[one.first : one.last + 1] += sign * _entry(one.table, values)


def _entry(table: CostTable, values: Sequence[int]) -> int:
    return int(table.costs[tuple(values[v] for v in table.variables)])


# Networks of fewer values: the same costs and bytes for some values of each variable.


@dataclass(frozen=True, slots=True, eq=False)
class NarrowedNetwork:
    """A network of some values, bytes that are live, and which values these are.

    >>> pays = CostTable((0, 1), np.array([[5, 1], [2, 7]]))
    >>> less = NarrowedNetwork.of(CostNetwork((2, 2), (pays,)), LiveRows(0, ()), [{1}, {0, 1}])
    >>> less.network.sizes, less.network.cost((0, 1)), less.whole((0, 1))
    ((1, 2), 7, (1, 1))
    """

    network: CostNetwork
    rows: LiveRows
    kept: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(
        network: CostNetwork, rows: LiveRows, values: Sequence[Collection[int]]
    ) -> NarrowedNetwork:
        """Keep these values of every variable."""
        kept = tuple(tuple(sorted(some)) for some in values)
        arrays = [np.array(some, dtype=np.int64) for some in kept]
        live = tuple(
            LiveTable(table, one.first, one.last)
            for one, table in zip(
                rows.tables, narrow((one.table for one in rows.tables), arrays), strict=True
            )
        )
        smaller = CostNetwork(tuple(map(len, kept)), narrow(network.tables, arrays))
        return NarrowedNetwork(smaller, LiveRows(rows.n_rows, live), kept)

    def whole(self, values: Sequence[int]) -> tuple[int, ...]:
        """A choice in terms of all values."""
        return tuple(some[value] for some, value in zip(self.kept, values, strict=True))


# Prices of bytes at each time, at which choices that keep a limit become the best ones.


MOST_SOLVES = 40
"""Prices that are tried."""
MOST_PRICE = 2**70


@dataclass(frozen=True, slots=True)
class _Priced:
    """A choice at some price of bytes at one time: what it is worth there, how far it is over the limit."""

    values: tuple[int, ...]
    price: int
    worth: int
    """Its cost, and that of all bytes over the limit; in parts of a picosecond."""
    over: list[int]


@dataclass(slots=True, eq=False)
class BytePrices:
    """Prices of bytes while they are looked for; ``bound`` is the best that they prove."""

    network: CostNetwork
    rows: LiveRows
    limit_bytes: int
    free: Solution
    bound: int = 0
    best: Solution | None = None
    solves: int = 0
    seen: list[set[int]] = field(default_factory=list)
    """By variable, the values that it had."""
    cheap: tuple[int, ...] = ()
    """The last choice that was too full."""
    _prices: list[int] = field(default_factory=list)
    _priced: PricedBytes | None = None

    def run(self) -> Solution | None:
        """The cheapest choice found that keeps the limit; the fullest time gets its price, in turn."""
        self.bound, self._prices = self.free.bound, [0] * self.rows.n_rows
        self._priced = PricedBytes(self.network, self.rows)
        self.seen, self.cheap = [{value} for value in self.free.values], self.free.values
        now = self._solve(0, 0)
        while now is not None and max(now.over) > 0 and self.solves < MOST_SOLVES:
            now = self._settle(now.over.index(max(now.over)), now)
        return self.best

    def _settle(self, row: int, low: _Priced) -> _Priced | None:
        """Find the price at one time at which room is worth what it costs; the choice that has room there.

        Of a choice that is over the limit and one that is not, the next price is that at which both are
        worth the same, until no choice is worth less there.
        """
        low = _Priced(low.values, self._prices[row], low.worth, low.over)
        rise = max(1, self.free.cost * PRICE_UNIT // max(1, low.over[row]))
        high = self._solve(row, low.price + rise)
        while high is not None and high.over[row] > 0:
            if self.solves >= MOST_SOLVES or rise > MOST_PRICE:
                return None
            low, rise = high, 4 * rise
            high = self._solve(row, low.price + rise)
        while high is not None and self.solves < MOST_SOLVES:
            # worth of low at price p: low.worth + low.over * (p - low.price), and so for high
            gain = high.worth - high.over[row] * high.price - low.worth + low.over[row] * low.price
            price = gain // (low.over[row] - high.over[row])
            if not low.price < price < high.price:
                break
            middle = self._solve(row, price)
            if middle is None:
                break
            if middle.over[row] in (low.over[row], high.over[row]):
                high = middle if middle.over[row] <= 0 else high
                break
            low, high = (middle, high) if middle.over[row] > 0 else (low, middle)
        if high is not None:
            self._prices[row] = high.price
        return high

    def _solve(self, row: int, price: int) -> _Priced | None:
        """The best choice at the prices so far, with another at one time; what it proves is kept."""
        assert self._priced is not None
        prices = [*self._prices[:row], price, *self._prices[row + 1 :]]
        found = eliminate(self._priced.at(prices))
        self.solves += 1
        if found is None:
            return None
        for some, value in zip(self.seen, found.values, strict=True):
            some.add(value)
        over = [live - self.limit_bytes for live in self.rows.at(found.values)]
        limit = ceil_div(sum(prices) * self.limit_bytes, PRICE_UNIT)
        self.bound = max(self.bound, found.bound - limit)
        cost = self.network.cost(found.values)
        if max(over) > 0:
            self.cheap = found.values
        elif self.best is None or cost < self.best.cost:
            self.best = Solution(found.values, cost, cost)
        worth = cost * PRICE_UNIT + sum(p * o for p, o in zip(prices, over, strict=True))
        return _Priced(found.values, price, worth, over)


FEW_CELLS = 2_000
"""Entries of all tables up to which an integer program is asked in any case, if prices leave a gap."""
MOST_NODES = 1000
"""Nodes of the search of an integer program, unless its exact answer is asked for."""
MOST_MIXED = 500
"""Entries of all tables up to which it mixes choices that were seen."""


def fit_memory(
    network: CostNetwork, rows: LiveRows, limit_bytes: int, free: Solution, exact: bool = False
) -> Solution:
    """The best choice found with at most ``limit_bytes`` live at once, and what none such costs less than.

    ``free`` is the best choice without a limit. ``exact`` asks the integer program (SciPy; without it the
    answer of the prices stays), as is done for small networks in any case.
    """
    if rows.peak(free.values) <= limit_bytes:
        return free
    search = BytePrices(network, rows, limit_bytes, free)
    best, bound = search.run(), search.bound
    if best is not None and best.cost > bound:
        mixed = Mixer.of(network, rows).best(limit_bytes, search.cheap, best.values)
        if mixed is not None and mixed[0] < best.cost:
            best = Solution(mixed[1], mixed[0], 0)
    if best is None or best.cost > bound:
        if exact or _n_cells(network) <= FEW_CELLS:
            most = None if exact else MOST_NODES
            found = solve_by_program(network, rows, limit_bytes, most)
            bound = bound if found is None else max(bound, found.bound)
        else:
            found = _mix(network, rows, limit_bytes, search.seen)
        if found is not None and (best is None or found.cost < best.cost):
            best = found
    if best is None:
        best = _least_or_error(network, rows, limit_bytes, exact)
    return Solution(best.values, best.cost, min(best.cost, bound))


def least_peak(network: CostNetwork, rows: LiveRows, exact: bool = False) -> Solution:
    """The choice that keeps the fewest bytes live at its fullest time, which are its cost.

    Times vote: each time the fullest one of the best answer to all votes so far gets one more. An integer
    program closes the gap on small networks, or if ``exact`` is asked for.
    """
    priced, votes = PricedBytes(network, rows), [1] * rows.n_rows
    best: Solution | None = None
    bound = 0
    for turn in range(MOST_SOLVES):
        found = eliminate(priced.bytes_alone(votes))
        if found is None or found.cost >= FORBIDDEN:
            break
        live = rows.at(found.values)
        peak = max(live, default=0)
        bound = max(bound, ceil_div(found.bound, sum(votes) or 1))
        if best is None or peak < best.cost:
            best = Solution(found.values, peak, peak)
        if bound >= best.cost or not live:
            break
        votes = votes if turn else [0] * rows.n_rows  # all times together only to begin with
        votes[live.index(peak)] += 1
    if best is None or (bound < best.cost and (exact or _n_cells(network) <= FEW_CELLS)):
        found = least_peak_by_program(network, rows, None if exact else MOST_NODES)
        if found is not None:
            bound = max(bound, found.bound)
            best = found if best is None or found.cost < best.cost else best
    if best is None:
        raise NoPlanError(f"cannot find how much memory is needed: {install_line('arrange')}", 0)
    return Solution(best.values, best.cost, min(best.cost, bound))


def _n_cells(network: CostNetwork) -> int:
    return sum(table.costs.size for table in network.tables)


def _mix(
    network: CostNetwork, rows: LiveRows, limit_bytes: int, seen: list[set[int]]
) -> Solution | None:
    """The best mixture of choices that were seen, by the integer program; it proves nothing of others."""
    less = NarrowedNetwork.of(network, rows, seen)
    if _n_cells(less.network) > MOST_MIXED:
        return None
    found = solve_by_program(less.network, less.rows, limit_bytes, MOST_NODES)
    return None if found is None else Solution(less.whole(found.values), found.cost, 0)


def _least_or_error(
    network: CostNetwork, rows: LiveRows, limit_bytes: int, exact: bool
) -> Solution:
    """A choice within the limit if the one that needs least is; else say what it needs."""
    least = least_peak(network, rows, exact)
    if least.cost <= limit_bytes:
        cost = network.cost(least.values)
        return Solution(least.values, cost, 0)
    what = "the least that fits is" if least.is_exact else "the least found that fits is"
    raise NoPlanError(
        f"cannot plan within {format_bytes(limit_bytes)}: {what} {format_bytes(least.cost)} "
        f"({least.cost} bytes); raise the limit",
        least.cost,
    )
