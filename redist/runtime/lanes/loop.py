"""The loop that runs a memory graph on a rank: lanes take what is ready, and what ends makes others ready.

The calling thread computes and moves. Threads load and store, and go on while it does: each, when it ends a
vertex, counts down those that wait for it, so that a load begins as soon as a store has made room, in the
middle of a long task too. One lock guards the counts; it is released during computation and copies. What is
only started (work on a GPU, a move in the background) is asked by the calling thread whether it is done.

Where memory is granted by admission, a task of a GPU is launched as soon as the tasks before it are, a few
ahead of the GPU; all else waits for what has ended. So memory is given back when the GPU has done with it,
copies need no events of other streams, and a task never waits on the stream for a load, in the way of others
that are ready.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from redist.runtime.lanes.residencies import LiveTiles
from redist.runtime.lanes.stores import UnderWay
from redist.runtime.lanes.vertex_table import (
    HERE,
    LOAD,
    LOADS,
    NOW,
    RUNS,
    SERVED,
    SERVER,
    STORE,
    STORES,
    LanePolicy,
    VertexTable,
)


class LaneSpan(NamedTuple):
    """A vertex on its lane, in seconds since the graph began; frees take no time and are left out."""

    lane: str
    vertex: int
    begin_s: float
    end_s: float


# Which vertices are ready, and for whom: counts of what each waits for, and a heap for every queue.


TRIED = 4
"""Of those that are ready in a queue, so many are asked whether they may be admitted, the best first."""
NEAR = 2**TRIED - 1
"""As many of the least entries of a heap are among so many at its beginning."""
LEAST_QUEUED, MOST_QUEUED, AHEAD_PS = 2, 16, 500_000_000
"""Two tasks are launched ahead of a GPU, and more while they take less than half a millisecond together: it
has work while the host is busy. A long task that is launched early takes its memory from loads."""


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
        most = MOST_QUEUED if self._queued_ps < AHEAD_PS else LEAST_QUEUED
        if not heap or (queue == RUNS and self._n_queued >= most):
            return None
        best = by_rank[heap[0]]
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
        for queue, heap in enumerate(self._heaps):
            if heap:
                self.wake[SERVER[queue]].notify_all()


LOOK_S = 0.05
"""So often a waiting rank looks whether another one has failed."""
BUSY_S, POLL_S = 3e-4, 1e-4
"""So long questions whether work is done follow each other; after that this much time is between them."""


def nothing(*_: object) -> None:
    """Do nothing."""


class LaneLoop:
    """One run of a graph."""

    def __init__(
        self,
        table: VertexTable,
        tiles: LiveTiles,
        policy: LanePolicy,
        n_threads: int,
        look: Callable[[], None],
        awake: bool,
        spans: list[LaneSpan] | None,
        said: Callable[[int, int], None] = nothing,
    ) -> None:
        self._rows, self._tiles, self._look, self._spans = table.rows, tiles, look, spans
        self._is_ahead, self._queue_s = table.is_ahead, 0.0
        self._busy_s = math.inf if awake else BUSY_S
        self._ready = ReadyVertices(table, tiles, policy)
        self._lock, self._wake = self._ready.lock, self._ready.wake
        self._waits = policy.is_synchronous
        self._said, self._total = said, len(table.rows)
        self._errors: list[tuple[int, BaseException]] = []
        self._under_way: list[tuple[int, UnderWay, float]] = []
        self._is_over = False
        self._begin_s = time.perf_counter()
        self._threads = [
            threading.Thread(target=self._serve, args=(who,), name=f"redist-{name}", daemon=True)
            for who, queue, name in ((LOAD, LOADS, "load"), (STORE, STORES, "store"))
            for _ in range(min(n_threads, len(table.order[queue])))
        ]

    def run(self, told: Callable[[BaseException], None]) -> None:
        """Run all vertices, or raise the first error once nothing is under way any more.

        ``told`` hears of the error at once: others may wait for this rank.
        """
        try:
            self._ready.begin()
            for thread in self._threads:
                thread.start()
            self._work()
        except BaseException as error:
            told(error)
            raise
        finally:
            try:
                self._stop()
            except BaseException:  # an interrupt: threads must end all the same
                self._stop()
                raise

    def _stop(self) -> None:
        """End the threads and what was started; what is ready stays undone."""
        with contextlib.suppress(RuntimeError):  # it is open: an interrupt may come at any moment
            while True:
                self._lock.release()
        with self._lock:
            self._is_over = True
            for wake in self._wake:
                wake.notify_all()
        for thread in self._threads:
            await_end(thread)
        for _, one, _ in self._under_way:
            with contextlib.suppress(Exception):
                one.wait()
        self._under_way.clear()

    # The calling thread

    def _work(self) -> None:
        """Take what is ready here until all is done or a vertex has failed; :meth:`_stop` opens the lock."""
        ready = self._ready
        self._lock.acquire()
        while ready.left and not self._errors:
            if self._under_way:
                self._ask()
            number = ready.take(HERE)
            if number is None:
                self._wait()
                continue
            try:
                self._do(number)
                self._said(self._total - ready.left, self._total)
            except Exception as error:
                self._errors.append((number, error))
        if self._errors:
            raise min(self._errors, key=lambda one: one[0])[1]

    def _wait(self) -> None:
        """Sleep until a thread has something for this one; look now and then at what else may happen."""
        since = looked = time.perf_counter()
        while self._ready.left and not self._ready.has(HERE) and not self._errors:
            now = time.perf_counter()
            if not self._under_way:
                self._wake[HERE].wait(LOOK_S)
            elif now - since > self._busy_s:
                self._wake[HERE].wait(POLL_S)
            else:
                self._unlocked(os.sched_yield)
            if self._under_way:
                self._ask()
            if now - looked > LOOK_S:
                looked = now
                self._unlocked(self._look)

    def _ask(self) -> None:
        """End what was started and is done; who was launched behind one that is not done is not asked."""
        still, is_behind = [], False
        for number, one, begin_s in self._under_way:
            if (is_behind and self._is_ahead[number]) or not one.is_done():
                is_behind |= self._is_ahead[number]
                still.append((number, one, begin_s))
                continue
            try:
                self._end(number, one.wait(), begin_s)
            except Exception as error:
                self._errors.append((number, error))
        self._under_way = still

    # Any thread, with the lock

    def _serve(self, who: int) -> None:
        """What a thread does that loads or stores."""
        with self._lock:
            while not self._is_over and not self._errors:
                number = self._ready.take(who)
                if number is None:
                    self._wake[who].wait()
                    continue
                try:
                    self._do(number)
                except BaseException as error:
                    self._errors.append((number, error))
                    self._wake[HERE].notify()

    def _do(self, number: int) -> None:
        """Do a vertex; the lock is open meanwhile."""
        row, tiles = self._rows[number], self._tiles
        tiles.begin(row)
        begin_s = time.perf_counter() if self._spans is not None else 0.0
        if row.function is None:
            result = self._unlocked(tiles.copy_for(row))
        else:
            result = self._unlocked(row.function, *tiles.arrays_for(row))
        if row.starts and result is not None:
            if not self._waits:
                self._under_way.append((number, result, begin_s))
                if self._is_ahead[number]:
                    if row.gives:
                        tiles.adopt(row, result.made)
                    self._ready.started(number)
                return
            result = result.wait()
        self._end(number, result, begin_s)

    def _unlocked(self, act: Callable[..., Any], *args: Any) -> Any:
        """Do something with the lock open."""
        try:
            self._lock.release()
            return act(*args)
        finally:
            self._lock.acquire()

    def _end(self, number: int, result: Any, begin_s: float) -> None:
        """Keep what a vertex gave, and let those begin that waited for it."""
        row = self._rows[number]
        if row.gives and not self._is_ahead[number]:
            self._tiles.adopt(row, result)
        if self._spans is not None:
            now, zero = time.perf_counter(), self._begin_s
            if self._is_ahead[number]:  # it ran when those before it had
                begin_s, self._queue_s = max(begin_s, self._queue_s), now
            self._spans.append(LaneSpan(row.lane, number, begin_s - zero, now - zero))
        self._ready.end(number)


def await_end(thread: threading.Thread) -> None:
    """**Local.** Wait until a thread has ended, if it was started; also if its start was interrupted."""
    while thread.ident is not None:
        try:
            return thread.join()
        except RuntimeError:  # it runs, and is about to say so
            time.sleep(1e-4)
