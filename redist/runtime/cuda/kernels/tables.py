"""A list of copies as the tables of moves.cu: rows, the shapes of their tiles, and where they lie."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.cuda.kernels.blocking import BlockShape, Tuning, shape_of
from redist.runtime.cuda.kernels.cells import cell_shape
from redist.runtime.cuda.kernels.chains import ReductionChain
from redist.runtime.cuda.kernels.pieces import pieces_of
from redist.runtime.cuda.kernels.records import CELLS, KIND_AT, MEMBER, ROW, SHAPE
from redist.runtime.cuda.kernels.rows import rows_of

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
