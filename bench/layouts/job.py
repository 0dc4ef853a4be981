"""Workloads eagerly, as programs and planned, inside an MPI job: ``python -m bench.layouts.job``.

Started by ``python -m bench layouts``; rank 0 writes what was measured as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mpi4py import MPI

from bench.layouts.cases import workloads
from bench.layouts.counted import PLANNED, WAYS, Way, count, error_on_all, way_of
from bench.layouts.least import least_received
from bench.layouts.workload import Workload
from bench.report.timing import repeated
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch


def main() -> int:
    """Measure and write; 1 if a result was wrong. **Collective over all ranks of the job.**"""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7, help="timed turns; 0 counts bytes only")
    parser.add_argument("--only", default="", help="workloads whose name has this")
    parser.add_argument("--ways", default=",".join(WAYS), help="which of %(default)s")
    parser.add_argument("--tiny", action="store_true", help="the sizes of tests")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    comm = MPI.COMM_WORLD
    rows = []
    for workload in workloads(args.tiny):
        if args.only in workload.name:
            rows.append(measure(comm, workload, args.repeat, args.ways.split(",")))
            if comm.rank == 0:
                print(f"bench layouts: {rows[-1]}", file=sys.stderr, flush=True)
    if comm.rank == 0 and args.json is not None:
        data = {"mpi": mpi_name(), "ranks": comm.size, "repeat": args.repeat, "rows": rows}
        args.json.write_text(json.dumps(data), encoding="utf-8")
    return int(any(way["wrong"] for row in rows for way in row["ways"].values()))


def measure(
    comm: MPI.Intracomm, workload: Workload, repeat: int, ways: Sequence[str] = WAYS
) -> dict[str, Any]:
    """Count every way's first and third call, check results, then time all in turn. **Collective.**"""
    found: dict[str, dict[str, Any]] = {}
    ready: list[Way] = []
    want = workload.reference() if comm.rank == 0 else []
    for name in ways:
        way = way_of(workload, name)
        if way is None:
            continue
        first, results = count(comm, way)
        error = error_on_all(comm, results, want)
        way.call()  # the call in which a program sees which arguments stay
        again, results = count(comm, way)
        error = max(error, error_on_all(comm, results, want))
        found[name] = {
            **asdict(first),
            "again_bytes": again.total_bytes,
            "again_moves": again.moves,
            "error": error,
            "wrong": not error <= workload.error,
        }
        ready.append(way)
    if repeat and not any(way["wrong"] for way in found.values()):
        times = Stopwatch.on(comm).in_turn([repeated(way.call) for way in ready], repeat)
        for way, taken in zip(ready, times, strict=True):
            spread = (taken.low_s, taken.median_s, taken.high_s)
            found[way.name]["seconds"] = spread
    least = least_received(workload, ready[-1].arrays) if PLANNED in found else None
    return {"name": workload.name, "what": workload.what, "ways": found, "least_bytes": least}


if __name__ == "__main__":
    sys.exit(main())
