"""``python -m bench larger``: a chain of layers with its weights in a file, within less and less memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from tempfile import gettempdir
from typing import Any

import numpy as np

from bench.problems.judge import WrongPlanError
from bench.report.figures import timed
from bench.report.report import Row, Table, Tables
from redist.check.certify_memory import certify_memory
from redist.offload.compile import compile_memory, least_memory
from redist.pgas.memory import TileMemory
from redist.program.memory_graph import MemoryGraph, MemoryPlace
from redist.program.tasks import MemoryTask, MemoryTile, TaskList
from redist.runtime.lanes.loop import nothing
from redist.runtime.lanes.run_graph import GraphRunner
from redist.runtime.lanes.spill_file import SpillFile
from redist.runtime.lanes.stores import MemoryStore, TileStore, bytes_of
from redist.runtime.lanes.vertex_table import LanePolicy, TaskWork
from redist.text.units import format_bytes

F32 = np.dtype(np.float32)
Make = Callable[[int], Any]
"""Makes an array for a tile, by number."""


@dataclass(frozen=True, slots=True)
class LayerChain:
    """``n_layers`` products of ``rows`` rows with square weights of ``side``, then the same back.

    Tiles: weights, the input, the value after each layer, what comes back through each layer.
    """

    n_layers: int
    rows: int
    side: int

    @property
    def weight_bytes(self) -> int:
        """Of one layer."""
        return self.side * self.side * F32.itemsize

    @property
    def value_bytes(self) -> int:
        """Of one value."""
        return self.rows * self.side * F32.itemsize

    def tasks(self, task_ps: int) -> TaskList:
        """The tasks, each of which is expected to take so long."""
        n = self.n_layers
        tiles = [MemoryTile(self.weight_bytes, (1,), (1,), name=f"weight {k}") for k in range(n)]
        tiles += [MemoryTile(self.value_bytes, name=f"value {k}") for k in range(n + 1)]
        tiles[n] = MemoryTile(self.value_bytes, (0,), (0,), True, "input")
        tiles += [MemoryTile(self.value_bytes, name=f"back {k}") for k in range(n)]
        tiles[-1] = MemoryTile(self.value_bytes, ends=(0,), name="result")
        tasks = [
            MemoryTask(f"forth {k}", (k, n + k), (n + k + 1,), time_ps=task_ps) for k in range(n)
        ]
        last = 2 * n
        for step, k in enumerate(reversed(range(n))):
            made = 2 * n + 1 + step
            tasks.append(MemoryTask(f"back {k}", (k, n + k, last), (made,), time_ps=task_ps))
            last = made
        return TaskList(tuple(tiles), tuple(tasks))

    def work(self) -> list[TaskWork]:
        """What each task does."""
        return [TaskWork(forth)] * self.n_layers + [TaskWork(back)] * self.n_layers

    def tiles(self, memory: TileMemory) -> Make:
        """Makes arrays for tiles, with whatever their memory held."""

        def make(tile: int) -> Any:
            height = self.side if tile < self.n_layers else self.rows
            return memory.empty((height, self.side), F32, 0)

        return make

    def values(self) -> tuple[list[Any], Any]:
        """Weights and input."""
        rng = np.random.default_rng(0)
        scale, make = np.float32(1 / np.sqrt(self.side)), self.tiles(TileMemory())
        weights = []
        for k in range(self.n_layers):
            weights.append(make(k))
            rng.standard_normal(out=weights[-1], dtype=np.float32)
            weights[-1] *= scale
        x = make(self.n_layers)
        rng.standard_normal(out=x, dtype=np.float32)
        return weights, x

    def straight(self, weights: list[Any], x: Any, make: Make) -> Any:
        """The result with everything in memory, task after task."""
        values = [x]
        for weight in weights:
            values.append(make(self.n_layers))
            forth(weight, values[-2], values[-1])
        came = values.pop()
        for weight, value in zip(reversed(weights), reversed(values), strict=True):
            out = make(self.n_layers)
            back(weight, value, came, out)
            came = out
        return came


def forth(weight: Any, value: Any, out: Any) -> None:
    """The next value."""
    np.matmul(value, weight, out=out)
    np.maximum(out, 0, out=out)


def back(weight: Any, value: Any, came: Any, out: Any) -> None:
    """What comes back through a layer, where its value was positive."""
    np.matmul(came, weight.T, out=out)
    out *= value > 0


def given_to(store: TileStore, weights: list[Any], x: Any) -> dict[tuple[int, int], Any]:
    """Weights in a store, the input in memory."""
    given: dict[tuple[int, int], Any] = {(len(weights), 0): x}
    for number, weight in enumerate(weights):
        given[number, 1] = store.take(weight.nbytes)
        store.write(given[number, 1], bytes_of(weight))
    return given


POLICIES = ("longest path", "in order", "synchronous")
ALONE = "alone"
SHARES = (0.5, 0.25)
N_EMPTY, EMPTY_REPEATS = 2000, 5


def run(
    layers: int = 16,
    side: int = 2048,
    rows: int = 256,
    repeats: int = 3,
    folder: str = gettempdir(),
) -> Tables:
    """Time all policies within all limits, in turn; results are compared bit for bit first.

    side: of the square weights; rows: of the values; folder: of the file.
    """
    chain = LayerChain(layers, rows, side)
    weights, x = chain.values()
    make = chain.tiles(TileMemory())
    want = chain.straight(weights, x, make)
    alone_s = median_s(lambda: chain.straight(weights, x, make), repeats)
    store = SpillFile(folder)
    with ExitStack() as stack:
        stack.callback(store.close)
        given = given_to(store, weights, x)
        read_s = median_s(lambda: read_all(chain, store, given, make), repeats)
        n_bytes = chain.n_layers * chain.weight_bytes
        byte_fs = int(read_s / n_bytes * 1e15)
        task_ps = int(alone_s / (2 * chain.n_layers) * 1e12)
        graphs = compiled(chain, task_ps, byte_fs)
        runners = {}
        for share, graph in graphs.items():
            memory = TileMemory()  # what is dead in it stays within the limit, too
            stack.enter_context(memory.planned(graph.places[0].limit_bytes or 0))
            tiles = chain.tiles(memory)
            for policy in map(LanePolicy, POLICIES):
                runner = GraphRunner(graph, chain.work(), [store], tiles, policy=policy)
                runners[share, policy] = runner
        times: dict[Any, list[float]] = {key: [] for key in (ALONE, *runners)}
        for repeat in range(repeats + 1):
            if repeat:
                times[ALONE].append(timed(lambda: chain.straight(weights, x, make))[0])
            for key, runner in runners.items():
                seconds, outcome = timed(partial(runner.run, given))
                judge(graphs[key[0]], outcome, want)
                if repeat:
                    times[key].append(seconds)
                del outcome
    kind = "direct I/O" if store.is_direct else "pages written out and dropped"
    notes = (
        f"in memory alone {np.median(times[ALONE]):.3f} s; reading all weights once {read_s:.3f} s: "
        f"{n_bytes / read_s / 1e9:.2f} GB/s ({kind}); medians of {repeats}, all in turn; "
        "of alone, synchronous / event-driven: medians of the ratios of a turn",
        "bound: the longer of computing alone and of reading what is loaded at that rate; stores not counted",
    )
    return _table(chain, graphs, times, byte_fs, notes), loop_table()


def _table(
    chain: LayerChain,
    graphs: dict[float | None, MemoryGraph],
    times: dict[Any, list[float]],
    byte_fs: int,
    notes: tuple[str, ...],
) -> Table:
    rows: list[Row] = []
    for share, graph in graphs.items():
        limit, moved = graph.places[0].limit_bytes, graph.moved_bytes
        bound = max(float(np.median(times[ALONE])), moved["load"] * byte_fs / 1e15)
        taken = [np.array(times[share, one]) for one in map(LanePolicy, POLICIES)]
        free, fixed, synchronous = (float(np.median(one)) for one in taken)
        rows.append(
            {
                "memory": "unlimited" if share is None else f"{share:.0%} of it",
                "limit": "-" if limit is None else format_bytes(limit),
                "loaded": format_bytes(moved["load"]), "stored": format_bytes(moved["store"]),
                "bound s": bound, "event-driven s": free, "in order s": fixed, "synchronous s": synchronous,
                "of alone": float(np.median(taken[0] / np.array(times[ALONE]))), "of bound": free / bound,
                "synchronous / event-driven": float(np.median(taken[2] / taken[0])),
            }
        )  # fmt: skip
    weights = f"weights of {format_bytes(chain.weight_bytes)} in a file, {chain.rows} rows"
    title = f"{chain.n_layers} layers forth and back, {weights}"
    return Table.of("layers", title, rows, *notes)


def compiled(chain: LayerChain, task_ps: int, byte_fs: int) -> dict[float | None, MemoryGraph]:
    """Graphs by share of the bytes that the program takes without a limit."""
    tasks, disk = chain.tasks(task_ps), MemoryPlace("disk", None, byte_fs)
    whole = sum(tile.size_bytes for tile in tasks.tiles)
    free = compile_memory(tasks, (MemoryPlace("memory", whole), disk))
    peak = certify_memory(free).bound_bytes[0]
    assert peak is not None
    graphs: dict[float | None, MemoryGraph] = {None: free}
    for share in SHARES:
        limit = max(least_memory(tasks)[0], int(share * peak))
        graphs[share] = compile_memory(tasks, (MemoryPlace("memory", limit), disk))
    return graphs


def judge(graph: MemoryGraph, outcome: Any, want: Any) -> None:
    """Raise if a result has other bits, or a limit was passed."""
    result = outcome.held[len(graph.tasks.tiles) - 1, 0]
    if result.tobytes() != want.tobytes():
        raise WrongPlanError("a result has other bits than that computed in memory")
    limit = graph.places[0].limit_bytes
    if limit is not None and outcome.peak_bytes[0] > limit:
        raise WrongPlanError(f"{outcome.peak_bytes[0]} bytes within a limit of {limit}")


def read_all(
    chain: LayerChain, store: SpillFile, given: dict[tuple[int, int], Any], make: Make
) -> None:
    """Read every weight once, as loads do."""
    for number in range(chain.n_layers):
        store.read(given[number, 1], bytes_of(make(number)))


def median_s(act: Callable[[], Any], repeats: int) -> float:
    """Seconds of an act, after one to warm up."""
    return float(np.median([timed(act)[0] for _ in range(repeats + 1)][1:]))


def empty_tasks(n: int) -> dict[str, TaskList]:
    """Tasks that do nothing on tiles of eight bytes: a chain, independent ones, a load for every task."""
    fixed = MemoryTile(8, (0,), (0,), True)
    chain = [MemoryTask(f"{k}", (k,), (k + 1,)) for k in range(n)]
    alone = [MemoryTask(f"{k}", (0,), (k + 1,)) for k in range(n)]
    loads = [MemoryTask(f"{k}", (k + 1,), updates=(0,)) for k in range(n)]
    made, stored = [MemoryTile(8)] * n, [MemoryTile(8, (1,), (1,))] * n
    return {
        "a chain": TaskList((MemoryTile(8, (0,)), *made), tuple(chain)),
        "independent tasks": TaskList((fixed, *made), tuple(alone)),
        "a load for every task": TaskList((fixed, *stored), tuple(loads)),
    }


def loop_table() -> Table:
    """Microseconds a vertex, the least of several runs: the loop, and with checks and records."""
    rows: list[Row] = []
    for name, tasks in empty_tasks(N_EMPTY).items():
        graph = compile_memory(tasks, (MemoryPlace("memory", 80), MemoryPlace("disk", None, 1)))
        work = [TaskWork(nothing)] * N_EMPTY
        made = partial(
            GraphRunner, graph, work, [MemoryStore()], lambda tile: np.empty(8, np.uint8)
        )
        prepare_s, runner = timed(made)
        times = {"prepare once": prepare_s}
        given: dict[tuple[int, int], Any] = {
            (tile, place): np.zeros(8, np.uint8)
            for tile, one in enumerate(tasks.tiles)
            for place in one.begins
        }
        for way, watched in (("run", False), ("run with checks and records", True)):
            once = partial(runner.run, given, checks=watched, records=watched)
            times[way] = min(timed(once)[0] for _ in range(EMPTY_REPEATS))
        n = len(graph.vertices)
        each = {way: 1e6 * seconds / n for way, seconds in times.items()}
        rows.append({"what": name, "vertices": n, **each})
    note = f"the least of {EMPTY_REPEATS} runs"
    return Table.of("larger-loop", "Cost of the loop, us a vertex", rows, note)
