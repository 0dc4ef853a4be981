"""How a strided copy is cut into tiles for a GPU: the shapes that moves.cu reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import TransferError

THREAD_BITS = 8
MAX_TILE_DIMS = 10
MAX_BITS = 14
DIRECT, SHARED, GROUPED = range(3)
"""Straight copies; through shared memory; the same for rows that interleave."""

LOOSE = 5
"""In place of log2 of a word: long runs that lie anywhere. The kernel aligns what it writes."""

CELLS = {6: 1, 7: 2}
"""In place of log2 of a word: transposes of elements of so many bytes, in words of 4; see cell_shape."""

CELL_LOG = 2
CELL_BYTES = 1 << CELL_LOG
"""Of a word of cells: as many on either side of a cell."""

LINE = 128
SECTOR = 32
"""Bytes that memory is read and written in."""
NEVER = 0xFFFFFFFF
_FAR = 2**62
_DIM = np.dtype(
    [
        ("n", "u4"),
        ("magic", "u4"),
        ("shift", "u4"),
        ("full", "u4"),
        ("dst_step", "i8"),
        ("src_step", "i8"),
        ("last", "u4"),
        ("tracked", "u4"),
        ("unused", "u4", (2,)),
    ]
)
_BIT = np.dtype([("offset", "i8"), ("place", "u4"), ("slot", "u4")])
SHAPE = np.dtype(
    [
        ("kind", "u4"),
        ("n_dims", "u4"),
        ("limit", "u4"),
        ("guard", "u4"),
        ("tracked_at", "u4"),
        ("tracked_mask", "u4"),
        ("tracked_shift", "u4"),
        ("group_turns", "u4"),
        ("run", "i8"),
        ("unused", "i8"),
        ("dims", _DIM, (MAX_TILE_DIMS,)),
        ("src", _BIT, (MAX_BITS,)),
        ("dst", _BIT, (MAX_BITS,)),
    ]
)
"""As the structs of moves.cu."""


@dataclass(frozen=True, slots=True)
class BlockDim:
    """A dim of a copy: ``count`` steps of so many bytes; in a group, of one row to the next."""

    count: int
    dst: int
    src: int
    in_group: bool = False
    is_run: bool = False
    is_loose: bool = False

    @property
    def tracked(self) -> bool:
        """Whether the kernel has to know the place along this dim."""
        return self.in_group or self.is_loose


Bit = tuple[int, int]
"""A dim, and which bit of the place along it."""


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
    to, of = _order_of([a.dst for a in axes]), _order_of([a.src for a in axes])
    how = DIRECT if log == LOOSE else _how(axes, to, of, block, tuning)
    if how == DIRECT:
        of = to
    n_bits = THREAD_BITS + tuning.turns[min(log, 4)]
    extents = _extents_of(axes, to, of, n_bits, LINE // word)
    kind = 3 * log + how
    record = np.zeros((), SHAPE)
    record["kind"], record["run"] = kind, block
    fields = _write_fields(record, axes, extents, n_bits)
    dst, src = (_pad_bits(_bits_in(order, extents), n_bits) for order in (to, of))
    _write_bits(record["dst"], dst, axes, fields, [a.dst for a in axes])
    _write_bits(record["src"], src, axes, fields, [a.src for a in axes])
    for side, turn in ((src, 1), (dst, 2)):
        if any(bit is not None and axes[bit[0]].in_group for bit in side[THREAD_BITS:]):
            record["group_turns"] |= turn
    if how != DIRECT:
        _write_slots(record, _places_in(dst, src), log)
    n_tiles = _write_digits(record, to, axes, extents, fields)
    return BlockShape(record, kind, n_tiles, how != DIRECT and _writes_parts(axes, to, extents))


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
    to, of = _order_of([a.dst for a in axes]), _order_of([a.src for a in axes])
    i, j = to[0], of[0]
    n_bits = THREAD_BITS + tuning.turns[CELL_LOG]
    extents = _extents_of(axes, to, of, n_bits + inside, LINE // item)
    kind = 3 * log + SHARED
    record = np.zeros((), SHAPE)
    record["kind"], record["run"] = kind, item
    fields = _write_fields(record, axes, extents, n_bits + inside)
    dst = [bit for bit in _bits_in(to, extents) if bit not in [(i, b) for b in range(inside)]]
    dst = _pad_bits(dst, n_bits)
    within = [(axis, b) for axis in (i, j) for b in range(inside)]
    src = _pad_bits([bit for bit in _bits_in(of, extents) if bit not in within], n_bits - inside)
    # The words of a cell are the first turns of a thread: rows of the source, then of the destination.
    before, after = src[:THREAD_BITS], src[THREAD_BITS:]
    loaded = [*before, *((i, b) for b in range(inside)), *after]
    turned = [*before, *((j, b) for b in range(inside)), *after]
    _write_bits(record["dst"], dst, axes, fields, [a.dst for a in axes])
    _write_bits(record["src"], loaded, axes, fields, [a.src for a in axes])
    _write_slots(record, _places_in(dst, turned), CELL_LOG)
    n_tiles = _write_digits(record, to, axes, extents, fields)
    return BlockShape(record, kind, n_tiles, _writes_parts(axes, to, extents))


def _order_of(strides: Sequence[int]) -> list[int]:
    """Dims from the fastest on; repeated elements (stride 0) last."""
    return sorted(range(len(strides)), key=lambda k: abs(strides[k]) or _FAR)


def _how(axes: list[BlockDim], to: list[int], of: list[int], block: int, tuning: Tuning) -> int:
    if any(axis.in_group for axis in axes):
        return GROUPED
    first = [next((k for k in order if not axes[k].is_run), None) for order in (to, of)]
    return SHARED if first[0] != first[1] and block < tuning.shared_below else DIRECT


def _cap(count: int, least: int) -> int:
    """log2 of a tile's extent along a dim: large, with few idle places in the last tile."""
    top = _ceil_log(count)

    def used(log: int) -> float:
        return count / (-(-count >> log) << log)

    good = max(log for log in range(top + 1) if used(log) >= 0.8)
    low = min(top, _ceil_log(least))
    return good if good >= low else max(range(low, top + 1), key=used)


