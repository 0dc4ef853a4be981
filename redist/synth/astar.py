"""Shortest paths where exact costs are dear and lower bounds are cheap and come in bulk."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from redist.layout.tiles import Ints
from redist.synth.chains import Bools

Bulk = Callable[[int, int], tuple[Ints, Ints, Bools]]
"""Node, and what a path from it may cost -> (neighbours, lower bounds of the costs of the edges to them,
which of these are exact)."""
Entry = tuple[int, int, int, int, bool]
"""What waits: hope for the whole path, cost so far, node, the node before it, whether the cost is exact."""


@dataclass(slots=True)
class Budget:
    """Work that a search may still do; counted, so that it ends at the same point on every machine."""

    left: int

    def spend(self, work: int) -> None:
        """Count some work."""
        self.left -= work


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

    ``to_goal`` never exceeds the cost still to come and obeys the triangle inequality. Ties go to the
    lower cost so far, then to the lower node number, so the answer is the same on every machine. The
    edges out of a node wait in a row of their own, of which only the first stands in the queue.
    """

    start: int
    goal: int
    to_goal: Ints
    edges: Bulk
    exact: Callable[[int, int], int]

    def run(self, below: int, budget: Budget | None, weight: int = 1) -> FoundPath:
        """The cheapest path that costs less than ``below``, and the bound that is proved for it.

        If the budget ends first, no path came up, and the bound is the least hope of what waits. With
        a ``weight`` above 1 the cost still to come counts so many times: a path is found sooner, need
        not be the cheapest, and nothing is proved.
        """
        settled: dict[int, tuple[int, int]] = {}
        waiting = _Waiting()
        first = weight * int(self.to_goal[self.start])
        waiting.add(iter([(first, 0, self.start, -1, True)]))
        least: dict[int, int] = {}
        while waiting and (budget is None or budget.left > 0):
            _, cost, node, parent, known = waiting.pop()
            if node in settled or cost > least.get(node, cost):
                continue
            rest = int(self.to_goal[node])
            if not known:
                cost = settled[parent][0] + self.exact(parent, node)
                if cost + rest < below and cost < least.get(node, below):
                    least[node] = cost
                    waiting.add(iter([(cost + weight * rest, cost, node, parent, True)]))
                continue
            settled[node] = (cost, parent)
            if node == self.goal:
                return FoundPath(_path(settled, node), cost)
            waiting.add(self._row(node, cost, below, weight, least))
        return FoundPath(None, min(below, waiting.hope(below)), settled)

    def beam(
        self,
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
        begun = begun or {self.start: (0, -1)}
        seen = {node: cost for node, (cost, _) in begun.items()}
        order = sorted(
            begun, key=lambda node: (seen[node] + weight * int(self.to_goal[node]), node)
        )
        for node in order:
            if len(edge) < width and all(kinds[node] != kinds[path[-1]] for _, path in edge):
                edge.append((seen[node], _path(begun, node)))
        while edge and budget.left > 0:
            ways: list[tuple[int, int, int, tuple[int, ...], bool]] = []
            for so_far, path in edge:
                if budget.left > 0:
                    ways += self._ways(so_far, path, below, kinds, 2 * width, weight)
            edge, taken = [], set()
            for _, node, cost, path, known in sorted(ways):
                kind = int(kinds[node])
                if node != self.goal and (kind in taken or len(edge) == width):
                    continue
                if not known:
                    cost = seen[path[-1]] + self.exact(path[-1], node)
                if cost + int(self.to_goal[node]) >= below or cost >= seen.get(node, below):
                    continue
                seen[node] = cost
                if node == self.goal:
                    best, below = (*path, node), cost
                else:
                    taken.add(kind)
                    edge.append((cost, (*path, node)))
        return best, below

    def _ways(
        self, cost: int, path: tuple[int, ...], below: int, kinds: Ints, most: int, weight: int
    ) -> Iterator[tuple[int, int, int, tuple[int, ...], bool]]:
        """The most hopeful edges on, to one node of each kind, and that to the goal."""
        ids, low, known = self.edges(path[-1], below - cost)
        viable = np.flatnonzero(cost + low + self.to_goal[ids] < below)
        ids, low, known = ids[viable], cost + low[viable], known[viable]
        hope = low + weight * self.to_goal[ids]
        order = np.lexsort((ids, hope))
        _, first = np.unique(kinds[ids[order]], return_index=True)
        chosen = order[np.sort(first)[:most]].tolist()
        for i in dict.fromkeys((*np.flatnonzero(ids == self.goal).tolist(), *chosen)):
            yield int(hope[i]), int(ids[i]), int(low[i]), path, bool(known[i])

    def _row(
        self, node: int, cost: int, below: int, weight: int, least: dict[int, int]
    ) -> Iterator[Entry]:
        """The edges out of a node, the most hopeful first."""
        ids, low, known = self.edges(node, below - cost)
        rest = self.to_goal[ids]
        keep = np.flatnonzero(cost + low + rest < below)
        ids, low, known, rest = ids[keep], low[keep], known[keep], rest[keep]
        hope = cost + low + weight * rest
        order = np.lexsort((ids, low, hope))
        columns = (column[order].tolist() for column in (hope, cost + low, ids, known))
        for whole, so_far, other, exact in zip(*columns, strict=True):
            if so_far < least.get(other, below):
                if exact:
                    least[other] = so_far
                yield whole, so_far, other, node, exact


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


def _path(settled: dict[int, tuple[int, int]], node: int) -> tuple[int, ...]:
    path = [node]
    while settled[path[-1]][1] >= 0:
        path.append(settled[path[-1]][1])
    return tuple(path[::-1])
