"""The best route of named collectives alone: shortest path over all types of the space."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from redist.layout.axes import SubAxis
from redist.synth.astar import ShortestPath
from redist.synth.beam import beam
from redist.synth.collective_edges import CollectiveEdges
from redist.synth.graph import Budget
from redist.synth.objective_costs import MORE_THAN_ANY_COST, Prices
from redist.synth.plan_figures import Path

Nodes = tuple[int, ...]

EXACT_WORK = 6_000_000
"""How much a search may do to prove its route the best: types, and ranks of neighbours."""
CELLS_PER_WORK = 4
"""So many types times ranks count one of that before the search begins."""
LEAST_WORK = 2_000_000
"""What is left of it at least."""
FEW_TYPES, FEW_WORK = 200, 600_000
"""So few types are always searched, with so much work."""
SMALL_SPACE = 1_000
"""In a space of so few types the first guess is what other routes cost."""
MOST_STEP = 8
"""By so many sixteenths a guess is raised at most."""
BEAM_WORK = 900_000
"""The same for a route that is found in haste if the search has ended before, and for a few that are
followed."""
HASTY_WEIGHT = 4
"""How often the cost still to come counts in the choice of the one."""
BEAMS = ((3, False), (2, True))
"""How many routes are followed at a time, and whether over permutes, if there are any."""
LATE_BEAM = 10
"""How many are followed at a time from where the search has come to."""
BEAM_WEIGHT = 2
"""How often it counts in the choice of the others."""


@dataclass(slots=True, eq=False)
class CollectiveSearch:
    """Steps that slice, all_gather, all_to_all or all_permute do alone; no exchange."""

    prices: Prices
    permute: bool
    kept: tuple[SubAxis, ...]
    edges: CollectiveEdges = field(init=False)
    begun: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.edges = CollectiveEdges(self.prices, self.permute, self.kept)

    def run(self, below: int, prove: bool = True) -> tuple[Path | None, int]:
        """The best route that was found to cost less than ``below``, and what no route costs less than.

        If the budget of work ends before a route is proved the best, the bound is less than what the
        route costs, and the route is the best of a few that are followed; the bound is 0 if nothing was
        to be proved.
        """
        nodes, bound = self._search(below) if prove else (None, 0)
        if nodes is None and bound < below:
            nodes = self._follow(below)
        return None if nodes is None else self.edges.routes.along(nodes), bound

    def _search(self, below: int) -> tuple[Nodes | None, int]:
        """The best route, if it is found, and what none costs less than.

        It is guessed what the route costs at most, from what it costs at least. Then most types are out of
        the question, and the rest is searched. If there is none, the guess is the next bound.
        """
        edges, start = self.edges, self.prices.start
        search = ShortestPath(start, self.prices.goal, edges)
        cells = self.prices.space.n_cells
        work = edges.work = Budget(max(LEAST_WORK, EXACT_WORK - cells // CELLS_PER_WORK))
        bound, step = 0, 1
        if not self.prices.resolved:
            bound = min(below, int(edges.look_at(np.array([start]))[0]))
        guess = below if self._is_small else _beyond(bound, step, below)
        while bound < below and work.left > 0:
            step = min(2 * step, MOST_STEP)
            if not edges.narrow(guess):
                bound = guess
                guess = _beyond(bound, step, below)
                continue
            if bound < edges.to_goal[start] and len(edges.alive) > FEW_TYPES:
                bound = int(edges.to_goal[start])
                guess = min(guess, _beyond(bound, 1, below))
                edges.narrow(guess)
            if not edges.refine(guess):
                bound = guess
                guess = _beyond(bound, step, below)
                continue
            if len(edges.alive) <= FEW_TYPES:
                work.left = max(work.left, FEW_WORK)
            best = search.run(guess, work)
            bound, self.begun = max(bound, best.bound), best.begun
            if best.nodes is not None:
                return best.nodes, best.bound
            guess = _beyond(bound, step, below)
        return None, bound

    @property
    def _is_small(self) -> bool:
        """Whether it takes little to look at all patterns at once."""
        return len(self.prices.space) <= SMALL_SPACE

    def _follow(self, below: int) -> Nodes | None:
        """The best of a route found in haste and a few that are followed, also from where the search was."""
        edges, ends = self.edges, (self.prices.start, self.prices.goal)
        work = edges.work = Budget(BEAM_WORK)
        edges.narrow(below)
        hasty = ShortestPath(*ends, edges).run(below, work, HASTY_WEIGHT)
        nodes, cost = hasty.nodes, below if hasty.nodes is None else hasty.bound
        work = edges.work = Budget(BEAM_WORK)
        for width, edges.permutes in BEAMS if self.permute else BEAMS[:1]:
            found, cost = beam(edges, *ends, cost, edges.patterns, width, BEAM_WEIGHT, work)
            nodes = found or nodes
        if self.begun:
            kinds = edges.patterns
            late = beam(edges, *ends, cost, kinds, LATE_BEAM, BEAM_WEIGHT, work, self.begun)
            nodes = late[0] or nodes
        if nodes is None and below == MORE_THAN_ANY_COST:
            nodes = ShortestPath(*ends, edges).run(below, None, HASTY_WEIGHT).nodes
        return nodes


def _beyond(bound: int, step: int, below: int) -> int:
    """A guess at the cost of a route of which a bound is known: so many sixteenths more, or ``below``."""
    guess = bound + bound * step // 16 + 1
    return guess if bound and guess + bound // 16 < below else below