def _extents_of(
    axes: list[BlockDim], to: list[int], of: list[int], budget: int, least: int
) -> list[int]:
    """log2 of a tile's extent along every dim: long runs on both sides."""
    out = [0] * len(axes)
    good, most = [_cap(axis.count, least) for axis in axes], [_ceil_log(a.count) for a in axes]
    for caps in (good, most):
        while sum(out) < budget:
            best = None
            for order in (to, of):
                run = 0
                for k in order:
                    run += out[k]
                    if out[k] < caps[k]:
                        if best is None or run < best[0]:
                            best = (run, k)
                        break
            if best is None:
                break
            out[best[1]] += 1
    return out


def _ceil_log(n: int) -> int:
    """log2, rounded up."""
    return (n - 1).bit_length()


def _writes_parts(axes: Sequence[BlockDim], to: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether rows of a tile begin between sectors of the destination.

    >>> odd = [BlockDim(63, 4, 256), BlockDim(64, 252, 4)]
    >>> _writes_parts(odd, [0, 1], [5, 5]), _writes_parts(odd, [0, 1], [6, 5])
    (True, False)
    """
    run, is_whole = abs(axes[to[0]].dst) if to else 0, True
    for k in to:
        if is_whole and abs(axes[k].dst) == run:
            run *= axes[k].count
            is_whole = 1 << extents[k] >= axes[k].count
        elif axes[k].dst % SECTOR:
            return True
    return False


def _write_fields(record: Any, axes: list[BlockDim], extents: list[int], n_bits: int) -> list[int]:
    """Where in a word the place along every dim stands; a guard bit above each."""
    at, out, guard, limit = 0, [], 0, 0
    for axis, extent in zip(axes, extents, strict=True):
        out.append(at)
        if extent:
            limit |= (1 << extent) - 1 << at
            guard |= 1 << at + extent
            if axis.tracked:
                record["tracked_at"], record["tracked_mask"] = at, (1 << extent) - 1
            at += extent + 1
        if axis.tracked:
            record["tracked_shift"] = extent
    idle = n_bits - sum(extents)
    out.append(at)
    if idle:
        guard |= 1 << at + idle
    record["guard"], record["limit"] = guard, NEVER if idle else limit
    return out


def _bits_in(order: Sequence[int], extents: Sequence[int]) -> list[Bit | None]:
    """The bits of an element's number: dims in this order, the lowest bit of each first."""
    return [(axis, b) for axis in order for b in range(extents[axis])]


def _pad_bits(bits: list[Bit | None], n_bits: int) -> list[Bit | None]:
    """The same with idle bits (None) up to so many."""
    return bits + [None] * (n_bits - len(bits))


def _write_bits(
    record: Any,
    bits: Sequence[Bit | None],
    axes: Sequence[BlockDim],
    fields: Sequence[int],
    strides: Sequence[int],
) -> None:
    """What every bit adds on one side: to the offset, and to the place."""
    idle = 0
    for k, bit in enumerate(bits):
        if bit is None:
            record[k]["place"] = 1 << fields[-1] + idle
            idle += 1
        else:
            axis, b = bit
            record[k]["offset"] = 0 if axes[axis].in_group else strides[axis] << b
            record[k]["place"] = 1 << fields[axis] + b


def _places_in(dst: Sequence[Bit | None], src: Sequence[Bit | None]) -> list[int]:
    """Where each bit of the source's order stands in the destination's; idle ones in their order."""
    idle = iter([k for k, bit in enumerate(dst) if bit is None])
    at = {bit: k for k, bit in enumerate(dst)}
    return [next(idle) if bit is None else at[bit] for bit in src]


def _write_slots(record: Any, by_source: Sequence[int], log: int) -> None:
    """Slots in the destination's order, swizzled so that the source's order meets all banks."""
    n_bits = len(by_source)
    banks = range(max(0, 2 - log), 7 - log)
    lanes = by_source[: min(5, 7 - log)]
    free = [b for b in banks if b not in lanes]
    mixed = dict(zip((p for p in lanes if p >= banks.stop), free, strict=False))
    slots = [1 << p | (1 << mixed[p] if p in mixed else 0) for p in range(n_bits)]
    for k in range(n_bits):
        record["dst"][k]["slot"] = slots[k]
        record["src"][k]["slot"] = slots[by_source[k]]


def _write_digits(
    record: Any, order: list[int], axes: list[BlockDim], extents: list[int], fields: list[int]
) -> int:
    """How the number of a tile is read, the fastest dim first; the number of tiles."""
    total = math.prod(-(-axes[k].count >> extents[k]) for k in order)
    if total >= 2**31:
        raise TransferError(
            f"cannot copy {total} tiles in one launch: a GPU counts to {2**31}; "
            "move fewer elements at once"
        )
    used = 0
    for k in order:
        axis, extent = axes[k], extents[k]
        n = -(-axis.count >> extent)
        if n == 1 and not extent:
            continue
        rest = axis.count - (n - 1 << extent)
        dim = record["dims"][used]
        shift = _ceil_log(n)
        dim["n"], dim["shift"] = n, shift
        dim["magic"] = -(-(1 << 32 + shift) // n) - (1 << 32)
        dim["full"] = (1 << extent) - 1 << fields[k]
        dim["last"] = rest - 1 << fields[k]
        dim["dst_step"] = 0 if axis.in_group else axis.dst << extent
        dim["src_step"] = 0 if axis.in_group else axis.src << extent
        dim["tracked"] = axis.tracked
        used += 1
    record["n_dims"] = used
    return total
