"""Shortest paths where exact costs are dear, prices come in bulk, and lower bounds of them are cheap."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from redist.layout.tiles import Ints
from redist.synth.collectives.graph import BATCH, Budget, Graph, order_edges, path_to, price_edges

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
        a ``weight`` above 1 the cost still to come counts so many times: a path is found sooner, need
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
