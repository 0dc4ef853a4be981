"""What a step moves, as data for a picture: which ranks send to which, and which pieces."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from redist.draw.view import SHOWN_DEVICES
from redist.layout.array_type import ArrayType
from redist.layout.axes import coordinates, whole
from redist.layout.tiles import Grid, Ints, overlaps
from redist.plan.rules import difference, resolved_axes
from redist.plan.schedule import OWN, list_cells, make_schedule, own_rows, source_ranges
from redist.plan.steps import AllReduce, Slice, Step
from redist.plan.topology import Topology
from redist.plan.traffic import LISTED_REQUESTS, flow
from redist.text.units import format_bytes

Sent = dict[tuple[int, int], int]
"""Elements by sender and receiver."""
REST = -1
"""Stands for all senders that are not shown."""


@dataclass(frozen=True, slots=True)
class DrawnBox:
    """A box of indices and the rank that sends it."""

    sender: int
    lo: tuple[int, ...]
    hi: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arrows:
    """Which ranks send to which, for the receivers that are shown.

    ``pairs`` maps (sender, receiver) to bytes. ``pieces`` maps each receiver to what it is sent, where that
    can be drawn. ``keeps`` are the receivers that use something they already have.
    """

    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    pairs: dict[tuple[int, int], int]
    pieces: dict[int, tuple[DrawnBox, ...]]
    keeps: frozenset[int]
    note: str


def arrows_of(step: Step, before: ArrayType, topology: Topology) -> Arrows | None:
    """What a step moves; None if nothing moves or there are too many pieces to list."""
    after = step.after
    match step.action:
        case Slice():
            return None
        case AllReduce(axes):
            rest = difference((whole(before.mesh, name) for name, _ in before.mesh.axes), axes)
            return _all_reduce(before, coordinates(before.mesh, rest), step)
        case _ if before.segments or after.segments:
            return _from_cells(before, after, topology)
        case _:
            have, need = flow(step.action, before, after)
            need = _first_rows(need)
            _, count = source_ranges(have, need)
            if float(np.sum(np.prod(count, axis=1, dtype=np.float64))) > LISTED_REQUESTS:
                return None
            return _from_schedule(before, after, have, need, topology)


def _first_rows(g: Grid) -> Grid:
    """Keep the devices that are shown; what they are sent does not depend on the later ones."""
    n = SHOWN_DEVICES
    return Grid(g.dims, g.ranks[:n], g.index[:n], g.holds[:n])


def _all_reduce(before: ArrayType, group: Ints, step: Step) -> Arrows:
    ranks = tuple(int(rank) for rank in before.mesh.ranks[:SHOWN_DEVICES])
    share = step.received_range_bytes[1] // max(step.group - 1, 1)
    pairs = {
        (a, b): share
        for i, a in enumerate(ranks)
        for j, b in enumerate(ranks)
        if share and i != j and group[i] == group[j]
    }
    note = "each pair combines its values"
    return Arrows(ranks, ranks, pairs, {}, frozenset(ranks), note)


def _from_schedule(
    before: ArrayType, after: ArrayType, have: Grid, need: Grid, topology: Topology
) -> Arrows:
    schedule = make_schedule(have, need, topology)
    sent: Sent = defaultdict(int)
    pieces: dict[int, list[DrawnBox]] = defaultdict(list)
    for k, elems in enumerate(schedule.elems().tolist()):
        sender = int(have.ranks[schedule.sender[k]])
        receiver = int(need.ranks[schedule.receiver[k]])
        sent[sender, receiver] += elems
        lo, hi = (tuple(int(v) for v in x[k, : before.ndim]) for x in (schedule.lo, schedule.hi))
        pieces[receiver].append(DrawnBox(sender, lo, hi))
    return _arrows(before, after, sent, pieces, _keepers(have, need))


def _from_cells(before: ArrayType, after: ArrayType, topology: Topology) -> Arrows:
    """What a step between types with segments moves."""
    sent: Sent = defaultdict(int)
    pieces: dict[int, list[DrawnBox]] = defaultdict(list)
    keeps: set[int] = set()
    for cells in list_cells(before, after, topology):
        for k in np.flatnonzero(cells.receiver < SHOWN_DEVICES):
            sender = int(cells.have.ranks[cells.sender[k]])
            receiver = int(cells.need.ranks[cells.receiver[k]])
            if cells.level[k] == OWN:
                keeps.add(receiver)
                continue
            sent[sender, receiver] += int(cells.elems[k])
            for ranges in itertools.islice(
                itertools.product(*cells.ranges(int(k), before.ndim)), 4096
            ):
                lo, hi = zip(*ranges, strict=True) if ranges else ((), ())
                pieces[receiver].append(DrawnBox(sender, lo, hi))
    return _arrows(before, after, sent, pieces, keeps)


def _arrows(
    before: ArrayType,
    after: ArrayType,
    sent: Sent,
    pieces: Mapping[int, Iterable[DrawnBox]],
    keeps: Iterable[int],
) -> Arrows:
    """The arrows of a step; senders that are not shown are one."""
    senders, receivers = (tuple(t.mesh.ranks[:SHOWN_DEVICES]) for t in (before, after))
    pairs: dict[tuple[int, int], int] = defaultdict(int)
    for (sender, receiver), elems in sent.items():
        shown = sender if sender in senders else REST
        pairs[shown, receiver] += elems * before.dtype.itemsize
    if any(rank == REST for rank, _ in pairs):
        senders = (*senders, REST)
    largest = max((n for (rank, _), n in pairs.items() if rank != REST), default=0)
    drawn = {} if resolved_axes(before, after) else {r: tuple(own) for r, own in pieces.items()}
    note = f"strongest cell: {format_bytes(largest)}"
    return Arrows(senders, receivers, dict(pairs), drawn, frozenset(keeps), note)


def _keepers(have: Grid, need: Grid) -> list[int]:
    own = own_rows(have, need)
    rows = np.flatnonzero(own >= 0)
    kept = overlaps(have, own[rows], need, rows) > 0
    return [int(need.ranks[row]) for row in rows[kept]]
