"""What do whole programs receive and take eagerly, as written and with planned layouts? Needs mpirun."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bench.layouts.cases import workloads
from bench.layouts.counted import EAGER, PLANNED, WRITTEN
from bench.layouts.workload import Workload
from bench.problems.judge import WrongPlanError
from bench.report.figures import met
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Report, Table, Value, cell_text

RANKS = 4
MOST_REPEATS = 7
KIB = 1024
REFUSED = "refused"
"""What stands in the place of planned layouts if this version of redist does not have them."""


def run(n: int = MOST_REPEATS, seed: int = 0) -> Report:
    """Measure every workload on 4 ranks, all ways in turn; nothing is random."""
    options = ("--repeat", min(n, MOST_REPEATS))
    return report(found_by(on_ranks(RANKS), "compare layouts", "bench.layouts.job", *options))


def report(data: Mapping[str, Any]) -> Report:
    """Tables from what the job wrote; a wrong result is refused."""
    for row in data["rows"]:
        for name, way in row["ways"].items():
            if way["wrong"]:
                raise WrongPlanError(
                    f"cannot compare {row['name']}, {name}: its error is {way['error']:.1e}"
                )
    return Report("layouts", (received(data), times(data)))


def received(data: Mapping[str, Any]) -> Table:
    """Bytes of one call."""
    known = {workload.name: workload for workload in workloads()}
    rows = [_bytes(row, known[row["name"]]) for row in data["rows"]]
    return Table(
        f"Bytes that one call of a program receives, {data['ranks']} ranks, {data['mpi']}",
        (
            "workload", "size", "eager KiB", "busiest", "as written KiB", "its busiest", "again KiB",
            "planned KiB", "planned busiest", "least busiest", "planned again", "pending KiB", "moves",
            "planned / eager", "again / eager", "aim", "reached",
        ),
        tuple(rows),
        (
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
            *_refused(data),
        ),
        "received",
    )  # fmt: skip


def _bytes(row: Mapping[str, Any], workload: Workload) -> tuple[Value, ...]:
    eager, written, planned = (row["ways"].get(name) for name in (EAGER, WRITTEN, PLANNED))
    aims = workload.aims
    aim = "" if aims.received is None else f"{aims.received:g}"
    aim += "" if aims.moves is None else f", {aims.moves} move"
    before = (eager["total_bytes"] / KIB, eager["busiest_bytes"] / KIB, *_three(written))
    moves = f"{eager['moves']} / {written['moves']}"
    ways = [way for way in (eager, written, planned) if way is not None]
    left = " / ".join(cell_text(way["pending_bytes"] / KIB) for way in ways)
    middle: tuple[Value, ...]
    if planned is None:
        middle = (REFUSED, None, None, None, left, moves, None, None)
        return (*_about(row), *before, *middle, aim or None, None)
    first, again = (
        planned[key] / max(1, eager["total_bytes"]) for key in ("total_bytes", "again_bytes")
    )
    good = (aims.received is None or again <= aims.received) and (
        aims.moves is None or planned["again_moves"] <= aims.moves
    )
    moves += f" / {planned['moves']} / {planned['again_moves']}"
    reached = met(good) if aim else None
    total, busiest, later = _three(planned)
    bound = row.get("least_bytes")
    least = None if bound is None else bound / KIB
    middle = (total, busiest, least, later, left, moves, first, again)
    return (*_about(row), *before, *middle, aim or None, reached)


def times(data: Mapping[str, Any]) -> Table:
    """Times of calls after the first."""
    known = {workload.name: workload for workload in workloads()}
    rows: list[tuple[Value, ...]] = []
    for row in data["rows"]:
        ways = row["ways"]
        if not all("seconds" in way for way in ways.values()):
            continue
        eager, aim = ways[EAGER]["seconds"], known[row["name"]].aims.time
        cells: list[Value] = [1e3 * eager[1]]
        ratio = None
        for name in (WRITTEN, PLANNED):
            if name not in ways:
                cells += [REFUSED, None, None]
                continue
            low, middle, high = ways[name]["seconds"]
            ratio = middle / eager[1] if name == PLANNED else None
            cells += [
                1e3 * middle,
                middle / eager[1],
                f"{low / eager[2]:.2f}-{high / eager[0]:.2f}",
            ]
        reached = None if aim is None or ratio is None else met(ratio <= aim)
        rows.append((*_about(row), *cells, aim, reached))
    return Table(
        f"Times of the same programs, {data['ranks']} ranks, {data['mpi']}, {os.cpu_count()} cores",
        (
            "workload", "size", "eager ms", "as written ms", "ratio", "from-to", "planned ms",
            "planned / eager", "its from-to", "aim", "reached",
        ),
        tuple(rows),
        (
            f"medians of {data['repeat']}, all ways in turn, results compared first; from-to: quartiles "
            "against each other; programs keep moved arguments",
            *_refused(data),
        ),
        "times",
    )  # fmt: skip


def _three(way: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(way[f"{key}_bytes"] / KIB for key in ("total", "busiest", "again"))


def _about(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["name"], row["what"]


def _refused(data: Mapping[str, Any]) -> list[str]:
    """A remark if planned layouts were not there."""
    if any(PLANNED in row["ways"] for row in data["rows"]):
        return []
    return [f"{REFUSED}: this version of redist has no layouts={PLANNED!r}"]
