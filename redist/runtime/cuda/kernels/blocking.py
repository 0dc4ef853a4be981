"""How a strided copy is cut into tiles for a GPU: the shapes that moves.cu reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from redist.runtime.cuda.kernels.bits import (
    LINE,
    BlockDim,
    bits_in,
    extents_of,
    order_of,
    pad_bits,
    places_in,
    write_bits,
    write_digits,
    write_fields,
    write_slots,
    writes_parts,
)
from redist.runtime.cuda.kernels.records import (
    CELLS,
    DIRECT,
    GROUPED,
    LOOSE,
    SHAPE,
    SHARED,
    THREAD_BITS,
)


@dataclass(frozen=True, slots=True)
class BlockShape:
    """A record for the kernel, its kind and its number of tiles.

    ``is_ragged`` says that its tiles pass through shared memory and write parts of sectors.
    """

    record: Any
    kind: int
    n_tiles: int
    is_ragged: bool = False


@dataclass(frozen=True, slots=True)
class Tuning:
    """What may be chosen freely; the defaults were the fastest on an H200.

    ``turns``: log2 of the words a thread moves in a tile, for words of 1, 2, 4, 8, 16 bytes.
    ``shared_below``: runs of fewer bytes pass through shared memory where the order changes.
    ``waves``: blocks launched for each that fits (0: one for each tile), where all tiles are
    direct, where some pass through shared memory, and where such tiles write parts of sectors: what
    is beside them must be written soon, and blocks that go on to other tiles drift apart.
    ``loose_from``: bytes of runs from which on the kernel aligns those that lie at odd addresses.
    """

    turns: tuple[int, int, int, int, int] = (4, 4, 4, 3, 2)
    shared_below: int = 128
    waves: tuple[int, int, int] = (0, 1, 0)
    loose_from: int = 1024


@lru_cache(maxsize=4096)
def shape_of(log: int, block: int, dims: tuple[BlockDim, ...], tuning: Tuning) -> BlockShape:
    """Tiles of a copy in words of ``1 << log`` bytes of runs of ``block`` bytes over ``dims``.

    >>> shape_of(2, 4, (BlockDim(64, 4, 256), BlockDim(64, 256, 4)), Tuning()).n_tiles
    1
    """
    word = 1 << min(log, 4)
    n_words = (block + LINE - 2) // word + 1 if log == LOOSE else block // word
    axes = [BlockDim(n_words, word, word, False, True, log == LOOSE)] if n_words > 1 else []
    axes += [axis for axis in dims if axis.count > 1 or axis.in_group]
    to, of = order_of([a.dst for a in axes]), order_of([a.src for a in axes])
    how = DIRECT if log == LOOSE else _how(axes, to, of, block, tuning)
    if how == DIRECT:
        of = to
    n_bits = THREAD_BITS + tuning.turns[min(log, 4)]
    extents = extents_of(axes, to, of, n_bits, LINE // word)
    kind = 3 * log + how
    record = np.zeros((), SHAPE)
    record["kind"], record["run"] = kind, block
    fields = write_fields(record, axes, extents, n_bits)
    dst, src = (pad_bits(bits_in(order, extents), n_bits) for order in (to, of))
    write_bits(record["dst"], dst, axes, fields, [a.dst for a in axes])
    write_bits(record["src"], src, axes, fields, [a.src for a in axes])
    for side, turn in ((src, 1), (dst, 2)):
        if any(bit is not None and axes[bit[0]].in_group for bit in side[THREAD_BITS:]):
            record["group_turns"] |= turn
    if how != DIRECT:
        write_slots(record, places_in(dst, src), log)
    n_tiles = write_digits(record, to, axes, extents, fields)
    return BlockShape(record, kind, n_tiles, how != DIRECT and writes_parts(axes, to, extents))


def _how(axes: list[BlockDim], to: list[int], of: list[int], block: int, tuning: Tuning) -> int:
    if any(axis.in_group for axis in axes):
        return GROUPED
    first = [next((k for k in order if not axes[k].is_run), None) for order in (to, of)]
    return SHARED if first[0] != first[1] and block < tuning.shared_below else DIRECT


# Transposes of elements of 1 or 2 bytes, in words of 4: square cells, turned by one thread each.


CELL_LOG = 2
CELL_BYTES = 1 << CELL_LOG
"""Of a word of cells: as many on either side of a cell."""
LEAST_CELLS = 16
"""Elements along either dim below which cells do not pay."""


@lru_cache(maxsize=4096)
def cell_shape(log: int, dims: tuple[BlockDim, ...], tuning: Tuning) -> BlockShape:
    """Tiles of a transpose of elements of 1 or 2 bytes, in words of 4; ``log`` is of CELLS.

    A cell is ``m`` x ``m`` elements, a word long on either side. A thread loads the ``m`` words of a cell
    as they lie in the source, one under another, and turns them into those of the destination, which
    pass through shared memory as other words do. Places count elements; a word has a bit less for each
    of theirs that lies inside it.

    >>> cell_shape(6, (BlockDim(128, 1, 128), BlockDim(128, 128, 1)), Tuning()).n_tiles
    1
    """
    item = CELLS[log]
    inside = (CELL_BYTES // item).bit_length() - 1
    axes = [axis for axis in dims if axis.count > 1]
    to, of = order_of([a.dst for a in axes]), order_of([a.src for a in axes])
    i, j = to[0], of[0]
    n_bits = THREAD_BITS + tuning.turns[CELL_LOG]
    extents = extents_of(axes, to, of, n_bits + inside, LINE // item)
    kind = 3 * log + SHARED
    record = np.zeros((), SHAPE)
    record["kind"], record["run"] = kind, item
    fields = write_fields(record, axes, extents, n_bits + inside)
    dst = [bit for bit in bits_in(to, extents) if bit not in [(i, b) for b in range(inside)]]
    dst = pad_bits(dst, n_bits)
    within = [(axis, b) for axis in (i, j) for b in range(inside)]
    src = pad_bits([bit for bit in bits_in(of, extents) if bit not in within], n_bits - inside)
    # The words of a cell are the first turns of a thread: rows of the source, then of the destination.
    before, after = src[:THREAD_BITS], src[THREAD_BITS:]
    loaded = [*before, *((i, b) for b in range(inside)), *after]
    turned = [*before, *((j, b) for b in range(inside)), *after]
    write_bits(record["dst"], dst, axes, fields, [a.dst for a in axes])
    write_bits(record["src"], loaded, axes, fields, [a.src for a in axes])
    write_slots(record, places_in(dst, turned), CELL_LOG)
    n_tiles = write_digits(record, to, axes, extents, fields)
    return BlockShape(record, kind, n_tiles, writes_parts(axes, to, extents))


def fast_dims(item: int, dims: Sequence[BlockDim]) -> tuple[int, int] | None:
    """The dims that are fast in the destination and in the source, if cells of ``item`` bytes fit both.

    >>> fast_dims(1, (BlockDim(64, 1, 64), BlockDim(64, 64, 1)))
    (0, 1)
    >>> fast_dims(1, (BlockDim(64, 1, 63), BlockDim(63, 64, 1))) is None
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


@dataclass(frozen=True, slots=True)
class CellCut:
    """A part of a piece: its first element and how many there are, along the two fast dims."""

    start: tuple[int, int]
    count: tuple[int, int]
    in_cells: bool


def cut_cells(
    item: int, to: int, sources: Sequence[int], counts: tuple[int, int]
) -> Iterator[CellCut]:
    """The part that is cells, and the strips around it that are not; nothing if cells do not pay.

    ``to`` and ``sources`` are where the piece begins, past multiples of a word.

    >>> [cut.count for cut in cut_cells(1, 0, [0], (64, 66))]
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
