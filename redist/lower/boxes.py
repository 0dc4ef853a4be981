"""List the boxes that change hands in a step, for steps that are no plain collective."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.tiles import Ints, coordinates, grid
from redist.lower.calls import BoxMove, TileBox
from redist.plan.rules import difference, resolved_axes
from redist.plan.schedule import make_schedule, own_rows
from redist.plan.steps import Action, Slice
from redist.plan.topology import Topology
from redist.plan.traffic import flow


def boxes_of_step(
    action: Action, before: ArrayType, after: ArrayType, topology: Topology
) -> list[BoxMove]:
    """Every box that a device gets in a step, also from itself; devices are numbered by both meshes.

    >>> from redist.layout.mesh import Mesh
    >>> from redist.plan.steps import Exchange
    >>> from redist.plan.topology import FLAT
    >>> mesh = Mesh(x=2)
    >>> a, b = (ArrayType.parse(t, mesh) for t in ("f32[4{x}, 4]", "f32[4, 4{x}]"))
    >>> for move in boxes_of_step(Exchange(b), a, b, FLAT):
    ...     print(move.sender, move.receiver, move.source.start, move.target.start, move.source.shape)
    0 0 (0, 0) (0, 0) (2, 2)
    1 1 (0, 2) (2, 0) (2, 2)
    1 0 (0, 0) (2, 0) (2, 2)
    0 1 (0, 2) (0, 0) (2, 2)
    """
    if isinstance(action, Slice):
        return _boxes_of_slice(action, before, after)
    have, need = flow(action, before, after)
    schedule = make_schedule(have, need, topology)
    n = before.ndim
    is_partial = bool(resolved_axes(before, after))
    have_lo, have_hi = have.boxes()
    need_lo, need_hi = need.boxes()

    def move(sender: int, receiver: int, lo: Ints, hi: Ints) -> BoxMove:
        shape = _ints((hi - lo)[:n])
        source = TileBox(_ints((lo - have_lo[sender])[:n]), shape)
        target = TileBox(_ints((lo - need_lo[receiver])[:n]), shape)
        return BoxMove(sender, receiver, source, target, int(lo[n]) if is_partial else 0)

    moves = []
    own = own_rows(have, need)
    for row in np.flatnonzero((own >= 0) & need.holds):
        lo = np.maximum(have_lo[own[row]], need_lo[row])
        hi = np.minimum(have_hi[own[row]], need_hi[row])
        if bool(np.all(hi > lo)):
            moves.append(move(int(own[row]), int(row), lo, hi))
    for k in np.flatnonzero(np.all(schedule.hi > schedule.lo, axis=1)):
        ends = int(schedule.sender[k]), int(schedule.receiver[k])
        moves.append(move(*ends, schedule.lo[k], schedule.hi[k]))
    return moves


def _boxes_of_slice(action: Slice, before: ArrayType, after: ArrayType) -> list[BoxMove]:
    """What every device keeps; where axes become pending, those not at the first place keep nothing."""
    idle = difference(action.pending, (part for dim in before.dims for part in dim))
    idle = difference(idle, (part for part, _ in action.moves))
    keeps = coordinates(before.mesh, idle) == 0
    (old_lo, old_hi), (new_lo, new_hi) = grid(before).boxes(), grid(after).boxes()
    lo, hi = np.maximum(old_lo, new_lo), np.minimum(old_hi, new_hi)
    moves = []
    for row in np.flatnonzero(keeps & np.all(hi > lo, axis=1)):
        shape = _ints(hi[row] - lo[row])
        source = TileBox(_ints(lo[row] - old_lo[row]), shape)
        moves.append(
            BoxMove(int(row), int(row), source, TileBox(_ints(lo[row] - new_lo[row]), shape))
        )
    return moves


def in_rows(moves: Iterable[BoxMove]) -> tuple[tuple[BoxMove, ...], ...]:
    """Divide moves into rows in which all have one shape, and no device sends or gets twice.

    What is combined later stands in a later row.
    """
    rows: list[_Row] = []
    for one in sorted(moves, key=_place):
        row = next((row for row in rows if row.takes(one)), None)
        if row is None:
            row = _Row(one.source.shape, one.order)
            rows.append(row)
        row.add(one)
    return tuple(tuple(row.moves) for row in rows)


@dataclass(slots=True)
class _Row:
    shape: tuple[int, ...]
    order: int
    senders: set[int] = field(default_factory=set)
    receivers: set[int] = field(default_factory=set)
    moves: list[BoxMove] = field(default_factory=list)

    def takes(self, one: BoxMove) -> bool:
        """Whether a move has room beside the others."""
        is_alike = (one.source.shape, one.order) == (self.shape, self.order)
        return is_alike and one.sender not in self.senders and one.receiver not in self.receivers

    def add(self, one: BoxMove) -> None:
        self.senders.add(one.sender)
        self.receivers.add(one.receiver)
        self.moves.append(one)


def _place(one: BoxMove) -> tuple[int, int, int]:
    """Neighbours at the same distance come together, so that rows are full."""
    return one.order, one.sender ^ one.receiver, one.sender


def _ints(values: Ints) -> tuple[int, ...]:
    return tuple(int(v) for v in values)
