"""Rows and their labels as global arrays: every rank writes its own, nothing moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import Box
from redist.pgas.creation import Type, make
from redist.pgas.global_array import Array
from redist.pgas.tiles.devices import kind_of
from redist.pgas.tiles.layouts import MeshLike, dtype_of
from redist.pgas.tiles.tiled import Tile
from redist.runtime.ranks.world import Comm

Values = NDArray[Any]
PartOfRows = Callable[[int, int], Values]
"""Makes rows ``lo`` to ``hi`` of a set."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a set shall lie, and of which floats it is."""

    dtype: Any = np.float64
    type: Type | None = None
    mesh: MeshLike | None = None
    comm: Comm | None = None
    device: Any = None


def make_rows(shape: tuple[int, int], part: PartOfRows, place: Place) -> Array:
    """**Local.** An array whose rows ``part`` makes."""

    def fill(tile: Tile, box: Box) -> None:
        (lo, hi), (first, last) = box
        tile[...] = part(lo, hi)[:, first:last]

    dtype = np.dtype(place.dtype)
    if dtype.kind != "f":
        raise ArgumentError(f"cannot make rows of {dtype}: need floats")
    return make(shape, dtype, fill, place.type, place.mesh, place.comm, place.device)


def label_rows(x: Array, part: PartOfRows, dtype: Any = np.int64, dim: int = 0) -> Array:
    """**Local.** Values of rows, cut as a dim of ``x`` is, where its tiles lie."""

    def fill(tile: Tile, box: Box) -> None:
        tile[...] = part(*box[0])

    kind = np.dtype(dtype)
    t = ArrayType(x.mesh, dtype_of(kind), (x.shape[dim],), (x.type.dims[dim],))
    return make(t.shape, kind, fill, t, None, x.comm, kind_of(x))


def counts_of(n_samples: int | Sequence[int], n_groups: int) -> list[int]:
    """**Local.** How many rows each group has: as said, or alike, the first of them one more.

    >>> counts_of(10, 3), counts_of((4, 5), 2)
    ([4, 3, 3], [4, 5])
    """
    if isinstance(n_samples, (int, np.integer)):
        each, more = divmod(int(n_samples), n_groups)
        return [each + (i < more) for i in range(n_groups)]
    counts = [int(n) for n in n_samples]
    if len(counts) != n_groups:
        raise ArgumentError(f"cannot make {n_groups} groups of {counts} rows: numbers differ")
    return counts


def group_of(numbers: NDArray[np.int64], counts: Sequence[int]) -> tuple[Values, Values]:
    """**Local.** The group that each row is of, and its number within it, if groups stand one by one."""
    ends = np.cumsum(counts)
    group = np.searchsorted(ends, numbers, side="right")
    return group, numbers - (ends - counts)[group]
