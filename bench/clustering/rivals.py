"""``python -m bench clustering rivals``: ten Lloyd rounds by redist, Heat and dask-ml from the same start.

Each runs in an environment of its own; turns alternate, so that all meet the same noise.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.clustering.lloyd_rounds import SIZES
from bench.report.figures import met
from bench.report.jobs import ROOT, found_by
from bench.report.report import Report, Table, Value, save_json
from redist.launch.launcher import find_launcher

LAST = Path(__file__).parents[1] / "results" / "last" / "clustering-rivals.json"
AIMS = {"heat": 4.0, "dask-ml": 1.5}
LIMIT_S = 600.0


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 if centres differ."""
    parser = argparse.ArgumentParser(prog="python -m bench clustering rivals", description=__doc__)
    parser.add_argument("--heat", default="", help="a Python that has Heat")
    parser.add_argument("--dask", default="", help="a Python that has dask-ml")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", type=Path, default=LAST)
    args = parser.parse_args(arguments)
    pythons = {"redist": sys.executable, "heat": args.heat, "dask-ml": args.dask}
    times: dict[str, list[dict[str, float]]] = {name: [] for name, word in pythons.items() if word}
    centers: dict[str, Any] = {}
    for _ in range(args.turns):
        for name in times:
            found = run_one(name, pythons[name], args.ranks)
            times[name].append(found["seconds"])
            centers[name] = found["centers"]
    wrong = [name for name, one in centers.items() if not same_centers(one, centers["redist"])]
    report = Report("clustering", (table(times, args.ranks, wrong),))
    print(report)
    save_json(args.json, [report], {"turns": args.turns, "ranks": args.ranks, "beside": [*times]})
    return int(bool(wrong))


def run_one(name: str, python: str, ranks: int) -> dict[str, Any]:
    """What one program found for all sizes."""

    def start(words: list[str]) -> object:
        line = [python, *words]
        if name != "dask-ml":
            started = find_launcher().command(ranks, words)
            line = [python if word == sys.executable else word for word in started]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            line, env=env, check=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL
        ).returncode

    program = "bench.clustering.lloyd_rounds", name, "--ranks", ranks
    data: dict[str, Any] = found_by(start, f"measure {name}", *program)
    return data


def same_centers(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether centres agree but for rounding."""
    return all(np.allclose(one[size], other[size], rtol=1e-6, atol=1e-8) for size in other)


def table(times: dict[str, list[dict[str, float]]], ranks: int, wrong: list[str]) -> Table:
    """Medians, and how many times as fast redist was, with the least and most over turns."""
    rows: list[tuple[Value, ...]] = []
    least = dict.fromkeys(AIMS, np.inf)
    for size in (size.name for size in SIZES):
        ours = np.array([turn[size] for turn in times["redist"]])
        row: list[Value] = [size, float(np.median(ours))]
        for name in AIMS:
            if name not in times:
                row += [None, None]
                continue
            theirs = np.array([turn[size] for turn in times[name]])
            gain = float(np.median(theirs / ours))
            least[name] = min(least[name], gain)
            row += [float(np.median(theirs)), gain]
        rows.append(tuple(row))
    notes = [
        f"{name}: at least {least[name]:.1f} times as fast, aim {aim:g}: {met(least[name] >= aim)}"
        for name, aim in AIMS.items()
        if name in times
    ]
    notes += [f"other centres: {', '.join(wrong)}"] if wrong else ["centres agree but for rounding"]
    columns = ["rows", "redist s"]
    for name in AIMS:
        columns += [f"{name} s", f"times as fast as {name}"]
    title = f"Ten Lloyd rounds from the same centres on {ranks} ranks, workers or chunks"
    return Table(title, tuple(columns), tuple(rows), tuple(notes), "rivals")
