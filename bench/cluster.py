"""redist beside MPI's collectives on emulated hosts: ``python -m bench cluster --hosts 4 --ranks 2``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from bench.report.figures import repeated
from bench.report.job import say
from bench.report.jobs import found_by, on_hosts
from bench.report.report import Row, Table, Tables
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.tiles import grid, tile_shapes
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch, meet
from redist.text.units import format_bytes

Work = Callable[[], None]
ByMpi = Callable[[MPI.Intracomm, ArrayType, ArrayType], Work]


@dataclass(frozen=True, slots=True)
class ClusterCase:
    """A redistribution of f64 elements between all ranks.

    ``by_mpi`` makes what MPI does instead, on contiguous arrays that need no packing: a favour to it.
    """

    name: str
    source: ArrayType
    target: ArrayType
    by_mpi: ByMpi


def busiest_link_bytes(source: ArrayType, target: ArrayType, ranks_per_host: int) -> int:
    """Count what the busiest host must receive or send, whoever moves it, each element once.

    Sums are combined first: those of values that all hosts have a part of leave a host once for every
    other host that wants them, and come back once if they are wanted everywhere, as in a ring.

    >>> mesh = Mesh(x=4)
    >>> rows, columns = (ArrayType.parse(t, mesh) for t in ("f64[8{x}, 8]", "f64[8, 8{x}]"))
    >>> busiest_link_bytes(rows, columns, 2)
    128
    """
    hosts = sorted(
        {rank // ranks_per_host for t in (source, target) for rank in t.mesh.rank_array().tolist()}
    )
    itemsize = source.dtype.itemsize
    if source.pending_axes:
        n = math.prod(source.shape) * itemsize
        once = n * (len(hosts) - 1) // len(hosts)
        return 2 * once if target.tile_bytes == n else once
    has = {host: _marked(source, host, ranks_per_host) for host in hosts}
    wants = {host: _marked(target, host, ranks_per_host) for host in hosts}
    enter = [int(np.count_nonzero(wants[h] & ~has[h])) for h in hosts]
    holders = sum(has[h].astype(np.int64) for h in hosts)
    asked = sum((wants[h] & ~has[h]).astype(np.int64) for h in hosts)
    leave = [math.ceil(float(np.sum(np.where(has[h], asked / holders, 0.0)))) for h in hosts]
    return max(*enter, *leave) * itemsize


def _marked(t: ArrayType, host: int, ranks_per_host: int) -> Any:
    """Which elements the ranks of a host hold."""
    marks = np.zeros(t.shape, bool)
    lo, hi = grid(t).boxes()
    for row, rank in enumerate(t.mesh.rank_array().tolist()):
        if rank // ranks_per_host == host:
            marks[tuple(slice(a, b) for a, b in zip(lo[row], hi[row], strict=True))] = True
    return marks


def cases_of(n_ranks: int, n_bytes: int) -> list[ClusterCase]:
    """Every case for so many ranks and about so many bytes of the whole array."""
    mesh = Mesh(x=n_ranks)
    side = max(n_ranks, math.isqrt(n_bytes // 8) // n_ranks * n_ranks)
    long = max(n_ranks, n_bytes // 8 // n_ranks * n_ranks)
    cube = max(n_ranks, round((n_bytes / 8) ** (1 / 3)) // n_ranks * n_ranks)
    half = n_ranks // 2
    here = Mesh({"x": half}, ranks=range(half))
    there = Mesh({"x": half}, ranks=range(half, n_ranks))

    def case(name: str, by_mpi: ByMpi, source: str, target: str, *meshes: Mesh) -> ClusterCase:
        first, last = meshes or (mesh, mesh)
        a, b = ArrayType.parse(source, first), ArrayType.parse(target, last)
        return ClusterCase(name, a, b, by_mpi)

    rows, columns = f"f64[{side}{{x}}, {side}]", f"f64[{side}, {side}{{x}}]"
    slab_0, slab_1 = f"f64[{cube}{{x}}, {cube}, {cube}]", f"f64[{cube}, {cube}{{x}}, {cube}]"
    tiles, whole, sums = f"f64[{long}{{x}}]", f"f64[{long}]", f"f64[{long}] sum{{x}}"
    return [
        case("rows to columns", collective("Alltoall"), rows, columns),
        case("slab to slab", collective("Alltoall"), slab_0, slab_1),
        case("gather", collective("Allgather"), tiles, whole),
        case("two meshes", hand_over, tiles, tiles, here, there),
        case("reduce_scatter", collective("Reduce_scatter_block"), sums, tiles),
        case("all-reduce", collective("Allreduce"), sums, whole),
    ]


def elems_of(comm: MPI.Intracomm, t: ArrayType) -> int:
    """Elements of this rank's tile."""
    return math.prod(tile_shapes(t).get(comm.rank, (0,)))


def collective(name: str) -> ByMpi:
    """A collective of MPI on arrays that lie ready."""

    def make(comm: MPI.Intracomm, source: ArrayType, target: ArrayType) -> Work:
        sent, got = np.ones(elems_of(comm, source)), np.empty(elems_of(comm, target))
        return partial(getattr(comm, name), sent, got)

    return make


def hand_over(comm: MPI.Intracomm, source: ArrayType, target: ArrayType) -> Work:
    """Send a tile from every rank of one mesh to its partner in the other."""
    half = comm.size // 2
    if comm.rank < half:
        sent = np.ones(elems_of(comm, source))
        return lambda: comm.Send(sent, comm.rank + half)
    got = np.empty(elems_of(comm, target))
    return lambda: comm.Recv(got, comm.rank - half)


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
    data = found_by(on_hosts(hosts, ranks, rate), "bench.cluster", **asked)
    rows: list[Row] = []
    for row in data["rows"]:
        cases = cases_of(data["ranks"], row["bytes"])
        case = next(case for case in cases if case.name == row["case"])
        limit_ms = busiest_link_bytes(case.source, case.target, ranks) * 8 / rate / 1e3
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
        "plan": plan.to_json(), "topology": astuple(topology), "wrong": not all(comm.allgather(good)),
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
