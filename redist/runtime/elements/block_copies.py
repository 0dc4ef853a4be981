"""Copy blocks from tile to tile: regular ones as strided copies, lists row by row or by NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.tiles import Ints
from redist.runtime.copies.addresses import address_of
from redist.runtime.copies.copy_list import BufferCopy, CopyList
from redist.runtime.copies.gpu_arrays import indices_for, strided_view
from redist.runtime.copies.kernels import MAX_DIMS, kernels
from redist.runtime.copies.strided import Strided, canonical
from redist.runtime.index_sets.held import (
    Comb,
    CommonPart,
    Positions,
    as_slice,
    cut,
    list_positions,
)
from redist.runtime.schedule.compiler import STREAM_BYTES

Tile = NDArray[Any]
Block = tuple[CommonPart, ...]

ROW_BYTES = 256
"""Parts of a list from this size on are copied one by one; of smaller ones NumPy takes many."""
MOST_ROWS = 2**12
"""This many are prepared at a time."""


class BlockCopies:
    """The regular blocks of a rank's tile, by the rank they come from: made once, run often."""

    __slots__ = ("_moves", "_ranks", "received_bytes")

    def __init__(
        self,
        to: Tile,
        tiles: Mapping[int, Tile],
        blocks: Mapping[int, list[Block]],
        received_bytes: int,
    ) -> None:
        self._ranks, self.received_bytes = tuple(blocks), received_bytes
        moves = [
            _move(to, tiles[rank], block, number)
            for number, (rank, own) in enumerate(blocks.items(), 1)
            for block in own
        ]
        self._moves = CopyList.of(moves, sum(move.form.n_bytes for move in moves) >= STREAM_BYTES)

    def run(self, to: Tile, tiles: Mapping[int, Tile]) -> None:
        """Copy, between tiles of the same shapes and strides."""
        bases = [address_of(to), *(address_of(tiles[rank]) for rank in self._ranks)]
        self._moves.run(np.array(bases, dtype=np.uintp))


