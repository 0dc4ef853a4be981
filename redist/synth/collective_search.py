"""The best route of named collectives alone: shortest path over all types of the space."""

from __future__ import annotations

from dataclasses import dataclass, field

from redist.layout.axes import SubAxis
from redist.synth.astar import ShortestPath
from redist.synth.beam import beam
from redist.synth.collective_edges import CollectiveEdges
from redist.synth.graph import Budget
from redist.synth.objective_costs import MORE_THAN_ANY_COST, Prices
from redist.synth.plan_figures import Path

EXACT_WORK = 5_000_000
"""How much a search may do to prove its route the best: types, and ranks of neighbours."""
CELLS_PER_WORK = 2
"""So many types times ranks count one of that before the search begins."""
LEAST_WORK = 1_000_000
"""What is left of it at least."""
BEAM_WORK = 1_200_000
"""The same for a few routes that are followed before, to have a good one early, and after."""
EARLY_BEAMS = ((3, False), (2, True))
"""How many routes are followed at a time before, and whether over permutes, if there are any."""
LATE_BEAM = 10
"""How many are followed at a time after, from where the search has come to."""
BEAM_WEIGHT = 2
"""How often the cost still to come counts in their choice."""


@dataclass(slots=True, eq=False)
class CollectiveSearch:
    """Steps that slice, all_gather, all_to_all or all_permute do alone; no exchange."""

    prices: Prices
    permute: bool
    kept: tuple[SubAxis, ...]
    edges: CollectiveEdges = field(init=False)

    def __post_init__(self) -> None:
        self.edges = CollectiveEdges(self.prices, self.permute, self.kept)

    def run(self, below: int, prove: bool = True) -> tuple[Path | None, int]:
        """The best route that was found to cost less than ``below``, and what no route costs less than.

        A few routes are followed first, so that the search after them need not look at what costs
        more. If its budget of work ends before it has proved a route the best, the bound is less than
        what the route costs; it is 0 if nothing was to be proved.
        """
        edges = self.edges
        ends = self.prices.start, self.prices.goal
        search = ShortestPath(*ends, edges)
        edges.work = Budget(BEAM_WORK)
        nodes: tuple[int, ...] | None = None
        cost = below
        for width, edges.permutes in EARLY_BEAMS if self.permute else EARLY_BEAMS[:1]:
            found, cost = beam(edges, *ends, cost, edges.shapes, width, BEAM_WEIGHT, edges.work)
            nodes = found or nodes
        if nodes is None and below == MORE_THAN_ANY_COST:
            some = search.run(below, None, BEAM_WEIGHT)
            nodes, cost = some.nodes, some.bound
        if not prove:
            return None if nodes is None else edges.routes.along(nodes), 0
        cells = self.prices.space.volumes.size
        edges.work = Budget(max(LEAST_WORK, EXACT_WORK - cells // CELLS_PER_WORK))
        best = search.run(below if nodes is None else cost + 1, edges.work)
        nodes = best.nodes or nodes
        if best.nodes is None and best.bound < cost:
            edges.work = Budget(BEAM_WORK)
            found, _ = beam(
                edges, *ends, cost, edges.shapes, LATE_BEAM, BEAM_WEIGHT, edges.work, best.begun
            )
            nodes = found or nodes
        if nodes is None:
            return None, best.bound
        return edges.routes.along(nodes), best.bound
