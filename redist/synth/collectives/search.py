"""The best route of named collectives alone: shortest path over all types of the space."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from redist.layout.axes import SubAxis
from redist.layout.tiles import Ints
from redist.synth.collectives.edges import CollectiveEdges
from redist.synth.collectives.graph import BATCH, Budget, Graph, order_edges, path_to, price_edges
from redist.synth.objective_costs import MORE_THAN_ANY_COST, Prices
from redist.synth.plan_figures import Path

# Shortest paths where exact costs are dear, prices come in bulk, and lower bounds of them are cheap.


Entry = tuple[int, int, int, int, bool]
"""What waits: hope for the whole path, cost so far, node, the node before it, whether the cost is exact."""


@dataclass(frozen=True, slots=True)
class FoundPath:
    """The cheapest path below what was asked for, None if none came up; no path costs less than ``bound``.

    ``begun`` has the cheapest ways to all nodes that were reached, if the budget ended.
    """

    nodes: tuple[int, ...] | None
    bound: int
    begun: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By node: the cost, and the node before it."""


@dataclass(slots=True, eq=False)
class ShortestPath:
    """A* with lazy edges: an edge waits under a lower bound of its cost and is priced when it comes up.

    ``to_goal`` never exceeds the cost still to come and obeys the triangle inequality where it was
    looked at. Ties go to the lower cost so far, then to the lower node number, so the answer is the
    same on every machine. The edges out of a node wait in a row of their own, of which only the first
    stands in the queue; they are priced some at a time.
    """

    start: int
    goal: int
    graph: Graph

    def run(self, below: int, budget: Budget | None, weight: int = 1) -> FoundPath:
        """The cheapest path that costs less than ``below``, and the bound that is proved for it.

        If the budget ends first, no path came up, and the bound is the least hope of what waits. With
        a ``weight`` above 1 the cost still to come counts this many times: a path is found sooner, need
        not be the cheapest, and nothing is proved.
        """
        settled: dict[int, tuple[int, int]] = {}
        waiting = _Waiting()
        first = weight * int(self.graph.to_goal[self.start])
        waiting.add(iter([(first, 0, self.start, -1, True)]))
        under = below - self.graph.to_goal
        while waiting and (budget is None or budget.left > 0):
            _, cost, node, parent, known = waiting.pop()
            if node in settled or cost > under[node]:
                continue
            rest = int(self.graph.to_goal[node])
            if not known:
                cost = settled[parent][0] + self.graph.exact(parent, node)
                if cost < under[node]:
                    under[node] = cost
                    waiting.add(iter([(cost + weight * rest, cost, node, parent, True)]))
                continue
            settled[node] = (cost, parent)
            if node == self.goal:
                return FoundPath(path_to(settled, node), cost)
            under[node] = min(cost, under[node])
            waiting.add(self._row(node, cost, below, weight, under))
        return FoundPath(None, min(below, waiting.hope(below)), settled)

    def _row(self, node: int, cost: int, below: int, weight: int, under: Ints) -> Iterator[Entry]:
        """The edges out of a node, the most hopeful first; ``under`` has what ways to nodes must cost.

        Between batches the node itself stands in the row, with the hope of the next batch; as it is
        settled, nothing happens if it comes up, but that the next batch is priced.
        """
        every, floors, hopes = order_edges(self.graph, node, cost, below, weight, under)
        ready: list[Entry] = []
        for at in range(0, len(every), BATCH):
            while ready and ready[0][0] < hopes[at]:
                yield heapq.heappop(ready)
            if at:
                yield int(hopes[at]), -1, node, node, True
            ids = every[at : at + BATCH]
            ids = ids[cost + floors[at : at + BATCH] < under[ids]]
            ids, low, known = price_edges(self.graph, node, cost, ids, below, under)
            under[ids[known]] = low[known]
            hope = low + weight * self.graph.to_goal[ids]
            columns = (column.tolist() for column in (hope, low, ids, known))
            for whole, so_far, other, exact in zip(*columns, strict=True):
                heapq.heappush(ready, (whole, so_far, other, node, exact))
        while ready:
            yield heapq.heappop(ready)


@dataclass(slots=True, eq=False)
class _Waiting:
    """Rows of entries, each in order; the least entry of all comes next."""

    _heap: list[tuple[Entry, int]] = field(default_factory=list)
    _rows: list[Iterator[Entry]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, row: Iterator[Entry]) -> None:
        """Let another row wait."""
        self._rows.append(row)
        self._refill(len(self._rows) - 1)

    def pop(self) -> Entry:
        """Take the least entry."""
        entry, row = heapq.heappop(self._heap)
        self._refill(row)
        return entry

    def _refill(self, row: int) -> None:
        entry = next(self._rows[row], None)
        if entry is not None:
            heapq.heappush(self._heap, (entry, row))

    def hope(self, otherwise: int) -> int:
        """The least hope of all that waits."""
        return self._heap[0][0][0] if self._heap else otherwise


