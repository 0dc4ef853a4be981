"""How does planning grow with devices, up to a million? Time and memory."""

from __future__ import annotations

import math
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

import redist
from bench.problems.judge import judge
from bench.report.figures import met
from bench.report.report import Row, Table
from redist.layout.mesh import Mesh
from redist.text.progress import track

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
REPEATS = 3
"""Arrays of so many sizes are planned in each process; the median counts."""
A = TypeVar("A")
R = TypeVar("R")

STATUS = Path("/proc/self/status")


def in_fresh_process(work: Callable[[A], R], items: Iterable[A]) -> Iterator[R]:
    """Do ``work`` on every item, one after another in one new process."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        yield from pool.map(work, items)


def peak_memory_bytes() -> int:
    """The most memory this process has had.

    >>> peak_memory_bytes() > 2**20
    True
    """
    # A child starts with its parent's maximum in ru_maxrss; the kernel's own mark is per program.
    if STATUS.exists():
        for line in STATUS.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


def warm_up() -> None:
    """Import everything that planning needs, the solver included."""
    import redist

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
    title = f"Growth with devices ({REPEATS} sizes each, every row a fresh process)"
    aims = "aims, worst of the repeats: 64 x 128 x 8 < 1 s; 128 x 512 x 16 < 5 s and < 2048 MiB"
    return Table.of(
        "devices", title, rows, aims, "detours: plans that come by a type twice", keys=3
    )


def _plan(asked: tuple[Mesh, str]) -> tuple[list[float], int, int]:
    """Seconds for each size of a pattern, the process's peak, and plans that come by a type twice."""
    warm_up()
    mesh, name = asked
    seconds, plans = [], []
    for times in range(1, REPEATS + 1):
        source, target = pattern(mesh, name, times)
        started = time.perf_counter()
        plans.append(redist.synthesize(source, target, mesh=mesh))
        seconds.append(time.perf_counter() - started)
    peak = peak_memory_bytes()
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
