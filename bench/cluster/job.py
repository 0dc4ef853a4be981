"""Move arrays between the hosts of a cluster, inside its MPI job: ``python -m bench.cluster.job``.

Started by ``python -m bench cluster``; rank 0 writes what was measured as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from bench.cluster.cases import ClusterCase, cases_of
from bench.report.timing import repeated
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch, meet
from redist.plan.topology import Topology, format_topology

IN_A_ROW, ROWS = 10, 3
"""Calls that follow each other at once, as in a loop of a program, and how often that is measured."""


def main() -> int:
    """Measure and write. **Collective over all ranks of the job.**"""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, nargs="+", default=[2**21, 2**25])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--only", default="")
    parser.add_argument("--topology", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    topology = None if args.topology is None else Topology.load(args.topology)
    rows, status = [], 0
    for n_bytes in args.bytes:
        for case in cases_of(comm.size, n_bytes):
            if args.only in case.name:
                row = measure_case(comm, case, n_bytes, args.repeat, topology)
                status |= row["wrong"]
                rows.append(row)
                if comm.rank == 0:
                    said = {k: v for k, v in row.items() if k not in ("plan", "topology")}
                    print(f"bench cluster: {said}", file=sys.stderr, flush=True)
    if comm.rank == 0 and args.json is not None:
        data = {"mpi": mpi_name(), "ranks": comm.size, "rows": rows}
        args.json.write_text(json.dumps(data), encoding="utf-8")
    return status


def measure_case(
    comm: MPI.Intracomm, case: ClusterCase, n_bytes: int, repeat: int, given: Topology | None
) -> dict[str, Any]:
    """Time redist and MPI in turn. **Collective over `comm`.**"""
    with redist.Transfer(case.source, case.target, comm, topology=given) as transfer:
        if transfer.input is not None:
            transfer.input[...] = 1.0

        def ours() -> None:
            transfer()

        ours()
        made = transfer.output
        want = 1.0 if not case.source.pending_axes else float(comm.size)
        good = made is None or bool(np.all(made == want))
        works = [repeated(ours), repeated(case.by_mpi(comm, case.source, case.target))]
        # Hosts here are of one machine, so their clock is common.
        mine, theirs = Stopwatch(comm, True).in_turn(works, repeat)
        in_a_row = [seconds_in_a_row(comm, work) for work in works]
        steps = [str(step.op) for step in transfer.plan.steps]
        plan, topology = transfer.plan, transfer.topology
    return {
        "case": case.name,
        "mpi": case.what,
        "bytes": n_bytes,
        "steps": steps,
        "planned_for": plan.planned_for,
        "plan": plan.to_json(),
        "topology": format_topology(topology),
        "wrong": not all(comm.allgather(good)),
        "redist_in_a_row": in_a_row[0],
        "mpi_in_a_row": in_a_row[1],
        **{f"redist_{key}": getattr(mine, f"{key}_s") for key in ("low", "median", "high")},
        **{f"mpi_{key}": getattr(theirs, f"{key}_s") for key in ("low", "median", "high")},
    }


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


if __name__ == "__main__":
    sys.exit(main())
