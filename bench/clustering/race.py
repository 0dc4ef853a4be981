"""``python -m bench clustering``: fits of every estimator beside scikit-learn's, on 1 and 2 ranks."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.report.figures import met
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Report, Table, Value, save_json

LAST = Path(__file__).parents[1] / "results" / "last" / "clustering.json"
GEOMEAN_AIM = 0.85
"""Of scikit-learn with two threads, over the sizes of KMeans on two ranks."""
MEMORY_FACTOR, MEMORY_MORE = 1.2, 16 * 2**20
"""A rank may take so much of scikit-learn's bytes, divided by ranks, and so much more."""


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    match arguments[:1]:
        case ["rivals"]:
            from bench.clustering.rivals import main as chosen
        case ["visits"]:
            from bench.clustering.visits import main as chosen
        case ["gpu"]:
            from bench.clustering.gpu_race import main as chosen
        case _:
            return race(arguments)
    return chosen(arguments[1:])


def race(arguments: Sequence[str]) -> int:
    """Measure fits and print."""
    parser = argparse.ArgumentParser(prog="python -m bench clustering", description=__doc__)
    parser.add_argument("--cases", default="", help="words in their names, by commas; all if none")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--memory", action="store_true", help="bytes beyond the rows instead of seconds"
    )
    parser.add_argument("--json", type=Path, default=LAST)
    args = parser.parse_args(arguments)
    tables = []
    for ranks in map(int, args.ranks.split(",")):
        data = run_job(ranks, args.cases, args.repeat, args.memory)
        tables.append(memory_table(data) if args.memory else table(data))
        print(tables[-1], end="\n\n", flush=True)
    options = {name: str(value) for name, value in vars(args).items()}
    save_json(args.json, [Report("clustering", tuple(tables))], options)
    print(f"JSON   {args.json}")
    return 0


def run_job(ranks: int, cases: str, repeat: int, memory: bool) -> dict[str, Any]:
    """What the job of so many ranks wrote."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.pop(name, None)  # scikit-learn may use as many threads as there are ranks
    options = ["--cases", cases, "--repeat", repeat, *(["--memory"] if memory else [])]
    start = on_ranks(ranks, one_thread=False)
    data: dict[str, Any] = found_by(start, "measure clustering", "bench.clustering.job", *options)
    return data


def about() -> str:
    """The machine and the version beside which it was measured."""
    import sklearn

    return f"scikit-learn {sklearn.__version__}, {platform.machine()}, {os.cpu_count()} cores"


def table(data: dict[str, Any]) -> Table:
    """Medians of the ratios of turns, their spread, and the aims."""
    from bench.clustering.cases import CASES

    ranks, by_name = data["ranks"], {one.name: one for one in CASES}
    rows: list[tuple[Value, ...]] = []
    groups: dict[str, list[float]] = {}
    for row in data["rows"]:
        case, ours, theirs = by_name[row["case"]], np.array(row["ours"]), np.array(row["theirs"])
        ratios = ours / theirs
        ratio = float(np.median(ratios))
        groups.setdefault(case.group, []).append(ratio)
        aim = case.aims[ranks - 1] if ranks < 3 else None
        rows.append(
            (
                case.name, float(np.median(ours)), float(np.median(theirs)), ratio,
                f"{ratios.min():.2f}-{ratios.max():.2f}", aim,
                "-" if aim is None else met(ratio <= aim), row["alike"],
            )
        )  # fmt: skip
    notes = []
    if len(groups.get("KMeans", ())) > 1:
        middle = float(np.exp(np.mean(np.log(groups["KMeans"]))))
        notes.append(f"KMeans: geomean {middle:.2f}")
        if ranks == 2:
            notes[-1] += f", aim {GEOMEAN_AIM}: {met(middle <= GEOMEAN_AIM)}"
    return Table(
        f"Clustering on {ranks} rank{'s' * (ranks > 1)} beside {about()}, as many threads as ranks",
        ("fit", "s", "scikit-learn s", "ratio", "spread", "aim", "met", "adjusted Rand"),
        tuple(rows),
        tuple(notes),
        f"ranks-{ranks}",
    )


def memory_table(data: dict[str, Any]) -> Table:
    """Bytes beyond the rows on the rank that takes most, beside scikit-learn's."""
    ranks = data["ranks"]
    rows: list[tuple[Value, ...]] = []
    for row in data["rows"]:
        ours, theirs = float(np.median(row["ours"])), float(np.median(row["theirs"]))
        allowed = MEMORY_FACTOR * theirs / ranks + MEMORY_MORE
        rows.append(
            (row["case"], ours / 2**20, theirs / 2**20, allowed / 2**20, met(ours <= allowed))
        )
    return Table(
        f"Memory beyond the rows on {ranks} rank{'s' * (ranks > 1)}, MiB, beside {about()}",
        ("fit", "a rank", "scikit-learn", "allowed", "met"),
        tuple(rows),
        (f"allowed: {MEMORY_FACTOR} of scikit-learn's divided by ranks, and 16 MiB more",),
        f"memory-{ranks}",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
