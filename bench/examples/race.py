"""How quick are the examples beside the same programs written by hand with mpi4py? Needs mpirun."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.examples.cases import PAIRS, ExamplePair
from bench.problems.judge import WrongPlanError
from bench.report.figures import repeated
from bench.report.job import say
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Row, Table, Tables
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch

RANKS = 4


def run(n: int = 9, mib: int = 128, only: str = "") -> Tables:
    """Measure every example on 4 ranks, both ways in turn.

    n: repetitions, 9 at most; mib: of the arrays; only: names of examples, by commas.
    """
    asked = {"n_bytes": mib * 2**20, "repeat": min(n, 9), "only": only}
    return table(found_by(on_ranks(RANKS), "bench.examples.race", **asked))


def table(data: dict[str, Any]) -> Tables:
    """Times of both ways; a wrong result is refused."""
    rows: list[Row] = []
    for row in data["rows"]:
        if row["wrong"]:
            raise WrongPlanError(f"cannot compare {row['name']}: {row['wrong']}")
        about: Row = {"example": row["name"], "size": row["what"], "by hand with": row["rival"]}
        rows.append({**about, **both_times(row["times"], "by hand ms")})
    title = (
        f"Examples with global arrays beside programs by hand, {data['ranks']} ranks, "
        f"{data['bytes'] // 2**20} MiB, {data['mpi']}, {os.cpu_count()} cores"
    )
    note = (
        "medians, both ways in turn, results compared first; ratio above 1: by hand is "
        "quicker; from, to: quartiles against each other"
    )
    return (Table.of("programs", title, rows, note),)


def both_times(times: Mapping[str, Any], rival: str) -> Row:
    """Milliseconds of both ways and their ratio; a rival may be missing."""
    ours, hand = times["redist"], times.get("hand")
    row: Row = {"redist ms": 1e3 * ours["median_s"]}
    if hand is None:
        return {**row, **dict.fromkeys((rival, "ratio", "from", "to"))}
    return {**row, rival: 1e3 * hand["median_s"], **ratio_of(ours, hand)}


def ratio_of(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Row:
    """A ratio of medians, and quartiles against each other."""
    ratio = ours["median_s"] / theirs["median_s"]
    ends = {"from": ours["low_s"] / theirs["high_s"], "to": ours["high_s"] / theirs["low_s"]}
    return {"ratio": ratio, **ends}


def measure(n_bytes: int, repeat: int, only: str = "") -> dict[str, Any]:
    """Measure those that are asked for, or all. **Collective over all ranks of the job.**"""
    comm, rows = MPI.COMM_WORLD, []
    for name in only.split(",") if only else PAIRS:
        rows.append(measure_pair(comm, PAIRS[name](comm, n_bytes), repeat))
        say(f"examples: {rows[-1]}")
    return {"mpi": mpi_name(), "ranks": comm.size, "bytes": n_bytes, "rows": rows}


def measure_pair(comm: MPI.Intracomm, pair: ExamplePair, repeat: int) -> dict[str, Any]:
    """Time both ways in turn, after their results have been compared. **Collective over `comm`.**"""
    ways = {"redist": pair.ours, **({"hand": pair.theirs} if pair.theirs else {})}
    results = {key: way() for key, way in ways.items()}
    wrong = None
    if pair.theirs is not None:
        close = _agree(pair, results["redist"], results["hand"])
        wrong = None if all(comm.allgather(close)) else "the results differ"
    del results
    works = [repeated(way) for way in ways.values()]
    times = map(asdict, Stopwatch.on(comm).in_turn(works, repeat))
    about = {"name": pair.name, "what": pair.what, "rival": pair.rival, "wrong": wrong}
    return {**about, "times": dict(zip(ways, times, strict=True))}


def _agree(pair: ExamplePair, ours: Any, theirs: Any) -> bool:
    if hasattr(ours, "gather"):  # cut in another way than theirs
        return bool(np.allclose(ours.gather()[theirs.local_slice()], theirs, atol=1e-6))
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))
    return bool(np.allclose(ours, theirs, rtol=pair.tolerance, atol=pair.tolerance))
