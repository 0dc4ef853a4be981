"""Which vertices are ready, and for whom: counts of what each waits for, and a heap for every lane."""

from __future__ import annotations

import heapq
import threading

from redist.runtime.lanes.policies import LanePolicy
from redist.runtime.lanes.residencies import LiveTiles
from redist.runtime.lanes.vertex_table import HERE, NOW, VertexTable


class ReadyVertices:
    """The state that all threads of a run share; ``lock`` is held by whoever calls a method.

    ``left`` counts vertices that are not done. ``wake[who]`` is told when something is ready for those who
    wait for it; ``wake[HERE]`` also when all is done.
    """

    def __init__(self, table: VertexTable, tiles: LiveTiles, policy: LanePolicy) -> None:
        self.lock = threading.RLock()
        self.wake = [threading.Condition(self.lock) for _ in range(3)]
        self.left = len(table.rows)
        self._table, self._tiles = table, tiles
        self._rows, self._who, self._ranks = table.rows, table.who, table.ranks
        self._open = list(table.n_before)
        self._heaps: list[list[int]] = [[], [], []]
        self._next = [0, 0, 0] if policy.is_fixed else None

    def begin(self) -> None:
        """Make ready what waits for nothing."""
        with self.lock:
            self._make_ready([number for number, count in enumerate(self._open) if not count])

    def has(self, who: int) -> bool:
        """Whether there is a vertex to take: any, or the next one where the order is fixed."""
        heap = self._heaps[who]
        if self._next is None or not heap:
            return bool(heap)
        return heap[0] == self._ranks[self._table.order[who][self._next[who]]]

    def take(self, who: int) -> int | None:
        """The vertex to do next; None if there is none."""
        if not self.has(who):
            return None
        number = self._table.by_rank[heapq.heappop(self._heaps[who])]
        if self._next is not None:
            self._next[who] += 1
            if self.has(who):  # another thread saw it when it was not the next
                self.wake[who].notify()
        return number

    def end(self, number: int) -> None:
        """Note that a vertex is done, and make ready those that waited for it alone."""
        row = self._rows[number]
        if row.returns:
            self._tiles.end(row)
        self.left -= 1
        ready = []
        for one in self._table.after[number]:
            self._open[one] -= 1
            if not self._open[one]:
                ready.append(one)
        if ready:
            self._make_ready(ready)
        if not self.left:
            self.wake[HERE].notify()

    def _make_ready(self, numbers: list[int]) -> None:
        """Hand vertices to their lanes; those that take no time are done at once."""
        while numbers:
            number = numbers.pop()
            who = self._who[number]
            if who != NOW:
                heapq.heappush(self._heaps[who], self._ranks[number])
                self.wake[who].notify()
                continue
            row = self._rows[number]
            self._tiles.begin(row)
            self._tiles.end(row)
            self.left -= 1
            for one in self._table.after[number]:
                self._open[one] -= 1
                if not self._open[one]:
                    numbers.append(one)
