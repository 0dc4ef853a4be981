"""A list of copies as the tables of moves.cu: rows, the shapes of their tiles, and where they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.cuda.kernels.bits import BlockDim
from redist.runtime.cuda.kernels.blocking import BlockShape, Tuning, cell_shape, shape_of
from redist.runtime.cuda.kernels.chains import ReductionChain
from redist.runtime.cuda.kernels.pieces import GpuPiece, pieces_of
from redist.runtime.cuda.kernels.records import CELLS, KIND_AT, LOOSE, MAX_GROUP, MEMBER, ROW, SHAPE

# Pieces as rows for the kernel: joined where they interleave, and where they read the same.


_FAR = 2**61

Row = tuple[tuple[BlockDim, ...], list[GpuPiece]]
"""The dims and the pieces of a row."""


def rows_of(pieces: Iterable[GpuPiece], tuning: Tuning, folds: bool) -> Iterator[Row]:
    """Rows of all pieces; what goes to several places is read once, unless the kernel ``folds``.

    >>> same = [GpuPiece(dst, 0, 0, 0, 256, (), 4) for dst in (1, 2, 3)]
    >>> [[piece.dst for piece in pieces] for _, pieces in rows_of(same, Tuning(), folds=False)]
    [[1, 2, 3]]
    >>> between = [GpuPiece(dst, 0, 0, 16 * dst, 16, (BlockDim(8, 16, 64),), 4) for dst in (1, 2, 3)]
    >>> [(dims[-1].in_group, len(pieces)) for dims, pieces in rows_of(between, Tuning(), folds=False)]
    [(True, 3)]
    """
    grouped = _group_pieces(pieces, tuning)
    return grouped if folds else _fan_out(grouped)


def _group_pieces(pieces: Iterable[GpuPiece], tuning: Tuning) -> Iterator[Row]:
    """Dims and pieces of every row: pieces of short runs that interleave become one row."""
    alike: dict[Any, list[GpuPiece]] = {}
    for k, piece in enumerate(pieces):
        short = piece.dims and piece.block < tuning.shared_below and piece.log < LOOSE
        key = (piece.block, piece.dims, piece.log, len(piece.more)) if short else k
        alike.setdefault(key, []).append(piece)
    for same in alike.values():
        if len(same) > 1:
            yield from _interleave_rows(same)
        else:
            yield same[0].dims, same


def _interleave_rows(same: list[GpuPiece]) -> Iterator[Row]:
    """Rows of pieces that are alike, together where they lie between each other's runs."""
    dims = same[0].dims
    for side in (0, 2):
        strides = [abs(axis.src if side else axis.dst) for axis in dims]
        gap = min(filter(None, strides), default=0)
        same = sorted(same, key=lambda piece: piece.ends[side : side + 2])
        sets: list[list[GpuPiece]] = []
        for piece in same:
            start = sets[-1][0].ends if sets else None
            near = start is not None and start[side] == piece.ends[side]
            if start and near and 0 < piece.ends[side + 1] - start[side + 1] < gap:
                sets[-1].append(piece)
            else:
                sets.append([piece])
        if len(sets) < len(same):
            for together in sets:
                yield from _join_pieces(dims, together, side)
            return
    for piece in same:
        yield dims, [piece]


def _join_pieces(dims: tuple[BlockDim, ...], together: list[GpuPiece], side: int) -> Iterator[Row]:
    """One row where the pieces are evenly spaced; else tables of up to MAX_GROUP pieces."""
    n = len(together)
    if n == 1:
        yield dims, together
        return
    one, two = together[0].ends, together[1].ends
    step = [b - a for a, b in zip(one, two, strict=True)]
    alike = len({*step[3::2]}) == 1 and not any(step[::2])  # the sources of a chain share a stride
    if alike and all(p.ends == tuple(a + i * s for a, s in zip(one, step, strict=True))
           for i, p in enumerate(together)):  # fmt: skip
        yield (*dims, BlockDim(n, step[1], step[3])), together[:1]
        return
    near = max(1, together[1].ends[side + 1] - together[0].ends[side + 1])
    for k in range(0, n, MAX_GROUP):
        part = together[k : k + MAX_GROUP]
        far = (_FAR, near) if side else (near, _FAR)
        group = BlockDim(len(part), *far, in_group=True)
        yield ((*dims, group), part) if len(part) > 1 else (dims, part)


