"""``python -m bench compare-checkouts FOLDER``: has this checkout become slower than another one?

Both are measured in turn, each with the Python of its own ``.venv`` if it has one, and the ratios of
every round are compared: above 1 this checkout is slower. The other checkout may be an older version.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.report.figures import geomean
from bench.report.report import Table, Value

HERE = Path(__file__).parents[1]
WORKS: dict[str, tuple[str, ...]] = {
    "overhead": ("-m", "bench", "overhead"),
    "planning": ("-m", "bench", "planning", "--n", "60"),
    "moves": ("-m", "redist.cli", "bench", "--contenders", "redist,redist-any", "--repeat", "9"),
}
"""Commands that both checkouts must have; each writes JSON."""
COLUMNS = {"overhead": "beyond numpy", "planning": "median ms"}
"""The figure that is compared, in each row that has it."""


def main(arguments: Sequence[str]) -> int:
    """Measure, print a table for each work; 1 if a command fails in one of the checkouts."""
    parser = argparse.ArgumentParser(prog="python -m bench compare-checkouts", description=__doc__)
    parser.add_argument("folder", type=Path, help="another checkout of redist")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS), help="(all)")
    parser.add_argument("--rounds", type=int, default=5, help="of both in turn (%(default)s)")
    parser.add_argument("-n", type=int, default=4, help="ranks of the moves (%(default)s)")
    parser.add_argument("--sizes", default="128MiB,1MiB", help="of the moves (%(default)s)")
    parser.add_argument("--cases", default="", help="of the moves (all)")
    args = parser.parse_args(arguments)
    both = [args.folder, HERE]
    for work in args.works:
        words = WORKS[work]
        if work == "moves":
            words += ("-n", str(args.n), "--sizes", args.sizes)
            words += ("--cases", args.cases) if args.cases else ()
        rounds: list[tuple[dict[str, float], dict[str, float]]] = []
        for number in range(args.rounds):
            print(f"bench: {work}, round {number + 1} of {args.rounds}", file=sys.stderr)
            turn = both[:: -1 if number % 2 else 1]  # who begins changes from round to round
            pair = {folder: _measure(folder, words) for folder in turn}
            there, here = pair[args.folder], pair[HERE]
            if there is None or here is None:
                return 1
            rounds.append((figures(there), figures(here)))
        print(table(work, rounds), end="\n\n", flush=True)
    return 0


def figures(data: Mapping[str, Any]) -> dict[str, float]:
    """The compared figures of a JSON file, by name of their row.

    >>> figures({"reports": [{"name": "overhead", "tables": [
    ...     {"rows": [{"operation": "x + y", "numpy": 1.0, "beyond numpy": 5.0}]}]}]})
    {'x + y': 5.0}
    """
    if "cases" in data:
        return {
            f"{case['name']}, {case['size_bytes']} B, {entry['key']}": entry["times"]["median_s"]
            for case in data["cases"]
            for entry in case["entries"]
            if entry["times"]
        }
    out = {}
    for report in data["reports"]:
        column = COLUMNS[report["name"]]
        for row in (row for each in report["tables"] for row in each["rows"] if column in row):
            names = (str(value) for value in row.values() if isinstance(value, str))
            out[", ".join(names) or str(next(iter(row.values())))] = float(row[column])
    return out


def table(work: str, rounds: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> Table:
    """Ratios of this checkout to the other: median of the rounds, least and most.

    >>> print(table("moves", [({"swap": 2.0}, {"swap": 2.2}), ({"swap": 2.0}, {"swap": 2.0})]))
    moves: time here over time there, 2 rounds in turn; above 1 this checkout is slower
      row   ratio   least   most   there
      swap   1.05    1.00   1.10    2.00
      geomean of 1 rows 1.05
    """
    rows: list[tuple[Value, ...]] = []
    for name in rounds[0][0]:
        pairs = [
            (there[name], here[name]) for there, here in rounds if name in there and name in here
        ]
        ratios = [here / there for there, here in pairs if there > 0 and here > 0]
        if ratios:
            middle = median(ratios)
            rows.append((name, middle, min(ratios), max(ratios), median(t for t, _ in pairs)))
    mean = geomean(float(row[1]) for row in rows if isinstance(row[1], float))
    title = f"{work}: time here over time there, {len(rounds)} rounds in turn"
    return Table(
        f"{title}; above 1 this checkout is slower",
        ("row", "ratio", "least", "most", "there"),
        tuple(rows),
        (f"geomean of {len(rows)} rows {mean:.2f}" if mean else "no row in common",),
    )


def _measure(folder: Path, words: Sequence[str]) -> dict[str, Any] | None:
    """Run a command in a checkout and read what it wrote; None if it fails."""
    own = folder / ".venv" / "bin" / "python"
    python = str(own) if own.exists() else sys.executable
    with tempfile.TemporaryDirectory() as scratch:
        stored = Path(scratch) / "found.json"
        line = [python, *words, "--json", str(stored)]
        variables = {**os.environ, "PYTHONPATH": str(folder)}
        done = subprocess.run(line, cwd=folder, env=variables, capture_output=True, text=True)
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(stored.read_text(encoding="utf-8"))
            return found
    said = done.stderr.strip()[-500:]
    print(f"bench: cannot run {' '.join(line)} in {folder}: {said}", file=sys.stderr)
    return None
