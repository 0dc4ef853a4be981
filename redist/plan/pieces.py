"""List the boxes of a step: from which rank's tile to which, in the order in which they combine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.tiles import Ints, coordinates, grid, tile_shapes
from redist.plan.rules import difference, resolved_axes
from redist.plan.schedule import make_schedule, own_rows
from redist.plan.steps import Action, Slice
from redist.plan.topology import Topology
from redist.plan.traffic import flow

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A box that goes from the tile of one rank to the tile of another, or stays.

    ``src_lo`` and ``dst_lo`` are relative to the two tiles, whose shapes are ``src_shape`` and
    ``dst_shape``. Pieces of order 0 are written, later ones are combined with what is there.
    """

    sender: int
    receiver: int
    order: int
    src_lo: Shape
    dst_lo: Shape
    shape: Shape
    src_shape: Shape
    dst_shape: Shape


def list_pieces(
    action: Action,
    before: ArrayType,
    after: ArrayType,
    topology: Topology,
    rank: int | None = None,
) -> tuple[list[Piece], bool]:
    """What all ranks give and get in a step, or one rank, and whether any piece changes hands.

    An all_reduce has two parts and is not listed here.

    >>> from redist.layout.mesh import Mesh
    >>> from redist.plan.steps import Exchange
    >>> from redist.plan.rates import FLAT
    >>> mesh = Mesh(x=2)
    >>> a, b = (ArrayType.parse(t, mesh) for t in ("f32[4{x}, 4]", "f32[4, 4{x}]"))
    >>> pieces, moves = list_pieces(Exchange(b), a, b, FLAT)
    >>> for piece in pieces:
    ...     print(piece.sender, piece.receiver, piece.src_lo, piece.dst_lo, piece.shape)
    0 0 (0, 0) (0, 0) (2, 2)
    1 1 (0, 2) (2, 0) (2, 2)
    1 0 (0, 0) (2, 0) (2, 2)
    0 1 (0, 2) (0, 0) (2, 2)
    """
    if isinstance(action, Slice):
        return _kept(action, before, after, rank), False
    return _fetched(action, before, after, topology, rank)


def _kept(action: Slice, before: ArrayType, after: ArrayType, rank: int | None) -> list[Piece]:
    """What ranks keep; where axes become pending, those not at the first place keep nothing."""
    idle = difference(action.pending, (part for dim in before.dims for part in dim))
    idle = difference(idle, (part for part, _ in action.moves))
    ranks = before.mesh.rank_array()
    (old_lo, old_hi), (new_lo, new_hi) = grid(before).boxes(), grid(after).boxes()
    lo, hi = np.maximum(old_lo, new_lo), np.minimum(old_hi, new_hi)
    keeps = (coordinates(before.mesh, idle) == 0) & np.all(hi > lo, axis=1)
    src, dst = tile_shapes(before), tile_shapes(after)
    return [
        Piece(
            me,
            me,
            0,
            _ints(lo[row] - old_lo[row]),
            _ints(lo[row] - new_lo[row]),
            _ints(hi[row] - lo[row]),
            src[me],
            dst[me],
        )
        for row in np.flatnonzero(keeps & _is_of(rank, ranks))
        for me in (int(ranks[row]),)
    ]


def _fetched(
    action: Action, before: ArrayType, after: ArrayType, topology: Topology, rank: int | None
) -> tuple[list[Piece], bool]:
    have, need = flow(action, before, after)
    schedule = make_schedule(have, need, topology)
    n = before.ndim
    is_partial = bool(resolved_axes(before, after))
    have_lo, have_hi = have.boxes()
    need_lo, need_hi = need.boxes()
    src, dst = tile_shapes(before), tile_shapes(after)

    def piece(sender: int, receiver: int, lo: Ints, hi: Ints) -> Piece:
        a, b = int(have.ranks[sender]), int(need.ranks[receiver])
        return Piece(
            a,
            b,
            int(lo[n]) if is_partial else 0,
            _ints((lo - have_lo[sender])[:n]),
            _ints((lo - need_lo[receiver])[:n]),
            _ints((hi - lo)[:n]),
            src[a],
            dst[b],
        )

    pieces = []
    own = own_rows(have, need)
    for row in np.flatnonzero(_is_of(rank, need.ranks) & (own >= 0) & need.holds):
        lo = np.maximum(have_lo[own[row]], need_lo[row])
        hi = np.minimum(have_hi[own[row]], need_hi[row])
        if bool(np.all(hi > lo)):
            pieces.append(piece(int(own[row]), int(row), lo, hi))
    mine = _is_of(rank, have.ranks)[schedule.sender] | _is_of(rank, need.ranks)[schedule.receiver]
    for k in np.flatnonzero(mine & np.all(schedule.hi > schedule.lo, axis=1)):
        ends = int(schedule.sender[k]), int(schedule.receiver[k])
        pieces.append(piece(*ends, schedule.lo[k], schedule.hi[k]))
    pieces.sort(key=lambda p: (p.order, (p.sender - p.receiver) % (len(have.ranks) + 1)))
    return pieces, bool(len(schedule.sender))


def _is_of(rank: int | None, ranks: Ints) -> Ints:
    """For each rank whether it is the one, or any is."""
    return np.full(len(ranks), True) if rank is None else ranks == rank


def _ints(values: Ints) -> Shape:
    return tuple(int(v) for v in values)
