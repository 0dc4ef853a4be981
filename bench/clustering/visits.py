"""``python -m bench clustering visits``: visits to rows on 4 emulated hosts, with and without help."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.report.jobs import found_by, on_hosts
from bench.report.report import Report, Table, Value, save_json
from redist import pgas
from redist.measure.timing import meet
from redist.spmd import Rows, Visits
from tests.cluster.hosts import make_cluster, why_no_cluster

LAST = Path(__file__).parents[1] / "results" / "last" / "clustering-visits.json"
HOSTS = 4
ROWS, DIMS, CENTERS = 2**14, 16, 64
"""Rows of a tile and their dims: 2 MiB; and with how many places each row is compared."""
WAYS: dict[str, dict[str, Any]] = {
    "neither": {"prefetch": False, "keep_bytes": 0},
    "fetched ahead": {"prefetch": True, "keep_bytes": 0},
    "kept": {"prefetch": False, "keep_bytes": 2**30},
    "both": {"prefetch": True, "keep_bytes": 2**30},
}
TURNS, VISITS = 7, 4


def main(arguments: Sequence[str]) -> int:
    """Make hosts, measure on them and print."""
    parser = argparse.ArgumentParser(prog="python -m bench clustering visits", description=__doc__)
    parser.add_argument("--rate", type=float, default=1000.0, help="Mbit/s of a host's link")
    parser.add_argument("--json", type=Path, default=LAST)
    args = parser.parse_args(arguments)
    why_not = why_no_cluster()
    if why_not:
        print(f"bench clustering visits: skipped, {why_not}", file=sys.stderr)
        return 0
    with make_cluster(HOSTS, args.rate) as cluster:
        found = found_by(on_hosts(cluster, 1), "measure visits", "bench.clustering.visits")
    report = Report("clustering", (table(found, args.rate),))
    print(report)
    save_json(args.json, [report], {name: str(value) for name, value in vars(args).items()})
    return 0


def table(found: dict[str, Any], rate: float) -> Table:
    """Times of a visit in ms, and what it did."""
    rows: list[tuple[Value, ...]] = []
    without = float(np.median(found["neither"]["seconds"]))
    for name, one in found.items():
        times = np.array(one["seconds"]) * 1e3 / VISITS
        spread = f"{times.min():.3g}-{times.max():.3g}"
        median = float(np.median(times))
        waited = one["waited_s"] * 1e3 / one["visits"]
        each = (one[what] / one["visits"] for what in ("fetched", "ahead", "kept"))
        rows.append((name, median, spread, median * VISITS / 1e3 / without, waited, *each))
    columns = (
        "tiles of other hosts", "ms", "spread", "of neither", "waited ms", "fetched", "ahead", "kept"
    )  # fmt: skip
    title = f"A visit to the rows of {HOSTS} hosts, links of {rate:g} Mbit/s"
    note = f"tiles of {ROWS} x {DIMS} numbers, each compared with {CENTERS} places; {VISITS} visits in a row"
    return Table(title, columns, tuple(rows), (note,), "visits")


def measure(comm: MPI.Intracomm) -> dict[str, Any]:
    """**Collective.** Seconds of visits in every way, in turn, and what they counted here."""
    x = pgas.random.generator(0).normal((ROWS * comm.size, DIMS), type="{x}, {}")
    rows = Rows(np.asarray(x.local), ROWS * comm.rank, ROWS * comm.size, comm, None)
    places = np.random.default_rng(0).normal(size=(DIMS, CENTERS))
    found: dict[str, Any] = {name: {"seconds": []} for name in WAYS}
    sums = set()
    for _ in range(TURNS):
        for name, options in WAYS.items():
            visits = Visits(rows, **options)
            meet(comm)
            started = time.perf_counter()
            for _ in range(VISITS):
                seen = {first: float((tile @ places).min(axis=1).sum()) for first, tile in visits}
            mine = time.perf_counter() - started
            found[name]["seconds"].append(comm.allreduce(mine, MPI.MAX))
            sums.add(tuple(seen[first] for first in sorted(seen)))
            counts = {"visits": 0, **visits.counts._asdict()}
            for what in ("visits", "fetched", "ahead", "kept", "waited_s"):
                found[name][what] = found[name].get(what, 0) + counts[what]
    assert len(sums) == 1, "all ways see the same rows"
    return found


if __name__ == "__main__":
    told = measure(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        Path(sys.argv[-1]).write_text(json.dumps(told), encoding="utf-8")
