"""How quick are plans when XLA runs them, beside what it does by itself? Needs jax."""

from __future__ import annotations

import importlib.metadata
import statistics
from collections.abc import Sequence
from typing import Any

from bench.problems.installed import why_absent
from bench.problems.judge import WrongPlanError
from bench.report.figures import geomean, quantile
from bench.report.jobs import found_by, in_one_process
from bench.report.report import Report, Table, Value

DEVICES = 8
MOST = 120
"""Compiling and moving 64 MiB is slow: no more problems than this."""
ARRAY_BYTES = 64 * 2**20
REPEATS = 11
LIMIT_S = 3600.0
SLOW = 0.9
"""Below this ratio a problem is listed."""


def run(n: int = MOST, seed: int = 0) -> Report:
    """Race up to 120 random problems on 8 CPU devices of one process, both ways in turn."""
    if why_absent("jax") is not None:
        line = "lowered: skipped, jax is not installed; pip install -e '.[jax]' or jax alone"
        return Report("lowered", (Table(line, (), ()),))
    numbers = (DEVICES, min(n, MOST), seed, ARRAY_BYTES, REPEATS)
    start = in_one_process(limit_s=LIMIT_S)
    return report(found_by(start, "race XLA", "bench.xla.lowered_child", *numbers))


def report(rows: Sequence[dict[str, Any]]) -> Report:
    """Tables from what the child wrote."""
    for row in rows:
        if row["wrong"]:
            raise WrongPlanError(f"cannot compare {row['case']}: results differ")
        if row["received_bytes"][1] > row["planned_bytes"]:
            raise WrongPlanError(f"cannot compare {row['case']}: XLA moves more than was planned")
    return Report("lowered", (_summary(rows), _losses(rows)))


def ratio(row: dict[str, Any]) -> float:
    """How many times as long as the plan XLA's own way took."""
    theirs, ours = map(statistics.median, row["times_s"])
    return theirs / ours


def _summary(rows: Sequence[dict[str, Any]]) -> Table:
    kinds = {
        "all": rows,
        "XLA gathers the whole array": [row for row in rows if row["gathers_all"]],
        "XLA moves more bytes": [
            r for r in rows if r["received_bytes"][0] > r["received_bytes"][1]
        ],
        "equal bytes": [r for r in rows if r["received_bytes"][0] == r["received_bytes"][1]],
        "XLA moves fewer bytes": [
            r for r in rows if r["received_bytes"][0] < r["received_bytes"][1]
        ],
    }
    lines: list[tuple[Value, ...]] = []
    for name, some in kinds.items():
        ratios = [ratio(row) for row in some]
        bytes_ = [
            r["received_bytes"][0] / r["received_bytes"][1] for r in some if r["received_bytes"][1]
        ]
        held = [row["held_bytes"][0] / row["held_bytes"][1] for row in some]
        lines.append(
            (
                name, len(some), geomean(ratios), min(ratios, default=None),
                quantile(ratios, 0.5) if ratios else None, max(ratios, default=None),
                geomean(bytes_), geomean(held),
                max((row["held_bytes"][1] / row["bound_bytes"] for row in some), default=None),
            )
        )  # fmt: skip
    version = importlib.metadata.version("jax") if why_absent("jax") is None else "absent"
    return Table(
        f"XLA's own resharding over the plan run by XLA: 64 MiB, {DEVICES} CPU devices, jax {version}",
        ("problems", "cases", "time", "least", "median", "most", "bytes", "memory", "of bound"),
        tuple(lines),
        (
            "time, bytes received, memory (arguments, results, temporaries): XLA / plan, geomeans",
            "of bound: the most memory that a plan took, over what redist said it would take at most",
        ),
        "summary",
    )


def _losses(rows: Sequence[dict[str, Any]]) -> Table:
    slow = sorted((row for row in rows if ratio(row) < SLOW), key=ratio)
    lines: list[tuple[Value, ...]] = []
    for row in slow:
        theirs, ours = (statistics.median(times) * 1e3 for times in row["times_s"])
        spread = quantile([1e3 * t for t in row["times_s"][1]], 0.75)
        lines.append((row["case"], ratio(row), theirs, ours, spread, "; ".join(row["steps"])))
    return Table(
        f"Problems in which the plan took longer: XLA / plan below {SLOW}",
        ("problem", "ratio", "XLA ms", "plan ms", "upper quartile", "steps"),
        tuple(lines),
        (),
        "losses",
    )
