"""List the boxes of a step: from which rank's tile to which, in the order in which they combine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import Ints, coordinates
from redist.layout.tiles import grid, tile_shapes
from redist.plan.rules import difference, resolved_axes
from redist.plan.schedule import OWN, Comb, find_combs, list_cells, make_schedule, own_rows
from redist.plan.steps import Action, Slice
from redist.plan.topology import Topology
from redist.plan.traffic import flow

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A box that goes from the tile of one rank to the tile of another, or stays.

    ``src_lo`` and ``dst_lo`` are relative to the two tiles, whose shapes are ``src_shape`` and
    ``dst_shape``. Pieces of order 0 are written, later ones are combined with what is there.

    A piece of tiles with segments may have more dims than they: ``steps`` says for each dim of the piece
    which dim of the tiles it lies along, and how many of its indices one of the piece is on, in the source
    and in the target. Without steps, dims are those of the tiles.
    """

    sender: int
    receiver: int
    order: int
    src_lo: Shape
    dst_lo: Shape
    shape: Shape
    src_shape: Shape
    dst_shape: Shape
    steps: tuple[tuple[int, int, int], ...] = ()

    def src_strides(self, strides: Shape) -> Shape:
        """Strides of the piece in a source of these strides."""
        return tuple(strides[d] * n for d, n, _ in self.steps) if self.steps else strides

    def dst_strides(self, strides: Shape) -> Shape:
        """Strides of the piece in a target of these strides."""
        return tuple(strides[d] * n for d, _, n in self.steps) if self.steps else strides


def list_pieces(
    action: Action, before: ArrayType, after: ArrayType, topology: Topology, rank: int | None = None
) -> tuple[list[Piece], bool]:
    """The pieces that all ranks, or one rank, send and receive in a step, and whether any piece moves.

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
    if before.segments or after.segments:
        return _list_span_pieces(before, after, topology, rank)
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
    pieces = []
    for row in np.flatnonzero(keeps & _is_of(rank, ranks)):
        me = int(ranks[row])
        src_lo, dst_lo = _ints(lo[row] - old_lo[row]), _ints(lo[row] - new_lo[row])
        shape = _ints(hi[row] - lo[row])
        pieces.append(Piece(me, me, 0, src_lo, dst_lo, shape, src[me], dst[me]))
    return pieces


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
        order = int(lo[n]) if is_partial else 0
        src_lo, dst_lo = _ints((lo - have_lo[sender])[:n]), _ints((lo - need_lo[receiver])[:n])
        return Piece(a, b, order, src_lo, dst_lo, _ints((hi - lo)[:n]), src[a], dst[b])

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


# Tiles with segments


def _list_span_pieces(
    before: ArrayType, after: ArrayType, topology: Topology, rank: int | None = None
) -> tuple[list[Piece], bool]:
    """What all ranks give and get in a step, or one rank, and whether any piece changes hands."""
    src, dst = tile_shapes(before), tile_shapes(after)
    is_partial = bool(resolved_axes(before, after))
    n = before.ndim
    old = [coordinates(before.mesh, axes) for axes in before.dims]
    new = [coordinates(after.mesh, axes) for axes in after.dims]
    pieces: list[Piece] = []
    moves = False
    for cells in list_cells(before, after, topology):
        moves = moves or bool(np.any(cells.level != OWN))
        senders, receivers = cells.have.ranks[cells.sender], cells.need.ranks[cells.receiver]
        own = np.full(len(senders), rank is None) | (senders == rank) | (receivers == rank)
        for k in np.flatnonzero(own):
            a, b = int(cells.sender[k]), int(cells.receiver[k])
            order = int(cells.tile[k, n]) if is_partial else 0
            combs = []
            for i in range(n):
                mine = cells.have.cuts[i], int(cells.tile[k, i])
                theirs = cells.need.cuts[i], int(cells.need.index[b, i])
                ends_of = before, int(old[i][a]), after, int(new[i][b])
                combs.append(find_combs(*mine, *theirs, *ends_of, i))
            ends = int(senders[k]), int(receivers[k])
            shapes = src[ends[0]], dst[ends[1]]
            pieces += (_piece(ends, order, chosen, shapes) for chosen in itertools.product(*combs))
    n_ranks = before.mesh.n_devices
    pieces.sort(key=lambda p: (p.order, (p.sender - p.receiver) % (n_ranks + 1)))
    return pieces, moves


def _piece(
    ends: tuple[int, int], order: int, combs: Sequence[Comb], shapes: tuple[Shape, Shape]
) -> Piece:
    src_lo: list[int] = []
    dst_lo: list[int] = []
    shape: list[int] = []
    steps: list[tuple[int, int, int]] = []
    for dim, (count, length, src, src_step, dst, dst_step) in enumerate(combs):
        if count > 1:
            src_lo.append(0)
            dst_lo.append(0)
            shape.append(count)
            steps.append((dim, src_step, dst_step))
        src_lo.append(src)
        dst_lo.append(dst)
        shape.append(length)
        steps.append((dim, 1, 1))
    where = tuple(src_lo), tuple(dst_lo), tuple(shape)
    return Piece(*ends, order, *where, *shapes, () if len(steps) == len(combs) else tuple(steps))
