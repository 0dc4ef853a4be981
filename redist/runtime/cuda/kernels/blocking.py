"""How a strided copy is cut into tiles for a GPU: the shapes that moves.cu reads."""

from __future__ import annotations

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
from redist.runtime.cuda.kernels.records import DIRECT, GROUPED, LOOSE, SHAPE, SHARED, THREAD_BITS


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
