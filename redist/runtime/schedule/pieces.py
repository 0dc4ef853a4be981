"""List what one rank fetches and gives in a step: boxes between tiles, in the order they combine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, coordinates, whole
from redist.layout.cuts import EvenCut
from redist.layout.tiles import boxes_of, tile_shapes
from redist.plan.pieces import Piece, Shape, list_pieces
from redist.plan.rules import difference, resolved_axes
from redist.plan.steps import AllReduce, Step
from redist.plan.topology import Topology
from redist.text.units import ceil_div

# Choose who copies a step within a node: the receivers fetch, or the senders bring.
#
# Reading is what costs where runs are short: memory that is read here and there misses the caches of
# addresses and the rows of the memory chips, while writing in a few ascending streams does not. So that
# rank copies on whose side memory is read in order. If the rows of a source are dealt out to many targets
# (a matrix from rows to columns), the sender brings; if the rows of a target are put together from many
# sources (columns to rows), the receiver fetches.


BROUGHT_RUN_BYTES = 2**20
"""Runs of this size are read equally fast from anywhere: receivers fetch, as they always may."""


def is_brought(before: ArrayType, after: ArrayType) -> bool:
    """Whether senders bring: runs in the source are short, and shorter than in the target.

    It depends on the types alone, so all ranks answer alike.

    >>> from redist import Mesh
    >>> rows = ArrayType.parse("f64[64{x}, 64]", Mesh(x=4))
    >>> columns = ArrayType.parse("f64[64, 64{x}]", Mesh(x=4))
    >>> is_brought(rows, columns), is_brought(columns, rows)
    (True, False)
    """
    source, target = before.tile_shape, after.tile_shape
    shape = tuple(map(min, source, target))
    run = _run(shape, source)
    return run < _run(shape, target) and run * before.dtype.itemsize < BROUGHT_RUN_BYTES


def _run(shape: tuple[int, ...], tile: tuple[int, ...]) -> int:
    """Elements of a box that lie together in a tile."""
    run = 1
    for n, width in zip(reversed(shape), reversed(tile), strict=True):
        run *= n
        if n != width:
            break
    return run


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
    >>> from redist.plan.rates import FLAT
    >>> plan = redist.synthesize("f32[4{x}, 4]", "f32[4, 4{x}]", mesh=redist.Mesh(x=2))
    >>> (part,) = pieces_of_step(plan.steps[0], plan.source, 0, FLAT)
    >>> [(p.sender, p.receiver, p.src_lo, p.dst_lo, p.shape) for p in part.pieces]
    [(0, 0, (0, 0), (0, 0), (2, 2)), (1, 0, (0, 0), (2, 0), (2, 2)), (0, 1, (0, 2), (0, 0), (2, 2))]
    """
    if isinstance(step.action, AllReduce):
        return _all_reduce(step.action.axes, before, rank)
    after = step.after
    pieces, moves = list_pieces(step.action, before, after, topology, rank)
    is_partial = bool(resolved_axes(before, after))
    return (
        StepPieces(
            tuple(pieces),
            before.pending_op or after.pending_op,
            _leaves_room(pieces, after, rank),
            False,
            not moves,
            before.tile_shape,
            moves and not is_partial and is_brought(before, after),
        ),
    )


def pieces_of_copy(t: ArrayType, rank: int) -> StepPieces:
    """The pieces of one rank in a plan without steps: its tile is copied."""
    shape = tile_shapes(t).get(rank)
    zero = (0,) * t.ndim
    pieces = () if shape is None else (Piece(rank, rank, 0, zero, zero, shape, shape, shape),)
    return StepPieces(pieces, None, False, False, True, t.tile_shape)


Ends = tuple[ArrayType, ArrayType]
"""Types before and after a step."""


def relocate(step: StepPieces, inner: Ends, outer: Ends, in_place: bool) -> StepPieces:
    """The same pieces between larger tiles in which those of the step lie.

    If both are one, ``in_place``, what would be copied onto itself is left out.
    """
    if inner == outer and not in_place:
        return step
    (src_shift, src_shapes), (dst_shift, dst_shapes) = map(_places, inner, outer)
    pieces = []
    for p in step.pieces:
        src_lo = tuple(a + b for a, b in zip(p.src_lo, src_shift[p.sender], strict=True))
        dst_lo = tuple(a + b for a, b in zip(p.dst_lo, dst_shift[p.receiver], strict=True))
        if in_place and p.sender == p.receiver and src_lo == dst_lo:
            continue
        src, dst = src_shapes[p.sender], dst_shapes[p.receiver]
        pieces.append(replace(p, src_lo=src_lo, dst_lo=dst_lo, src_shape=src, dst_shape=dst))
    brought = step.is_brought and not in_place and is_brought(*outer)
    tile = outer[0].tile_shape
    return replace(step, pieces=tuple(pieces), src_tile=tile, is_brought=brought)


def _places(inner: ArrayType, outer: ArrayType) -> tuple[dict[int, Shape], dict[int, Shape]]:
    """Where the tile of every rank begins in its larger tile, and the shape of that."""
    here, there = boxes_of(inner), boxes_of(outer)
    shifts = {
        rank: tuple(lo - start for (lo, _), (start, _) in zip(box, there[rank], strict=True))
        for rank, box in here.items()
    }
    return shifts, tile_shapes(outer)


def split(shape: Sequence[int], parts: int) -> Iterator[tuple[Shape, Shape]]:
    """A box as at least ``parts`` boxes (lo, shape) in C order, as long as it has the elements.

    >>> list(split((2, 5), 4))
    [((0, 0), (1, 3)), ((0, 3), (1, 2)), ((1, 0), (1, 3)), ((1, 3), (1, 2))]
    """
    counts = split_counts(shape, parts)
    for place in itertools.product(*map(range, counts)):
        yield box_at(shape, counts, place)


def split_counts(shape: Sequence[int], parts: int) -> Shape:
    """Into how many each dim is cut, outer dims first, for at least ``parts`` boxes."""
    counts = []
    for n in shape:
        k = max(1, min(n, parts))
        counts.append(k)
        parts = ceil_div(parts, k)
    return tuple(counts)


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
