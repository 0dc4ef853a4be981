"""All movers on all cases in one MPI job: checked, timed in turn, checked again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from mpi4py import MPI

from bench.gpu.ranks import CASES, MOVERS, Mover, Tiles, f32_case, traffic_bytes
from bench.gpu.timing import copy_rate
from bench.gpu.values import fill, is_right
from redist.errors import RequestError
from redist.measure.cases import Case
from redist.measure.session import mpi_name
from redist.measure.timing import Stopwatch, agreed, meet

POISON = 0x77
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
        cases.append(_raced(case, watch, repeats, movers, top))
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
    _tidy()
    meet(comm)
    return float(comm.bcast(rate))


def _raced(
    case: Case, watch: Stopwatch, repeats: int, keys: Sequence[str], top: float
) -> dict[str, Any]:
    comm = watch.comm
    tiles = Tiles(case, comm.rank)
    fill(tiles.source, case.source, comm.rank)
    _tidy()
    traffic = traffic_bytes(case)
    out: dict[str, Any] = {"case": case.name, "text": str(case), "traffic_bytes": traffic}
    ready: dict[str, Mover] = {}
    for key in keys:
        note = MOVERS[key].cannot(case)
        if note is None:
            ready[key] = MOVERS[key](case, comm, tiles)
            note = "" if _is_right(ready[key]) else "wrong result"
        out[key] = {"label": MOVERS[key].label, "note": note}
    right = [key for key in ready if not out[key]["note"]]
    times = watch.in_turn([ready[key].repeat for key in right], repeats)
    for key, found in zip(right, times, strict=True):
        rate = traffic / found.median_s
        out[key] |= {**asdict(found), "bytes_per_s": rate, "of_copy": rate / top}
        if not _is_right(ready[key]):
            out[key]["note"] = "wrong result in the end"
    for key in right:
        if "raw" in right:
            out[key]["of_raw"] = out["raw"]["median_s"] / out[key]["median_s"]
    for mover in ready.values():
        mover.close()
    del tiles, ready
    _tidy()
    meet(comm)
    return out


def _is_right(mover: Mover) -> bool:
    """Move into a poisoned target and look at all of it. **Collective over `comm`.**"""
    if not mover.checked:
        return True
    comm, case, tiles = mover.comm, mover.case, mover.tiles
    flat = tiles.target if tiles.target.flags.c_contiguous else tiles.target.T
    flat.reshape(-1).view("u1").fill(POISON)
    mover.stream.synchronize()
    meet(comm)
    mover.repeat(1)
    good = is_right(tiles.target, case.source, case.target, comm.rank)
    _tidy()
    return agreed(comm, good)


def _tidy() -> None:
    """**Local.** What the pool keeps goes back: many ranks share the memory of one GPU."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()


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
