"""The datatypes that packing is measured with: what programs of MPI send of boxes, columns and records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from mpi4py import MPI

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
