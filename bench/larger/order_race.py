"""``python -m bench larger order``: where it pays that lanes take what is ready, not what is listed next.

Tasks compute for a given time, and a store that waits makes copies late: by noise, or by stalls, as a disk or
a link that others use. In one turn every way sees the same waits: they belong to tiles. Results are compared
bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench.problems.judge import WrongPlanError
from bench.report.figures import met, quartiles, timed
from bench.report.report import Row, Table, Tables
from redist.check.certify_memory import certify_memory, within_bounds
from redist.offload.admission import content_edges
from redist.offload.compile import compile_memory, least_memory
from redist.offload.room import unlimited_bytes
from redist.program.memory_graph import MemoryGraph, MemoryPlace
from redist.program.tasks import MemoryTask, MemoryTile, TaskList
from redist.runtime.lanes.run_graph import GraphRunner
from redist.runtime.lanes.stores import Bytes, MemoryStore
from redist.runtime.lanes.vertex_table import LanePolicy, TaskWork
from redist.text.units import format_bytes

FIXED, FREE = "fixed lanes", "free order"
FIXED_ADMITTED, FREE_ADMITTED = "fixed lanes, admission", "free order, admission"
WAYS = {
    FIXED: LanePolicy("in order"),
    FREE: LanePolicy("longest path"),
    FIXED_ADMITTED: LanePolicy("in order", admits=True),
    FREE_ADMITTED: LanePolicy("longest path", admits=True),
}
GAIN_AIM = 1.15
TILE, RESULT = 2**18, 64
LOAD_SHARE = 0.75
"""Loading takes this part of the time of computing, if nothing waits."""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long copies take: a mean, times a log-normal factor of mean 1, or now and then many times as long.

    >>> Waits("quiet").factors(3).tolist()
    [1.0, 1.0, 1.0]
    """

    name: str
    sigma: float = 0.0
    stalls: float = 0.0
    stall_factor: float = 20.0

    def factors(self, n: int, seed: int = 0) -> Any:
        """One for each tile."""
        rng = np.random.default_rng(seed)
        out = np.exp(self.sigma * rng.standard_normal(n) - self.sigma**2 / 2)
        out[rng.random(n) < self.stalls] *= self.stall_factor
        return out


QUIET, NOISE, MORE_NOISE = Waits("quiet"), Waits("noise 0.8", 0.8), Waits("noise 1.2", 1.2)
STALLS = Waits("3 % stall", stalls=0.03)


@dataclass(frozen=True, slots=True)
class Case:
    """A program, how many copies are under way at once, how they wait, and what it may hold.

    ``must_win`` says that it was built so that a free order is quicker.
    """

    name: str
    tasks: TaskList
    n_copies: int
    waits: Waits
    limit_bytes: int
    must_win: bool = False


def independent(n: int, task_ps: int) -> TaskList:
    """Tasks that each read a tile of the store, and make a small result."""
    tiles = [MemoryTile(TILE, (1,), (1,)) for _ in range(n)]
    tiles += [MemoryTile(RESULT, ends=(0,)) for _ in range(n)]
    tasks = [MemoryTask(f"tile {k}", (k,), (n + k,), time_ps=task_ps) for k in range(n)]
    return TaskList(tuple(tiles), tuple(tasks))


def branches(n_branches: int, n_layers: int, task_ps: int) -> TaskList:
    """Chains side by side, listed layer after layer; each task reads a tile of the store."""
    n = n_branches * n_layers
    tiles = [MemoryTile(TILE, (1,), (1,)) for _ in range(n)]
    tiles += [MemoryTile(RESULT, (0,)) for _ in range(n_branches)]
    tasks, last = [], list(range(n, n + n_branches))
    for layer in range(n_layers):
        for branch in range(n_branches):
            ends = (0,) if layer == n_layers - 1 else ()
            made = len(tiles)
            tiles.append(MemoryTile(RESULT, ends=ends))
            reads = (layer * n_branches + branch, last[branch])
            tasks.append(MemoryTask(f"{branch}.{layer}", reads, (made,), time_ps=task_ps))
            last[branch] = made
    return TaskList(tuple(tiles), tuple(tasks))


UNIT = 2**12
WEIGHT, WIDE, NARROW = 86 * UNIT, 172 * UNIT, 64 * UNIT
"""Bytes in the proportions of layers of 4096 x 11008 and 8192 rows, in 16 bits."""


GATED: tuple[tuple[str, tuple[str, ...], int, float], ...] = (
    ("norm", ("x",), NARROW, 0.3),
    ("gate", ("weight", "norm"), WIDE, 1.0),
    ("up", ("weight", "norm"), WIDE, 1.0),
    ("exp", ("gate",), WIDE, 0.4),
    ("one more", ("exp",), WIDE, 0.4),
    ("silu", ("gate", "one more"), WIDE, 0.6),
    ("both", ("silu", "up"), WIDE, 0.6),
    ("down", ("weight", "both"), NARROW, 1.0),
    ("add", ("down", "x"), NARROW, 0.3),
)
"""The calls of a layer of a gated MLP: what each reads and makes, and its time beside that of a product."""


