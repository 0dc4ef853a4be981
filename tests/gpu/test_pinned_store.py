"""Graphs of three levels, GPU, pinned memory and a file, where the GPU is pretended and puts work off."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redist.errors import NoPlanError
from redist.offload.compile import compile_memory
from redist.program.memory_graph import MemoryGraph, MemoryPlace
from redist.program.tasks import MemoryTask, MemoryTile, TaskList
from redist.runtime.cuda.arrays import empty_on_device
from redist.runtime.cuda.pinned_store import PinnedStore, SeparateMemory, launched
from redist.runtime.lanes.ready import AHEAD_PS, LEAST_QUEUED, MOST_QUEUED
from redist.runtime.lanes.run_graph import GraphRunner
from redist.runtime.lanes.spill_file import SpillFile
from redist.runtime.lanes.vertex_table import SMALL, LanePolicy, TaskWork
from tests.fakes import pretended_cupy as pretend
from tests.offload.random_tasks import random_places, random_tasks
from tests.runtime.lanes.array_tasks import compute, first_values, scaled, scaled_places, straight
from tests.tiers import sample


@pytest.fixture
def cupy() -> Iterator[Any]:
    """A pretended CuPy, gone afterwards."""
    with pretend.gone_afterwards():
        pretend.install("one")
        pretend.GREEDY[0] = True
        yield sys.modules["cupy"]


def work_of(tasks: TaskList) -> list[TaskWork]:
    """Kernels on the current stream, which take memory of the pool on the way."""
    sizes = {tile.size_bytes for tile in tasks.tiles}

    def work(number: int) -> TaskWork:
        task = tasks.tasks[number]
        n_reads, n_inputs = len(task.reads), len(task.reads) + len(task.updates)

        def function(*arrays: Any) -> None:
            cupy = sys.modules["cupy"]
            between = [cupy.empty((n,), np.uint8) for n in sorted(sizes)]
            values, scratch = [one.values for one in arrays], [one.values for one in between]

            def kernel() -> None:
                for one in scratch:  # nobody else's memory, though it was given back by now
                    one[:] = 0x77
                compute(number, task, values[:n_reads], values[n_reads:n_inputs], values[n_inputs:])

            pretend.CURRENT[0].add(kernel)

        return launched(function)

    return [work(number) for number in range(len(tasks.tasks))]


def tile_maker(sizes: list[int]) -> Callable[[int], Any]:
    """Makes arrays for tiles, in memory apart from that of kernels."""
    apart = SeparateMemory()

    def make(tile: int) -> Any:
        with apart:
            return empty_on_device((sizes[tile],), np.dtype(np.uint8))

    return make


def graph_of(rng: random.Random) -> MemoryGraph:
    """One that stores and loads between all three places."""
    while True:
        tasks = random_tasks(rng, n_places=3)
        places = random_places(rng, tasks, 3)
        try:
            graph = compile_memory(scaled(tasks), scaled_places(places))
        except NoPlanError:
            continue
        far = {graph.residencies[one.makes[0]].place for one in graph.vertices if one.makes}
        if graph.moved_bytes["store"] and far == {0, 1, 2}:
            return graph


def test_three_levels_give_the_same_bits(cupy: Any, tmp_path: Path) -> None:
    rng = random.Random(8)
    for number in range(sample(8, of=150)):
        graph = graph_of(rng)
        sizes = [tile.size_bytes for tile in graph.tasks.tiles]
        tiles = tile_maker(sizes)
        policy = LanePolicy("random", number) if number % 3 else LanePolicy()
        policy = replace(policy, admits=number % 2 == 0)
        pinned, disk = PinnedStore(2**16), SpillFile(tmp_path, cached=True)
        runner = GraphRunner(graph, work_of(graph.tasks), [pinned, disk], tiles, policy=policy)
        runner.reserve()
        given: dict[tuple[int, int], Any] = {}
        for tile, values in first_values(graph.tasks).items():
            for place in graph.tasks.tiles[tile].begins:
                if place == 0:
                    given[tile, 0] = cupy.asarray(values)
                elif place == 1:
                    given[tile, 1] = pinned.take(values.nbytes)
                    pinned.memory_of(given[tile, 1])[:] = values
                else:
                    given[tile, 2] = disk.take(values.nbytes)
                    disk.write(given[tile, 2], values)
        pretend.CURRENT[0].synchronize()
        with cupy.cuda.Stream(non_blocking=True):
            outcome = runner.run(given, checks=True)
        want = straight(graph.tasks)
        for tile, one in enumerate(graph.tasks.tiles):
            for place in one.ends:
                held = outcome.held[tile, place]
                if place == 0:
                    found = held.values
                elif place == 1:
                    found = pinned.memory_of(held)
                else:
                    found = np.zeros(one.size_bytes, np.uint8)
                    disk.read(held, found)
                assert found.tobytes() == want[tile].tobytes(), (number, tile, place)
        assert pinned.live_bytes <= pinned.pinned_bytes
        pinned.close()
        disk.close()


def test_what_kernels_take_on_the_way_is_never_a_tile(cupy: Any) -> None:
    """A load begins while a kernel runs whose scratch was given back: they must not meet."""
    tiles = MemoryTile(40, ends=(0,)), MemoryTile(40, (1,)), MemoryTile(40, ends=(0,))
    made = MemoryTask("long", makes=(0,), time_ps=10**9), MemoryTask("read", (1,), (2,))
    tasks = TaskList(tiles, made)
    graph = compile_memory(tasks, (MemoryPlace("gpu", 160), MemoryPlace("host", None, 1)))
    want = straight(tasks)
    for _ in range(40):
        store = PinnedStore(2**16)
        space = store.take(40)
        store.memory_of(space)[:] = first_values(tasks)[1]
        maker = tile_maker([40] * 3)
        with cupy.cuda.Stream(non_blocking=True):
            held = GraphRunner(graph, work_of(tasks), [store], maker).run({(1, 1): space}).held
        for tile in (0, 2):
            assert held[tile, 0].values.tobytes() == want[tile].tobytes()
        store.close()


class Launches:
    """Counts tasks that were launched and have not been seen to end."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def counted(self, one: TaskWork) -> TaskWork:
        """The same task, counted."""

        def start(*arrays: Any) -> Any:
            under_way = one.function(*arrays)
            self.now += 1
            self.most = max(self.most, self.now)
            wait = under_way.wait

            def waited() -> Any:
                self.now -= 1
                return wait()

            under_way.wait = waited
            return under_way

        return replace(one, function=start)


