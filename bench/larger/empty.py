"""What the loop itself costs a vertex: tasks that do nothing, on tiles of eight bytes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bench.report.report import Table, Value
from redist.offload.compile import compile_memory
from redist.program.memory_graph import MemoryPlace
from redist.program.tasks import MemoryTask, MemoryTile, TaskList
from redist.runtime.lanes.loop import nothing
from redist.runtime.lanes.run_graph import GraphRunner
from redist.runtime.lanes.stores import MemoryStore
from redist.runtime.lanes.vertex_table import TaskWork

N = 2000
REPEATS = 5
FIXED = MemoryTile(8, (0,), (0,), True)


def cases() -> dict[str, TaskList]:
    """A chain, tasks that do not need each other, and a load for every task."""
    chain = [MemoryTask(f"{k}", (k,), (k + 1,)) for k in range(N)]
    alone = [MemoryTask(f"{k}", (0,), (k + 1,)) for k in range(N)]
    loads = [MemoryTask(f"{k}", (k + 1,), updates=(0,)) for k in range(N)]
    made, stored = [MemoryTile(8)] * N, [MemoryTile(8, (1,), (1,))] * N
    return {
        "a chain": TaskList((MemoryTile(8, (0,)), *made), tuple(chain)),
        "independent tasks": TaskList((FIXED, *made), tuple(alone)),
        "a load for every task": TaskList((FIXED, *stored), tuple(loads)),
    }


def table() -> Table:
    """Microseconds a vertex, the least of several runs: the loop, and with checks and records."""
    rows: list[tuple[Value, ...]] = []
    for name, tasks in cases().items():
        graph = compile_memory(tasks, (MemoryPlace("memory", 80), MemoryPlace("disk", None, 1)))
        work = [TaskWork(nothing)] * N
        start = time.perf_counter()
        runner = GraphRunner(graph, work, [MemoryStore()], lambda tile: np.empty(8, np.uint8))
        prepare_s = time.perf_counter() - start
        given: dict[tuple[int, int], Any] = {
            (tile, place): np.zeros(8, np.uint8)
            for tile, one in enumerate(tasks.tiles)
            for place in one.begins
        }
        seconds = [[_run_s(runner, given, watched) for _ in range(REPEATS)] for watched in (0, 1)]
        n = len(graph.vertices)
        times = (prepare_s, min(seconds[0]), min(seconds[1]))
        rows.append((name, n, *(1e6 * one / n for one in times)))
    return Table(
        "Cost of the loop, us a vertex",
        ("what", "vertices", "prepare once", "run", "run with checks and records"),
        tuple(rows),
        (f"the least of {REPEATS} runs",),
        "larger-loop",
    )


def _run_s(runner: GraphRunner, given: dict[tuple[int, int], Any], watched: int) -> float:
    start = time.perf_counter()
    runner.run(given, checks=bool(watched), records=bool(watched))
    return time.perf_counter() - start
