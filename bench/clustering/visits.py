"""``python -m bench clustering visits``: visits to rows on 4 emulated hosts, with and without help."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.report.jobs import found_by, on_hosts
from bench.report.report import Row, Table, Tables
from redist import pgas
from redist.measure.timing import meet
from redist.spmd import Rows, Visits

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


def run(rate: float = 1000.0) -> Tables:
    """Times of a visit in ms on emulated hosts, and what it did; needs root and iproute2.

    rate: Mbit/s of a host's link.
    """
    found = found_by(on_hosts(HOSTS, 1, rate), "bench.clustering.visits")
    without = float(np.median(found["neither"]["seconds"])) * 1e3 / VISITS
    rows: list[Row] = []
    for name, one in found.items():
        times = np.array(one["seconds"]) * 1e3 / VISITS
        median = float(np.median(times))
        about: Row = {"tiles of other hosts": name, "ms": median}
        spread = f"{times.min():.3g}-{times.max():.3g}"
        waited = one["waited_s"] * 1e3 / one["visits"]
        each = {what: one[what] / one["visits"] for what in ("fetched", "ahead", "kept")}
        rows.append(
            {**about, "spread": spread, "of neither": median / without, "waited ms": waited, **each}
        )
    title = f"A visit to the rows of {HOSTS} hosts, links of {rate:g} Mbit/s"
    note = f"tiles of {ROWS} x {DIMS} numbers, each compared with {CENTERS} places; {VISITS} visits in a row"
    return (Table.of("visits", title, rows, note),)


def measure() -> dict[str, Any]:
    """**Collective.** Seconds of visits in every way, in turn, and what they counted here."""
    comm = MPI.COMM_WORLD
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