def copy_listed(to: Tile, of: Tile, block: Block, most_bytes: int) -> None:
    """Copy a block that has lists of positions, with at most this much memory on the way."""
    if not _copy_rows(to, of, block, max(1, min(MOST_ROWS, most_bytes // 256))):
        for part in cut(block, max(1, most_bytes // to.dtype.itemsize)):
            write(to, part, read(of, part))


def is_regular(block: Block) -> bool:
    """Whether a block is one strided copy."""
    return all(piece.is_sliced for piece in block)


def _move(to: Tile, of: Tile, block: Block, number: int) -> BufferCopy:
    there = open_view(to, [piece.target for piece in block])
    here = open_view(of, [piece.source for piece in block])
    form = _form(there, here)
    return BufferCopy(
        0, address_of(there) - address_of(to), number, address_of(here) - address_of(of), form
    )


def _form(there: Tile, here: Tile) -> Strided:
    strides = np.broadcast_to(here, there.shape).strides
    return canonical(there.shape, there.dtype.itemsize, there.strides, strides)


def _copy_rows(to: Tile, of: Tile, block: Block, most_rows: int) -> bool:
    """Copy one row for each position of a list, or each pair of two; whether that is quick."""
    listed = [dim for dim, piece in enumerate(block) if not piece.is_sliced]
    if kernels() is None:
        return False
    rest = [
        (range(1), range(1)) if dim in listed else (piece.source, piece.target)
        for dim, piece in enumerate(block)
    ]
    there, here = open_view(to, [b for _, b in rest]), open_view(of, [a for a, _ in rest])
    form = _form(there, here)
    if form.n_bytes < ROW_BYTES or len(form.dims) > MAX_DIMS:
        return False
    start = address_of(there) - address_of(to), address_of(here) - address_of(of)
    bases = np.array([address_of(to), address_of(of)], dtype=np.uintp)
    streams = to.nbytes >= STREAM_BYTES
    for places in _places(to, of, block, listed, most_rows):
        rows = np.zeros((len(places[0]), 6 + 3 * MAX_DIMS), dtype=np.int64)
        rows[:, 1], rows[:, 3] = places[0] + start[0], places[1] + start[1]
        rows[:, 2] = 1
        rows[:, 4], rows[:, 5] = form.block, len(form.dims)
        for k, dim in enumerate(form.dims):
            rows[:, [6 + k, 6 + MAX_DIMS + k, 6 + 2 * MAX_DIMS + k]] = dim
        CopyList(rows, address_of(rows), streams).run(bases)
    return True


def _places(
    to: Tile, of: Tile, block: Block, listed: Sequence[int], most_rows: int
) -> Iterator[tuple[Ints, Ints]]:
    """Byte offsets of rows in both tiles, some at a time."""
    offsets = []
    for dim in listed:
        piece = block[dim]
        source = list_positions(piece.source)
        source = source if piece.which is None else source[piece.which]
        target = list_positions(piece.target)
        source = source if len(source) == len(target) else np.broadcast_to(source, target.shape)
        offsets.append((target * to.strides[dim], source * of.strides[dim]))
    *outer, (last_to, last_of) = offsets
    for pairs in itertools.product(*(zip(*pair, strict=True) for pair in outer)):
        far = sum(int(a) for a, _ in pairs), sum(int(b) for _, b in pairs)
        for lo in range(0, len(last_to), most_rows):
            part = slice(lo, lo + most_rows)
            yield last_to[part] + far[0], last_of[part] + far[1]


def read(tile: Tile, block: Block) -> Tile:
    """A block of a source tile; a view where it can be one."""
    chosen = [piece.source for piece in block]
    out = open_view(tile, [None if isinstance(one, np.ndarray) else one for one in chosen])
    dim = 0
    for one in chosen:
        if isinstance(one, np.ndarray):
            out = out.take(indices_for(tile, one), axis=dim)
        dim += 2 if isinstance(one, Comb) else 1
    return out.reshape([piece.n for piece in block]) if out.ndim > len(block) else out


def write(tile: Tile, block: Block, values: Tile) -> None:
    """Fill a block of a target tile; dims of size 1 stretch."""
    for dim, piece in enumerate(block):
        if piece.which is not None:
            values = values.take(indices_for(tile, piece.which), axis=dim)
    chosen: list[Any] = [piece.target for piece in block]
    if not any(isinstance(one, np.ndarray) for one in chosen):
        shape: list[int] = []
        for size, one in zip(values.shape, chosen, strict=True):
            shape += [one.teeth, one.n] if isinstance(one, Comb) else [size]
        open_view(tile, chosen)[...] = values.reshape(shape)
    elif sum(not isinstance(one, range) for one in chosen) == 1:
        tile[
            tuple(
                as_slice(one) if isinstance(one, range) else indices_for(tile, one)
                for one in chosen
            )
        ] = values
    else:
        lists = np.ix_(*map(list_positions, chosen))
        tile[tuple(indices_for(tile, one) for one in lists)] = values


def open_view(tile: Tile, chosen: Iterable[Positions | None]) -> Tile:
    """A view of ranges and combs; None takes a dim whole, a comb becomes two dims, teeth and tooth."""
    chosen = list(chosen)
    index: list[Any] = [as_slice(one) if isinstance(one, range) else slice(None) for one in chosen]
    out: Tile = tile[(*index, Ellipsis)]  # with the dots it is a view, without dims too
    if not any(isinstance(one, Comb) for one in chosen):
        return out
    out = out[tuple(slice(one.at if isinstance(one, Comb) else 0, None) for one in chosen)]
    shape: list[int] = []
    strides: list[int] = []
    for one, size, stride in zip(chosen, out.shape, out.strides, strict=True):
        shape += [one.teeth, one.n] if isinstance(one, Comb) else [size]
        strides += [one.step * stride, stride] if isinstance(one, Comb) else [stride]
    made: Tile = strided_view(out, tuple(shape), tuple(strides))
    return made
