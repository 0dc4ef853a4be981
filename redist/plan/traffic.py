"""What a step moves: elements and messages of the busiest rank, level by level."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, coordinates, merge_parts, prime_parts, whole
from redist.layout.mesh import Mesh
from redist.layout.tiles import Grid, Ints, grid, overlaps, total
from redist.plan.rules import added_axes, difference, kept_axes, resolved_axes, union
from redist.plan.schedule import OWN, list_cells, make_schedule, own_rows, source_ranges
from redist.plan.steps import (
    Action,
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    Exchange,
    ReduceScatter,
    Slice,
)
from redist.plan.topology import Topology
from redist.text.units import ceil_div

LISTED_REQUESTS = 300_000
"""Up to this many pieces are listed one by one; beyond, senders are taken as evenly loaded."""


@dataclass(frozen=True, slots=True)
class StepTraffic:
    """Elements and messages of a step; ranges are (least, most) over ranks that hold the result.

    ``levels`` has for each level of the topology the messages and elements of its busiest rank,
    sending or receiving, whichever is more, and the elements that enter or leave the busiest block
    of the level before, whose ranks may share a link.
    """

    received_elems: int
    received_range: tuple[int, int]
    sent_worst: int
    messages_range: tuple[int, int]
    levels: tuple[tuple[int, int, int], ...]
    over: tuple[SubAxis, ...]
    group: int

    def time_ps(self, topology: Topology, itemsize: int, extra_rounds: int = 0) -> int:
        """Modelled time: every level's busiest rank, and a latency for each round that a limit adds."""
        time = topology.step_ps if any(messages for messages, _, _ in self.levels) else 0
        slowest = 0
        for level, (messages, elems, shared) in zip(topology.levels, self.levels, strict=True):
            time += level.time_ps(messages, elems * itemsize, shared * itemsize)
            slowest = level.latency_ps if messages else slowest
        return time + extra_rounds * slowest


def named_group(action: Action, before: ArrayType) -> tuple[SubAxis, ...] | None:
    """Axes of the groups of a named collective, None where ranks pair up freely."""
    match action:
        case AllGather(moves):
            return union(before.mesh, (part for part, _ in moves))
        case AllToAll(triples):
            return union(before.mesh, (part for block, _, _ in triples for part in block))
        case AllReduce(axes):
            return axes
        case ReduceScatter(to) if is_plain_reduce_scatter(before, to):
            return resolved_axes(before, to)
        case _:
            return None


