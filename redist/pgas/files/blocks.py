"""The elements of global arrays in the order of a file, in blocks that keep a memory limit.

Arrays beside each other are the columns of one table, whose rows are a block at a time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, ArgumentTypeError
from redist.layout.array_type import ArrayType
from redist.layout.axes import whole
from redist.layout.mesh import Mesh
from redist.layout.tiles import Box, box_of
from redist.pgas.files.shares import File
from redist.pgas.global_array import Array
from redist.pgas.kinds import file_kind
from redist.pgas.memory import GRAIN
from redist.pgas.tiles.budget import staging_room
from redist.pgas.tiles.layouts import line_mesh
from redist.pgas.tiles.move import as_plain, move, resolve_pending
from redist.pgas.tiles.select import links_of_ranges, new_tile, sides_of
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.pgas.watch.seam import ElementExchange, traffic
from redist.runtime.elements.by_index import STAGING_BYTES
from redist.runtime.ranks.world import Comm
from redist.text.units import format_bytes, limit_from

LIMIT_BYTES = 2**26
"""What a rank takes beside its tiles while it writes, unless a limit is given."""
LEAST_BYTES = 2**18


def within(a: Tiled, limit_bytes: int | str | None) -> int:
    """**Collective** under a memory limit of arrays. What blocks and messages may take on a rank."""
    limit = limit_from(limit_bytes)
    limit = LIMIT_BYTES if limit is None else limit
    if limit < LEAST_BYTES:
        raise ArgumentError(
            f"cannot write within {format_bytes(limit)} a rank: need {format_bytes(LEAST_BYTES)} or more"
        )
    return max(LEAST_BYTES, staging_room(a, limit))


def must_be_written(file: File, a: Any) -> Array:
    """**Local.** A global array whose values are real, or an error that says what else to write."""
    traffic().require_data(
        f"the file {os.fspath(file)}",
        "a file is written once, when values are known",
        "return the array, and write it outside",
    )
    if not isinstance(a, Array):
        raise ArgumentTypeError(
            f"cannot write {type(a).__name__} to {os.fspath(file)!r}: need a global array; pgas.asarray "
            "makes one of what all ranks have alike"
        )
    return a


class FilePart(NamedTuple):
    """Some elements that lie one behind the other in a file: where the first is, and they."""

    first: int
    values: Values


def own_parts(a: Array, limit_bytes: int) -> Iterator[FilePart]:
    """**Collective.** What this rank writes of an array in C order: every element is one rank's, once.

    An array that is cut by rows stays where it is, and copies share its rows; another is moved, a
    block at a time.
    """
    a = as_plain(resolve_pending(a))
    if not _lies_in_order(a.type) and a.memory.on_device:
        a = move(a, _rows(a.type.shape, a.type, line_mesh(a.comm.size)), asked=True)
    if _lies_in_order(a.type):
        yield from _parts_in_place(a, limit_bytes // 2)  # whoever has one asks for the next
    else:
        room = min(STAGING_BYTES, limit_bytes // 4)
        most = max(1, (limit_bytes - room) // 2 - GRAIN)
        for box in _blocks(a.shape, a.dtype.itemsize, most, a.comm.size):
            yield _moved_part(a, box, room)


def _lead(shape: Sequence[int]) -> int:
    """The first dim of more than one index, or the last one: the one to cut a range in C order by."""
    return next((i for i, n in enumerate(shape) if n != 1), max(0, len(shape) - 1))


def _lies_in_order(t: ArrayType) -> bool:
    """Whether every tile is a range of the array in C order."""
    lead = _lead(t.shape)
    return all(cut == 1 for dim, cut in enumerate(t.cuts) if dim != lead)


def _parts_in_place(a: Array, limit_bytes: int) -> Iterator[FilePart]:
    """**Local.** The own share of the own tile, which holders of the same tile have other shares of."""
    tile, box = a.tile, box_of(a.type, a.comm.rank)
    if tile is None or box is None or not tile.size:
        return
    same = [rank for rank in sorted(a.mesh.ranks) if box_of(a.type, rank) == box]
    turn = same.index(a.comm.rank)
    if not a.shape:
        if turn == 0:
            yield FilePart(0, np.asarray(a.memory.host(tile)))
        return
    lead = _lead(a.shape)
    n, inner = tile.shape[lead], math.prod(a.shape[lead + 1 :])
    lo, hi = (n * i // len(same) for i in (turn, turn + 1))
    mine = tile[(slice(None),) * lead + (slice(lo, hi),)]
    first = (box[lead][0] + lo) * inner
    for at, piece in _pieces(mine, limit_bytes):
        values = np.ascontiguousarray(a.memory.host(piece))
        yield FilePart(first + at, values)


def _pieces(tile: Tile, most_bytes: int) -> Iterator[tuple[int, Tile]]:
    """A tile in pieces, each a range of it in C order, and where that begins."""
    if tile.nbytes <= most_bytes or not tile.size:
        if tile.size:
            yield 0, tile
        return
    dim = _lead(tile.shape)
    inner = math.prod(tile.shape[dim + 1 :])
    n = max(1, most_bytes // (inner * tile.dtype.itemsize))
    for at in range(0, tile.shape[dim], n):
        part = tile[(slice(None),) * dim + (slice(at, at + n),)]
        for start, piece in _pieces(part, most_bytes):
            yield at * inner + start, piece


def _blocks(shape: Sequence[int], itemsize: int, most_bytes: int, size: int) -> Iterator[Box]:
    """Boxes that are ranges of an array in C order, ``most_bytes`` at most on each of ``size`` ranks.

    >>> [*_blocks((5, 3), 8, 48, 2)]
    [((0, 4), (0, 3)), ((4, 5), (0, 3))]
    >>> [*_blocks((2, 3), 8, 16, 1)]
    [((0, 1), (0, 2)), ((0, 1), (2, 3)), ((1, 2), (0, 2)), ((1, 2), (2, 3))]
    """

    def below(box: Box, dim: int) -> Iterator[Box]:
        inner = math.prod(shape[dim + 1 :]) * itemsize
        if inner > most_bytes and dim + 1 < len(shape):
            for i in range(shape[dim]):
                yield from below((*box, (i, i + 1)), dim + 1)
            return
        n = max(1, most_bytes // max(1, inner)) * size
        rest = tuple((0, k) for k in shape[dim + 1 :])
        for lo in range(0, shape[dim], n):
            yield (*box, (lo, min(shape[dim], lo + n)), *rest)

    if 0 not in shape:
        yield from below((), 0)


def _rows(shape: Sequence[int], t: ArrayType, mesh: Mesh) -> ArrayType:
    """The type of a range in C order whose elements all ranks of a line hold, one behind the other."""
    lead = _lead(shape)
    dims = [(whole(mesh, "x"),) if dim == lead else () for dim in range(len(shape))]
    return ArrayType(mesh, t.dtype, tuple(shape), tuple(dims))


def _moved_part(a: Array, box: Box, room: int) -> FilePart:
    """**Collective.** Cut a block over all ranks, in order; the own part of it."""
    t = _rows([hi - lo for lo, hi in box], a.type, line_mesh(a.comm.size))
    tile = take_block(a, box, t, room)
    own = box_of(t, a.comm.rank)
    steps = [math.prod(a.shape[dim + 1 :]) for dim in range(a.ndim)]
    if tile is None or own is None:
        return FilePart(0, np.empty(0, a.dtype))
    first = sum((lo + at) * n for (lo, _), (at, _), n in zip(box, own, steps, strict=True))
    return FilePart(first, tile)


def take_block(a: Array, box: Box, t: ArrayType, room: int) -> Tile | None:
    """**Collective.** Bring a box of an array to a type of its own; the own tile of that.

    ``room`` is what messages may take on the way.
    """
    out = a.new(t, new_tile(a, t))
    if not t.global_elems:
        return out.tile
    of, to = [range(lo, hi) for lo, hi in box], [range(hi - lo) for lo, hi in box]
    ends = sides_of(a.type, t, links_of_ranges(a.type, of, t, to))

    def work(x: Tiled, made: Tiled) -> tuple[None, int]:
        return None, traffic().select(x.comm, *ends, x.tile, made.tile, room)

    traffic().perform(ElementExchange("write", a.type, t), work, (a, out))
    return out.tile


# Arrays beside each other, as the columns of a table.


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
        here = (as_plain(resolve_pending(one)).to_device("cpu") for one in arrays)
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
    if file_kind(one.dtype) not in "biuf":
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
