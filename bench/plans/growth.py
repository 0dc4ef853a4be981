"""How does planning grow with devices, up to a million? Time and memory."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import redist
from bench.problems.fresh import in_fresh_process, peak_memory_bytes, warm_up
from bench.problems.judge import judge
from bench.report.figures import met
from bench.report.report import Report, Table, Value
from redist.layout.mesh import Mesh
from redist.text.progress import track

MESHES = tuple(
    Mesh(x=x, y=y, z=z)
    for x, y, z in (
        (2, 2, 2),
        (4, 4, 4),
        (8, 8, 8),
        (8, 64, 8),
        (16, 64, 16),
        (64, 128, 8),
        (64, 256, 16),
        (128, 512, 16),
    )
)
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
REPEATS = 3
"""Arrays of so many sizes are planned in each process; the median counts."""


@dataclass(frozen=True, slots=True)
class Question:
    """Plans to find in one fresh process; texts of source and target."""

    mesh: Mesh
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Seconds for each plan, what the process needed at most, and plans that come by a type twice."""

    seconds: tuple[float, ...]
    peak_bytes: int
    detours: int


def run(n: int = 2000, seed: int = 0) -> Report:
    """Ask every question in a fresh process; a small ``n`` leaves out all but the smallest mesh."""
    meshes = MESHES if n >= 100 else MESHES[:1]
    cases = [(mesh, name) for mesh in meshes for name in PATTERNS]
    answers = [
        answer(Question(mesh, _pairs(mesh, name)))
        for mesh, name in track(cases, len(cases), "growth with devices")
    ]
    return Report("growth", (_devices_table(cases, answers),))


def answer(question: Question) -> Answer:
    """Find and judge the plans of a question in a fresh process."""
    return next(in_fresh_process(_answer, [question]))


def _answer(question: Question) -> Answer:
    warm_up()
    seconds = []
    plans = []
    for source, target in question.pairs:
        started = time.perf_counter()
        plans.append(redist.synthesize(source, target, mesh=question.mesh))
        seconds.append(time.perf_counter() - started)
    peak = peak_memory_bytes()
    detours = sum(len(set(judge(plan).types)) < len(plan.types) for plan in plans)
    return Answer(tuple(seconds), peak, detours)


def _pairs(mesh: Mesh, name: str) -> tuple[tuple[str, str], ...]:
    """The pattern for arrays of several sizes."""
    return tuple(pattern(mesh, name, times) for times in range(1, REPEATS + 1))


def pattern(mesh: Mesh, name: str, times: int = 1) -> tuple[str, str]:
    """Source and target of a pattern, for an array of so many times as many rows as devices."""
    n = mesh.n_devices
    k = n * times
    source, target = PATTERNS[name]
    for letter, value in zip("KNUVR", (k, n, k - 1, n - 1, mesh.size("x") // 2), strict=True):
        source, target = (t.replace(letter, str(value)) for t in (source, target))
    return source, target


def _devices_table(cases: Sequence[tuple[Mesh, str]], answers: Sequence[Answer]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for (mesh, name), a in zip(cases, answers, strict=True):
        where = str(mesh)
        median, worst = statistics.median(a.seconds), max(a.seconds)
        aim = "-"
        if where in AIMS:
            seconds, n_bytes = AIMS[where]
            aim = met(worst < seconds and a.peak_bytes < n_bytes)
        mib = a.peak_bytes / 2**20
        rows.append((where, mesh.n_devices, name, median, worst, mib, aim, a.detours))
    aims = "aims, worst of the repeats: 64 x 128 x 8 < 1 s; 128 x 512 x 16 < 5 s and < 2048 MiB"
    return Table(
        f"Growth with devices ({REPEATS} sizes each, every row a fresh process)",
        ("mesh", "devices", "pattern", "median s", "worst s", "peak MiB", "aim", "detours"),
        tuple(rows),
        (aims, "detours: plans that come by a type twice"),
        "devices",
        keys=3,
    )
