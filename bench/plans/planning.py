"""How long does planning take? Random problems, repeated requests; certificate and check included."""

from __future__ import annotations

import math
import multiprocessing
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TypeVar

import redist
from bench.problems.judge import judge
from bench.report.figures import met, most, quantile, timed
from bench.report.report import Row, Table, Tables
from redist.layout.mesh import Mesh
from redist.measure.pages import resident_peak_bytes
from redist.text.progress import track
from tests.problems.problems import KINDS, Problem, problems

MESHES = tuple(
    Mesh(x=x, y=y, z=z)
    for x, y, z in ((2, 2, 2), (4, 4, 4), (8, 8, 8), (8, 64, 8), (16, 64, 16), (64, 128, 8),
                    (64, 256, 16), (128, 512, 16))
)  # fmt: skip
PATTERNS = {
    "swap two axes": ("u8[K{x}, N{y}]", "u8[K{y}, N{x}]"),
    "swap all axes": ("u8[K{x,y}, N{z}]", "u8[K{z}, N{y,x}]"),
    "rows to columns": ("u8[K{x,y,z}, N]", "u8[K, N{x,y,z}]"),
    "gather one axis": ("u8[K{x,y}, N{z}]", "u8[K{x,y}, N]"),
    "replicate": ("u8[K{x,y,z}]", "u8[K]"),
    "sub-axes": ("u8[K{x:(1)2,y}, N{x:(2)R}]", "u8[K{y,x:(2)R}, N{x:(1)2}]"),
    "reduce": ("u8[K{x}, N{z}] sum{y}", "u8[K{x,y}, N{z}]"),
    "uneven": ("u8[U{x,y}, V]", "u8[U, V{y,z}]"),
}
"""N devices, K a multiple of N, U and V one less than these, R half of x."""
AIMS = {"x=64,y=128,z=8": (1.0, math.inf), "x=128,y=512,z=16": (5.0, 2.0 * 2**30)}
"""By mesh: seconds, and bytes of a fresh process."""
SIZES_EACH = 3
"""Arrays of so many sizes are planned in each process; the median counts."""
A = TypeVar("A")
R = TypeVar("R")


def in_fresh_process(work: Callable[[A], R], items: Iterable[A]) -> Iterator[R]:
    """Do ``work`` on every item, one after another in one new process."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        yield from pool.map(work, items)


def warm_up() -> None:
    """Import everything that planning needs, the solver included."""
    redist.synthesize("f32[6{x}]", "f32[6]", mesh=redist.Mesh(x=2))


def devices_table(n: int = 2000) -> Table:
    """Ask every question in a fresh process; a small ``n`` leaves out all but the smallest mesh."""
    meshes = MESHES if n >= 100 else MESHES[:1]
    cases = [(mesh, name) for mesh in meshes for name in PATTERNS]
    rows: list[Row] = []
    for mesh, name in track(cases, len(cases), "growth with devices"):
        seconds, peak_bytes, detours = next(in_fresh_process(_plan, [(mesh, name)]))
        worst, where, aim = max(seconds), str(mesh), "-"
        if where in AIMS:
            most_s, most_bytes = AIMS[where]
            aim = met(worst < most_s and peak_bytes < most_bytes)
        rows.append(
            {
                "mesh": where,
                "devices": mesh.n_devices,
                "pattern": name,
                "median s": statistics.median(seconds),
                "worst s": worst,
                "peak MiB": peak_bytes / 2**20,
                "aim": aim,
                "detours": detours,
            }
        )
    title = f"Growth with devices ({SIZES_EACH} sizes each, every row a fresh process)"
    aims = "aims, worst of the repeats: 64 x 128 x 8 < 1 s; 128 x 512 x 16 < 5 s and < 2048 MiB"
    return Table.of(
        "devices", title, rows, aims, "detours: plans that come by a type twice", keys=3
    )


def _plan(asked: tuple[Mesh, str]) -> tuple[list[float], int, int]:
    """Seconds for each size of a pattern, the process's peak, and plans that come by a type twice."""
    warm_up()
    mesh, name = asked
    seconds, plans = [], []
    for times in range(1, SIZES_EACH + 1):
        taken, plan = timed(partial(redist.synthesize, *pattern(mesh, name, times), mesh=mesh))
        seconds.append(taken)
        plans.append(plan)
    peak = resident_peak_bytes()
    detours = sum(len(set(judge(plan).types)) < len(plan.types) for plan in plans)
    return seconds, peak, detours


