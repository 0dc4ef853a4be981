"""What do whole programs receive and take eagerly, as written and with planned layouts? Needs mpirun."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

import redist
from bench.layouts.cases import workloads
from bench.layouts.workload import Workload, arrays_in, cut_text, error_of
from bench.problems.judge import WrongPlanError
from bench.report.figures import met, repeated
from bench.report.job import say
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Row, Table, Tables, Value, cell_text
from redist import RedistError, pgas
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch
from redist.pgas.programs.capture import capture
from redist.pgas.programs.planning.plan_calls import ProgramCosts, plan_calls
from redist.pgas.programs.planning.plan_program import types_of
from redist.pgas.programs.planning.recorder import CallRecorder
from redist.pgas.tiles.layouts import resolved_type
from redist.plan.rates import DeviceCosts
from redist.plan.topology import Level, Topology

EAGER, WRITTEN, PLANNED = "eager", "as written", "planned"
WAYS = (EAGER, WRITTEN, PLANNED)
BYTE_PS = 1000
BYTES_ONLY = Topology((Level("all", None, 0, 1000 * BYTE_PS),))
NO_WORK = DeviceCosts(0, 0)


@dataclass(frozen=True, slots=True)
class Received:
    """Bytes that all ranks received, those of the busiest, those for pending results, and the moves."""

    total_bytes: int
    busiest_bytes: int
    pending_bytes: int
    moves: int


@dataclass(frozen=True, slots=True)
class Way:
    """A workload that is ready to be called, with arguments of its own: what a program keeps is its own."""

    name: str
    function: Callable[..., Any]
    arrays: tuple[Any, ...]
    stay: tuple[int, ...]

    def call(self) -> list[Any]:
        """Results in any layouts, with nothing pending: their values are there. **Collective.**"""
        return [finished(one) for one in self.results()]

    def results(self) -> list[Any]:
        """Results as the function leaves them. **Collective.**

        Arguments that do not stay are copied first, so that no call finds what was kept of the last one's.
        """
        given = [a if i in self.stay else a.copy() for i, a in enumerate(self.arrays)]
        return arrays_in(self.function(*given))


def finished(array: Any) -> Any:
    """The array with its pending reduction done, each rank a part of the sum if it can be. **Collective.**"""
    done = resolved_type(array.type)
    return array if done is array.type else array.to(done)


def way_of(workload: Workload, name: str) -> Way:
    """A workload in one of the ways. **Collective.**"""
    function: Any = workload.of(pgas)
    if name != EAGER:
        function = pgas.program(layouts=name)(function)
    return Way(name, function, tuple(arrays_of(workload)), workload.stay)


def arrays_of(workload: Workload) -> list[Any]:
    """The arguments of a workload as global arrays. **Collective.**"""
    pairs = zip(workload.make(), workload.cuts, strict=True)
    return [pgas.asarray(one, type=cut_text(cut, one.ndim)) for one, cut in pairs]


def count(comm: MPI.Intracomm, way: Way) -> tuple[Received, list[Any]]:
    """Call once, and count what the transport receives. **Collective over `comm`.**

    A move counts if any rank receives something in it; several that are one operation count as one.
    """
    with redist.trace() as t:
        results = way.results()
        before = len(t.moves)
        results = [finished(one) for one in results]
    ranks = comm.allgather([move.received_bytes for move in t.moves])
    totals = [sum(own) for own in ranks]
    assert len({len(own) for own in ranks}) == 1, "ranks noted different moves"
    pairs = zip(t.moves, zip(*ranks, strict=True), strict=True)
    moves = math.ceil(sum(Fraction(1, move.together) for move, several in pairs if any(several)))
    pending = sum(sum(own[before:]) for own in ranks)
    return Received(sum(totals), max(totals), pending, moves), results


def error_on_all(comm: MPI.Intracomm, results: list[Any], want: list[NDArray[Any]]) -> float:
    """How far results are from those wanted, which rank 0 knows; all are told. **Collective over `comm`.**"""
    whole = [one.gather() for one in results]
    error = error_of(whole, want) if comm.rank == 0 else None
    return float(comm.bcast(error))


def least_received(workload: Workload, arrays: Sequence[Any]) -> int | None:
    """**Local.** Bytes that the busiest rank receives at least, all moves together; None if not known.

    Arguments lie as they are given, results anywhere with nothing pending. Work done several times over
    is free. That is the least over all layouts of the calls as they are written, each argument moved anew.
    """
    recorder = CallRecorder()
    capture(workload.of(pgas), arrays, arrays, arranger=recorder)
    try:
        plan = plan_calls(recorder, (), ProgramCosts.of(types_of(recorder), BYTES_ONLY, NO_WORK))
    except RedistError:
        return None
    return plan.bound_ps // BYTE_PS


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
        line: dict[str, Value] = {"workload": row["name"], "size": row["what"]}
        line["eager ms"] = 1e3 * eager[1]
        columns = {WRITTEN: ("ratio", "from-to"), PLANNED: ("planned / eager", "its from-to")}
        for name, (over, spread) in columns.items():
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
