"""``python -m bench gpu ranks --ranks 4``: whole redistributions by ranks that share a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mpi4py import MPI

from bench.gpu.contenders import (
    CASES,
    MOVERS,
    f32_case,
    free_pool,
    gpu_ends,
    gpu_floors,
    traffic_bytes,
)  # fmt: skip
from bench.gpu.copies import copy_rate, gpu_machine, need_gpu
from bench.report.job import say
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Row, Table, Tables
from redist.errors import RequestError
from redist.measure.cases import Case
from redist.measure.compare import BenchPlace, compare
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch, meet
from redist.text.units import parse_bytes

GPU = BenchPlace(gpu_ends, gpu_floors)
COPIED_BYTES = 2**30
FOUND = ("label", "note", "right", "n", "least_s", "low_s", "median_s", "high_s", "most_s",
         "bytes_per_s", "of_copy", "of_raw")  # fmt: skip


def run(
    ranks: int = 4, size: str = "4GiB", repeat: int = 11, cases: str = ",".join(CASES),
    movers: str = "raw,ipc,cupy", name: str = "",
) -> Tables:  # fmt: skip
    """Every mover on every case, checked and timed in turn; rates count bytes read and written by all ranks.

    size: of all ranks together; movers: of raw, ipc, cupy, staged; name: of this run, after the ranks.
    """
    need_gpu()
    asked = {"total_bytes": parse_bytes(size), "repeats": repeat}
    words = {"names": cases.split(","), "movers": movers.split(",")}
    data = found_by(on_ranks(ranks, one_thread=False), "bench.gpu.ranks", **asked, **words)
    run_name = f"{ranks} ranks" + (f", {name}" if name else "")
    rows: list[Row] = [{"run": run_name, **row} for row in data["rows"]]
    wrong = not all(row["right"] for row in rows)
    title = f"Redistributions of {size}, {run_name}"
    return (Table.of("runs", title, rows, keys=3, is_wrong=wrong, about=data["about"]),)


def measure(
    total_bytes: int, repeats: int, names: Sequence[str], movers: Sequence[str]
) -> dict[str, Any]:
    """All movers on all cases. **Collective over all ranks of the job.**"""
    comm, rows = MPI.COMM_WORLD, list[Row]()
    watch, copied = Stopwatch.on(comm), min(COPIED_BYTES, total_bytes)
    top = _alone(comm, copied)
    for name in names:
        try:
            case = f32_case(name, total_bytes, comm.size)
        except RequestError as error:
            say(f"gpu: {name}: {error}")
            continue
        rows += race(case, watch, repeats, movers, top)
        said = (f"{r['contender']} {r['median_s'] or r['note']}" for r in rows if r["case"] == name)
        say(f"gpu: {name}: {', '.join(said)}")
    about = {
        "ranks": comm.size, "mpi": mpi_name(), "total_bytes": total_bytes, "repeats": repeats,
        "copy_bytes_per_s": top, "copy_bytes_per_s_after": _alone(comm, copied), "machine": gpu_machine(),
    }  # fmt: skip
    return {"about": about, "rows": rows}


def _alone(comm: MPI.Intracomm, n_bytes: int) -> float:
    """The contiguous copy by rank 0 while the others sleep. **Collective over `comm`.**"""
    meet(comm)
    rate = copy_rate(n_bytes) if comm.rank == 0 else 0.0
    free_pool()
    meet(comm)
    return float(comm.bcast(rate))


def race(case: Case, watch: Stopwatch, repeats: int, keys: Sequence[str], top: float) -> list[Row]:
    """A row for each mover of a case. **Collective over `watch.comm`.**"""
    ways = {key: MOVERS[key] for key in keys}
    outcome = compare(case, case.held_bytes, ways, watch, repeats, with_memory=False, place=GPU)
    free_pool()
    meet(watch.comm)
    raw, rows = outcome.entry("raw"), list[Row]()
    for entry in outcome.entries:
        found: dict[str, Any] = {"label": entry.label, "note": entry.note}
        found["right"] = not entry.is_wrong
        if entry.times is not None:
            rate = traffic_bytes(case) / entry.times.median_s
            found |= {**asdict(entry.times), "bytes_per_s": rate, "of_copy": rate / top}
            if raw is not None and raw.times is not None:
                found["of_raw"] = raw.times.median_s / entry.times.median_s
        values = {key: found.get(key) for key in FOUND}
        rows.append({"case": case.name, "contender": entry.key, **values})
    return rows
