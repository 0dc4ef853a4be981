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

LINE = 128

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
class Tuning:
    """What may be chosen freely; the defaults were the fastest on an H200.

    ``turns``: log2 of the words a thread moves in a tile, for words of 1, 2, 4, 8, 16 bytes.
    ``shared_below``: runs of fewer bytes pass through shared memory where the order changes.
    ``waves``: blocks launched for each that fits (0: one for each tile), where all tiles are
    direct, and else.
    ``loose_from``: bytes of runs from which on the kernel aligns those that lie at odd addresses.
    """

    turns: tuple[int, int, int, int, int] = (4, 4, 4, 3, 2)
    shared_below: int = 128
    waves: tuple[int, int] = (0, 1)
    loose_from: int = 1024


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


@dataclass(frozen=True, slots=True)
class BlockShape:
    """A record for the kernel, its kind and its number of tiles."""

    record: Any
    kind: int
    n_tiles: int


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
    to, of = _order([a.dst for a in axes]), _order([a.src for a in axes])
    how = DIRECT if log == LOOSE else _how(axes, to, of, block, tuning)
    if how == DIRECT:
        of = to
    n_bits = THREAD_BITS + tuning.turns[min(log, 4)]
    extents = _extents(axes, to, of, n_bits, LINE // word)
    kind = 3 * log + how
    record = np.zeros((), SHAPE)
    record["kind"], record["run"] = kind, block
    fields = _fields(record, axes, extents, n_bits)
    _bits(record["dst"], to, axes, extents, fields, [a.dst for a in axes], n_bits)
    _bits(record["src"], of, axes, extents, fields, [a.src for a in axes], n_bits)
    for side, turn in ((of, 1), (to, 2)):
        owners = [k for k in side for _ in range(extents[k])]
        if any(axes[k].in_group for k in owners[THREAD_BITS:]):
            record["group_turns"] |= turn
    if how != DIRECT:
        _slots(record, to, of, extents, n_bits, log)
    n_tiles = _digits(record, to, axes, extents, fields)
    return BlockShape(record, kind, n_tiles)


def _order(strides: Sequence[int]) -> list[int]:
    """Dims from the fastest on; repeated elements (stride 0) last."""
    return sorted(range(len(strides)), key=lambda k: abs(strides[k]) or _FAR)


def _how(axes: list[BlockDim], to: list[int], of: list[int], block: int, tuning: Tuning) -> int:
    if any(axis.in_group for axis in axes):
        return GROUPED
    first = [next((k for k in order if not axes[k].is_run), None) for order in (to, of)]
    return SHARED if first[0] != first[1] and block < tuning.shared_below else DIRECT


def _ceil_log(n: int) -> int:
    return (n - 1).bit_length()


def _cap(count: int, least: int) -> int:
    """log2 of a tile's extent along a dim: large, with few idle places in the last tile."""
    top = _ceil_log(count)

    def used(log: int) -> float:
        return count / (-(-count >> log) << log)

    good = max(log for log in range(top + 1) if used(log) >= 0.8)
    low = min(top, _ceil_log(least))
    return good if good >= low else max(range(low, top + 1), key=used)


def _extents(
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


def _fields(record: Any, axes: list[BlockDim], extents: list[int], n_bits: int) -> list[int]:
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


def _bits(
    bits: Any,
    order: list[int],
    axes: list[BlockDim],
    extents: list[int],
    fields: list[int],
    strides: list[int],
    n_bits: int,
) -> None:
    k = 0
    for axis in order:
        for b in range(extents[axis]):
            bits[k]["offset"] = 0 if axes[axis].in_group else strides[axis] << b
            bits[k]["place"] = 1 << fields[axis] + b
            k += 1
    for b in range(n_bits - k):
        bits[k + b]["place"] = 1 << fields[-1] + b


def _slots(
    record: Any, to: list[int], of: list[int], extents: list[int], n_bits: int, log: int
) -> None:
    """Slots in the destination's order, swizzled so that the source's order meets all banks."""
    start = {}
    at = 0
    for k in to:
        start[k] = at
        at += extents[k]
    by_source = [start[k] + b for k in of for b in range(extents[k])]
    by_source += range(at, n_bits)
    banks = range(max(0, 2 - log), 7 - log)
    lanes = by_source[: min(5, 7 - log)]
    free = [b for b in banks if b not in lanes]
    mixed = dict(zip((p for p in lanes if p >= banks.stop), free, strict=False))
    slots = [1 << p | (1 << mixed[p] if p in mixed else 0) for p in range(n_bits)]
    for k in range(n_bits):
        record["dst"][k]["slot"] = slots[k]
        record["src"][k]["slot"] = slots[by_source[k]]


def _digits(
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
