"""Whatever fails, once: one error, nothing under way, no file, no thread, and all memory given back."""

from __future__ import annotations

import errno
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redist.errors import RequestError, SpillError
from redist.offload.compile import compile_memory
from redist.program.memory_graph import MemoryGraph, MemoryPlace
from redist.program.tasks import MemoryTask, MemoryTile, TaskList
from redist.runtime.lanes.loop import await_end
from redist.runtime.lanes.run_graph import GraphRunner
from redist.runtime.lanes.spill_file import SpillFile
from redist.runtime.lanes.stores import MemoryStore
from redist.runtime.lanes.vertex_table import LanePolicy, TaskWork
from tests.fakes.troubled_store import PutOff, TroubledStore
from tests.runtime.lanes.array_tasks import CountedTiles, give, work_of, wrong_results
from tests.tiers import sample

N_BYTES = 8192


def layers(n: int = 8) -> MemoryGraph:
    """A chain of layers forth and back, with room for four tiles: weights are loaded, values stored."""
    weights = tuple(MemoryTile(N_BYTES, (1,), (1,), name=f"weight {k}") for k in range(n))
    values = tuple(MemoryTile(N_BYTES, name=f"value {k}") for k in range(n))
    given = MemoryTile(N_BYTES, (0,), name="input")
    back = (*(MemoryTile(N_BYTES) for _ in range(n - 1)), MemoryTile(N_BYTES, ends=(0,)))
    first, rest = 2 * n + 1, [n + 1 + k for k in range(n)]
    tasks = [MemoryTask(f"forth {k}", (k, n + k), (n + 1 + k,)) for k in range(n)]
    last = rest[-1]
    for k in range(n):
        here = n - 1 - k
        tasks.append(MemoryTask(f"back {here}", (here, n + here, last), (first + k,)))
        last = first + k
    listed = TaskList((*weights, given, *values, *back), tuple(tasks))
    return compile_memory(
        listed, (MemoryPlace("memory", 5 * N_BYTES), MemoryPlace("disk", None, 10))
    )


GRAPH = layers()


def no_thread() -> bool:
    return not [one for one in threading.enumerate() if one.name.startswith("redist-")]


@contextmanager
def nothing_left(folder: Path, store: TroubledStore, tiles: CountedTiles) -> Iterator[None]:
    n_spaces = store.n_spaces
    yield
    gc.collect()
    assert no_thread()
    assert not list(folder.iterdir())
    assert store.n_spaces <= n_spaces  # given copies may have ended
    assert not tiles.live_bytes
    store.close()


def failing(kind: type[BaseException], at: int) -> Callable[[str, int], None]:
    def trouble(verb: str, number: int) -> None:
        if number == at:
            raise kind(errno.ENOSPC, "No space left on device")

    return trouble


def test_the_graph_spills() -> None:
    moved = GRAPH.moved_bytes
    assert moved["store"] and moved["load"] > 8 * N_BYTES


@pytest.mark.parametrize("policy", ["longest path", "in order", "synchronous"])
@pytest.mark.parametrize("at", [0, 2])
def test_a_failing_store_is_one_error(policy: str, at: int, tmp_path: Path) -> None:
    inner = SpillFile(tmp_path)
    store = TroubledStore(inner)
    tiles = CountedTiles(GRAPH.tasks)
    work = work_of(GRAPH.tasks, random.Random(1), tiles)
    runner = GraphRunner(GRAPH, work, [store], tiles, policy=LanePolicy(policy))
    given = give(GRAPH, [store])
    before = given[8, 0].copy()
    with nothing_left(tmp_path, store, tiles):
        store._trouble = failing(OSError, store.counts["write"] + at)
        heard: list[BaseException] = []
        with pytest.raises(OSError, match="No space left"):
            runner.run(given, checks=True, told=heard.append)
        assert len(heard) == 1
        heard.clear()  # its traceback holds a tile
        assert (given[8, 0] == before).all()


def test_a_full_disk_and_a_short_read_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, says in (("pwritev", "cannot write"), ("preadv", "cannot read")):
        store = TroubledStore(SpillFile(tmp_path))
        tiles = CountedTiles(GRAPH.tasks)
        work = work_of(GRAPH.tasks, random.Random(1), tiles)
        runner = GraphRunner(GRAPH, work, [store], tiles)
        given = give(GRAPH, [store])
        calls, original = [0], getattr(os, name)

        def ends(*args: Any, calls: Any = calls, original: Any = original) -> int:
            calls[0] += 1
            if calls[0] < 3:
                return int(original(*args))
            if original is os.preadv:
                return 0
            raise OSError(errno.ENOSPC, "No space left on device")

        with nothing_left(tmp_path, store, tiles), monkeypatch.context() as patch:
            patch.setattr(os, name, ends)
            with pytest.raises(SpillError, match=says):
                runner.run(given, checks=True)
        assert calls[0] >= 3