# Paths that are found soon: a few are followed at a time, each over nodes of another kind.


def beam(
    graph: Graph,
    start: int,
    goal: int,
    below: int,
    kinds: Ints,
    width: int,
    weight: int,
    budget: Budget,
    begun: dict[int, tuple[int, int]] | None = None,
) -> tuple[tuple[int, ...] | None, int]:
    """A path that costs less than ``below`` and its cost, if following a few at a time leads to one.

    Of all nodes that one more edge leads to, the most hopeful of each of ``width`` kinds are
    followed, the cost still to come counting ``weight`` times; at first, of those already
    ``begun``.
    """
    best: tuple[int, ...] | None = None
    edge: list[tuple[int, tuple[int, ...]]] = []
    begun = begun or {start: (0, -1)}
    seen = {node: cost for node, (cost, _) in begun.items()}
    order = sorted(begun, key=lambda node: (seen[node] + weight * int(graph.to_goal[node]), node))
    for node in order:
        if len(edge) < width and all(kinds[node] != kinds[path[-1]] for _, path in edge):
            edge.append((seen[node], path_to(begun, node)))
    while edge and budget.left > 0:
        ways: list[tuple[int, int, int, tuple[int, ...], bool]] = []
        for so_far, path in edge:
            if budget.left > 0:
                ways += _ways(graph, goal, so_far, path, below, kinds, 2 * width, weight)
        edge, taken = [], set()
        for _, node, cost, path, known in sorted(ways):
            kind = int(kinds[node])
            if node != goal and (kind in taken or len(edge) == width):
                continue
            if not known:
                cost = seen[path[-1]] + graph.exact(path[-1], node)
            if cost + int(graph.to_goal[node]) >= below or cost >= seen.get(node, below):
                continue
            seen[node] = cost
            if node == goal:
                best, below = (*path, node), cost
            else:
                taken.add(kind)
                edge.append((cost, (*path, node)))
    return best, below


def _ways(
    graph: Graph,
    goal: int,
    cost: int,
    path: tuple[int, ...],
    below: int,
    kinds: Ints,
    most: int,
    weight: int,
) -> Iterator[tuple[int, int, int, tuple[int, ...], bool]]:
    """The most hopeful edges on, to one node of each kind, and that to the goal."""
    under = below - graph.to_goal
    ids, _, hope = order_edges(graph, path[-1], cost, below, weight, under)
    first = ids[:BATCH]
    if goal in ids[BATCH:]:
        first = np.append(first, goal)
    ids, low, known = price_edges(graph, path[-1], cost, first, below, under)
    hope = low + weight * graph.to_goal[ids]
    order = np.lexsort((ids, hope))
    _, first = np.unique(kinds[ids[order]], return_index=True)
    chosen = order[np.sort(first)[:most]].tolist()
    for i in dict.fromkeys((*np.flatnonzero(ids == goal).tolist(), *chosen)):
        yield int(hope[i]), int(ids[i]), int(low[i]), path, bool(known[i])


Nodes = tuple[int, ...]

EXACT_WORK = 5_500_000
"""How much a search may do to prove its route the best: types, and ranks of neighbours."""
CELLS_PER_WORK = 4
"""This many types times ranks count one of that before the search begins."""
LEAST_WORK = 2_000_000
"""What is left of it at least."""
HASTE = 3
"""A hasty search does this many times less."""
FEW_TYPES, FEW_WORK = 200, 600_000
"""So few types are always searched, with this much work."""
SMALL_SPACE = 1_000
"""In a space of so few types the first guess is what other routes cost."""
MOST_STEP = 8
"""By this many sixteenths a guess is raised at most."""
BEAM_WORK = 400_000
"""The same for a route that is found in haste if the search has ended before, and for a few that are
followed."""
HASTY_WEIGHT = 4
"""How often the cost still to come counts in the choice of the one; this many times more if there is none."""
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
        """Look for a route that costs less than a guess, with this much work; whether there is one."""
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
        """Follow this many routes at a time."""
        edges, prices = self.edges, self.prices
        ends, work = (prices.start, prices.goal), Budget(BEAM_WORK)
        edges.work = work
        kinds = edges.patterns
        found, self.below = beam(edges, *ends, self.below, kinds, width, BEAM_WEIGHT, work, begun)
        self.nodes = found or self.nodes


def _beyond(bound: int, step: int, below: int) -> int:
    """A guess at the cost of a route of which a bound is known: this many sixteenths more, or ``below``."""
    guess = bound + bound * step // 16 + 1
    return guess if bound and guess + bound // 16 < below else below
