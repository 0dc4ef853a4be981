"""The same chain where work and copies only wait: what the loop makes of a machine that nobody else uses."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np

from bench.larger.layers import LayerChain, given_to
from bench.report.report import Table, Value
from redist.check.certify_memory import certify_memory
from redist.offload.compile import compile_memory
from redist.program.memory_graph import MemoryGraph, MemoryPlace
from redist.runtime.lanes.policies import LanePolicy
from redist.runtime.lanes.run_graph import GraphRunner
from redist.runtime.lanes.stores import Bytes, MemoryStore
from redist.runtime.lanes.vertex_table import TaskWork

CHAIN = LayerChain(n_layers=24, rows=16, side=64)
TASK_S = 0.004
RATIOS = (4, 2, 1)
"""Time of all tasks, over the time to read all weights once."""
SPREADS = (0.0, 0.8)
"""Standard deviation of the logarithm of a copy's time."""
POLICIES = ("longest path", "in order", "synchronous")


class WaitingStore(MemoryStore):
    """Memory that takes as long as a device would: so many seconds a byte, more or less."""

    def __init__(self, byte_s: float, spread: float) -> None:
        super().__init__()
        self.byte_s, self._spread, self._rng = 0.0, spread, random.Random(1)
        self._then = byte_s

    def begin(self) -> None:
        """From now on it waits."""
        self.byte_s = self._then

    def write(self, space: Bytes, data: Bytes) -> None:
        """**Local.** Copy bytes there, and wait."""
        super().write(space, data)
        self._wait(data.nbytes)

    def read(self, space: Bytes, out: Bytes) -> None:
        """**Local.** Copy bytes from there, and wait."""
        super().read(space, out)
        self._wait(out.nbytes)

    def _wait(self, n_bytes: int) -> None:
        noise = self._rng.lognormvariate(-(self._spread**2) / 2, self._spread)  # 1 on average
        time.sleep(n_bytes * self.byte_s * noise)


def table() -> Table:
    """Times relative to those of the tasks alone."""
    rows: list[tuple[Value, ...]] = []
    alone_s = _alone_s()
    whole = CHAIN.n_layers * CHAIN.weight_bytes
    for ratio in RATIOS:
        byte_s = alone_s / ratio / whole
        for share in (0.5, 0.25):
            graph = _graph(share, byte_s)
            bound = max(1.0, graph.moved_bytes["load"] * byte_s / alone_s)
            for spread in SPREADS:
                found = [_seconds(graph, policy, byte_s, spread) / alone_s for policy in POLICIES]
                rows.append((f"{ratio}", f"{share:.0%}", spread, bound, *found))
    return Table(
        f"{CHAIN.n_layers} layers forth and back where tasks and copies only wait; times of the tasks alone",
        ("tasks / reading weights", "memory", "spread", "bound", "event-driven", "in order", "synchronous"),
        tuple(rows),
        ("spread: of copies' times (lognormal); bound: tasks alone, or what is loaded at the mean rate",),
        "larger-waiting",
        3,
    )  # fmt: skip


def _alone_s() -> float:
    """What the tasks take one after another: a wait is always a bit longer than asked for."""
    start = time.perf_counter()
    for _ in range(2 * CHAIN.n_layers):
        time.sleep(TASK_S)
    return time.perf_counter() - start


def _graph(share: float, byte_s: float) -> MemoryGraph:
    tasks = CHAIN.tasks(int(TASK_S * 1e12))
    disk = MemoryPlace("disk", None, int(byte_s * 1e15))
    whole = sum(tile.size_bytes for tile in tasks.tiles)
    free = compile_memory(tasks, (MemoryPlace("memory", whole), disk))
    peak = certify_memory(free).bound_bytes[0]
    assert peak is not None
    return compile_memory(tasks, (MemoryPlace("memory", int(share * peak)), disk))


def _seconds(graph: MemoryGraph, policy: str, byte_s: float, spread: float) -> float:
    def wait(*tiles: Any) -> None:
        time.sleep(TASK_S)

    store = WaitingStore(byte_s, spread)
    weights, x = CHAIN.values()
    given = given_to(store, weights, x)
    store.begin()
    work = [TaskWork(wait)] * len(graph.tasks.tasks)
    runner = GraphRunner(graph, work, [store], CHAIN.tiles(), policy=LanePolicy(policy))
    found = []
    for _ in range(3):
        start = time.perf_counter()
        runner.run(given)
        found.append(time.perf_counter() - start)
    return float(np.median(found))