def most_launched(cupy: Any, n: int, room: int, admits: bool, time_ps: int = 0) -> int:
    """The most tasks of a chain that are under way at once, within memory for so many of their tiles."""
    ends = MemoryTile(40, (0,)), MemoryTile(40, ends=(0,))
    tiles = (ends[0], *(MemoryTile(40) for _ in range(n - 1)), ends[1])
    tasks = TaskList(
        tiles, tuple(MemoryTask(f"{k}", (k,), (k + 1,), time_ps=time_ps) for k in range(n))
    )
    graph = compile_memory(tasks, (MemoryPlace("gpu", 40 * room),))
    launches = Launches()
    work = [launches.counted(one) for one in work_of(tasks)]
    given = {(0, 0): cupy.asarray(first_values(tasks)[0])}
    pretend.CURRENT[0].synchronize()
    with cupy.cuda.Stream(non_blocking=True):
        maker = tile_maker([40] * (n + 1))
        runner = GraphRunner(graph, work, [], maker, policy=LanePolicy(admits=admits))
        outcome = runner.run(given, checks=True, records=True)
    assert outcome.held[n, 0].values.tobytes() == straight(tasks)[n].tobytes()
    assert outcome.peak_bytes[0] <= 40 * room
    spans = sorted(outcome.spans, key=lambda one: one.vertex)
    assert all(a.end_s <= b.begin_s for a, b in pairwise(spans))
    return launches.most


class Slow(random.Random):
    """Lets the pretended GPU do a piece of work in one of twenty asks."""

    def randrange(self, *args: Any) -> int:
        return int(self.random() < 0.05)


def test_tasks_are_launched_ahead_of_the_gpu(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One behind the other while none has ended, as many as there is memory for; of long ones two.

    Those that take next to no memory are launched whatever time they take.
    """
    monkeypatch.setattr(pretend, "RNG", Slow(1))
    assert {most_launched(cupy, 30, room, admits=False) for room in (2, 4, 40)} == {1}
    ahead = {room: most_launched(cupy, 30, room, admits=True) for room in (2, 4, 40)}
    assert ahead == {2: 1, 4: 3, 40: MOST_QUEUED}
    by_time = {ps: most_launched(cupy, 30, 40, True, ps) for ps in (AHEAD_PS // 5, AHEAD_PS)}
    assert by_time == {AHEAD_PS // 5: 5, AHEAD_PS: LEAST_QUEUED}
    assert most_launched(cupy, 30, SMALL, True, AHEAD_PS) == MOST_QUEUED


def test_pinned_memory_grows_where_no_hole_is_large_enough(cupy: Any) -> None:
    store = PinnedStore(2**16)
    store.reserve(2**20)
    before = store.pinned_bytes
    spaces = [store.take(before // 4) for _ in range(4)]
    store.give(spaces[0])
    store.give(spaces[2])
    assert store.pinned_bytes == before
    store.take(before // 2)  # there is so much, but not in one piece
    assert store.pinned_bytes == before + before // 2
    assert store.take(before // 4).start == 0
    store.close()
    assert not store.pinned_bytes
