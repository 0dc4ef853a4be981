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


def peak_bytes(runs: tuple[Calls, ...], donate: bool = False) -> int:
    """Bytes of a device at the worst moment: source, result, and what calls hold besides.

    >>> import redist
    >>> from redist.lower.lowering import lower_plan
    >>> plan = redist.synthesize("f32[8{x}, 8]", "f32[8, 8{x}]", mesh=redist.Mesh(x=4))
    >>> (peak_bytes(lower_plan(plan)) - TABLE_BYTES) // plan.source.tile_bytes
    5

    A call has what it is given and what it makes; one that sends blocks has them cut out and received
    as well. The source lives to the end, the result from the beginning. A donated source lives until
    the first call is done, and the result takes its memory; an only call reads it to the end.
    """
    if not runs:
        return 0
    item = runs[0].source.dtype.itemsize
    ends = [math.prod(t.tile_shape) for t in (runs[0].source, runs[-1].target)]
    calls = list(sizes_of(runs))
    most = 0
    for number, (call, before, after) in enumerate(calls):
        given = before if number else 0
        made = after if number + 1 < len(calls) else 0
        match call:
            case Swap():
                sent = 2 * before
            case Permute(rows=rows):
                boxes = max((math.prod(row[0].shape) for row in rows), default=0)
                sent = after + 3 * boxes  # the new tile is made of boxes before it is the result
            case Scatter() | CombineAll():
                sent = before + after
            case _:
                sent = 0
        most = max(most, given + sent + made)
    kept = 0 if donate and len(calls) > 1 else ends[0]
    return (kept + ends[1] + most) * item + TABLE_BYTES
