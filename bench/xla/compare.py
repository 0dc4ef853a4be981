"""How do plans compare with what XLA compiles for the same redistribution? Needs jax."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass

from bench.peers.jax import JaxChild, question
from bench.plans.quality import PlanFigures, measure_plans
from bench.problems.judge import WrongPlanError
from bench.report.figures import geomean, most
from bench.report.report import Row, Table, Tables, Value
from redist.text.progress import track
from tests.problems.problems import Problem, problems

DEVICES = (8, 12, 16)
MOST = 360
"""Compiling is slow: no more problems than this."""
SMALL_TILE_BYTES = 1024
"""Below, XLA's temporaries are mostly tables and padding."""
OURS = ("bytes", "time")


@dataclass(frozen=True, slots=True)
class XlaPair:
    """Our figures for a problem, and XLA's."""

    ours: PlanFigures
    received_bytes: int
    temporary_bytes: int

    @property
    def received(self) -> float:
        """Bytes received over the lower bound, by XLA."""
        return self.received_bytes / self.ours.lower_bound_bytes

    @property
    def temporaries(self) -> float:
        """XLA's temporaries over the larger tile; 0 where that is small."""
        p = self.ours.problem
        tile_bytes = max(p.source.tile_bytes, p.target.tile_bytes)
        return self.temporary_bytes / tile_bytes if tile_bytes >= SMALL_TILE_BYTES else 0.0


def run(n: int = MOST, seed: int = 0) -> Tables:
    """Compare on even problems of one mesh without pending reductions and sub-axes."""
    asked = list(problems(min(n, MOST), seed, kinds=("even",), devices=DEVICES))
    pairs: list[XlaPair] = []
    for n_devices in track(DEVICES, len(DEVICES), "xla, device counts"):
        some = [p for p in asked if p.source.mesh.n_devices == n_devices]
        pairs += compare_with_xla(some, n_devices)
    return (_table(pairs),)


def compare_with_xla(some: Sequence[Problem], n_devices: int) -> list[XlaPair]:
    """Plan problems of one device count here, and compile them in a process of their own."""
    child = JaxChild(n_devices)
    try:
        asked = [question(problem.source, problem.target) for problem in some]
        answers = [child.ask({"do": "compile", **one}) for one in asked]
    finally:
        child.close()
    out = []
    for problem, (elems, temporary) in zip(some, answers, strict=True):
        pair = XlaPair(measure_plans(problem), elems * problem.source.dtype.itemsize, temporary)
        if pair.received_bytes < pair.ours.lower_bound_bytes:
            raise WrongPlanError(
                f"cannot compare {problem}: XLA seems to receive {pair.received_bytes} bytes, "
                f"less than the lower bound of {pair.ours.lower_bound_bytes}"
            )
        out.append(pair)
    return out


def _table(pairs: Sequence[XlaPair]) -> Table:
    rows: list[Row] = []
    for n_devices in (*DEVICES, "all"):
        some = [p for p in pairs if n_devices in ("all", p.ours.problem.source.mesh.n_devices)]
        moving = [p for p in some if p.ours.lower_bound_bytes > 0]
        free = [p for p in some if p.ours.lower_bound_bytes == 0]
        theirs = [p.received for p in moving]
        row: dict[str, Value] = {"devices": str(n_devices), "cases": len(moving)}
        row |= {"XLA": geomean(theirs), "XLA max": most(theirs)}
        for way in OURS:
            ratios = [p.ours.received(way) for p in moving]
            row |= {f"ours, {way}": geomean(ratios), f"{way} max": most(ratios)}
        wasted = sum(p.received_bytes > 0 for p in free)
        row["temporaries max"] = most(p.temporaries for p in some)
        rows.append({**row, "free": len(free), "XLA not free": wasted})
    version = importlib.metadata.version("jax")
    title = f"Received bytes over the lower bound beside XLA (jax {version}, compiled for CPU)"
    notes = (
        "geomean and max; XLA's elements counted at the size of the array's own dtype",
        "temporaries: XLA's over the larger tile, where that is 1 KiB or more; free: lower bound 0",
    )
    return Table.of("received", title, rows, *notes)
