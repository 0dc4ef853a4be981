"""The best choice that keeps at most so many bytes live at any time.

Bytes get prices, at every time its own, and choices are made as before: what no choice costs less than at
such prices, less what the limit is worth, no choice within the limit costs less than. Prices rise where there
is too much; the cheapest choice within the limit is kept, or a mixture of it and of others. An integer
program closes the gap if that is asked for. If nothing fits, the least limit that something keeps is said.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from redist.arrange.elimination import eliminate
from redist.arrange.linear_program import least_peak_by_program, solve_by_program
from redist.arrange.live_rows import PRICE_UNIT, LiveRows, PricedBytes
from redist.arrange.mixing import Mixer
from redist.arrange.narrowed import NarrowedNetwork
from redist.arrange.network import FORBIDDEN, CostNetwork, Solution
from redist.errors import NoPlanError
from redist.text.units import ceil_div, format_bytes

MOST_SOLVES = 40
"""Prices that are tried."""
MOST_PRICE = 2**70
FEW_CELLS = 2_000
"""Entries of all tables up to which an integer program is asked in any case, if prices leave a gap."""
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
    search = _PriceSearch(network, rows, limit_bytes, free)
    best, bound = search.run(), search.bound
    if best is not None and best.cost > bound:
        mixed = Mixer.of(network, rows).best(limit_bytes, search.cheap, best.values)
        if mixed is not None and mixed[0] < best.cost:
            best = Solution(mixed[1], mixed[0], 0)
    if best is None or best.cost > bound:
        if exact or _n_cells(network) <= FEW_CELLS:
            found = solve_by_program(network, None, rows, limit_bytes)
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
        found = least_peak_by_program(network, rows)
        if found is not None:
            bound = max(bound, found.bound)
            best = found if best is None or found.cost < best.cost else best
    if best is None:
        raise NoPlanError("cannot find how much memory is needed: pip install redist[arrange]", 0)
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
    found = solve_by_program(less.network, None, less.rows, limit_bytes)
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


@dataclass(frozen=True, slots=True)
class _Priced:
    """A choice at some price of bytes at one time: what it is worth there, how far it is over the limit."""

    values: tuple[int, ...]
    price: int
    worth: int
    """Its cost, and that of all bytes over the limit; in parts of a picosecond."""
    over: list[int]


@dataclass(slots=True, eq=False)
class _PriceSearch:
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
