"""How quick are the examples beside the same programs written by hand with mpi4py? Needs mpirun."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from bench.problems.judge import WrongPlanError
from bench.report.report import Report, Table, Value
from redist.launch.launcher import find_launcher, launch

RANKS = 4
ARRAY_BYTES = 2**27
MOST_REPEATS = 9


def run(n: int = MOST_REPEATS, seed: int = 0) -> Report:
    """Measure every example on 4 ranks with 128 MiB, both ways in turn."""
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "examples.json"
        options = ["--bytes", str(ARRAY_BYTES), "--repeat", str(min(n, MOST_REPEATS))]
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ.setdefault(name, "1")  # a rank is one thread, on both sides
        program = ["-m", "bench.examples.job", *options, "--json", str(stored)]
        status = launch(find_launcher(), RANKS, program)
        if not stored.exists():
            raise RuntimeError(f"cannot compare examples: the MPI job ended with status {status}")
        return report(json.loads(stored.read_text(encoding="utf-8")))


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
