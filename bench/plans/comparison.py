"""How good are the plans beside what XLA compiles for the same problems, where jax is installed?"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from bench.problems.installed import why_absent
from bench.report.figures import geomean
from bench.report.report import Row, Table, Tables
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
MEMORY = "the bound covers tiles and staging; limits are respected"


def run(n: int = len(DEVICES) * EACH, seed: int = SEED) -> Tables:
    """Plan up to 120 random problems for each number of devices in three ways.

    The problems do not depend on ``seed``: figures of several versions shall be comparable.
    """
    each = max(1, min(EACH, n // len(DEVICES)))
    cases = f"{len(DEVICES) * each} random, {' / '.join(map(str, DEVICES))} devices"
    rows: list[Row] = []
    for way in WAYS:
        found = {
            devices: list(received_ratios(way, devices, each))
            for devices in track(DEVICES, len(DEVICES), way)
        }
        rows.append(_row(way, cases, found, MEMORY, ""))
    if why_absent("jax") is None:
        pairs = {
            devices: compare_with_xla(
                list(problems(each, SEED, kinds=("even",), devices=(devices,))), devices
            )
            for devices in track(DEVICES, len(DEVICES), "XLA")
        }
        found = {
            devices: [pair.received for pair in some if pair.ours.lower_bound_bytes > 0]
            for devices, some in pairs.items()
        }
        most = max(pair.temporaries for some in pairs.values() for pair in some)
        memory = f"temporaries up to {most:.0f}x the larger tile"
        name = f"XLA SPMD (jax {version('jax')})"
        rows.append(_row(name, cases, found, memory, "no limit; may gather everything first"))
    title = "Received bytes over the lower bound, geomeans by number of devices"
    return (Table.of("received", title, rows),)


def _row(planner: str, cases: str, found: dict[int, list[float]], memory: str, cannot: str) -> Row:
    means = {f"{devices} devices": geomean(ratios) for devices, ratios in found.items()}
    worst = max(1.0, *(ratio for ratios in found.values() for ratio in ratios))
    about: Row = {"planner": planner, "cases": cases}
    return {**about, **means, "worst": worst, "memory": memory, "cannot": cannot}


def received_ratios(way: str, devices: int, n: int) -> Iterator[float]:
    """Bytes received over the lower bound, of each problem that needs any."""
    for problem in problems(n, SEED, kinds=("even",), devices=(devices,)):
        plan: Plan = find_plan(Request(problem.source, problem.target, **WAYS[way]))
        if plan.lower_bound_bytes > 0:
            yield plan.received_bytes / plan.lower_bound_bytes
        else:
            assert plan.received_bytes == 0, f"{problem} needs no traffic"
