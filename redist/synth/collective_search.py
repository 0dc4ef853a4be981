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

EXACT_WORK = 6_500_000
"""How much a search may do to prove its route the best: types, and ranks of neighbours."""
CELLS_PER_WORK = 4
"""So many types times ranks count one of that before the search begins."""
LEAST_WORK = 2_000_000
"""What is left of it at least."""
FEW_TYPES, FEW_WORK = 200, 600_000
"""So few types are always searched, with so much work."""
MOST_STEP = 4
"""By so many sixteenths a guess is raised at most if there are types left."""
BEAM_WORK = 1_200_000
"""The same for a few routes that are followed if the search has ended before."""
BEAMS = ((3, False), (2, True))
"""How many routes are followed at a time, and whether over permutes, if there are any."""
LATE_BEAM = 10
"""How many are followed at a time from where the search has come to."""
BEAM_WEIGHT = 2
"""How often the cost still to come counts in their choice."""


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
        while bound < below and work.left > 0:
            guess = _beyond(bound, step, below)
            step *= 2
            if not edges.narrow(guess):
                bound = guess
                continue
            step = min(step, MOST_STEP)
            if int(edges.to_goal[start]) > bound and guess < below:
                bound = int(edges.to_goal[start])
                guess = min(guess, _beyond(bound, 1, below))
                edges.narrow(guess)
            if not edges.refine(guess):
                bound = guess
                continue
            if len(edges.alive) <= FEW_TYPES:
                work.left = max(work.left, FEW_WORK)
            best = search.run(guess, work)
            bound, self.begun = max(bound, best.bound), best.begun
            if best.nodes is not None:
                return best.nodes, best.bound
        return None, bound

    def _follow(self, below: int) -> Nodes | None:
        """The best of a few routes that are followed at a time, and from where the search has come to."""
        edges, ends = self.edges, (self.prices.start, self.prices.goal)
        edges.work = Budget(BEAM_WORK)
        edges.narrow(below)
        nodes: Nodes | None = None
        cost = below
        for width, edges.permutes in BEAMS if self.permute else BEAMS[:1]:
            found, cost = beam(edges, *ends, cost, edges.patterns, width, BEAM_WEIGHT, edges.work)
            nodes = found or nodes
        if self.begun:
            kinds, work = edges.patterns, edges.work
            late = beam(edges, *ends, cost, kinds, LATE_BEAM, BEAM_WEIGHT, work, self.begun)
            nodes = late[0] or nodes
        if nodes is None and below == MORE_THAN_ANY_COST:
            nodes = ShortestPath(*ends, edges).run(below, None, BEAM_WEIGHT).nodes
        return nodes


def _beyond(bound: int, step: int, below: int) -> int:
    """A guess at the cost of a route of which a bound is known: so many sixteenths more, or ``below``."""
    guess = bound + bound * step // 16 + 1
    return guess if bound and guess + bound // 16 < below else below
