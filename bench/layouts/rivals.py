"""What do other libraries receive and take for the same programs? Needs JAX, PyTorch, Heat or Dask."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from bench.layouts.cases import workloads
from bench.layouts.workload import Workload, error_of
from bench.peers.programs import Programs
from bench.problems.installed import why_absent
from bench.report.figures import quartiles
from bench.report.job import say
from bench.report.jobs import Start, found_by, in_one_process, on_ranks, on_torch_ranks
from bench.report.report import Row, Table, Tables

DEVICES = 4
KIB = 1024
MOST_REASON = 70
"""Letters of what a library says where it cannot run a workload."""
RIVALS: dict[str, tuple[tuple[str, ...], str, Start]] = {
    "jax": (("jax",), "jax_devices:JaxPrograms", in_one_process()),
    "dtensor": (("torch",), "torch:TorchPrograms", on_torch_ranks(DEVICES)),
    "heat": (("heat",), "heat:HeatPrograms", on_ranks(DEVICES, one_thread=False)),
    "dask": (("dask", "distributed"), "dask:DaskPrograms", in_one_process()),
}
"""By name: modules that it needs, its adapter in ``bench.peers``, and how a job of it is started."""


def run(n: int = 7, only: str = "") -> Tables:
    """Measure with every library that is installed, one after another; nothing is random.

    n: repetitions, 7 at most; only: workloads whose name has this.
    """
    here = [name for name in RIVALS if why_absent(*RIVALS[name][0]) is None]
    return table([row for name in here for row in rows_of(name, min(n, 7), only)])


def rows_of(name: str, repeat: int, only: str = "") -> list[dict[str, Any]]:
    """What the job of a library found."""
    _, adapter, start = RIVALS[name]
    asked = {"adapter": adapter, "repeat": repeat, "only": only}
    found: list[dict[str, Any]] = found_by(start, "bench.layouts.rivals", **asked)
    return found


def measure(adapter: str, repeat: int, only: str) -> list[dict[str, Any]]:
    """Check and time every workload; one that the library cannot run says why. **Collective.**"""
    module, _, kind = adapter.partition(":")
    programs: Programs = getattr(importlib.import_module(f"bench.peers.{module}"), kind)(DEVICES)
    rows: list[dict[str, Any]] = []
    for workload in (one for one in workloads() if only in one.name):
        row = {"workload": workload.name, "library": programs.library}
        try:
            row |= measure_one(programs, workload, repeat)
        except Exception as problem:
            text = str(problem).strip() or type(problem).__name__
            row["cannot"] = text.splitlines()[0][:MOST_REASON]
        rows.append(row)
        say(f"rivals: {row}")
    programs.close()
    return rows


def measure_one(programs: Programs, workload: Workload, repeat: int) -> dict[str, Any]:
    """Bytes, transfers and quartiles of seconds; a result far from NumPy's is refused. **Collective.**"""
    pairs = zip(workload.make(), workload.cuts, strict=True)
    arrays = [programs.place(array, cut) for array, cut in pairs]
    call = programs.ready(workload.of(programs.xp), arrays)
    results, n_bytes, transfers = programs.counted(call)
    error = error_of(programs.values(results), workload.reference())
    if not error <= workload.error:
        raise ArithmeticError(f"wrong result: error {error:.1e}")
    del results
    seconds = [programs.seconds_of(call) for _ in range(repeat + 1 if repeat else 0)]
    times = quartiles(seconds[1:]) if repeat else None
    return {"received_bytes": n_bytes, "transfers": transfers, "seconds": times}


def table(rows: Sequence[dict[str, Any]]) -> Tables:
    """What all of them found."""
    lines: list[Row] = []
    for row in rows:
        n_bytes, library = row.get("received_bytes"), row["library"]
        low, middle, high = (1e3 * s for s in row["seconds"]) if row.get("seconds") else [None] * 3
        lines.append(
            {
                "workload": row["workload"], "by": library.partition(" ")[0], "version": library,
                "KiB": None if n_bytes is None else n_bytes / KIB, "transfers": row.get("transfers"),
                "ms": middle, "low": low, "high": high, "cannot": row.get("cannot"),
            }
        )  # fmt: skip
    notes = (
        "arguments cut as redist's are, results as the library likes, compared with NumPy first; "
        "medians and quartiles, one library after another",
        "KiB received by all: JAX by the collectives of the compiled program, DTensor by those "
        "that it issues, both as rings do them (all-gather g - 1 times what a device puts in, "
        "reduce-scatter and all-to-all (g - 1) / g times, all-reduce twice that); Dask by what "
        "its workers note; Heat does not tell",
    )
    title = f"The same programs by other libraries, {DEVICES} devices or processes"
    return (Table.of("programs", title, lines, *notes, keys=2),)
