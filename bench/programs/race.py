"""What do programs gain over the functions that they are made of? Needs mpirun; between hosts also root."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from bench.problems.judge import WrongPlanError
from bench.report.figures import met
from bench.report.jobs import found_by, on_hosts, on_ranks
from bench.report.report import Report, Table, Value
from tests.cluster.hosts import make_cluster, why_no_cluster

RANKS, HOSTS = 4, 2
RATE_MBIT = 1000.0
JOB = "compare programs", "bench.programs.job"
HIDDEN_AIM, READS_AIM = 0.7, 3.0
CUBE_AIM, TOGETHER_AIM = 1.45, 0.35


def run(n: int = 0, seed: int = 0) -> Report:
    """Measure on 4 ranks here, and on 2 emulated hosts where that can be; nothing is random."""
    tables = [here(found_by(on_ranks(RANKS), *JOB))]
    tables.append(counted([found_by(on_ranks(n), *JOB, "--counted") for n in (2, 4, 8)]))
    if not why_no_cluster():
        with make_cluster(HOSTS, RATE_MBIT) as cluster:
            data = found_by(on_hosts(cluster, 1), *JOB, "--hosts")
        tables += [overlap(data), far_reads(data)]
    return Report("programs", tuple(tables))


def here(data: dict[str, Any]) -> Table:
    """Times on one machine, both ways in pairs."""
    rows: list[tuple[Value, ...]] = []
    for row in data["rows"]:
        if row["wrong"]:
            raise WrongPlanError(f"cannot compare {row['name']}: a program has other bits")
        low, middle, high = row["ratio"]
        aim, figures = row["aim"], row["figures"]
        good = "-" if aim is None else met(middle <= aim or low <= aim)
        moves = f"{figures['moves']} of {figures['captured moves']}"
        rows.append(
            (
                row["name"], row["what"], 1e3 * row["eager_s"], 1e3 * row["program_s"], middle,
                f"{low:.2f}-{high:.2f}", moves, aim, good,
            )
        )  # fmt: skip
    captured = data["captured"]
    return Table(
        f"Programs beside their functions, {data['ranks']} ranks, {data['mpi']}, {os.cpu_count()} cores",
        ("case", "size", "eager ms", "program ms", "ratio", "quartiles", "moves", "aim", "reached"),
        tuple(rows),
        (
            "31 pairs, one right after the other; results have the same bits; a ratio above its aim counts "
            "as reached where the lower quartile is not",
            f"1,000 calls are captured, judged, prepared and run for the first time in {captured:.2f} s "
            f"(aim below 1: {met(captured < 1)})",
        ),
        "here",
        2,
    )


def counted(several: Sequence[dict[str, Any]]) -> Table:
    """Without any program: what a product receives in a run, and small sums that move together."""
    rows: list[tuple[Value, ...]] = []
    for data in several:
        low, middle, high = data["together"]
        rows.append(
            (
                data["ranks"], data["cube"], met(data["cube"] <= CUBE_AIM), middle,
                f"{low:.2f}-{high:.2f}", met(middle <= TOGETHER_AIM), data["together, new"][1],
            )
        )  # fmt: skip
    return Table(
        f"Products and batches without programs, {os.cpu_count()} cores",
        ("ranks", "cube", "aim 1.45", "8 sums", "quartiles", "aim 0.35", "8 sums, new"),
        tuple(rows),
        (
            "cube: bytes that a product of two matrices of 1024 x 1024 in the default layout receives, its "
            "sum included, counted by the transport, over the memory-independent bound",
            "8 sums: time of pending sums of 4 KiB by one redistribute, over one for each; 31 pairs; into "
            "arrays that are there, or new ones",
        ),
        "counted",
        1,
    )


def overlap(data: dict[str, Any]) -> Table:
    """A move beside products that do not need it."""
    rows = [
        (
            row["products"], 1e3 * row["move"], 1e3 * row["compute"], 1e3 * row["in turn"],
            1e3 * row["early"], 100 * row["hidden"], met(row["hidden"] >= HIDDEN_AIM),
        )
        for row in data["overlap"]
    ]  # fmt: skip
    return Table(
        f"Moves begun early, {HOSTS} hosts of 1 rank, links of {RATE_MBIT:g} Mbit/s",
        ("products", "move ms", "compute ms", "in turn ms", "early ms", "hidden %", "aim 70 %"),
        tuple(rows),
        (
            "hidden: what is saved, of the shorter of move and compute; both ranks compute on all cores "
            "that there are, so the processor time of the network is taken from them",
        ),
        "overlap",
        1,
    )


def far_reads(data: dict[str, Any]) -> Table:
    """Blocks of 4 KiB, each read 4 times in each of 10 intervals."""
    times = data["reads"]
    rows = [(name, 1e3 * seconds, times["neither"] / seconds) for name, seconds in times.items()]
    gain = times["neither"] / times["both"]
    return Table(
        f"One-sided reads of 32 far blocks of 4 KiB, {HOSTS} hosts of 1 rank",
        ("what is kept", "ms", "times as fast"),
        tuple(rows),
        (f"both: kept and fetched ahead; aim 3 times as fast: {met(gain >= READS_AIM)}",),
        "reads",
        1,
    )