def _fan_out(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of one piece each that read the same become one, with the pieces as its targets."""
    alike: dict[Any, Row] = {}
    for k, (dims, group) in enumerate(rows):
        piece = group[0]
        alone = len(group) == 1 and not piece.more and piece.log != LOOSE
        same = (dims, piece.src, piece.src_offset, piece.block, piece.log)
        alike.setdefault(same if alone else k, (dims, []))[1].extend(group)
    yield from alike.values()


MAX_HINTS = 2**16


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """What the kernel reads, and which kinds of tiles (a set of bits) there are.

    ``is_ragged`` says that some are ragged, ``fans_out`` that some rows have several targets.
    """

    rows: NDArray[Any]
    shapes: NDArray[Any]
    members: NDArray[Any]
    hints: NDArray[np.uint32]
    hint_shift: int
    n_tiles: int
    kinds: int
    is_ragged: bool
    fans_out: bool


def tables_of(
    moves: Iterable[BufferCopy | ReductionChain],
    phases: Sequence[int],
    tuning: Tuning,
    least: int = 1,
    folds: bool = False,
) -> Tables:
    """Tables for buffers that lie ``phases`` bytes past multiples of 16.

    Elements of ``least`` bytes stay whole. What goes to several places is read once, and small elements
    are transposed in cells, unless the kernel ``folds``.
    """
    chains = [
        move if isinstance(move, ReductionChain) else ReductionChain(move, ()) for move in moves
    ]
    pieces = (piece for chain in chains for piece in pieces_of(chain, phases, least, tuning, folds))
    shapes: list[Any] = []
    numbers: dict[int, int] = {}
    rows: list[Any] = []
    members: list[Any] = []
    first = kinds = 0
    is_ragged = has_fan = False
    for dims, group in rows_of(pieces, tuning, folds):
        piece = group[0]
        shape: BlockShape = (
            cell_shape(piece.log, dims, tuning)
            if piece.log in CELLS
            else shape_of(piece.log, piece.block, dims, tuning)
        )
        number = numbers.setdefault(id(shape), len(shapes))
        if number == len(shapes):
            shapes.append(shape)
        rows.append((first, number | shape.kind << KIND_AT, len(members), len(group)))
        n = len(piece.sources)
        members += [
            (m.dst_offset, m.sources[k][1], m.dst, m.sources[k][0], n, n > 1)
            for k in range(n)
            for m in group
        ]
        first += shape.n_tiles
        kinds |= 1 << shape.kind
        is_ragged |= shape.is_ragged
        has_fan |= len(group) > 1 and not any(dim.in_group for dim in dims)
    if first >= 2**31 or len(shapes) >= 1 << KIND_AT:
        raise TransferError(
            f"cannot copy {first} tiles of {len(shapes)} shapes in one launch: a GPU counts to "
            f"{2**31} and {1 << KIND_AT}; move fewer elements at once"
        )
    rows.append((first, 0, 0, 0))
    table = np.array(rows, ROW)
    shift = max(0, (first // MAX_HINTS).bit_length())
    hints = np.searchsorted(table["first"][1:], np.arange(0, first, 1 << shift), "right")
    return Tables(
        table,
        np.array([shape.record for shape in shapes], SHAPE),
        np.array(members, MEMBER),
        hints.astype(np.uint32),
        shift,
        first,
        kinds,
        is_ragged,
        has_fan,
    )
