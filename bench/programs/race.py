"""What do programs gain over the functions that they are made of? Needs mpirun; between hosts also root."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.problems.judge import WrongPlanError
from bench.programs.cases import ProgramCase, cases, chain
from bench.programs.counted import measure_products, measure_together
from bench.programs.far import measure_hosts
from bench.report.figures import met, quartiles
from bench.report.job import say
from bench.report.jobs import found_by, on_hosts, on_ranks
from bench.report.report import Row, Table, Tables
from bench.report.timing import repeated
from redist import pgas
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch
from tests.cluster.hosts import why_no_cluster

RANKS, HOSTS = 4, 2
RATE_MBIT = 1000.0
JOB = "bench.programs.race"
HIDDEN_AIM, READS_AIM = 0.7, 3.0
CUBE_AIM, TOGETHER_AIM = 1.45, 0.35
PAIRS = 31


def run(only: str = "", here_only: bool = False) -> Tables:
    """Measure on 4 ranks here, and on 2 emulated hosts where that can be; nothing is random.

    only: cases whose name has this; here-only: leaves out what is counted, and the hosts.
    """
    tables = [here(found_by(on_ranks(RANKS), JOB, only=only))]
    if here_only:
        return tuple(tables)
    tables.append(counted([found_by(on_ranks(n), JOB, what="counted") for n in (2, 4, 8)]))
    if not why_no_cluster():
        data = found_by(on_hosts(HOSTS, 1, RATE_MBIT), JOB, what="hosts")
        tables += [overlap(data), far_reads(data)]
    return tuple(tables)


def here(data: dict[str, Any]) -> Table:
    """Times on one machine, both ways in pairs."""
    rows: list[Row] = []
    for row in data["rows"]:
        if row["wrong"]:
            raise WrongPlanError(f"cannot compare {row['name']}: a program has other bits")
        low, middle, high = row["ratio"]
        aim, figures = row["aim"], row["figures"]
        good = "-" if aim is None else met(middle <= aim or low <= aim)
        rows.append(
            {
                "case": row["name"], "size": row["what"], "eager ms": 1e3 * row["eager_s"],
                "program ms": 1e3 * row["program_s"], "ratio": middle, "quartiles": f"{low:.2f}-{high:.2f}",
                "moves": f"{figures['moves']} of {figures['captured moves']}", "aim": aim, "reached": good,
            }
        )  # fmt: skip
    captured, cores = data["captured"], os.cpu_count()
    notes = (
        "31 pairs, one right after the other; results have the same bits; a ratio above its aim counts "
        "as reached where the lower quartile is not",
        f"1,000 calls are captured, judged, prepared and run for the first time in {captured:.2f} s "
        f"(aim below 1: {met(captured < 1)})",
    )
    title = f"Programs beside their functions, {data['ranks']} ranks, {data['mpi']}, {cores} cores"
    return Table.of("here", title, rows, *notes, keys=2)


def counted(several: Sequence[dict[str, Any]]) -> Table:
    """Without any program: what a product receives in a run, and small sums that move together."""
    rows: list[Row] = []
    for data in several:
        low, middle, high = data["together"]
        rows.append(
            {
                "ranks": data["ranks"], "cube": data["cube"], "aim 1.45": met(data["cube"] <= CUBE_AIM),
                "8 sums": middle, "quartiles": f"{low:.2f}-{high:.2f}",
                "aim 0.35": met(middle <= TOGETHER_AIM), "8 sums, new": data["together, new"][1],
            }
        )  # fmt: skip
    notes = (
        "cube: bytes that a product of two matrices of 1024 x 1024 in the default layout receives, its "
        "sum included, counted by the transport, over the memory-independent bound",
        "8 sums: time of pending sums of 4 KiB by one redistribute, over one for each; 31 pairs; into "
        "arrays that are there, or new ones",
    )
    title = f"Products and batches without programs, {os.cpu_count()} cores"
    return Table.of("counted", title, rows, *notes)


def overlap(data: dict[str, Any]) -> Table:
    """A move beside products that do not need it."""
    rows = [
        {
            "products": row["products"], "move ms": 1e3 * row["move"], "compute ms": 1e3 * row["compute"],
            "in turn ms": 1e3 * row["in turn"], "early ms": 1e3 * row["early"],
            "hidden %": 100 * row["hidden"], "aim 70 %": met(row["hidden"] >= HIDDEN_AIM),
        }
        for row in data["overlap"]
    ]  # fmt: skip
    note = (
        "hidden: what is saved, of the shorter of move and compute; both ranks compute on all cores "
        "that there are, so the processor time of the network is taken from them"
    )
    title = f"Moves begun early, {HOSTS} hosts of 1 rank, links of {RATE_MBIT:g} Mbit/s"
    return Table.of("overlap", title, rows, note)


def far_reads(data: dict[str, Any]) -> Table:
    """Blocks of 4 KiB, each read 4 times in each of 10 intervals."""
    times = data["reads"]
    rows = [
        {"what is kept": name, "ms": 1e3 * seconds, "times as fast": times["neither"] / seconds}
        for name, seconds in times.items()
    ]
    gain = met(times["neither"] / times["both"] >= READS_AIM)
    title = f"One-sided reads of 32 far blocks of 4 KiB, {HOSTS} hosts of 1 rank"
    return Table.of(
        "reads", title, rows, f"both: kept and fetched ahead; aim 3 times as fast: {gain}"
    )


def measure(what: str = "cases", only: str = "") -> dict[str, Any]:
    """Cases whose name has a word; or what is ``counted``; or moves and reads between ``hosts``.

    **Collective over all ranks of the job.**
    """
    comm = MPI.COMM_WORLD
    data: dict[str, Any] = {"mpi": mpi_name(), "ranks": comm.size}
    if what == "hosts":
        return {**data, **measure_hosts(comm)}
    if what == "counted":
        data["cube"] = measure_products(comm)
        data["together"] = measure_together(comm, PAIRS, has_outs=True)
        data["together, new"] = measure_together(comm, PAIRS, has_outs=False)
        say(f"programs: {data}")
        return data
    rows = [measure_case(comm, case) for case in cases(comm.size) if only in case.name]
    return {**data, "rows": rows, "captured": measure_capture(1000)}


def measure_case(comm: MPI.Intracomm, case: ProgramCase) -> dict[str, Any]:
    """Time both ways in pairs, one right after the other. **Collective over `comm`.**"""
    step = pgas.program(layouts="as written")(case.function)  # planned, sums may be added otherwise
    want, got = case.function(*case.args), step(*case.args)
    got = step(*case.args)
    same = all(_bits(a) == _bits(b) for a, b in zip(_arrays(want), _arrays(got), strict=True))
    wrong = not all(comm.allgather(same))
    watch = Stopwatch.on(comm)
    works = [repeated(function, *case.args) for function in (case.function, step)]
    ratios, times = [], ([], [])  # type: ignore[var-annotated]
    for _ in range(PAIRS):
        pair = watch.in_turn(works, 1)
        for kept, one in zip(times, pair, strict=True):
            kept.append(one.median_s)
        ratios.append(pair[1].median_s / pair[0].median_s)
    low, middle, high = quartiles(ratios)
    row = {
        "name": case.name,
        "what": case.what,
        "aim": case.aim,
        "wrong": wrong,
        "eager_s": float(np.median(times[0])),
        "program_s": float(np.median(times[1])),
        "ratio": [low, middle, high],
        "figures": dict(step.graph(*case.args).figures),
    }
    say(f"programs: {row}")
    return row


def measure_capture(nodes: int) -> float:
    """Seconds from the first call of a program of so many nodes to its result. **Collective.**"""
    rng = pgas.random.generator(2)
    x, y = rng.normal((1000,)), rng.normal((1000,))

    def long(x: Any, y: Any) -> Any:
        for _ in range(nodes // 40):
            x = chain(x, y)
        return x

    step = pgas.program(long)
    started = time.perf_counter()
    step(x, y)
    return time.perf_counter() - started


def _arrays(result: Any) -> list[Any]:
    if isinstance(result, dict):
        result = list(result.values())
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _bits(array: Any) -> bytes:
    return b"" if array.tile is None else bytes(array.tile.tobytes())