def is_plain_reduce_scatter(before: ArrayType, after: ArrayType) -> bool:
    """Whether the resolved axes are exactly what the dims gain at their minor ends, tiles nesting."""
    if before.mesh != after.mesh or added_axes(before, after):
        return False
    if not all(after.cut(i).nests_in(before.cut(i)) for i in range(before.ndim)):
        return False
    gained: list[SubAxis] = []
    for old, new in zip(before.dims, after.dims, strict=True):
        rest = list(new)
        for part in old:
            if not rest or rest[0].name != part.name or rest[0].pre != part.pre:
                return False
            if rest[0].size % part.size != 0:
                return False
            left = SubAxis(part.name, part.end, rest[0].size // part.size)
            rest = [left, *rest[1:]] if left.size > 1 else rest[1:]
        gained += rest
    return merge_parts(sorted(gained)) == resolved_axes(before, after)


def flow(action: Action, before: ArrayType, after: ArrayType) -> tuple[Grid, Grid]:
    """The step as two grids: what ranks have, and what they need.

    Partial values are extra dims: resolved axes, if any, cut one that every receiver needs whole;
    kept axes and the axes outside a named collective's group cut one that no piece may cross.
    """
    resolved = resolved_axes(before, after)
    g = math.prod(part.size for part in resolved)
    group = named_group(action, before)
    fixed = kept_axes(before, after)
    if group is not None:
        fixed = difference((whole(before.mesh, name) for name, _ in before.mesh.axes), group)
    f = math.prod(part.size for part in fixed)
    shared = [(f, fixed)] if f > 1 else []
    have = grid(before, [(g, resolved), *shared] if g > 1 else shared)
    none: tuple[SubAxis, ...] = ()
    need = grid(after, [(g, none), *shared] if g > 1 else shared, at_zero=added_axes(before, after))
    return have, need


def traffic_of(
    action: Action, before: ArrayType, after: ArrayType, topology: Topology
) -> StepTraffic:
    """The traffic of ``action`` between two types.

    >>> from redist.plan.rates import FLAT
    >>> m = Mesh(x=2, y=4)
    >>> a = ArrayType.parse("f32[4096{x}, 4096{y}]", m)
    >>> b = ArrayType.parse("f32[4096{y}, 4096{x}]", m)
    >>> t = traffic_of(Exchange(b), a, b, FLAT)
    >>> t.messages_range, [e * 4 // 2**20 for e in t.received_range]
    ((1, 2), [4, 8])
    """
    if before.segments or after.segments:
        return _span_traffic(before, after, topology)
    match action:
        case Slice():
            zeros = ((0, 0, 0),) * len(topology.levels)
            return StepTraffic(0, (0, 0), 0, (0, 0), zeros, (), 1)
        case AllReduce(axes):
            return _all_reduce(before, axes, topology)
        case AllGather() | AllToAll() | AllPermute() | Exchange() | ReduceScatter():
            have, need = flow(action, before, after)
            group = named_group(action, before)
            _, count = source_ranges(have, need)
            pieces = np.prod(count, axis=1, dtype=np.float64)
            if float(np.sum(pieces)) <= LISTED_REQUESTS:
                schedule = make_schedule(have, need, topology)
                ends = schedule.sender, schedule.receiver, schedule.level, schedule.elems()
                return _list_traffic(*ends, before, after, topology, group)
            return _estimate_traffic(have, need, count, before, after, topology, group)


def _span_traffic(before: ArrayType, after: ArrayType, topology: Topology) -> StepTraffic:
    """The traffic of an exchange or a reduce_scatter where a type has segments; a message for each cell."""
    nothing = np.zeros(0, dtype=np.int64)
    columns = [(nothing,) * 4]
    for cells in list_cells(before, after, topology):
        far = cells.level != OWN
        columns.append((cells.sender[far], cells.receiver[far], cells.level[far], cells.elems[far]))
    sender, receiver, level, elems = (np.concatenate(c) for c in zip(*columns, strict=True))
    return _list_traffic(sender, receiver, level, elems, before, after, topology, None)


def _list_traffic(
    sender: Ints,
    receiver: Ints,
    level_of: Ints,
    elems: Ints,
    before: ArrayType,
    after: ArrayType,
    topology: Topology,
    group: tuple[SubAxis, ...] | None,
) -> StepTraffic:
    """Pieces by sender, receiver, level where they meet, and elements."""
    n_in, n_out = after.mesh.n_devices, before.mesh.n_devices
    levels = []
    size = 1
    for number, level in enumerate(topology.levels):
        here = level_of == number
        worst_messages = worst_elems = shared = 0
        for rows, mesh in ((receiver[here], after.mesh), (sender[here], before.mesh)):
            n = mesh.n_devices
            worst_messages = max(worst_messages, int(np.bincount(rows, minlength=n).max()))
            sums = _sums(rows, elems[here], n)
            worst_elems = max(worst_elems, int(sums.max()))
            if level.link_fs:
                blocks = mesh.rank_array() // size
                shared = max(shared, int(_sums(blocks, sums, int(blocks.max()) + 1).max()))
        levels.append((worst_messages, worst_elems, shared))
        size = level.size or size
    received = _sums(receiver, elems, n_in)
    messages = np.bincount(receiver, minlength=n_in)
    over = group
    if over is None and before.mesh == after.mesh:
        over = tuple(
            part
            for part in prime_parts(before.mesh)
            for digit in [coordinates(before.mesh, [part])]
            if bool(np.any(digit[sender] != digit[receiver]))
        )
    sent = int(_sums(sender, elems, n_out).max())
    figures = total(elems), _range(received), sent, _range(messages), tuple(levels)
    return StepTraffic(*figures, merge_parts(over or ()), _group_size(over, before, after))


def _estimate_traffic(
    have: Grid,
    need: Grid,
    count: Ints,
    before: ArrayType,
    after: ArrayType,
    topology: Topology,
    group: tuple[SubAxis, ...] | None,
) -> StepTraffic:
    """Receivers exactly, senders as evenly loaded, all at the level that spans the groups."""
    own = own_rows(have, need)
    rows = np.flatnonzero(own >= 0)
    both = np.zeros(len(need.ranks), dtype=np.int64)
    both[rows] = overlaps(have, own[rows], need, rows)
    received = need.volumes() - both
    messages = np.prod(count, axis=1, dtype=np.int64) * need.holds - (both > 0)
    moved = total(received)
    sent = ceil_div(moved, max(1, int(np.sum(have.holds))))
    over = group
    if over is None and before.mesh == after.mesh:
        over = _unshared_axes(before, after)
    level = len(topology.levels) - 1
    if over is not None:
        level = group_level(before.mesh, over, topology)
    levels = [(0, 0, 0)] * len(topology.levels)
    most = max(int(received.max()), sent)
    levels[level] = (int(messages.max()), most, most * _block_size(topology, level))
    figures = moved, _range(received), sent, _range(messages), tuple(levels)
    return StepTraffic(*figures, merge_parts(over or ()), _group_size(over, before, after))


def _all_reduce(before: ArrayType, axes: Iterable[SubAxis], topology: Topology) -> StepTraffic:
    """A ring: scatter the sums, then gather them."""
    parts = tuple(axes)
    g = math.prod(part.size for part in parts)
    tile = grid(before).volumes()
    shares = [2 * (int(v) - int(v) // g) for v in (tile.min(), tile.max())]
    levels = [(0, 0, 0)] * len(topology.levels)
    level = group_level(before.mesh, parts, topology)
    levels[level] = (2 * (g - 1), shares[1], shares[1] * _block_size(topology, level))
    moved = 2 * (g - 1) * total(tile) // g
    messages = 2 * (g - 1)
    return StepTraffic(
        moved, (shares[0], shares[1]), shares[1], (messages, messages), tuple(levels), parts, g
    )


def _block_size(topology: Topology, level: int) -> int:
    """How many ranks share a link of a level: those of a block of the level before."""
    return (topology.levels[level - 1].size or 1) if level else 1


def _sums(rows: Ints, values: Ints, n: int) -> Ints:
    if values.max(initial=0) * max(1, len(values)) < 2**53:
        return np.bincount(rows, weights=values, minlength=n).astype(np.int64)
    out = np.zeros(n, dtype=np.int64)
    np.add.at(out, rows, values)
    return out


def _range(values: Ints) -> tuple[int, int]:
    return int(values.min()), int(values.max())


def _group_size(over: tuple[SubAxis, ...] | None, before: ArrayType, after: ArrayType) -> int:
    if over is not None:
        return math.prod(part.size for part in over)
    return len(np.union1d(before.mesh.rank_array(), after.mesh.rank_array()))


def _unshared_axes(before: ArrayType, after: ArrayType) -> tuple[SubAxis, ...]:
    """Axes of the source that do not stand at the same place in the target."""
    shared: list[SubAxis] = []
    for old, new in zip(before.dims, after.dims, strict=True):
        for p, q in zip(old, new, strict=False):
            if p != q:
                break
            shared.append(p)
    return difference((part for dim in before.dims for part in dim), shared)


def group_level(mesh: Mesh, over: Iterable[SubAxis], topology: Topology) -> int:
    """The nearest level whose blocks contain every group over these axes."""
    if len(topology.levels) == 1:
        return 0
    rest = difference((whole(mesh, name) for name, _ in mesh.axes), over)
    group = coordinates(mesh, rest)
    ranks = mesh.rank_array()
    for number, level in enumerate(topology.levels):
        if level.size is None:
            return number
        block = ranks // level.size
        low = np.full(int(group.max()) + 1, np.iinfo(np.int64).max)
        high = np.zeros(len(low), dtype=np.int64)
        np.minimum.at(low, group, block)
        np.maximum.at(high, group, block)
        if bool(np.all(low == high)):
            return number
    raise AssertionError("the last level spans all ranks")