def pattern(mesh: Mesh, name: str, times: int = 1) -> tuple[str, str]:
    """Source and target of a pattern, for an array of so many times as many rows as devices."""
    n = mesh.n_devices
    k = n * times
    source, target = PATTERNS[name]
    for letter, value in zip("KNUVR", (k, n, k - 1, n - 1, mesh.size("x") // 2), strict=True):
        source, target = (t.replace(letter, str(value)) for t in (source, target))
    return source, target


MEDIAN_AIM_MS = 20.0
WORST_AIM_MS = 500.0
REPEATED_AIM_US = 100.0
OBJECTIVES = ("time", "bytes")
REPEATS = 200
REPEATED = 50
"""So many of the problems are asked again."""
SLOWEST = 3
"""So many slow problems are named."""


def run(n: int = 2000, seed: int = 0) -> Tables:
    """Time ``n`` random problems in fresh processes, then growth with devices."""
    asked = list(dict.fromkeys(problems(n, seed)))
    times = {}
    for objective in OBJECTIVES:
        fresh = in_fresh_process(_planning_ms, [(problem, objective) for problem in asked])
        times[objective] = list(track(fresh, len(asked), f"planning, objective {objective}"))
    repeated = list(in_fresh_process(_repeated_us, asked[:REPEATED]))
    return _times_table(asked, times), _repeated_table(repeated), devices_table(n)


def _planning_ms(asked: tuple[Problem, str]) -> float:
    """Milliseconds to plan, check and certify a problem under an objective; the plan is judged later."""
    warm_up()
    problem, objective = asked
    ends = problem.source, problem.target
    seconds, plan = timed(lambda: redist.synthesize(*ends, objective=objective))
    judge(plan)
    return seconds * 1e3


def _repeated_us(problem: Problem) -> tuple[float, float]:
    """Median microseconds to ask again, with types and with text."""
    warm_up()
    a, b = problem.source, problem.target
    by_text = partial(redist.synthesize, str(a), str(b), mesh=a.mesh, target_mesh=b.mesh)
    first = judge(redist.synthesize(a, b))
    by_text()
    types, text = [], []
    for _ in range(REPEATS):
        seconds, again = timed(lambda: redist.synthesize(a, b))
        types.append(seconds * 1e6)
        assert again is first
        text.append(timed(by_text)[0] * 1e6)
    return statistics.median(types), statistics.median(text)


def _times_table(asked: Sequence[Problem], times: dict[str, list[float]]) -> Table:
    rows: list[Row] = []
    notes: list[str] = []
    for objective, taken in times.items():
        for kind in (*KINDS, "all"):
            some = [ms for p, ms in zip(asked, taken, strict=True) if kind in ("all", p.kind)]
            spread = {"median ms": quantile(some, 0.5), "99 % ms": quantile(some, 0.99)}
            about: Row = {"objective": objective, "kind": kind, "cases": len(some)}
            rows.append({**about, **spread, "worst ms": most(some)})
        median, worst = quantile(taken, 0.5) or 0.0, max(taken, default=0.0)
        notes.append(
            f"{objective}: aim median < {MEDIAN_AIM_MS:.0f} ms {met(median < MEDIAN_AIM_MS)}, "
            f"worst < {WORST_AIM_MS:.0f} ms {met(worst < WORST_AIM_MS)}, "
            f"{sum(ms >= WORST_AIM_MS for ms in taken)} of {len(taken)} above"
        )
        slow = sorted(zip(taken, map(str, asked), strict=True), reverse=True)[:SLOWEST]
        notes += [f"{objective}: {ms:.0f} ms for {text}" for ms, text in slow]
    title = "Planning time, certificate and check included (strategy auto, solver imported)"
    return Table.of("random", title, rows, *notes, keys=2)


def _repeated_table(repeated: Sequence[tuple[float, float]]) -> Table:
    rows: list[Row] = []
    for i, name in enumerate(("types", "text")):
        medians = [row[i] for row in repeated]
        median = quantile(medians, 0.5) or 0.0
        about: Row = {"given as": name, "problems": len(medians), "median us": median}
        rows.append({**about, "worst us": most(medians), "aim": met(median < REPEATED_AIM_US)})
    title = f"A repeated request (medians of {REPEATS}; aim < {REPEATED_AIM_US:.0f} us)"
    return Table.of("repeated", title, rows)
