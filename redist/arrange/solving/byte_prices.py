"""Prices of bytes at each time, at which choices that keep a limit become the best ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from redist.arrange.solving.elimination import eliminate
from redist.arrange.solving.live_rows import PRICE_UNIT, LiveRows, PricedBytes
from redist.arrange.solving.network import CostNetwork, Solution
from redist.text.units import ceil_div

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
