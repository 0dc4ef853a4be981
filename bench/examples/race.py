"""How quick are the examples beside the same programs written by hand with mpi4py? Needs mpirun."""

from __future__ import annotations

import os
from typing import Any

from bench.problems.judge import WrongPlanError
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Report, Table, Value

RANKS = 4
ARRAY_BYTES = 2**27
MOST_REPEATS = 9


def run(n: int = MOST_REPEATS, seed: int = 0) -> Report:
    """Measure every example on 4 ranks with 128 MiB, both ways in turn."""
    options = ("--bytes", ARRAY_BYTES, "--repeat", min(n, MOST_REPEATS))
    return report(found_by(on_ranks(RANKS), "compare examples", "bench.examples.job", *options))


def report(data: dict[str, Any]) -> Report:
    """A table from what the job wrote."""
    rows: list[tuple[Value, ...]] = []
    for row in data["rows"]:
        if row["wrong"]:
            raise WrongPlanError(f"cannot compare {row['name']}: {row['wrong']}")
        ours, hand = row["times"]["redist"], row["times"].get("hand")
        low, high = row["low"], row["high"]
        rows.append(
            (
                row["name"],
                row["what"],
                row["rival"],
                1e3 * ours,
                None if hand is None else 1e3 * hand,
                None if hand is None else ours / hand,
                None if hand is None else low["redist"] / high["hand"],
                None if hand is None else high["redist"] / low["hand"],
            )
        )
    return Report(
        "examples",
        (
            Table(
                f"Examples with global arrays beside programs by hand, {data['ranks']} ranks, "
                f"{data['bytes'] // 2**20} MiB, {data['mpi']}, {os.cpu_count()} cores",
                (
                    "example",
                    "size",
                    "by hand with",
                    "redist ms",
                    "by hand ms",
                    "ratio",
                    "from",
                    "to",
                ),
                tuple(rows),
                (
                    "medians, both ways in turn, results compared first; ratio above 1: by hand is "
                    "quicker; from, to: quartiles against each other",
                ),
                "programs",
            ),
        ),
    )
