"""Tables of the page about GPUs that are ranges over runs, and the figures of the further kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bench.gpu.command import RESULTS
from bench.gpu.results import read
from bench.report.report import Value
from bench.tables.gpu import CONTENDERS, LABELS
from bench.tables.markdown import run_text, table


def more_packs() -> list[str]:
    """Packs and unpacks of small elements, odd pitches and faces: shares of the contiguous copy."""
    runs = runs_of(read(RESULTS), "more kernels")
    names = [case["case"].rpartition(", ")[0] for case in runs[0]["cases"]]
    lines: list[list[Value]] = []
    for name in dict.fromkeys(names):
        line: list[Value] = [name]
        for key in CONTENDERS:
            ways = (_shares(runs, f"{name}, {way}", key) for way in ("pack", "unpack"))
            line.append(" / ".join(_range(shares, 0) for shares in ways))
        lines.append(line)
    size = f"{runs[0]['array_bytes'] / 2**30:g} GiB, f32 where nothing else is said"
    note = f"{size}; medians of {runs[0]['repeats']}; {_spread(runs)}."
    return [*table(("pack / unpack, % of the copy", *CONTENDERS.values()), lines), "", note]


def move_ranges() -> list[str]:
    """Whole redistributions by 4 ranks over all stored runs: least to most of the medians."""
    runs = runs_of(read(RESULTS), "4 ranks")
    lines: list[list[Value]] = []
    for case, label in LABELS.items():
        found = [_case(run, case) for run in runs]
        ms = [one["ipc"]["median_s"] * 1e3 for one in found]
        share = [one["ipc"]["of_copy"] * 100 for one in found]
        raw = [one["ipc"]["of_raw"] for one in found if "of_raw" in one["ipc"]]
        theirs = [
            one["cupy"]["median_s"] / one["ipc"]["median_s"]
            for one in found
            if "median_s" in one.get("cupy", {})
        ]
        line = (_range(ms, 2), _range(share, 0), _range(raw, 2), _range(theirs, 1))
        lines.append([label, *line])
    columns = ("4 ranks", "redist, ms", "% of the copy", "x the raw copy's rate", "x CuPy's rate")
    repeats = _range([run["repeats"] for run in runs], 0)
    note = f"{_spread(runs)}; medians of {repeats} in each, {runs[0]['mpi']}."
    return [*table(columns, lines), "", note[0].upper() + note[1:]]


def runs_of(data: Mapping[str, Any], name: str) -> list[Any]:
    """The runs of that name: the first, and those that are numbered.

    >>> runs_of({"runs": {"4 ranks": 1, "4 ranks, host staging": 2, "4 ranks, run 2": 3}}, "4 ranks")
    [1, 3]
    """
    pattern = re.compile(re.escape(name) + r"(, run \d+)?")
    return [run for key, run in data["runs"].items() if pattern.fullmatch(key)]


def _case(run: Mapping[str, Any], name: str) -> Any:
    return next(case for case in run["cases"] if case["case"] == name)


def _shares(runs: Sequence[Any], case: str, key: str) -> list[float]:
    """Shares of the copy in percent, of the runs that have them."""
    entries = [(_case(run, case).get(key), run["copy_bytes_per_s"]) for run in runs]
    return [100 * entry["bytes_per_s"] / top for entry, top in entries if entry and entry["right"]]


def _range(values: Sequence[float], digits: int) -> str:
    """Least to most.

    >>> _range([2.0, 1.44], 1), _range([0.5], 2), _range([2.01, 1.99], 1), _range([], 0)
    ('1.4-2.0', '0.50', '2.0', '-')
    """
    ends = [f"{end:.{digits}f}" for end in (min(values), max(values))] if values else ["-"]
    return "-".join(dict.fromkeys(ends))


def _spread(runs: Sequence[Any]) -> str:
    """How many runs there are, when they were, and the rates of the copy in them."""
    rates = _range([run["copy_bytes_per_s"] / 1e12 for run in runs], 2)
    when = dict.fromkeys(run_text({"redist": r["redist"], "date": r.get("date")}) for r in runs)
    word = "run" if len(runs) == 1 else "runs"
    said = f"{len(runs)} {word}, measured {' and '.join(when)}"
    return f"{said}; contiguous copy {rates} TB/s, read and written"
