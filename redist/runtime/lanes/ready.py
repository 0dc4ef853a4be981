"""Which vertices of a run are ready, and for whom: counts of what each waits for, a heap for every queue."""

from __future__ import annotations

import heapq
import threading

from redist.runtime.lanes.residencies import LiveTiles
from redist.runtime.lanes.vertex_table import (
    HERE,
    NOW,
    RUNS,
    SERVED,
    SERVER,
    LanePolicy,
    VertexTable,
)

TRIED = 4
"""Of those that are ready in a queue, so many are asked whether they may be admitted, the best first."""
NEAR = 2**TRIED - 1
"""As many of the least entries of a heap are among so many at its beginning."""
LEAST_QUEUED, MOST_QUEUED, AHEAD_PS = 2, 16, 500_000_000
"""Two tasks are launched ahead of a GPU, and more while they take less than half a millisecond together, or
next to no memory: it has work while the host is busy. A long task that is launched early takes its memory
from loads."""


class ReadyVertices:
    """The state that all threads of a run share; ``lock`` is held by whoever calls a method.

    ``left`` counts vertices that are not done. ``wake[who]`` is told when something may be ready for those
    who wait for it; ``wake[HERE]`` also when all is done.
    """

    def __init__(self, table: VertexTable, tiles: LiveTiles, policy: LanePolicy) -> None:
        self.lock = threading.RLock()
        self.wake = [threading.Condition(self.lock) for _ in SERVED]
        self.left = len(table.rows)
        self._table, self._tiles = table, tiles
        self._rows, self._queue, self._ranks = table.rows, table.queue, table.ranks
        self._open = list(table.n_before)
        self._heaps: list[list[int]] = [[] for _ in range(NOW)]
        self._next = [0] * NOW if policy.is_fixed else None
        self._admission = None if table.admission is None else table.admission.again()
        self._n_queued = self._queued_ps = 0
        self._gone: set[int] = set()
        """Ranks of vertices that were taken from the middle of a heap."""
        self._turn = 0
        self._in_vain = [-1] * len(SERVED)
        """By who, the turn in which nothing was found: until the next one nothing will be."""
        self._asleep = [0] * len(SERVED)

    def begin(self) -> None:
        """Make ready what waits for nothing."""
        with self.lock:
            self._make_ready([number for number, count in enumerate(self._open) if not count])

    def has(self, who: int) -> bool:
        """Whether there is a vertex to take."""
        return self._find(who) is not None

    def take(self, who: int) -> int | None:
        """The vertex to do next; None if there is none."""
        number = self._find(who)
        if number is None:
            return None
        queue, rank = self._queue[number], self._ranks[number]
        if self._heaps[queue][0] == rank:
            heapq.heappop(self._heaps[queue])
        else:
            self._gone.add(rank)
        if self._next is not None:
            self._next[queue] += 1
        if self._admission is not None:
            self._admission.begin(number)
        self._turned()
        return number

    def _find(self, who: int) -> int | None:
        """The best of those that are ready and may begin: of all queues that somebody serves."""
        if self._in_vain[who] == self._turn:
            return None
        found: int | None = None
        for queue in SERVED[who]:
            one = self._best_of(queue)
            if one is not None and (found is None or self._ranks[one] < self._ranks[found]):
                found = one
        if found is None:
            self._in_vain[who] = self._turn
        return found

    def _best_of(self, queue: int) -> int | None:
        """The vertex of a queue to do next: its best, or the next one where the order is fixed.

        Under admission it may be another: of the best few the first that has room, or the next of the list.
        """
        heap, by_rank = self._heaps[queue], self._table.by_rank
        while heap and heap[0] in self._gone:
            self._gone.remove(heapq.heappop(heap))
        if not heap:
            return None
        best = by_rank[heap[0]]
        if queue == RUNS and self._n_queued >= LEAST_QUEUED:
            is_cheap = self._queued_ps < AHEAD_PS or self._table.is_small[best]
            if self._n_queued >= MOST_QUEUED or not is_cheap:
                return None
        if self._next is not None and best != self._table.order[queue][self._next[queue]]:
            return None
        admission = self._admission
        if admission is None or admission.may_begin(best):
            return best
        if self._next is None:
            for rank in sorted(heap[1:NEAR])[: TRIED - 1]:
                if rank not in self._gone and admission.may_begin(by_rank[rank]):
                    return by_rank[rank]
            first = admission.first
            if self._queue[first] == queue and not self._open[first] and admission.may_begin(first):
                return first
        return None

    def started(self, number: int) -> None:
        """Note that a task was launched that others may be launched behind."""
        self._n_queued += 1
        self._queued_ps += self._table.time_ps[number]
        self._make_ready(self._freed(self._table.behind[number]))

    def _freed(self, numbers: list[int]) -> list[int]:
        """Those that waited for one vertex alone, of all that waited for it."""
        ready = []
        for one in numbers:
            self._open[one] -= 1
            if not self._open[one]:
                ready.append(one)
        return ready

    def end(self, number: int) -> None:
        """Note that a vertex is done, and make ready those that waited for it alone."""
        row = self._rows[number]
        if self._table.is_ahead[number]:
            self._n_queued -= 1
            self._queued_ps -= self._table.time_ps[number]
        if row.returns:
            self._tiles.end(row)
        if self._admission is not None:
            self._admission.end(number)
        self.left -= 1
        self._make_ready(self._freed(self._table.after[number]))
        if not self.left:
            self.wake[HERE].notify()

    def _make_ready(self, numbers: list[int]) -> None:
        """Hand vertices to their queues; those that take no time are done at once."""
        while numbers:
            number = numbers.pop()
            queue = self._queue[number]
            if queue != NOW:
                heapq.heappush(self._heaps[queue], self._ranks[number])
                continue
            row = self._rows[number]
            self._tiles.begin(row)
            self._tiles.end(row)
            if self._admission is not None:
                self._admission.begin(number)
                self._admission.end(number)
            self.left -= 1
            numbers += self._freed(self._table.after[number])
        self._turned()

    def _turned(self) -> None:
        """Let those look again for whom something waits: there may be more that is ready, or more room."""
        self._turn += 1
        for who, heap in zip(SERVER, self._heaps):  # noqa: B905
            if heap and self._asleep[who]:
                self.wake[who].notify_all()

    def sleep(self, who: int, seconds: float | None = None) -> None:
        """Wait until there may be something for one of those who serve."""
        self._asleep[who] += 1
        try:
            self.wake[who].wait(seconds)
        finally:
            self._asleep[who] -= 1
