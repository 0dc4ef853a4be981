"""List what one rank fetches and gives in a step: boxes between tiles, in the order they combine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, whole
from redist.layout.cuts import EvenCut
from redist.layout.tiles import Ints, coordinates, grid, tile_shapes
from redist.plan.rules import difference, resolved_axes
from redist.plan.schedule import make_schedule, own_rows
from redist.plan.steps import (
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    Exchange,
    ReduceScatter,
    Slice,
    Step,
)
from redist.plan.topology import Topology
from redist.plan.traffic import flow
from redist.runtime.schedule.direction import is_brought
from redist.text.units import ceil_div

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


@dataclass(frozen=True, slots=True)
class StepPieces:
    """The part of a step that needs no meeting in between.

    ``pieces`` are those that rank gives or gets. ``op`` combines pieces of later order. ``fills``
    says that the pieces leave room in the tile, which must hold the identity of ``op``. ``again``
    marks the second part of a step: it reads the tiles that the first has written. ``is_local`` says that no
    rank needs another. ``src_tile`` is the shape of a full tile that pieces are taken from.
    ``is_brought`` says that within a node senders write into tiles that receivers open to them.
    """

    pieces: tuple[Piece, ...]
    op: str | None
    fills: bool
    again: bool
    is_local: bool
    src_tile: Shape
    is_brought: bool = False


def pieces_of_step(
    step: Step, before: ArrayType, rank: int, topology: Topology
) -> tuple[StepPieces, ...]:
    """The pieces of one rank in a step; an all_reduce has two parts, with a meeting between them.

    >>> import redist
    >>> from redist.plan.topology import FLAT
    >>> plan = redist.synthesize("f32[4{x}, 4]", "f32[4, 4{x}]", mesh=redist.Mesh(x=2))
    >>> (part,) = pieces_of_step(plan.steps[0], plan.source, 0, FLAT)
    >>> [(p.sender, p.receiver, p.src_lo, p.dst_lo, p.shape) for p in part.pieces]
    [(0, 0, (0, 0), (0, 0), (2, 2)), (1, 0, (0, 0), (2, 0), (2, 2)), (0, 1, (0, 2), (0, 0), (2, 2))]
    """
    match step.action:
        case Slice():
            return (_slice(step.action, before, step.after, rank),)
        case AllReduce(axes):
            return _all_reduce(axes, before, rank)
        case AllGather() | AllToAll() | AllPermute() | Exchange() | ReduceScatter():
            return (_fetch(step, before, rank, topology),)


def pieces_of_copy(t: ArrayType, rank: int) -> StepPieces:
    """The pieces of one rank in a plan without steps: its tile is copied."""
    shape = tile_shapes(t).get(rank)
    pieces = (
        () if shape is None else (_stay(rank, shape, shape, (0,) * t.ndim, (0,) * t.ndim, shape),)
    )
    return StepPieces(pieces, None, False, False, True, t.tile_shape)


def split(shape: Sequence[int], parts: int) -> Iterator[tuple[Shape, Shape]]:
    """A box as at least ``parts`` boxes (lo, shape) in C order, as long as it has the elements.

    >>> list(split((2, 5), 4))
    [((0, 0), (1, 3)), ((0, 3), (1, 2)), ((1, 0), (1, 3)), ((1, 3), (1, 2))]
    """
    yield from split_by(shape, split_counts(shape, parts))


def split_counts(shape: Sequence[int], parts: int) -> Shape:
    """Into how many each dim is cut, outer dims first, for at least ``parts`` boxes."""
    counts = []
    for n in shape:
        k = max(1, min(n, parts))
        counts.append(k)
        parts = ceil_div(parts, k)
    return tuple(counts)


def split_by(shape: Sequence[int], counts: Sequence[int]) -> Iterator[tuple[Shape, Shape]]:
    """A box cut into so many boxes along every dim, in C order; some may be empty."""
    for place in itertools.product(*map(range, counts)):
        yield box_at(shape, counts, place)


def box_at(
    shape: Sequence[int], counts: Sequence[int], place: Sequence[int]
) -> tuple[Shape, Shape]:
    """Start and shape of one box of a tile that is cut by ``counts``.

    >>> box_at((5, 4), (2, 1), (1, 0))
    ((3, 0), (2, 4))
    """
    lo, size = [], []
    for n, k, i in zip(shape, counts, place, strict=True):
        start, end = EvenCut(n, k).range_of(i)
        lo.append(start)
        size.append(end - start)
    return tuple(lo), tuple(size)


def _stay(
    rank: int, src_shape: Shape, dst_shape: Shape, src_lo: Shape, dst_lo: Shape, shape: Shape
) -> Piece:
    return Piece(rank, rank, 0, src_lo, dst_lo, shape, src_shape, dst_shape)


def _slice(action: Slice, before: ArrayType, after: ArrayType, rank: int) -> StepPieces:
    row = _row(before, rank)
    pieces: tuple[Piece, ...] = ()
    if row is not None:
        idle = difference(action.pending, (p for dim in before.dims for p in dim))
        idle = difference(idle, (part for part, _ in action.moves))
        old, new = grid(before).boxes(), grid(after).boxes()
        lo = np.maximum(old[0][row], new[0][row])
        hi = np.minimum(old[1][row], new[1][row])
        if coordinates(before.mesh, idle)[row] == 0 and bool(np.all(hi > lo)):
            src_lo, dst_lo = _shape(lo - old[0][row]), _shape(lo - new[0][row])
            src, dst = tile_shapes(before)[rank], tile_shapes(after)[rank]
            pieces = (_stay(rank, src, dst, src_lo, dst_lo, _shape(hi - lo)),)
    fills = _leaves_room(pieces, after, rank)
    return StepPieces(pieces, after.pending_op, fills, False, True, before.tile_shape)


def _fetch(step: Step, before: ArrayType, rank: int, topology: Topology) -> StepPieces:
    have, need = flow(step.action, before, step.after)
    schedule = make_schedule(have, need, topology)
    n = before.ndim
    partial = bool(resolved_axes(before, step.after))
    have_lo, have_hi = have.boxes()
    need_lo, need_hi = need.boxes()
    src, dst = tile_shapes(before), tile_shapes(step.after)
    pieces = []

    def piece(sender: int, receiver: int, lo: Ints, hi: Ints) -> Piece:
        a, b = int(have.ranks[sender]), int(need.ranks[receiver])
        return Piece(
            a,
            b,
            int(lo[n]) if partial else 0,
            _shape((lo - have_lo[sender])[:n]),
            _shape((lo - need_lo[receiver])[:n]),
            _shape((hi - lo)[:n]),
            src[a],
            dst[b],
        )

    own = own_rows(have, need)
    for row in np.flatnonzero((need.ranks == rank) & (own >= 0) & need.holds):
        lo = np.maximum(have_lo[own[row]], need_lo[row])
        hi = np.minimum(have_hi[own[row]], need_hi[row])
        if bool(np.all(hi > lo)):
            pieces.append(piece(int(own[row]), int(row), lo, hi))
    mine = (have.ranks[schedule.sender] == rank) | (need.ranks[schedule.receiver] == rank)
    for k in np.flatnonzero(mine & np.all(schedule.hi > schedule.lo, axis=1)):
        pieces.append(
            piece(
                int(schedule.sender[k]), int(schedule.receiver[k]), schedule.lo[k], schedule.hi[k]
            )
        )
    pieces.sort(key=lambda p: (p.order, (p.sender - p.receiver) % (len(have.ranks) + 1)))
    fills = _leaves_room(pieces, step.after, rank)
    op = before.pending_op or step.after.pending_op
    is_local = not len(schedule.sender)
    brought = not partial and not is_local and is_brought(before, step.after)
    return StepPieces(tuple(pieces), op, fills, False, is_local, before.tile_shape, brought)


def _all_reduce(axes: Sequence[SubAxis], before: ArrayType, rank: int) -> tuple[StepPieces, ...]:
    """Scatter the sums, then gather them."""
    mesh, row = before.mesh, _row(before, rank)
    scatter: list[Piece] = []
    gather: list[Piece] = []
    if row is not None:
        rest = difference((whole(mesh, name) for name, _ in mesh.axes), axes)
        group, place = coordinates(mesh, rest), coordinates(mesh, axes)
        rows = np.flatnonzero(group == group[row])
        members = [int(r) for r in mesh.rank_array()[rows[np.argsort(place[rows])]]]
        tile = tile_shapes(before)[rank]
        for k, (lo, shape) in enumerate(split(tile, len(members))):
            owner = members[k % len(members)]
            if 0 in shape:
                continue
            for order, member in enumerate(members):
                if rank in (owner, member):
                    scatter.append(Piece(member, owner, order, lo, lo, shape, tile, tile))
                if rank in (owner, member) and owner != member:
                    gather.append(Piece(owner, member, 0, lo, lo, shape, tile, tile))
    scatter.sort(key=lambda p: p.order)
    return (
        StepPieces(tuple(scatter), before.pending_op, False, False, False, before.tile_shape),
        StepPieces(tuple(gather), None, False, True, False, before.tile_shape),
    )


def _leaves_room(pieces: Sequence[Piece], after: ArrayType, rank: int) -> bool:
    written = sum(math.prod(p.shape) for p in pieces if p.receiver == rank and p.order == 0)
    return rank in tile_shapes(after) and written < math.prod(tile_shapes(after)[rank])


def _row(t: ArrayType, rank: int) -> int | None:
    rows = np.flatnonzero(t.mesh.rank_array() == rank)
    return int(rows[0]) if len(rows) else None


def _shape(values: Ints) -> Shape:
    return tuple(int(v) for v in values)
