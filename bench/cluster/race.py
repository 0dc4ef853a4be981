"""redist beside MPI's collectives on emulated hosts: ``python -m bench cluster --hosts 4 --ranks 2``."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from bench.cluster.cases import ClusterCase, cases_of
from bench.report.job import say
from bench.report.jobs import found_by, on_hosts
from bench.report.report import Row, Table, Tables
from bench.report.timing import repeated
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch, meet
from redist.plan.topology import format_topology
from redist.text.units import format_bytes

IN_A_ROW, ROWS = 10, 3
"""Calls that follow each other at once, as in a loop of a program, and how often that is measured."""
SIZES = (2**21, 2**25)


def run(
    hosts: int = 4, ranks: int = 2, rate: float = 1000.0, bytes: tuple[int, ...] = SIZES,
    repeat: int = 7, only: str = "",
) -> Tables:  # fmt: skip
    """Time moves between hosts that are network namespaces of this machine; needs root and iproute2.

    ranks: on every host; rate: Mbit/s of a host's link; bytes: of the arrays; only: cases whose name has
    this.
    """
    asked = {"sizes": bytes, "repeat": repeat, "only": only}
    data = found_by(on_hosts(hosts, ranks, rate), "bench.cluster.race", **asked)
    rows: list[Row] = []
    for row in data["rows"]:
        cases = cases_of(data["ranks"], row["bytes"])
        case = next(case for case in cases if case.name == row["case"])
        limit_ms = case.limit_bytes(ranks) * 8 / rate / 1e3
        ours, theirs = row["redist_median"] * 1e3, row["mpi_median"] * 1e3
        loop, their_loop = row["redist_in_a_row"] * 1e3, row["mpi_in_a_row"] * 1e3
        rows.append(
            {
                "case": row["case"], "size": format_bytes(row["bytes"]), "redist ms": ours,
                "quartiles": f"{row['redist_low'] * 1e3:.3g}-{row['redist_high'] * 1e3:.3g}",
                "MPI ms": theirs, "link limit ms": limit_ms, "of limit": ours / limit_ms,
                "of MPI": ours / theirs, "in a row ms": loop, "in a row, of MPI": loop / their_loop,
                "steps": "; ".join(row["steps"]),
            }
        )  # fmt: skip
    title = f"{hosts} hosts of {ranks} ranks, links of {rate:g} Mbit/s, {data['mpi']}"
    notes = (
        "MPI moves contiguous arrays that need no packing; its ranks of one host talk by TCP",
        "in a row: calls that follow each other at once",
    )
    wrong = any(row["wrong"] for row in data["rows"])
    return (Table.of(f"{hosts}x{ranks}", title, rows, *notes, keys=2, is_wrong=wrong),)


def measure(sizes: list[int], repeat: int, only: str) -> dict[str, Any]:
    """Move arrays between the hosts. **Collective over all ranks of the job.**"""
    comm, rows = MPI.COMM_WORLD, []
    for n_bytes in sizes:
        for case in (one for one in cases_of(comm.size, n_bytes) if only in one.name):
            rows.append(measure_case(comm, case, n_bytes, repeat))
            said = {k: v for k, v in rows[-1].items() if k not in ("plan", "topology")}
            say(f"cluster: {said}")
    return {"mpi": mpi_name(), "ranks": comm.size, "rows": rows}


def measure_case(
    comm: MPI.Intracomm, case: ClusterCase, n_bytes: int, repeat: int
) -> dict[str, Any]:
    """Time redist and MPI in turn. **Collective over `comm`.**"""
    with redist.Transfer(case.source, case.target, comm) as transfer:
        if transfer.input is not None:
            transfer.input[...] = 1.0
        transfer()
        made = transfer.output
        want = 1.0 if not case.source.pending_axes else float(comm.size)
        good = made is None or bool(np.all(made == want))
        works = [repeated(transfer), repeated(case.by_mpi(comm, case.source, case.target))]
        # Hosts here are of one machine, so their clock is common.
        mine, theirs = Stopwatch(comm, True).in_turn(works, repeat)
        in_a_row = [seconds_in_a_row(comm, work) for work in works]
        plan, topology = transfer.plan, transfer.topology
    return {
        "case": case.name, "bytes": n_bytes, "steps": [str(step.op) for step in plan.steps],
        "plan": plan.to_json(), "topology": format_topology(topology), "wrong": not all(comm.allgather(good)),
        "redist_in_a_row": in_a_row[0], "mpi_in_a_row": in_a_row[1],
        **{f"redist_{key}": getattr(mine, f"{key}_s") for key in ("low", "median", "high")},
        **{f"mpi_{key}": getattr(theirs, f"{key}_s") for key in ("low", "median", "high")},
    }  # fmt: skip


def seconds_in_a_row(comm: MPI.Intracomm, work: Any) -> float:
    """Seconds of one of several calls that follow each other at once. **Collective over `comm`.**"""
    found = []
    for _ in range(ROWS):
        meet(comm)
        started = time.perf_counter()
        work(IN_A_ROW)
        meet(comm)
        found.append((time.perf_counter() - started) / IN_A_ROW)
    return float(comm.allreduce(np.median(found), MPI.MAX))
