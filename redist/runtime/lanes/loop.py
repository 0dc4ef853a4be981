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
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from redist.runtime.lanes.ready import ReadyVertices
from redist.runtime.lanes.residencies import LiveTiles
from redist.runtime.lanes.stores import UnderWay
from redist.runtime.lanes.vertex_table import (
    HERE,
    LOAD,
    LOADS,
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
        self._is_ahead, self._streams, self._queue_s = table.is_ahead, table.streams, 0.0
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
                self._ready.sleep(HERE, LOOK_S)
            elif now - since > self._busy_s:
                self._ready.sleep(HERE, POLL_S)
            else:
                self._unlocked(os.sched_yield)
            if self._under_way:
                self._ask()
            if now - looked > LOOK_S:
                looked = now
                self._unlocked(self._look)

    def _ask(self) -> None:
        """End what was started and is done; of those that follow each other the first is asked."""
        still, late = [], set[int]()
        for one in self._under_way:
            number, work, begin_s = one
            stream = self._streams[number]
            if stream in late or not work.is_done():
                late.add(stream)
                still.append(one)
                continue
            try:
                self._end(number, work.wait(), begin_s)
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
                    self._ready.sleep(who)
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
