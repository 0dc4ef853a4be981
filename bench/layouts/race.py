"""What do whole programs receive and take eagerly, as written and with planned layouts? Needs mpirun."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mpi4py import MPI

from bench.layouts.cases import workloads
from bench.layouts.counted import (
    EAGER,
    PLANNED,
    WAYS,
    WRITTEN,
    Way,
    count,
    error_on_all,
    least_received,
    way_of,
)
from bench.layouts.workload import Workload
from bench.problems.judge import WrongPlanError
from bench.report.figures import met
from bench.report.job import say
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Row, Table, Tables, Value, cell_text
from bench.report.timing import repeated
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch

RANKS = 4
KIB = 1024


def run(n: int = 7, only: str = "") -> Tables:
    """Measure every workload on 4 ranks, all ways in turn; nothing is random.

    n: repetitions, 7 at most; only: workloads whose name has this.
    """
    return tables(found_by(on_ranks(RANKS), "bench.layouts.race", repeat=min(n, 7), only=only))


def tables(data: Mapping[str, Any]) -> Tables:
    """What the job found; a wrong result is refused."""
    for row in data["rows"]:
        for name, way in row["ways"].items():
            if way["wrong"]:
                raise WrongPlanError(
                    f"cannot compare {row['name']}, {name}: its error is {way['error']:.1e}"
                )
    return received(data), times(data)


def received(data: Mapping[str, Any]) -> Table:
    """Bytes of one call."""
    known = {workload.name: workload for workload in workloads()}
    rows = [_bytes(row, known[row["name"]]) for row in data["rows"]]
    notes = (
        "KiB received by all ranks together in the first call, counted by the transport; pending sums "
        "of results are done and count; busiest: of the rank that receives most; again: in the third "
        "call of a program, which keeps what it moved of arguments that stay, such as weights",
        "pending: of the first call, for sums that results leave pending: eager, as written, planned",
        "least busiest: no layouts of these calls have less that are planned for one call, work done "
        "several times over for nothing; planned layouts are those of the least time",
        "moves: those in which some rank receives something, several that are one operation once: eager, "
        "as written, planned, planned again",
        "reached: by the third call",
        "results are compared with NumPy in double precision first",
    )
    title = f"Bytes that one call of a program receives, {data['ranks']} ranks, {data['mpi']}"
    return Table.of("received", title, rows, *notes)


def _bytes(row: Mapping[str, Any], workload: Workload) -> Row:
    aims, ways = workload.aims, [row["ways"][name] for name in WAYS]
    eager, written, planned = ways
    aim = "" if aims.received is None else f"{aims.received:g}"
    aim += "" if aims.moves is None else f", {aims.moves} move"
    total, busiest, later = _three(planned)
    bound = row.get("least_bytes")
    most = max(1, eager["total_bytes"])
    again = planned["again_bytes"] / most
    good = (aims.received is None or again <= aims.received) and (
        aims.moves is None or planned["again_moves"] <= aims.moves
    )
    whole, its_busiest, its_later = _three(written)
    return {
        "workload": row["name"], "size": row["what"], "eager KiB": eager["total_bytes"] / KIB,
        "busiest": eager["busiest_bytes"] / KIB, "as written KiB": whole, "its busiest": its_busiest,
        "again KiB": its_later, "planned KiB": total,
        "planned busiest": busiest, "least busiest": None if bound is None else bound / KIB,
        "planned again": later,
        "pending KiB": " / ".join(cell_text(way["pending_bytes"] / KIB) for way in ways),
        "moves": " / ".join(str(n) for n in (*(way["moves"] for way in ways), planned["again_moves"])),
        "planned / eager": planned["total_bytes"] / most, "again / eager": again, "aim": aim or None,
        "reached": met(good) if aim else None,
    }  # fmt: skip


def times(data: Mapping[str, Any]) -> Table:
    """Times of calls after the first."""
    known = {workload.name: workload for workload in workloads()}
    rows: list[Row] = []
    for row in data["rows"]:
        ways = row["ways"]
        if not all("seconds" in way for way in ways.values()):
            continue
        eager, aim = ways[EAGER]["seconds"], known[row["name"]].aims.time
        line: dict[str, Value] = {
            "workload": row["name"],
            "size": row["what"],
            "eager ms": 1e3 * eager[1],
        }
        for name, over, spread in (
            (WRITTEN, "ratio", "from-to"),
            (PLANNED, "planned / eager", "its from-to"),
        ):
            low, middle, high = ways[name]["seconds"]
            ratio = middle / eager[1]
            ends = f"{low / eager[2]:.2f}-{high / eager[0]:.2f}"
            line |= {f"{name} ms": 1e3 * middle, over: ratio, spread: ends}
        reached = None if aim is None else met(ratio <= aim)
        rows.append({**line, "aim": aim, "reached": reached})
    note = (
        f"medians of {data['repeat']}, all ways in turn, results compared first; from-to: quartiles "
        "against each other; programs keep moved arguments"
    )
    title = (
        f"Times of the same programs, {data['ranks']} ranks, {data['mpi']}, {os.cpu_count()} cores"
    )
    return Table.of("times", title, rows, note)


def _three(way: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(way[f"{key}_bytes"] / KIB for key in ("total", "busiest", "again"))


def measure(
    repeat: int, only: str = "", ways: Sequence[str] = WAYS, tiny: bool = False
) -> dict[str, Any]:
    """Measure workloads whose name has a word; no repetitions count bytes only. **Collective.**"""
    comm, rows = MPI.COMM_WORLD, []
    for workload in (one for one in workloads(tiny) if only in one.name):
        rows.append(measure_one(comm, workload, repeat, ways))
        say(f"layouts: {rows[-1]}")
    return {"mpi": mpi_name(), "ranks": comm.size, "repeat": repeat, "rows": rows}


def measure_one(
    comm: MPI.Intracomm, workload: Workload, repeat: int, ways: Sequence[str]
) -> dict[str, Any]:
    """Count every way's first and third call, check results, then time all in turn. **Collective.**"""
    found: dict[str, dict[str, Any]] = {}
    ready: list[Way] = []
    want = workload.reference() if comm.rank == 0 else []
    for name in ways:
        way = way_of(workload, name)
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
