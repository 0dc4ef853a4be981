"""Places in a tile as bits: what each adds to an offset, to a place and to a slot of shared memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from redist.errors import TransferError
from redist.runtime.cuda.kernels.extents import BlockDim, ceil_log
from redist.runtime.cuda.kernels.records import NEVER

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
