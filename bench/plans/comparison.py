"""How good are the plans beside what XLA compiles for the same problems, where jax is installed?"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from bench.problems.installed import why_absent
from bench.report.figures import geomean
from bench.report.report import Report, Table, Value
from bench.xla.compare import compare_with_xla
from redist.plan.plan import Plan
from redist.plan.request import Request
from redist.synth.find import find_plan
from redist.text.progress import track
from tests.problems.problems import problems

DEVICES = (8, 12, 16)
EACH = 120
"""So many random problems for each number of devices."""
SEED = 1
WAYS: dict[str, dict[str, Any]] = {
    "redist, objective `bytes`": {"objective": "bytes"},
    "redist, objective `time`": {"objective": "time"},
    "redist, `bytes`, collectives only": {"objective": "bytes", "strategy": "collectives"},
}
MEMORY = "bound counts tiles and staging, and a limit is kept"


def run(n: int = len(DEVICES) * EACH, seed: int = SEED) -> Report:
    """Plan up to 120 random problems for each number of devices in three ways.

    The problems do not depend on ``seed``: figures of several versions shall be comparable.
    """
    each = max(1, min(EACH, n // len(DEVICES)))
    rows: list[tuple[Value, ...]] = []
    for way in WAYS:
        means, worst = [], 1.0
        for devices in track(DEVICES, len(DEVICES), way):
            ratios = list(received_ratios(way, devices, each))
            means.append(geomean(ratios))
            worst = max(worst, *ratios)
        cases = f"{len(DEVICES) * each} random, {' / '.join(map(str, DEVICES))} devices"
        rows.append((way, cases, *means, worst, MEMORY, ""))
    if why_absent("jax") is None:
        rows.append(_xla_row(each))
    columns = ("planner", "cases", *(f"{d} devices" for d in DEVICES), "worst", "memory", "cannot")
    title = "Received bytes over the lower bound, geomeans by number of devices"
    return Report("comparison", (Table(title, columns, tuple(rows), name="received"),))


def _xla_row(each: int) -> tuple[Value, ...]:
    """The same of what XLA compiles."""
    means, worst, temporaries = [], 1.0, 0.0
    for devices in track(DEVICES, len(DEVICES), "XLA"):
        some = list(problems(each, SEED, kinds=("even",), devices=(devices,)))
        pairs = compare_with_xla(some, devices)
        ratios = [pair.received for pair in pairs if pair.ours.lower_bound_bytes > 0]
        means.append(geomean(ratios))
        worst = max(worst, *ratios)
        temporaries = max(temporaries, *(pair.temporaries for pair in pairs))
    name = f"XLA SPMD (jax {version('jax')})"
    cases = f"{len(DEVICES) * each} random, {' / '.join(map(str, DEVICES))} devices"
    memory = f"temporaries up to {temporaries:.0f}x the larger tile"
    return name, cases, *means, worst, memory, "no limit; may gather everything first"


def received_ratios(way: str, devices: int, n: int) -> Iterator[float]:
    """Bytes received over the lower bound, of each problem that needs any."""
    for problem in problems(n, SEED, kinds=("even",), devices=(devices,)):
        plan: Plan = find_plan(Request(problem.source, problem.target, **WAYS[way]))
        if plan.lower_bound_bytes > 0:
            yield plan.received_bytes / plan.lower_bound_bytes
        else:
            assert plan.received_bytes == 0, f"{problem} needs no traffic"
