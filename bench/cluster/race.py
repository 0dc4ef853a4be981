"""redist beside MPI's collectives on emulated hosts: ``python -m bench cluster --hosts 4 --ranks 2``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.cluster.cases import cases_of
from bench.report.jobs import found_by, on_hosts
from bench.report.report import Report, Table, save_json
from redist.text.units import format_bytes
from tests.cluster.hosts import make_cluster, why_no_cluster

LAST = Path(__file__).parents[1] / "results" / "last" / "cluster.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a cluster, race on it, print the table; 0 if every result was right."""
    parser = argparse.ArgumentParser(prog="python -m bench cluster", description=__doc__)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=2, help="ranks on every host")
    parser.add_argument("--rate", type=float, default=1000.0, help="Mbit/s of a host's link")
    parser.add_argument("--bytes", type=int, nargs="+", default=[2**21, 2**25])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--topology", help="a topology file; without one, what redist finds")
    parser.add_argument("--json", type=Path, default=LAST)
    args = parser.parse_args(arguments)
    why_not = why_no_cluster()
    if why_not:
        print(f"bench cluster: skipped, {why_not}", file=sys.stderr)
        return 0
    options = ["--bytes", *map(str, args.bytes), "--repeat", str(args.repeat), "--only", args.only]
    if args.topology:
        options += ["--topology", args.topology]
    with make_cluster(args.hosts, args.rate) as cluster:
        start = on_hosts(cluster, args.ranks)
        data = found_by(start, "measure hosts", "bench.cluster.job", *options)
    report = Report("cluster", (table_of(data, args.hosts, args.ranks, args.rate),))
    print(report)
    save_json(args.json, [report], {k: v for k, v in vars(args).items() if k != "json"})
    return int(any(row["wrong"] for row in data["rows"]))


def table_of(data: dict[str, Any], hosts: int, ranks_per_host: int, rate_mbit: float) -> Table:
    """Times in ms, and in times of what the links allow."""
    rows = []
    for row in data["rows"]:
        cases = cases_of(data["ranks"], row["bytes"])
        case = next(case for case in cases if case.name == row["case"])
        limit_ms = case.limit_bytes(ranks_per_host) * 8 / rate_mbit / 1e3
        ours, theirs = row["redist_median"] * 1e3, row["mpi_median"] * 1e3
        spread = f"{row['redist_low'] * 1e3:.3g}-{row['redist_high'] * 1e3:.3g}"
        loop, their_loop = row["redist_in_a_row"] * 1e3, row["mpi_in_a_row"] * 1e3
        rows.append(
            (
                row["case"], format_bytes(row["bytes"]), ours, spread, theirs, limit_ms,
                ours / limit_ms, ours / theirs, loop, loop / their_loop, "; ".join(row["steps"]),
            )
        )  # fmt: skip
    return Table(
        f"{hosts} hosts of {ranks_per_host} ranks, links of {rate_mbit:g} Mbit/s, {data['mpi']}",
        ("case", "size", "redist ms", "quartiles", "MPI ms", "link limit ms", "of limit", "of MPI",
         "in a row ms", "in a row, of MPI", "steps"),
        tuple(rows),
        ("MPI moves contiguous arrays that need no packing; its ranks of one host talk by TCP",
         "in a row: calls that follow each other at once"),
        f"{hosts}x{ranks_per_host}",
        2,
    )  # fmt: skip
