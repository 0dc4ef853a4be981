"""The best choice that keeps at most so many bytes live at any time.

Bytes get prices, at every time its own, and choices are made as before: what no choice costs less than at
such prices, less what the limit is worth, no choice within the limit costs less than. Prices rise where there
is too much; the cheapest choice within the limit is kept, or a mixture of it and of others. An integer
program closes the gap if that is asked for. If nothing fits, the least limit that something keeps is said.
"""

from __future__ import annotations

from redist.arrange.solving.byte_prices import MOST_SOLVES, BytePrices
from redist.arrange.solving.elimination import eliminate
from redist.arrange.solving.linear_program import least_peak_by_program, solve_by_program
from redist.arrange.solving.live_rows import LiveRows, PricedBytes
from redist.arrange.solving.mixing import Mixer
from redist.arrange.solving.narrowed import NarrowedNetwork
from redist.arrange.solving.network import FORBIDDEN, CostNetwork, Solution
from redist.errors import NoPlanError
from redist.text.extras import install_line
from redist.text.units import ceil_div, format_bytes

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
    search = BytePrices(network, rows, limit_bytes, free)
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
