"""The best route of named collectives alone: shortest path over all types of the space."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from redist.layout.axes import SubAxis
from redist.synth.collectives.beam import beam
from redist.synth.collectives.edges import CollectiveEdges
from redist.synth.collectives.graph import Budget
from redist.synth.collectives.shortest_path import ShortestPath
from redist.synth.objective_costs import MORE_THAN_ANY_COST, Prices
from redist.synth.plan_figures import Path

Nodes = tuple[int, ...]

EXACT_WORK = 5_500_000
"""How much a search may do to prove its route the best: types, and ranks of neighbours."""
CELLS_PER_WORK = 4
"""So many types times ranks count one of that before the search begins."""
LEAST_WORK = 2_000_000
"""What is left of it at least."""
HASTE = 3
"""A hasty search does so many times less."""
FEW_TYPES, FEW_WORK = 200, 600_000
"""So few types are always searched, with so much work."""
SMALL_SPACE = 1_000
"""In a space of so few types the first guess is what other routes cost."""
MOST_STEP = 8
"""By so many sixteenths a guess is raised at most."""
BEAM_WORK = 400_000
"""The same for a route that is found in haste if the search has ended before, and for a few that are
followed."""
HASTY_WEIGHT = 4
"""How often the cost still to come counts in the choice of the one; so many times more, if there is none."""
DIVE_WORK, LATE_DIVE_WORK = 300_000, 400_000
"""What a route that is found in haste may take, during the search and after it."""
FOLLOW_WORK, RAISE = 1_200_000, 16
"""What a guess may take that is raised until one is found, and by how many sixteenths it is raised."""
BEAM_WIDTH = 3
"""How many routes are followed at a time."""
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
    hasty: bool = False
    edges: CollectiveEdges = field(init=False)
    begun: dict[int, tuple[int, int]] = field(default_factory=dict)
    below: int = 0
    nodes: Nodes | None = None
    guess: int = 0

    def __post_init__(self) -> None:
        self.edges = CollectiveEdges(self.prices, self.permute, self.kept)

    def run(self, below: int, prove: bool = True) -> tuple[Path | None, int]:
        """The best route that was found to cost less than ``below``, and what no route costs less than.

        If the budget of work ends before a route is proved the best, the bound is less than what the
        route costs, and the route is the best of a few that are followed; the bound is 0 if nothing was
        to be proved.
        """
        self.below = below
        bound = self._search() if prove else 0
        if bound < self.below:
            self._follow(below)
        return None if self.nodes is None else self.edges.routes.along(self.nodes), bound

    def _search(self) -> int:
        """Look for the best route; what none costs less than.

        It is guessed what the route costs at most, from what it costs at least. Then most types are out of
        the question, and the rest is searched, at first in haste. If there is none, the guess is the next
        bound.
        """
        edges, start = self.edges, self.prices.start
        search = ShortestPath(start, self.prices.goal, edges)
        cells = self.prices.space.n_cells
        most = max(LEAST_WORK, EXACT_WORK - cells // CELLS_PER_WORK)
        work = edges.work = Budget(most // HASTE if self.hasty else most)
        bound, step, far = 0, 1, 1
        if not self.prices.resolved:
            bound = min(self.below, int(edges.look_at(np.array([start]))[0]))
        guess = self.below if self._is_small else _beyond(bound, step, self.below)
        while bound < self.below and work.left > 0:
            if not edges.narrow(guess):
                bound, far = guess, 2 * far
                guess = _beyond(bound, far, self.below)
                continue
            step = min(2 * step, MOST_STEP)
            if bound < edges.to_goal[start] and len(edges.alive) > FEW_TYPES:
                bound = int(edges.to_goal[start])
                guess = min(guess, _beyond(bound, 1, self.below))
                edges.narrow(guess)
            if not edges.refine(guess):
                bound = guess
                guess = _beyond(bound, step, self.below)
                continue
            self.guess = guess
            if len(edges.alive) <= FEW_TYPES:
                work.left = max(work.left, FEW_WORK)
            elif self._hasten(guess, DIVE_WORK):
                guess = self.below
            best = search.run(guess, work)
            bound, self.begun = max(bound, best.bound), best.begun
            if best.nodes is not None:
                self.nodes, self.below = best.nodes, best.bound
            guess = _beyond(bound, step, self.below)
        return bound

    @property
    def _is_small(self) -> bool:
        """Whether it takes little to look at all patterns at once."""
        return len(self.prices.space) <= SMALL_SPACE

    def _hasten(self, guess: int, most: int, weight: int = HASTY_WEIGHT) -> bool:
        """Look for a route that costs less than a guess, with so much work; whether there is one."""
        edges, ends = self.edges, (self.prices.start, self.prices.goal)
        whole, edges.work = edges.work, Budget(most)
        hasty = ShortestPath(*ends, edges).run(guess, edges.work, weight)
        whole.spend(most - edges.work.left)
        edges.work = whole
        if hasty.nodes is not None:
            self.nodes, self.below = hasty.nodes, hasty.bound
        return hasty.nodes is not None

    def _follow(self, below: int) -> None:
        """Look for a route in haste and follow a few, where the search has come to.

        If it has come to none that costs less than ``below``, the guess is raised until there is one.
        """
        edges, ends = self.edges, (self.prices.start, self.prices.goal)
        guess, also = self.guess, (False, True) if self.permute else (True,)
        edges.work, weight = Budget(FOLLOW_WORK), HASTY_WEIGHT
        while self.nodes is None and guess < below and edges.work.left > 0:
            guess, weight = _beyond(guess, RAISE, below), HASTY_WEIGHT * weight
            edges.narrow(guess)
            for permutes in also:
                edges.permutes = permutes
                self._hasten(min(guess, self.below), LATE_DIVE_WORK, weight)
            if self.nodes is not None:
                edges.narrow(self.below)
                self._hasten(self.below, LATE_DIVE_WORK)
        for permutes in also:
            edges.permutes = permutes
            self._beam(BEAM_WIDTH, {})
        if self.begun:
            self._beam(LATE_BEAM, self.begun)
        if self.nodes is None and below == MORE_THAN_ANY_COST:
            self.nodes = ShortestPath(*ends, edges).run(below, None, HASTY_WEIGHT).nodes

    def _beam(self, width: int, begun: dict[int, tuple[int, int]]) -> None:
        """Follow so many routes at a time."""
        edges, prices = self.edges, self.prices
        ends, work = (prices.start, prices.goal), Budget(BEAM_WORK)
        edges.work = work
        kinds = edges.patterns
        found, self.below = beam(edges, *ends, self.below, kinds, width, BEAM_WEIGHT, work, begun)
        self.nodes = found or self.nodes


def _beyond(bound: int, step: int, below: int) -> int:
    """A guess at the cost of a route of which a bound is known: so many sixteenths more, or ``below``."""
    guess = bound + bound * step // 16 + 1
    return guess if bound and guess + bound // 16 < below else below