@pytest.mark.parametrize("starts", [False, True])
def test_a_failing_task_raises_its_own_error(starts: bool, tmp_path: Path) -> None:
    store = TroubledStore(SpillFile(tmp_path), delay_s=0.002)
    tiles = CountedTiles(GRAPH.tasks)
    work = work_of(GRAPH.tasks, random.Random(1), tiles)

    def fails(*arrays: Any) -> Any:
        def act() -> Any:
            raise ZeroDivisionError("this task")

        return PutOff(act) if starts else act()

    work[5] = TaskWork(fails, starts=starts)
    given = give(GRAPH, [store])
    with nothing_left(tmp_path, store, tiles), pytest.raises(ZeroDivisionError, match="this task"):
        GraphRunner(GRAPH, work, [store], tiles).run(given, checks=True)


def test_another_rank_that_failed_ends_a_wait(tmp_path: Path) -> None:
    store = TroubledStore(SpillFile(tmp_path))
    tiles = CountedTiles(GRAPH.tasks)
    runner = GraphRunner(GRAPH, work_of(GRAPH.tasks, random.Random(1), tiles), [store], tiles)
    given = give(GRAPH, [store])
    store._trouble = lambda verb, number: time.sleep(0.2)

    def look() -> None:
        raise RequestError("rank 2 failed")

    with nothing_left(tmp_path, store, tiles), pytest.raises(RequestError, match="rank 2 failed"):
        runner.run(given, look=look)


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(),
    reason="signals go to the main thread",
)
def test_an_interrupt_at_any_moment_leaves_nothing(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs of a shell ignore it
    try:
        _interrupt_at_any_moment(tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt_at_any_moment(tmp_path: Path) -> None:
    rng = random.Random(4)
    interrupted, last_s = 0, 0.012
    for _ in range(sample(8, of=300)):
        store = TroubledStore(SpillFile(tmp_path, cached=True), delay_s=4e-4)
        tiles = CountedTiles(GRAPH.tasks)
        work = work_of(GRAPH.tasks, rng, tiles)
        runner = GraphRunner(GRAPH, work, [store], tiles, n_threads=2)
        given = give(GRAPH, [store])
        with nothing_left(tmp_path, store, tiles):
            timer = threading.Timer(
                rng.random() * last_s, lambda: os.kill(os.getpid(), signal.SIGINT)
            )
            started_s = time.perf_counter()
            try:
                timer.start()
                runner.run(given, checks=True)
            except KeyboardInterrupt:
                interrupted += 1
            else:
                last_s = time.perf_counter() - started_s  # the next signal comes within such a run
                try:
                    timer.join()
                    time.sleep(0.01)
                except KeyboardInterrupt:
                    pass
            timer.join()
    assert interrupted


def test_after_a_failure_a_runner_runs_again(tmp_path: Path) -> None:
    store = TroubledStore(MemoryStore())
    tiles = CountedTiles(GRAPH.tasks)
    runner = GraphRunner(GRAPH, work_of(GRAPH.tasks, random.Random(1), tiles), [store], tiles)
    given = give(GRAPH, [store])
    store._trouble = failing(OSError, store.counts["write"])
    with pytest.raises(OSError, match="No space"):
        runner.run(given)
    store._trouble = lambda verb, number: None
    given = give(GRAPH, [store])
    assert not wrong_results(GRAPH, [store], runner.run(given, checks=True).held)


def test_what_is_missing_is_said_before_anything_runs() -> None:
    tiles = CountedTiles(GRAPH.tasks)
    work = work_of(GRAPH.tasks, random.Random(1), tiles)
    with pytest.raises(RequestError, match="0 stores for 1 places"):
        GraphRunner(GRAPH, work, [], tiles)
    with pytest.raises(RequestError, match="tile 0 in place 1 is missing"):
        GraphRunner(GRAPH, work, [MemoryStore()], tiles).run({})
    with pytest.raises(RequestError, match="cannot choose by 'best'"):
        LanePolicy("best")


def test_checks_notice_a_limit_and_a_missing_operand() -> None:
    tiles = CountedTiles(GRAPH.tasks)
    store = MemoryStore()
    work = work_of(GRAPH.tasks, random.Random(1), tiles)
    places = (MemoryPlace("memory", 5 * N_BYTES - 1), *GRAPH.places[1:])
    small = replace(GRAPH, places=places)
    with pytest.raises(AssertionError, match="bytes in memory, limit"):
        GraphRunner(small, work, [store], tiles).run(give(GRAPH, [store]), checks=True)
    number = max(n for n, one in enumerate(GRAPH.vertices) if one.kind == "run")
    vertices = list(GRAPH.vertices)
    vertices[number] = replace(vertices[number], before=())
    roomy = (MemoryPlace("memory", 100 * N_BYTES), *GRAPH.places[1:])
    hasty = replace(GRAPH, vertices=tuple(vertices), places=roomy)
    with pytest.raises(AssertionError, match="which is not there"):
        GraphRunner(hasty, work, [store], tiles).run(give(GRAPH, [store]), checks=True)


def test_a_thread_that_was_interrupted_while_it_started_is_awaited() -> None:
    class Begun(threading.Thread):
        """Runs already, and is not known to have started for the first time that it is asked."""

        refused = 0

        def join(self, timeout: float | None = None) -> None:
            if not self.refused:
                self.refused += 1
                raise RuntimeError("cannot join thread before it is started")
            super().join(timeout)

    thread = Begun(target=lambda: None)
    await_end(thread)
    assert not thread.refused  # never started: nothing to wait for
    thread.start()
    await_end(thread)
    assert thread.refused == 1 and not thread.is_alive()
