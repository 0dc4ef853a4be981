"""Pieces as rows for the kernel: joined where they interleave, and where they read the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from redist.runtime.cuda.kernels.blocking import Tuning
from redist.runtime.cuda.kernels.extents import BlockDim
from redist.runtime.cuda.kernels.pieces import GpuPiece
from redist.runtime.cuda.kernels.records import LOOSE, MAX_GROUP

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
