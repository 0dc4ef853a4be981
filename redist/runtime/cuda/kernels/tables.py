"""Moves as the tables of moves.cu: cut where alignment changes, joined where they interleave or fan out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.cuda.kernels.blocking import (
    CELL_BYTES,
    CELLS,
    LOOSE,
    SHAPE,
    BlockDim,
    BlockShape,
    Tuning,
    cell_shape,
    shape_of,
)
from redist.runtime.cuda.kernels.chains import ReductionChain

MAX_DIMS = 6
MAX_GROUP = 64
MAX_HINTS = 2**16
MAX_LOOSE = 2**35
"""Bytes of a loose run: the kernel counts its words of 16 bytes in 32 bits."""
WORD = 16
"""Bytes of the widest word."""
LEAST_CELLS = 16
"""Elements along either dim below which cells do not pay."""
KIND_AT = 24
"""In a row the kind of its tiles stands above the number of their shape."""
_FAR = 2**61
_ROW = np.dtype([("first", "u4"), ("shape", "u4"), ("member", "u4"), ("n_members", "u4")])
_MEMBER = np.dtype(
    [
        ("dst_offset", "i8"),
        ("src_offset", "i8"),
        ("dst", "u4"),
        ("src", "u4"),
        ("n_sources", "u4"),
        ("fresh", "u4"),
    ]
)


@dataclass(frozen=True, slots=True)
class GpuPiece:
    """A copy in words of ``1 << log`` bytes; ``more`` has the further sources of a chain."""

    dst: int
    dst_offset: int
    src: int
    src_offset: int
    block: int
    dims: tuple[BlockDim, ...]
    log: int
    more: tuple[tuple[int, int], ...] = ()

    @property
    def sources(self) -> tuple[tuple[int, int], ...]:
        """Buffers and offsets that are read."""
        return (self.src, self.src_offset), *self.more

    @property
    def ends(self) -> tuple[int, ...]:
        """Buffers and offsets: where it lies."""
        return self.dst, self.dst_offset, *itertools.chain(*self.sources)


@dataclass(frozen=True, slots=True)
class CellCut:
    """A part of a piece: its first element and how many there are, along the two fast dims."""

    start: tuple[int, int]
    count: tuple[int, int]
    in_cells: bool


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
    pieces = [piece for chain in chains for piece in _cut(chain, phases, least, tuning, folds)]
    shapes: list[Any] = []
    numbers: dict[int, int] = {}
    rows: list[Any] = []
    members: list[Any] = []
    first = kinds = 0
    is_ragged = has_fan = False
    grouped = _group_pieces(pieces, tuning)
    for dims, group in grouped if folds else _fan_out(grouped):
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
    table = np.array(rows, _ROW)
    shift = max(0, (first // MAX_HINTS).bit_length())
    hints = np.searchsorted(table["first"][1:], np.arange(0, first, 1 << shift), "right")
    return Tables(
        table,
        np.array([shape.record for shape in shapes], SHAPE),
        np.array(members, _MEMBER),
        hints.astype(np.uint32),
        shift,
        first,
        kinds,
        is_ragged,
        has_fan,
    )


def _power(*numbers: int) -> int:
    """The largest power of two, up to a word, that divides all."""
    bits = WORD
    for number in numbers:
        bits |= number
    return bits & -bits


def _cut(
    chain: ReductionChain, phases: Sequence[int], least: int, tuning: Tuning, folds: bool
) -> Iterator[GpuPiece]:
    """A move as pieces of at most MAX_DIMS dims, each in the widest words that fit."""
    move = chain.move
    if not move.form.n_bytes:
        return
    dims = [BlockDim(*dim) for dim in move.form.dims if dim[0] != 1]
    outer, inner = dims[:-MAX_DIMS], tuple(dims[-MAX_DIMS:])
    for place in itertools.product(*(range(axis.count) for axis in outer)):
        to = sum(i * axis.dst for i, axis in zip(place, outer, strict=True))
        of = sum(i * axis.src for i, axis in zip(place, outer, strict=True))
        whole = GpuPiece(
            move.dst,
            move.dst_offset + to,
            move.src,
            move.src_offset + of,
            move.form.block,
            inner,
            0,
            tuple((src, offset + of) for src, offset in chain.more),
        )
        yield from _align_piece(whole, phases, least, tuning, folds)


def _align_piece(
    piece: GpuPiece, phases: Sequence[int], least: int, tuning: Tuning, folds: bool
) -> Iterator[GpuPiece]:
    """A piece in wide words, with a head and a tail of narrow ones where they pay."""
    to = piece.dst_offset + phases[piece.dst]
    of = [offset + phases[src] for src, offset in piece.sources]
    strides = [stride for axis in piece.dims for stride in (axis.dst, axis.src)]
    plain = _power(piece.block, to, *of, *strides)
    wide = _power(*(to - at for at in of), *strides)
    head = -to % wide
    if plain < least:
        raise TransferError(
            f"cannot combine elements of {least} bytes on the GPU: they lie at multiples of {plain}"
        )
    is_long = piece.block >= tuning.loose_from
    if plain == 1 and wide < WORD and is_long and least == 1 and not piece.more:
        for at in range(0, piece.block, MAX_LOOSE):
            yield _part(piece, at, min(MAX_LOOSE, piece.block - at), LOOSE)
        return
    cells = [] if folds else list(_cells(piece, plain, to, of))
    if cells:
        yield from cells
        return
    if wide <= plain or piece.block < max(64, 4 * wide) or head % least:
        yield replace(piece, log=plain.bit_length() - 1)
        return
    body = (piece.block - head) // wide * wide
    at = 0
    for n_bytes in (head, body, piece.block - head - body):
        if n_bytes:
            word = _power(n_bytes, to + at, *(x + at for x in of), *strides)
            yield _part(piece, at, n_bytes, word.bit_length() - 1)
        at += n_bytes


def _cells(piece: GpuPiece, plain: int, to: int, of: Sequence[int]) -> Iterator[GpuPiece]:
    """A transpose of small elements in cells, with strips around them; nothing if it is none."""
    fast = _fast_dims(piece.block, piece.dims) if plain == piece.block else None
    if fast is None:
        return
    log = next(log for log, item in CELLS.items() if item == piece.block)
    counts = piece.dims[fast[0]].count, piece.dims[fast[1]].count
    for cut in _cut_cells(piece.block, to, of, counts):
        dims = list(piece.dims)
        there = here = 0
        for k, start, count in zip(fast, cut.start, cut.count, strict=True):
            there, here = there + start * dims[k].dst, here + start * dims[k].src
            dims[k] = replace(dims[k], count=count)
        yield replace(
            piece,
            dst_offset=piece.dst_offset + there,
            src_offset=piece.src_offset + here,
            dims=tuple(dims),
            log=log if cut.in_cells else plain.bit_length() - 1,
            more=tuple((src, offset + here) for src, offset in piece.more),
        )


def _part(piece: GpuPiece, at: int, n_bytes: int, log: int) -> GpuPiece:
    """A piece of bytes of every run of a piece."""
    return replace(
        piece,
        dst_offset=piece.dst_offset + at,
        src_offset=piece.src_offset + at,
        block=n_bytes,
        log=log,
        more=tuple((src, offset + at) for src, offset in piece.more),
    )


def _fast_dims(item: int, dims: Sequence[BlockDim]) -> tuple[int, int] | None:
    """The dims that are fast in the destination and in the source, if cells of ``item`` bytes fit both.

    >>> _fast_dims(1, (BlockDim(64, 1, 64), BlockDim(64, 64, 1)))
    (0, 1)
    >>> _fast_dims(1, (BlockDim(64, 1, 63), BlockDim(63, 64, 1))) is None
    True
    """
    to = [k for k, dim in enumerate(dims) if dim.dst == item]
    of = [k for k, dim in enumerate(dims) if dim.src == item]
    if item not in CELLS.values() or len(to) != 1 or len(of) != 1 or to == of:
        return None
    rest_to = (dim.dst for k, dim in enumerate(dims) if k != to[0])
    rest_of = (dim.src for k, dim in enumerate(dims) if k != of[0])
    if any(stride % CELL_BYTES for stride in (*rest_to, *rest_of)):
        return None
    return to[0], of[0]


def _cut_cells(
    item: int, to: int, sources: Sequence[int], counts: tuple[int, int]
) -> Iterator[CellCut]:
    """The part that is cells, and the strips around it that are not; nothing if cells do not pay.

    ``to`` and ``sources`` are where the piece begins, past multiples of a word.

    >>> [cut.count for cut in _cut_cells(1, 0, [0], (64, 66))]
    [(64, 64), (64, 2)]
    """
    m = CELL_BYTES // item
    if len({of % CELL_BYTES for of in sources}) > 1:
        return
    heads = [-start % CELL_BYTES // item for start in (to, sources[0])]
    bodies = [(n - head) // m * m for n, head in zip(counts, heads, strict=True)]
    if min(bodies) < LEAST_CELLS:
        return
    (a, b), (n_a, n_b) = heads, bodies
    yield CellCut((a, b), (n_a, n_b), True)
    strips = [
        CellCut((0, 0), (a, counts[1]), False),
        CellCut((a + n_a, 0), (counts[0] - a - n_a, counts[1]), False),
        CellCut((a, 0), (n_a, b), False),
        CellCut((a, b + n_b), (n_a, counts[1] - b - n_b), False),
    ]
    yield from (strip for strip in strips if all(strip.count))


Row = tuple[tuple[BlockDim, ...], list[GpuPiece]]
"""The dims and the pieces of a row."""


def _fan_out(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of one piece each that read the same become one, with the pieces as its targets."""
    alike: dict[Any, Row] = {}
    for k, (dims, group) in enumerate(rows):
        piece = group[0]
        alone = len(group) == 1 and not piece.more and piece.log != LOOSE
        same = (dims, piece.src, piece.src_offset, piece.block, piece.log)
        alike.setdefault(same if alone else k, (dims, []))[1].extend(group)
    yield from alike.values()


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
