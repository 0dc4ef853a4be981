"""The loop that runs a memory graph on a rank: lanes take what is ready, and what ends makes others ready.

The calling thread computes and moves. Threads load and store, and go on while it does: each, when it ends a
vertex, counts down those that wait for it, so that a load begins as soon as a store has made room, in the
middle of a long task too. One lock guards the counts; nobody holds it while he computes or copies. What is
only started (work on a GPU, a move in the background) is asked by the calling thread whether it is done.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from redist.runtime.lanes.policies import LanePolicy
from redist.runtime.lanes.residencies import LiveTiles
from redist.runtime.lanes.stores import UnderWay
from redist.runtime.lanes.timeline import LaneSpan
from redist.runtime.lanes.vertex_table import HERE, LOAD, NOW, STORE, VertexTable

LOOK_S = 0.05
"""So often a waiting rank looks whether another one has failed."""
BUSY_S, POLL_S = 3e-4, 1e-3
"""So long questions whether work is done follow each other; after that so much time is between them."""


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
        spans: list[LaneSpan] | None,
    ) -> None:
        self._table, self._tiles, self._look, self._spans = table, tiles, look, spans
        self._rows, self._ranks, self._who = table.rows, table.ranks, table.who
        self._open = list(table.n_before)
        self._left = len(table.rows)
        self._ready: list[list[int]] = [[], [], []]
        self._next = [0, 0, 0] if policy.is_fixed else None
        self._waits = policy.is_synchronous
        self._lock = threading.RLock()
        self._wake = [threading.Condition(self._lock) for _ in range(3)]
        self._errors: list[tuple[int, BaseException]] = []
        self._under_way: list[tuple[int, UnderWay, float]] = []
        self._is_over = False
        self._begin_s = time.perf_counter()
        self._threads = [
            threading.Thread(target=self._serve, args=(who,), name=f"redist-{name}", daemon=True)
            for who, name in ((LOAD, "load"), (STORE, "store"))
            for _ in range(min(n_threads, len(table.order[who])))
        ]

    def run(self, told: Callable[[BaseException], None]) -> None:
        """Run all vertices, or raise the first error once nothing is under way any more.

        ``told`` hears of the error at once: others may wait for this rank.
        """
        try:
            with self._lock:
                self._make_ready([n for n, count in enumerate(self._open) if not count])
            for thread in self._threads:
                thread.start()
            self._work()
            with self._lock:
                if self._errors:
                    raise min(self._errors, key=lambda one: one[0])[1]
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
        with contextlib.suppress(
            RuntimeError
        ):  # an interrupt may have left the lock closed, even twice
            while True:
                self._lock.release()
        with self._lock:
            self._is_over = True
            for wake in self._wake:
                wake.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        for _, one, _ in self._under_way:
            with contextlib.suppress(Exception):
                one.wait()
        self._under_way.clear()

    # The calling thread

    def _work(self) -> None:
        """Take what is ready here until all is done, or a vertex has failed."""
        with self._lock:
            while self._left and not self._errors:
                if self._under_way:
                    self._ask()
                number = self._take(HERE)
                if number is None:
                    self._wait()
                    continue
                try:
                    self._do(number)
                except Exception as error:
                    self._errors.append((number, error))

    def _wait(self) -> None:
        """Sleep until a thread has something for this one; look now and then at what else may happen."""
        since = looked = time.perf_counter()
        while not (self._ready[HERE] and self._can_take(HERE)) and self._left and not self._errors:
            now = time.perf_counter()
            if not self._under_way:
                self._wake[HERE].wait(LOOK_S)
            elif now - since > BUSY_S:
                self._wake[HERE].wait(POLL_S)
            else:
                self._let_others()
            if self._under_way:
                self._ask()
            if now - looked > LOOK_S:
                looked = now
                self._let_others(self._look)

    def _let_others(self, act: Callable[[], None] = os.sched_yield) -> None:
        """Do something with the lock open."""
        self._lock.release()
        try:
            act()
        finally:
            self._lock.acquire()

    def _ask(self) -> None:
        """End what was started and is done."""
        still = []
        for number, one, begin_s in self._under_way:
            if not one.is_done():
                still.append((number, one, begin_s))
                continue
            try:
                self._started_is_done(number, one.wait(), begin_s)
            except Exception as error:
                self._errors.append((number, error))
        self._under_way = still

    def _started_is_done(self, number: int, result: Any, begin_s: float) -> None:
        if self._rows[number].gives:
            self._tiles.adopt(self._rows[number], result)
        self._end(number, begin_s)

    # Any thread, with the lock

    def _serve(self, who: int) -> None:
        """What a thread does that loads or stores."""
        with self._lock:
            while not self._is_over:
                number = self._take(who)
                if number is None:
                    self._wake[who].wait()
                    continue
                try:
                    self._do(number)
                except BaseException as error:
                    self._errors.append((number, error))
                if self._errors:
                    self._wake[HERE].notify()
                    return

    def _can_take(self, who: int) -> bool:
        """Whether the first that is ready is the next in the order, where that is fixed."""
        if self._next is None:
            return True
        order, at = self._table.order[who], self._next[who]
        return at < len(order) and self._ready[who][0] == self._ranks[order[at]]

    def _take(self, who: int) -> int | None:
        """The vertex to do next; None if none is ready."""
        ready = self._ready[who]
        if not ready or (self._next is not None and not self._can_take(who)):
            return None
        number = self._table.by_rank[heapq.heappop(ready)]
        if self._next is not None:
            self._next[who] += 1
            if ready and self._can_take(who):  # another thread saw it when it was not the next
                self._wake[who].notify()
        return number

    def _do(self, number: int) -> None:
        """Do a vertex; the lock is open meanwhile."""
        row, tiles = self._rows[number], self._tiles
        tiles.begin(row)
        begin_s = time.perf_counter() if self._spans is not None else 0.0
        result: Any
        if row.function is None:
            copy = tiles.copy_for(row)
            self._lock.release()
            try:
                result = copy()
            finally:
                self._lock.acquire()
        else:
            arrays = tiles.arrays_for(row)
            self._lock.release()
            try:
                result = row.function(*arrays)
            finally:
                self._lock.acquire()
        if row.starts and result is not None:
            if not self._waits:
                self._under_way.append((number, result, begin_s))
                return
            result = result.wait()
        if row.gives:
            tiles.adopt(row, result)
        self._end(number, begin_s)

    def _end(self, number: int, begin_s: float) -> None:
        """Note that a vertex is done, and make ready those that waited for it alone."""
        if self._spans is not None:
            now, zero = time.perf_counter(), self._begin_s
            self._spans.append(
                LaneSpan(self._rows[number].lane, number, begin_s - zero, now - zero)
            )
        row = self._rows[number]
        if row.returns:
            self._tiles.end(row)
        self._left -= 1
        ready = []
        for one in self._table.after[number]:
            self._open[one] -= 1
            if not self._open[one]:
                ready.append(one)
        if ready:
            self._make_ready(ready)
        if not self._left:
            self._wake[HERE].notify()

    def _make_ready(self, numbers: list[int]) -> None:
        """Hand vertices to their lanes; those that take no time are done at once."""
        while numbers:
            number = numbers.pop()
            who = self._who[number]
            if who != NOW:
                heapq.heappush(self._ready[who], self._ranks[number])
                self._wake[who].notify()
                continue
            row = self._rows[number]
            self._tiles.begin(row)
            self._tiles.end(row)
            self._left -= 1
            for one in self._table.after[number]:
                self._open[one] -= 1
                if not self._open[one]:
                    numbers.append(one)
