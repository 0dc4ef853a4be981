"""The examples beside hand-written programs, inside an MPI job: ``python -m bench.examples.job``.

Started by ``python -m bench examples``; rank 0 writes what was measured as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.examples.cases import PAIRS, ExamplePair
from bench.report.timing import repeated
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch


def main() -> int:
    """Measure and write. **Collective over all ranks of the job.**"""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=2**27)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--only", default=",".join(PAIRS))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    rows, status = [], 0
    for name in args.only.split(","):
        pair = PAIRS[name](comm, args.bytes)
        row = measure_pair(comm, pair, args.repeat)
        status |= row["wrong"] is not None
        rows.append(row)
        if comm.rank == 0:
            print(f"bench examples: {row}", file=sys.stderr, flush=True)
        del pair
    if comm.rank == 0 and args.json is not None:
        data = {"mpi": mpi_name(), "ranks": comm.size, "bytes": args.bytes, "rows": rows}
        args.json.write_text(json.dumps(data), encoding="utf-8")
    return status


def measure_pair(comm: MPI.Intracomm, pair: ExamplePair, repeat: int) -> dict[str, Any]:
    """Time both ways in turn, after their results have been compared. **Collective over `comm`.**"""
    ways = {"redist": pair.ours, **({"hand": pair.theirs} if pair.theirs else {})}
    results = {key: way() for key, way in ways.items()}
    wrong = None
    if pair.theirs is not None:
        close = _agree(comm, pair, results["redist"], results["hand"])
        wrong = None if all(comm.allgather(close)) else "the results differ"
    del results
    works = [repeated(way) for way in ways.values()]
    times = dict(zip(ways, Stopwatch.on(comm).in_turn(works, repeat), strict=True))
    return {
        "name": pair.name,
        "what": pair.what,
        "rival": pair.rival,
        "wrong": wrong,
        "times": {key: t.median_s for key, t in times.items()},
        "low": {key: t.low_s for key, t in times.items()},
        "high": {key: t.high_s for key, t in times.items()},
    }


def _agree(comm: MPI.Intracomm, pair: ExamplePair, ours: Any, theirs: Any) -> bool:
    if hasattr(ours, "gather"):  # cut in another way than theirs
        return bool(np.allclose(ours.gather()[theirs.local_slice()], theirs, atol=1e-6))
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))
    return bool(np.allclose(ours, theirs, rtol=pair.tolerance, atol=pair.tolerance))


if __name__ == "__main__":
    sys.exit(main())
