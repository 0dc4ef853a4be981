"""Places in a tile as bits: what each adds to an offset, to a place and to a slot of shared memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redist.errors import TransferError
from redist.runtime.cuda.kernels.records import NEVER

# How a copy is cut along its dims: the order of the dims on either side, and a tile's extents.


LINE = 128
SECTOR = 32
"""Bytes that memory is read and written in."""
_FAR = 2**62


@dataclass(frozen=True, slots=True)
class BlockDim:
    """A dim of a copy: ``count`` steps of this many bytes; in a group, of one row to the next."""

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


def order_of(strides: Sequence[int]) -> list[int]:
    """Dims from the fastest on; repeated elements (stride 0) last."""
    return sorted(range(len(strides)), key=lambda k: abs(strides[k]) or _FAR)


def extents_of(
    axes: list[BlockDim], to: list[int], of: list[int], budget: int, least: int
) -> list[int]:
    """log2 of a tile's extent along every dim: long runs on both sides."""
    out = [0] * len(axes)
    good, most = [_cap(axis.count, least) for axis in axes], [ceil_log(a.count) for a in axes]
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


def _cap(count: int, least: int) -> int:
    """log2 of a tile's extent along a dim: large, with few idle places in the last tile."""
    top = ceil_log(count)

    def used(log: int) -> float:
        return count / (-(-count >> log) << log)

    good = max(log for log in range(top + 1) if used(log) >= 0.8)
    low = min(top, ceil_log(least))
    return good if good >= low else max(range(low, top + 1), key=used)


def writes_parts(axes: Sequence[BlockDim], to: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether rows of a tile begin between sectors of the destination.

    >>> odd = [BlockDim(63, 4, 256), BlockDim(64, 252, 4)]
    >>> writes_parts(odd, [0, 1], [5, 5]), writes_parts(odd, [0, 1], [6, 5])
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


def ceil_log(n: int) -> int:
    """log2, rounded up."""
    return (n - 1).bit_length()


Bit = tuple[int, int]
"""A dim, and which bit of the place along it."""


def write_fields(record: Any, axes: list[BlockDim], extents: list[int], n_bits: int) -> list[int]:
    """Write limit and guard; where in a word the place along every dim stands, idle bits last."""
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


def bits_in(order: Sequence[int], extents: Sequence[int]) -> list[Bit | None]:
    """The bits of an element's number: dims in this order, the lowest bit of each first."""
    return [(axis, b) for axis in order for b in range(extents[axis])]


def pad_bits(bits: list[Bit | None], n_bits: int) -> list[Bit | None]:
    """Add idle bits (None) up to this many."""
    return bits + [None] * (n_bits - len(bits))


def write_bits(
    record: Any,
    bits: Sequence[Bit | None],
    axes: Sequence[BlockDim],
    fields: Sequence[int],
    strides: Sequence[int],
) -> None:
    """Write what every bit adds on one side: to the offset, and to the place."""
    idle = 0
    for k, bit in enumerate(bits):
        if bit is None:
            record[k]["place"] = 1 << fields[-1] + idle
            idle += 1
        else:
            axis, b = bit
            record[k]["offset"] = 0 if axes[axis].in_group else strides[axis] << b
            record[k]["place"] = 1 << fields[axis] + b


def places_in(dst: Sequence[Bit | None], src: Sequence[Bit | None]) -> list[int]:
    """Where each bit of the source's order stands in the destination's; idle ones in their order."""
    idle = iter([k for k, bit in enumerate(dst) if bit is None])
    at = {bit: k for k, bit in enumerate(dst)}
    return [next(idle) if bit is None else at[bit] for bit in src]


def write_slots(record: Any, by_source: Sequence[int], log: int) -> None:
    """Write slots in the destination's order, swizzled so that the source's order meets all banks."""
    n_bits = len(by_source)
    banks = range(max(0, 2 - log), 7 - log)
    lanes = by_source[: min(5, 7 - log)]
    free = [b for b in banks if b not in lanes]
    mixed = dict(zip((p for p in lanes if p >= banks.stop), free, strict=False))
    slots = [1 << p | (1 << mixed[p] if p in mixed else 0) for p in range(n_bits)]
    for k in range(n_bits):
        record["dst"][k]["slot"] = slots[k]
        record["src"][k]["slot"] = slots[by_source[k]]


def write_digits(
    record: Any, order: list[int], axes: list[BlockDim], extents: list[int], fields: list[int]
) -> int:
    """Write how the number of a tile is read, the fastest dim first; the number of tiles."""
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
        shift = ceil_log(n)
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
