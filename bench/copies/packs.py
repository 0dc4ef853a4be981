"""``python -m bench packs``: packing what datatypes describe, by redist's kernels and by MPI itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from bench.copies.datatypes import TypeCase, type_cases
from bench.problems.judge import WrongPlanError
from bench.report.figures import in_turn, quartiles, timed
from bench.report.report import Row, Table, Tables
from redist.measure.job import mpi_name
from redist.text.progress import track
from redist.text.units import parse_bytes


def run(size: str = "32MiB", repeat: int = 9) -> Tables:
    """Pack and unpack every case, redist and MPI in turn; results are compared first.

    size: packed bytes of a case, or bytes of the box whose face it is; repeat: turns.
    """
    every = type_cases(parse_bytes(size))
    rows = [row for case in track(every, len(every), "packs") for row in _measure(case, repeat)]
    title = f"Packing {size} by redist and by {mpi_name()}, one process"
    note = "medians, both ways in turn; packed GB/s; ratio above 1: MPI is quicker; from, to: quartiles"
    return (Table.of("packed", title, rows, note, keys=2),)


def _measure(case: TypeCase, repeat: int) -> list[Row]:
    datatype = case.make()
    # mpi4py packs as many elements as the extent goes into the memory that it is given
    low, extent = datatype.Get_true_extent()
    n_bytes = max(case.count * datatype.extent, low + extent + (case.count - 1) * datatype.extent)
    memory = np.random.default_rng(1).integers(0, 256, n_bytes, np.uint8)
    whole = memory[: case.count * datatype.extent]
    ours, theirs = (np.zeros(case.count * datatype.size, np.uint8) for _ in range(2))
    back, other = memory.copy(), memory.copy()
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "pack": (
            partial(redist.pack, memory, datatype, case.count, ours),
            partial(datatype.Pack, whole, theirs, 0, MPI.COMM_SELF),
        ),
        "unpack": (
            partial(redist.unpack, ours, datatype, back, case.count),
            partial(datatype.Unpack, theirs, 0, other[: len(whole)], MPI.COMM_SELF),
        ),
    }
    rows = list[Row]()
    for verb, ways in pairs.items():
        for work in ways:
            work()
        if not (np.array_equal(ours, theirs) and np.array_equal(back, other)):
            raise WrongPlanError(f"{case.name}: {verb} differs from MPI's")
        found = in_turn(dict(enumerate(ways)), repeat, lambda work: timed(work)[0])
        (a, own, b), (c, mpi, d) = (quartiles(found[k]) for k in (0, 1))
        rate = len(ours) / 1e9
        rows.append(
            {
                "datatype": case.name, "way": verb, "redist GB/s": rate / own, "MPI GB/s": rate / mpi,
                "ratio": own / mpi, "from": a / d, "to": b / c,
            }
        )  # fmt: skip
    datatype.Free()
    return rows
