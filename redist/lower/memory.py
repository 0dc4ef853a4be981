"""What a device holds while it runs the calls of a plan: an upper bound for systems that copy freely."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from redist.lower.calls import (
    Call,
    Calls,
    Collect,
    CombineAll,
    Embed,
    Permute,
    Scatter,
    Select,
    Swap,
)

TABLE_BYTES = 4096
"""Places of devices, and other small things."""
COLLECTIVES = (Collect, CombineAll, Permute, Scatter, Swap)
"""Calls in which devices send to each other."""


def elems_after(call: Call, elems: int) -> int:
    """Elements of a device's tile after a call.

    >>> from redist.layout.axes import SubAxis
    >>> elems_after(Collect((SubAxis("x", 1, 4),), (6,)), 6)
    24
    """
    match call:
        case Select(_, shape, at):
            return elems // math.prod(shape[k] for k in at)
        case Scatter(axes):
            return elems // math.prod(axis.size for axis in axes)
        case Collect(axes) | Embed(axes):
            return elems * math.prod(axis.size for axis in axes)
        case Permute(target_shape=shape):
            return math.prod(shape)
        case _:
            return elems


def sizes_of(runs: Iterable[Calls]) -> Iterator[tuple[Call, int, int]]:
    """Every call with the elements of a tile before and after it."""
    for run in runs:
        elems = math.prod(run.source.tile_shape)
        for call in run.calls:
            after = elems_after(call, elems)
            yield call, elems, after
            elems = after


def peak_bytes(runs: tuple[Calls, ...], donate: bool = False, as_bits: bool = False) -> int:
    """Bytes of a device at the worst moment: source, result, and what calls hold besides.

    >>> import redist
    >>> from redist.lower.lowering import lower_plan
    >>> plan = redist.synthesize("f32[8{x}, 8]", "f32[8, 8{x}]", mesh=redist.Mesh(x=4))
    >>> (peak_bytes(lower_plan(plan)) - TABLE_BYTES) // plan.source.tile_bytes
    5

    A call has what it is given and what it makes; one that sends blocks has them cut out and received
    as well. The source lives to the end, the result from the beginning. A donated source lives until
    the first call is done, and the result takes its memory; an only call reads it to the end.

    If elements travel ``as_bits``, as integers of their size, a collective that comes first is given a
    copy of the source, and one that comes last makes a copy of the result; other calls do this on the way.
    """
    if not runs:
        return 0
    item = runs[0].source.dtype.itemsize
    ends = [math.prod(t.tile_shape) for t in (runs[0].source, runs[-1].target)]
    calls = list(sizes_of(runs))
    kept = 0 if donate and (len(calls) > 1 or as_bits) else ends[0]
    most = 0
    for number, (call, before, after) in enumerate(calls):
        is_copied = as_bits and isinstance(call, COLLECTIVES)
        given = before if number or is_copied else 0
        made = after if number + 1 < len(calls) or is_copied else 0
        match call:
            case Swap():
                sent = 2 * before
            case Permute(rows=rows):
                boxes = [math.prod(row[0].shape) for row in rows]
                sent = after + 3 * max(
                    boxes, default=0
                )  # boxes make a tile before it is the result
                if (
                    donate and not number and not as_bits
                ):  # all are cut out before it is overwritten
                    sent += max(0, sum(boxes) - kept)
            case Scatter() | CombineAll():
                sent = before + after
            case _:
                sent = 0
        most = max(most, given + sent + made)
    return (kept + ends[1] + most) * item + TABLE_BYTES
