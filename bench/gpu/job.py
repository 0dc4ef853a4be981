"""All movers on all cases in one MPI job: checked, timed in turn, checked again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
)
from bench.gpu.timing import copy_rate
from redist.errors import RequestError
from redist.measure.cases import Case
from redist.measure.compare import BenchPlace, compare
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch, meet

GPU = BenchPlace(gpu_ends, gpu_floors)
COPIED_BYTES = 2**30


def measure(
    comm: MPI.Intracomm,
    total_bytes: int,
    repeats: int,
    names: Sequence[str],
    movers: Sequence[str],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Rates count bytes read and written by all ranks. **Collective over `comm`.**"""
    watch = Stopwatch.on(comm)
    copied = min(COPIED_BYTES, total_bytes)
    top = _alone(comm, copied)
    cases = []
    for name in names:
        try:
            case = f32_case(name, total_bytes, comm.size)
        except RequestError as error:
            cases.append({"case": name, "note": str(error)})
            continue
        cases.append(_race(case, watch, repeats, movers, top))
        say(_line(cases[-1]))
    return {
        "ranks": comm.size,
        "mpi": mpi_name(),
        "total_bytes": total_bytes,
        "repeats": repeats,
        "copy_bytes_per_s": top,
        "copy_bytes_per_s_after": _alone(comm, copied),
        "cases": cases,
    }


def _alone(comm: MPI.Intracomm, n_bytes: int) -> float:
    """The contiguous copy by rank 0 while the others sleep. **Collective over `comm`.**"""
    meet(comm)
    rate = copy_rate(n_bytes) if comm.rank == 0 else 0.0
    free_pool()
    meet(comm)
    return float(comm.bcast(rate))


def _race(
    case: Case, watch: Stopwatch, repeats: int, keys: Sequence[str], top: float
) -> dict[str, Any]:
    """All contenders on one case. **Collective over `watch.comm`.**"""
    ways = {key: MOVERS[key] for key in keys}
    outcome = compare(case, case.held_bytes, ways, watch, repeats, with_memory=False, place=GPU)
    free_pool()
    meet(watch.comm)
    traffic = traffic_bytes(case)
    out: dict[str, Any] = {"case": case.name, "text": str(case), "traffic_bytes": traffic}
    for entry in outcome.entries:
        found: dict[str, Any] = {"label": entry.label, "note": entry.note}
        found["right"] = not entry.is_wrong
        if entry.times is not None:
            rate = traffic / entry.times.median_s
            found |= {**asdict(entry.times), "bytes_per_s": rate, "of_copy": rate / top}
            raw = outcome.entry("raw")
            if raw is not None and raw.times is not None:
                found["of_raw"] = raw.times.median_s / entry.times.median_s
        out[entry.key] = found
    return out


def _line(found: dict[str, Any]) -> str:
    cells = [f"{found['case']}:"]
    for key in MOVERS:
        entry = found.get(key)
        if entry and "median_s" in entry:
            cells.append(
                f"{key} {entry['median_s'] * 1e3:.2f} ms {100 * entry['of_copy']:.0f} %"
                + (f" ({entry['of_raw']:.2f} of raw)" if "of_raw" in entry else "")
            )
        elif entry:
            cells.append(f"{key} {entry['note']}")
    return "  ".join(cells)


__all__ = ["CASES", "measure"]
