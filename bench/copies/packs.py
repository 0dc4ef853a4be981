"""``python -m bench packs``: packing what datatypes describe, by redist's kernels and by MPI itself.

The datatypes are what programs of MPI send of boxes, columns and records.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from bench.problems.judge import WrongPlanError
from bench.report.figures import in_turn, quartiles, timed
from bench.report.report import Row, Table, Tables
from redist.measure.job import mpi_name
from redist.text.progress import track
from redist.text.units import parse_bytes

MOST_LISTED = 2**24
"""Bytes of blocks that are listed one by one: reading a million of them takes seconds."""


@dataclass(frozen=True, slots=True)
class TypeCase:
    """A name, what makes a committed datatype, and how many elements of it are packed."""

    name: str
    make: Callable[[], MPI.Datatype]
    count: int = 1


def type_cases(n_bytes: int) -> list[TypeCase]:
    """All cases, each of which packs about so many bytes; faces far fewer, of a box of so many.

    >>> for case in type_cases(2**20):
    ...     made = case.make()
    ...     print(f"{case.name}: {case.count * made.size} of {made.extent * case.count} bytes")
    ...     made.Free()
    rows of 4 KiB: 1048576 of 2093056 bytes
    runs of 64 bytes: 1048576 of 2097088 bytes
    columns of f64: 1048352 of 2896 bytes
    box within a box of f32: 953312 of 1048576 bytes
    face of a box, first dim: 15376 of 1048576 bytes
    face of a box, last dim: 15376 of 1048576 bytes
    vectors of vectors: 1048576 of 2358896 bytes
    blocks of 256 bytes anywhere: 1048576 of 2096832 bytes
    records of 20 bytes: 1048560 of 1258272 bytes
    """
    side = round((n_bytes / 4) ** (1 / 3))
    square = math.isqrt(n_bytes // 8)
    inner = (side - 2, side - 2, side - 2)
    return [
        TypeCase("rows of 4 KiB", lambda: _strided(n_bytes, 4096, 8192)),
        TypeCase("runs of 64 bytes", lambda: _strided(n_bytes, 64, 128)),
        TypeCase("columns of f64", lambda: _column(square), square),
        TypeCase("box within a box of f32", lambda: _box(side, inner, (1, 1, 1))),
        TypeCase("face of a box, first dim", lambda: _box(side, (1, *inner[1:]), (1, 1, 1))),
        TypeCase("face of a box, last dim", lambda: _box(side, (*inner[1:], 1), (1, 1, 1))),
        TypeCase("vectors of vectors", lambda: _nested(n_bytes)),
        TypeCase("blocks of 256 bytes anywhere", lambda: _anywhere(min(n_bytes, MOST_LISTED))),
        TypeCase("records of 20 bytes", _record, n_bytes // 20),
    ]


def _strided(n_bytes: int, run: int, step: int) -> MPI.Datatype:
    return MPI.BYTE.Create_hvector(n_bytes // run, run, step).Commit()


def _column(n: int) -> MPI.Datatype:
    """One column of a square matrix; as many side by side are its transpose."""
    whole = MPI.DOUBLE.Create_vector(n, 1, n)
    made = whole.Create_resized(0, 8 * n if n == 1 else 8).Commit()
    whole.Free()
    return made


def _box(side: int, inner: tuple[int, ...], first: tuple[int, ...]) -> MPI.Datatype:
    return MPI.FLOAT.Create_subarray([side] * 3, inner, first).Commit()


def _nested(n_bytes: int) -> MPI.Datatype:
    """4 numbers of 6, 16 times, and that so often with a gap behind it."""
    rows = MPI.DOUBLE.Create_vector(16, 4, 6)
    made = rows.Create_hvector(n_bytes // rows.size, 1, 16 * 6 * 8 + 384).Commit()
    rows.Free()
    return made


def _anywhere(n_bytes: int) -> MPI.Datatype:
    rng = Random(1)
    places = [512 * k + 64 * rng.randrange(4) for k in range(n_bytes // 256)]
    return MPI.BYTE.Create_hindexed_block(256, places).Commit()


def _record() -> MPI.Datatype:
    """A number, a flag and another number, as a compiler lays them out."""
    kinds = [MPI.DOUBLE, MPI.INT, MPI.DOUBLE]
    made = MPI.Datatype.Create_struct([1, 1, 1], [0, 8, 16], kinds)
    return made.Commit()


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
