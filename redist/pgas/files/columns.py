"""Global arrays beside each other as the columns of one table, and its rows a block at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, ArgumentTypeError
from redist.layout.array_type import ArrayType
from redist.layout.axes import whole
from redist.layout.mesh import Mesh
from redist.pgas.files.blocks import must_be_written, take_block
from redist.pgas.files.shares import File
from redist.pgas.global_array import Array
from redist.pgas.tiles.move import resolve_pending
from redist.runtime.elements.by_index import STAGING_BYTES
from redist.runtime.ranks.world import Comm

Values = NDArray[Any]
Columns = Array | Mapping[str, Array] | Sequence[Array]


@dataclass(frozen=True, slots=True)
class Table:
    """Arrays with as many rows, of one dim or two, over the same ranks; the names of all columns, if any."""

    arrays: tuple[Array, ...]
    names: tuple[str, ...] | None

    @staticmethod
    def of(file: File, a: Columns, names: Sequence[str] | None) -> Table:
        """**Collective** if a reduction is pending. The table of what a user gives, or why there is none."""
        path = os.fspath(file)
        given = dict(a) if isinstance(a, Mapping) else None
        several = a if isinstance(a, Sequence) else (a,) if given is None else given.values()
        arrays = tuple(must_be_written(file, one) for one in several)
        if not arrays:
            raise ArgumentError(f"cannot write {path!r}: no column is given")
        for one in arrays:
            _must_be_columns(path, one, arrays[0])
        if given is not None and names is not None:
            raise ArgumentError(f"cannot write {path!r}: names are in the dict, and in columns=")
        if given is not None:
            names = [text for name, one in given.items() for text in _names(name, one)]
        widths = [width_of(one) for one in arrays]
        if names is not None:
            names = [str(name) for name in names]
            twice = next((name for name in names if names.count(name) > 1), None)
            if len(names) != sum(widths) or twice is not None:
                n, m = len(names), sum(widths)
                wrong = f"{n} name{'s' * (n != 1)} for {m} column{'s' * (m != 1)}"
                wrong = wrong if twice is None else f"{twice!r} stands twice"
                raise ArgumentError(f"cannot write {path!r} with columns {names}: {wrong}")
        here = (resolve_pending(one).to_device("cpu") for one in arrays)
        return Table(tuple(here), None if names is None else tuple(names))

    @property
    def comm(self) -> Comm:
        """Whose all arrays are."""
        return self.arrays[0].comm

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.arrays[0].shape[0]

    @property
    def width(self) -> int:
        """How many columns there are."""
        return sum(map(width_of, self.arrays))

    @property
    def row_bytes(self) -> int:
        """The bytes of a row in memory."""
        return sum(width_of(one) * one.dtype.itemsize for one in self.arrays)

    def blocks(self, most_rows: int, mesh: Mesh, limit_bytes: int) -> Iterator[list[Values]]:
        """**Collective.** The rows, this many at a time, cut over the ranks of a mesh: columns of the own."""
        room = min(STAGING_BYTES, limit_bytes // 4)
        for lo in range(0, self.rows, most_rows):
            yield self._block(lo, min(self.rows, lo + most_rows), mesh, room)

    def _block(self, lo: int, hi: int, mesh: Mesh, room: int) -> list[Values]:
        columns: list[Values] = []
        for one in self.arrays:
            shape = (hi - lo, *one.shape[1:])
            dims = ((whole(mesh, "x"),), *((),) * (one.ndim - 1))
            t = ArrayType(mesh, one.type.dtype, shape, dims)
            box = ((lo, hi), *((0, n) for n in one.shape[1:]))
            tile = take_block(one, box, t, room)
            tile = np.empty((0, *shape[1:]), one.dtype) if tile is None else tile
            columns += [tile] if one.ndim == 1 else [tile[:, i] for i in range(tile.shape[1])]
        return columns


def _must_be_columns(path: str, one: Array, first: Array) -> None:
    if one.ndim not in (1, 2):
        raise ArgumentError(
            f"cannot write {one.type} to {path!r}: a table needs 1 or 2 dims: "
            f"a.reshape({'1' if one.ndim == 0 else f'{one.shape[0]}, -1'}) makes one; "
            "pgas.write_npy takes any array"
        )
    if one.dtype.kind not in "biuf":
        raise ArgumentTypeError(
            f"cannot write {one.type} to {path!r}: need integers, floats or bools; of complex numbers, write "
            "pgas.real(a) and pgas.imag(a) beside each other"
        )
    if one.shape[0] != first.shape[0] or one.comm != first.comm:
        raise ArgumentError(
            f"cannot write {one.type} beside {first.type} to {path!r}: columns have {first.shape[0]} and "
            f"{one.shape[0]} rows; they must be equally long, on the same ranks"
        )


def width_of(a: Array) -> int:
    """How many columns an array has."""
    return 1 if a.ndim == 1 else a.shape[1]


def _names(name: str, a: Array) -> list[str]:
    """The names of the columns of an array in a dict."""
    return [str(name)] if width_of(a) == 1 else [f"{name}_{i}" for i in range(width_of(a))]