def gated(n_layers: int, n_stay: int, task_ps: int) -> TaskList:
    """Layers of a gated MLP, call by call as a program has them; some weights stay in memory."""
    n = 3 * n_layers
    tiles = [MemoryTile(WEIGHT, (0,), (0,)) for _ in range(n_stay)]
    tiles += [MemoryTile(WEIGHT, (1,), (1,)) for _ in range(n - n_stay)]
    tiles.append(MemoryTile(NARROW, (0,)))
    tasks: list[MemoryTask] = []
    weights, named = iter(range(n)), {"x": n}
    for k in range(n_layers):
        for name, reads, size, share in GATED:
            used = [next(weights) if one == "weight" else named[one] for one in reads]
            named[name] = len(tiles)
            is_last = k == n_layers - 1 and name == "add"
            tiles.append(MemoryTile(size, ends=(0,) if is_last else ()))
            time_ps = int(share * task_ps)
            tasks.append(MemoryTask(f"{name} {k}", tuple(used), (named[name],), time_ps=time_ps))
        named["x"] = named["add"]
    return TaskList(tuple(tiles), tuple(tasks))


def cases(n_tiles: int, n_layers: int, task_ps: int) -> list[Case]:
    """All rows: first those where a free order cannot win, then those that were built for it."""
    tiles = independent(n_tiles, task_ps)
    kept = n_tiles * RESULT
    chain, four = branches(1, n_layers * 2, task_ps), branches(4, n_layers, task_ps)
    mlp = gated(max(4, n_layers * 2 // 3), 6, task_ps)
    half = unlimited_bytes(mlp) // 2
    held = "{} tiles held".format
    return [
        Case("chain of layers", chain, 4, STALLS, 6 * TILE + 4 * RESULT),
        Case(f"independent tiles, {held(6)}", tiles, 1, MORE_NOISE, 6 * TILE + kept),
        Case(f"independent tiles, {held(6)}", tiles, 4, QUIET, 6 * TILE + kept),
        Case(f"independent tiles, {held(6)}", tiles, 4, NOISE, 6 * TILE + kept, True),
        Case(f"independent tiles, {held(6)}", tiles, 4, MORE_NOISE, 6 * TILE + kept, True),
        Case(f"independent tiles, {held(12)}", tiles, 4, STALLS, 12 * TILE + kept, True),
        Case("4 branches", four, 4, STALLS, 12 * TILE + 8 * RESULT),
        Case("gated MLP, half of its memory", mlp, 1, QUIET, max(least_memory(mlp)[0], half), True),
    ]


class WaitingStore(MemoryStore):
    """Memory whose copies take their time, each tile's its own, the same in every run."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds_of: dict[int, float] = {}
        """By tile; what a run stores itself takes no time."""
        self.tile_of: dict[int, int] = {}
        """By the address of a space, whose it is."""

    def read(self, space: Bytes, out: Bytes) -> None:
        """**Local.** Wait, then copy."""
        tile = self.tile_of.get(int(space.ctypes.data))
        time.sleep(self.seconds_of.get(-1 if tile is None else tile, 0.0))
        super().read(space, out)


def compute(number: int, seconds: float, inputs: Sequence[Any], out: Any) -> None:
    """Make bytes that depend on all inputs, and go on computing until the time is over."""
    end = time.perf_counter() + seconds
    out[:] = number % 251
    for one in inputs:
        n = min(one.size, out.size)
        out[:n] ^= one[:n]
        out[0] ^= one[-1]
    scratch = np.ones(2**13)
    while time.perf_counter() < end:
        np.sqrt(scratch, out=scratch)


def work_of(tasks: TaskList) -> list[TaskWork]:
    """What the tasks do: each takes as long as it is expected to."""
    return [
        TaskWork(lambda *arrays, k=k, s=one.time_ps / 1e12: compute(k, s, arrays[:-1], arrays[-1]))
        for k, one in enumerate(tasks.tasks)
    ]


def first_values(tasks: TaskList) -> dict[int, Any]:
    """The tiles that are there at the beginning."""
    rng = np.random.default_rng(3)
    return {
        number: rng.integers(0, 256, one.size_bytes, dtype=np.uint8)
        for number, one in enumerate(tasks.tiles)
        if one.begins
    }


def straight(tasks: TaskList) -> dict[int, bytes]:
    """All results, if tasks run as listed and everything is in memory."""
    tiles = first_values(tasks)
    for number, task in enumerate(tasks.tasks):
        (made,) = task.makes
        tiles[made] = np.zeros(tasks.tiles[made].size_bytes, np.uint8)
        compute(number, 0.0, [tiles[one] for one in task.reads], tiles[made])
    return {n: tiles[n].tobytes() for n, one in enumerate(tasks.tiles) if 0 in one.ends}


@dataclass(frozen=True, slots=True)
class Race:
    """A case ready to run: a run by each policy, the graph, and how to draw the waits of another turn."""

    ways: dict[str, Callable[[], Any]]
    graph: MemoryGraph
    draw: Callable[[int], None]


def race_of(case: Case) -> Race:
    """Compile and certify a case, and put its tiles into a store that waits."""
    tasks = case.tasks
    work_ps = work_ps_of(tasks)
    away = [n for n, one in enumerate(tasks.tiles) if one.begins and 0 not in one.begins]
    n_bytes = sum(tasks.tiles[n].size_bytes for n in away)
    byte_fs = int(1000 * LOAD_SHARE * work_ps / n_bytes)
    places = MemoryPlace("memory", case.limit_bytes), MemoryPlace("store", None, byte_fs)
    graph = compile_memory(tasks, places)
    certificate = certify_memory(graph, admitted=content_edges(graph))
    if certificate.verdict != "proved":
        raise WrongPlanError(str(certificate))
    granted = within_bounds(graph, certificate.bound_bytes)
    store = WaitingStore()

    def draw(turn: int) -> None:
        factors = case.waits.factors(len(away), turn)
        for tile, factor in zip(away, factors, strict=True):
            seconds = tasks.tiles[tile].size_bytes * byte_fs / 1e15
            store.seconds_of[tile] = case.n_copies * factor * seconds

    values = first_values(tasks)
    given: dict[tuple[int, int], Any] = {}
    for tile, one in values.items():
        if 0 in tasks.tiles[tile].begins:
            given[tile, 0] = one
        else:
            given[tile, 1] = store.take(one.nbytes)
            store.write(given[tile, 1], one)
            store.tile_of[int(given[tile, 1].ctypes.data)] = tile
    sizes = [one.size_bytes for one in tasks.tiles]

    def run_by(policy: LanePolicy) -> Callable[[], Any]:
        runner = GraphRunner(
            granted if policy.admits else graph, work_of(tasks), [store],
            lambda tile: np.empty(sizes[tile], np.uint8), policy=policy, n_threads=case.n_copies,
        )  # fmt: skip
        return partial(runner.run, given)

    return Race({name: run_by(policy) for name, policy in WAYS.items()}, graph, draw)


def work_ps_of(tasks: TaskList) -> int:
    """What computing alone takes."""
    return sum(one.time_ps for one in tasks.tasks)


def run(tiles: int = 64, layers: int = 12, task_ms: float = 6.0, repeat: int = 9) -> Tables:
    """Time fixed lanes and a free order in turn, memory by credits and by admission.

    tiles: that are independent; layers: of a branch; task_ms: of one task.
    """
    rows: list[Row] = []
    missed = 0
    for case in cases(tiles, layers, int(task_ms * 1e9)):
        race = race_of(case)
        want = straight(case.tasks)
        for name, way in race.ways.items():
            _judge(case, name, way(), want)
        taken: dict[str, list[float]] = {name: [] for name in race.ways}
        for turn in range(repeat):
            race.draw(turn)
            for name, way in race.ways.items():
                taken[name].append(timed(way)[0])
        times = {name: np.array(one) for name, one in taken.items()}
        gains = {name: times[FIXED] / one for name, one in times.items()}
        gain = float(np.median(gains[FREE_ADMITTED]))
        missed += case.must_win and gain < GAIN_AIM
        rows += [_row(case, name, times[name], gains[name], race.graph) for name in WAYS]
    notes = (
        f"tasks compute for {task_ms:g} ms or twice that; loading takes {LOAD_SHARE:g} of computing where "
        "nothing waits; a store that waits, in every turn for others, in one turn the same for every way; "
        f"medians of {repeat} turns, results bit for bit equal",
        "gain: times as fast as fixed lanes that wait for credits; programs run in free order, by admission",
        f"rows built for a free order: gain over fixed lanes at least {GAIN_AIM}: "
        + (met(True) if not missed else f"{met(False)} in {missed}"),
    )
    title = "Free order beside fixed lanes, within a limit"
    return (Table.of("order", title, rows, *notes, keys=4),)


def _judge(case: Case, way: str, outcome: Any, want: dict[int, bytes]) -> None:
    for tile, values in want.items():
        if outcome.held[tile, 0].tobytes() != values:
            raise WrongPlanError(f"{case.name}, {way}: a result has other bits")
    if outcome.peak_bytes[0] > case.limit_bytes:
        raise WrongPlanError(f"{case.name}, {way}: {outcome.peak_bytes[0]} bytes held")


def _row(case: Case, way: str, seconds: Any, gains: Any, graph: MemoryGraph) -> Row:
    alone_s = work_ps_of(case.tasks) / 1e12
    low, middle, high = quartiles(list(seconds / alone_s))
    gain = float(np.median(gains))
    aimed = case.must_win and way == FREE_ADMITTED
    return {
        "program": case.name, "copies at once": case.n_copies, "waits": case.waits.name, "way": way,
        "limit": format_bytes(case.limit_bytes), "loaded": format_bytes(graph.moved_bytes["load"]),
        "of computing alone": middle, "quartiles": f"{low:.2f}-{high:.2f}",
        "gain over fixed lanes": gain, "aim": GAIN_AIM if aimed else None,
        "reached": met(gain >= GAIN_AIM) if aimed else None,
    }  # fmt: skip
