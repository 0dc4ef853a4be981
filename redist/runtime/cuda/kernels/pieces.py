"""Copies as pieces for a GPU: of few dims, in the widest words that alignment allows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from redist.errors import TransferError
from redist.runtime.cuda.kernels.bits import BlockDim
from redist.runtime.cuda.kernels.blocking import Tuning, cut_cells, fast_dims
from redist.runtime.cuda.kernels.chains import ReductionChain
from redist.runtime.cuda.kernels.records import CELLS, LOOSE

MAX_DIMS = 6
MAX_LOOSE = 2**35
"""Bytes of a loose run: the kernel counts its words of 16 bytes in 32 bits."""
WORD = 16
"""Bytes of the widest word."""


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


def pieces_of(
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
    fast = fast_dims(piece.block, piece.dims) if plain == piece.block else None
    if fast is None:
        return
    log = next(log for log, item in CELLS.items() if item == piece.block)
    counts = piece.dims[fast[0]].count, piece.dims[fast[1]].count
    for cut in cut_cells(piece.block, to, of, counts):
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


def _power(*numbers: int) -> int:
    """The largest power of two, up to a word, that divides all."""
    bits = WORD
    for number in numbers:
        bits |= number
    return bits & -bits
