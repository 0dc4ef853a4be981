"""A good choice and its bound where the best takes too long: the same on all ranks, without a clock.

Buckets give a choice and a bound, conditioning a better choice. Layers that repeat have one choice for all at
first, so that deep networks take about as long as shallow ones. Small networks go to an integer program, too.
"""

from __future__ import annotations

from redist.arrange.solving.conditioning import MOST_WORK, alike, improve_by_conditioning, tie
from redist.arrange.solving.elimination import eliminate
from redist.arrange.solving.linear_program import solve_by_program
from redist.arrange.solving.mini_buckets import bound_in_buckets, improve, solve_in_buckets
from redist.arrange.solving.network import FORBIDDEN, CostNetwork, Solution

MOST_COLUMNS, MOST_NODES = 5000, 100
"""Networks of so few columns also go to an integer program, for this many nodes of its search. No clock ends
it: all ranks must find the same."""
BOUND_CELLS = 2**16
"""Cells of a bucket for the bound. Larger ones take longer and give no better bound as often as they do."""
REPEATED = 0.7
"""Layers repeat if there are so few kinds of variables for each variable."""
AGAIN = 4
"""A choice that was found at other prices is improved with such a part of the work."""


def solve_tangled(network: CostNetwork, begin: Solution | None = None) -> Solution:
    """A good choice and a bound; ``begin`` may be the answer of a network like this one, at other prices."""
    found = search(network, begin)
    n_columns = sum(network.sizes) + sum(
        table.costs.size for table in network.tables if len(table.variables) > 1
    )
    exact = solve_by_program(network, n_nodes=MOST_NODES) if n_columns <= MOST_COLUMNS else None
    if exact is None:
        return found
    best = exact if exact.cost < found.cost else found
    return Solution(best.values, best.cost, min(best.cost, max(exact.bound, found.bound)))


def search(network: CostNetwork, begin: Solution | None = None) -> Solution:
    """A choice by conditioning, and the bound of buckets; repeated layers have one choice for all."""
    bound = bound_in_buckets(network, BOUND_CELLS)
    if begin is not None:
        cost = network.cost(begin.values)
        begin = Solution(begin.values, cost, 0) if cost < FORBIDDEN else None
    classes = alike(network)
    found: Solution | None = None
    if 1 + max(classes, default=0) <= len(network.sizes) * REPEATED:
        tied = tie(network, classes)
        short = eliminate(tied) or _search_all(tied, _tied_choice(tied, classes, begin))
        if short.cost < FORBIDDEN:
            found = improve(network, [short.values[one] for one in classes])
    if found is None:
        found = _search_all(network, begin)
    return Solution(found.values, found.cost, min(found.cost, max(bound, found.bound)))


def _tied_choice(tied: CostNetwork, classes: list[int], begin: Solution | None) -> Solution | None:
    """A choice for all members of a class as one of them has it; None if it cannot be."""
    if begin is None:
        return None
    values = dict(zip(classes, begin.values, strict=True))
    choice = tuple(values[one] for one in range(len(tied.sizes)))
    cost = tied.cost(choice)
    return Solution(choice, cost, 0) if cost < FORBIDDEN else None


def _search_all(network: CostNetwork, begin: Solution | None) -> Solution:
    """The choice of buckets, or one that is known, made better if there is one."""
    known = solve_in_buckets(network) if begin is None else begin
    if known.cost >= FORBIDDEN:
        return known
    work = MOST_WORK if begin is None else MOST_WORK // AGAIN
    found = improve_by_conditioning(network, known.values, work)
    return Solution(found.values, found.cost, min(found.cost, known.bound))
