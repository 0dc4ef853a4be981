"""Random tasks on real arrays: what they compute, straight on, and through a memory graph."""

from __future__ import annotations

import random
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from redist.program.memory_graph import MemoryGraph, MemoryPlace
from redist.program.tasks import MemoryTask, TaskList
from redist.runtime.lanes.stores import TileStore
from redist.runtime.lanes.vertex_table import TaskWork
from tests.fakes.troubled_store import PutOff

SCALE = 40
"""Bytes for each byte of a random tile: enough to see any mistake."""


def scaled(tasks: TaskList, by: int = SCALE) -> TaskList:
    """The same tasks on larger tiles."""
    tiles = tuple(replace(one, size_bytes=by * one.size_bytes) for one in tasks.tiles)
    return TaskList(
        tiles, tuple(replace(one, staging_bytes=by * one.staging_bytes) for one in tasks.tasks)
    )


def scaled_places(places: Sequence[MemoryPlace], by: int = SCALE) -> tuple[MemoryPlace, ...]:
    """The same limits for larger tiles."""
    return tuple(
        replace(one, limit_bytes=None if one.limit_bytes is None else by * one.limit_bytes)
        for one in places
    )


def compute(number: int, task: MemoryTask, reads: Any, updates: Any, makes: Any) -> None:
    """What a task does: every byte that it writes depends on all that it reads, and on the task."""
    seen = number + 1
    for one in (*reads, *updates):
        weights = np.arange(1, one.size + 1, dtype=np.int64)
        seen = (31 * seen + int((one * weights).sum())) % 65521
    for k, one in enumerate((*updates, *makes)):
        one[:] = (seen * (k + 1) + np.arange(one.size)) % 251


def first_values(tasks: TaskList) -> dict[int, Any]:
    """The tiles that are there at the beginning."""
    rng = np.random.default_rng(1)
    return {
        number: rng.integers(0, 256, tile.size_bytes, dtype=np.uint8)
        for number, tile in enumerate(tasks.tiles)
        if tile.begins
    }


def straight(tasks: TaskList) -> dict[int, Any]:
    """All tiles at the end if tasks run as listed."""
    tiles = first_values(tasks)
    for number, task in enumerate(tasks.tasks):
        for one in task.makes:
            tiles[one] = np.zeros(tasks.tiles[one].size_bytes, np.uint8)
        reads, updates, makes = (
            [tiles[one] for one in part] for part in (task.reads, task.updates, task.makes)
        )
        compute(number, task, reads, updates, makes)
    return tiles


class CountedTiles:
    """Makes arrays for tiles, and counts the bytes of those that live."""

    def __init__(self, tasks: TaskList) -> None:
        self._tasks = tasks
        self.live_bytes = self.peak_bytes = 0

    def __call__(self, tile: int) -> Any:
        array = np.full(self._tasks.tiles[tile].size_bytes, 0xA5, np.uint8)
        self.live_bytes += array.nbytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        weakref.finalize(array, self._gone, array.nbytes)
        return array

    def _gone(self, n_bytes: int) -> None:
        self.live_bytes -= n_bytes


def work_of(
    tasks: TaskList, rng: random.Random, make: CountedTiles, ran: list[int] | None = None
) -> list[TaskWork]:
    """What tasks do, in all the forms that a runner takes: filling, giving, started."""
    return [_work(tasks, number, rng, make, ran) for number in range(len(tasks.tasks))]


def _work(
    tasks: TaskList, number: int, rng: random.Random, make: CountedTiles, ran: list[int] | None
) -> TaskWork:
    task = tasks.tasks[number]
    n_reads, n_inputs = len(task.reads), len(task.reads) + len(task.updates)
    gives, starts = rng.random() < 0.3 and bool(task.makes), rng.random() < 0.2

    def function(*arrays: Any) -> Any:
        inputs, makes = arrays[:n_inputs], arrays[n_inputs:]
        if gives:
            makes = tuple([make(one) for one in task.makes])

        def act() -> Any:
            compute(number, task, inputs[:n_reads], inputs[n_reads:], makes)
            if ran is not None:
                ran.append(number)
            return (makes[0] if len(makes) == 1 else makes) if gives else None

        return PutOff(act, rng.randrange(3)) if starts else act()

    return TaskWork(function, gives, starts)


def give(graph: MemoryGraph, stores: Sequence[TileStore]) -> dict[tuple[int, int], Any]:
    """What a graph finds at the beginning: arrays, and copies in stores."""
    given: dict[tuple[int, int], Any] = {}
    for tile, values in first_values(graph.tasks).items():
        for place in graph.tasks.tiles[tile].begins:
            if place:
                store = stores[place - 1]
                given[tile, place] = store.take(values.nbytes)
                under_way = store.write(given[tile, place], values)
                if under_way is not None:
                    under_way.wait()
            else:
                given[tile, place] = values.copy()
    return given


def wrong_results(
    graph: MemoryGraph, stores: Sequence[TileStore], held: Any
) -> list[tuple[int, int]]:
    """Tiles and places that do not hold at the end what they should."""
    want = straight(graph.tasks)
    wrong = []
    for tile, one in enumerate(graph.tasks.tiles):
        for place in one.ends:
            found = held[tile, place]
            if place:
                out = np.zeros(one.size_bytes, np.uint8)
                under_way = stores[place - 1].read(found, out)
                if under_way is not None:
                    under_way.wait()
                found = out
            if found.tobytes() != want[tile].tobytes():
                wrong.append((tile, place))
    return wrong
