"""Rounds: which part of which array passes through the staging buffer at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from redist.runtime.phases import Piece, Shape, box_at, split_counts

ALIGN = 64


@dataclass(frozen=True, slots=True)
class Slab:
    """A part of every rank's tile of one array: dims cut by ``counts``, the box at ``place``.

    Ranks with equal tiles have equal slabs, so all partial values of an element pass in one round.
    ``offset`` is where the part lies in the staging buffer, C-contiguous.
    """

    item: int
    counts: Shape
    place: Shape
    offset: int

    def box(self, tile: Sequence[int]) -> tuple[Shape, Shape]:
        """Start and shape of this part of a tile."""
        return box_at(tile, self.counts, self.place)


def make_rounds(
    tiles: Sequence[tuple[Shape, int]], slot_bytes: int
) -> tuple[tuple[Slab, ...], ...]:
    """Rounds that take tiles of (shape, itemsize) through a slot, as many at a time as fit.

    >>> [[(s.item, s.place) for s in r] for r in make_rounds([((4, 8), 4), ((2,), 4)], 64)]
    [[(0, (0, 0))], [(0, (1, 0))], [(1, (0,))]]
    """
    rounds: list[list[Slab]] = [[]]
    used = 0
    for item, (shape, itemsize) in enumerate(tiles):
        counts = _counts(shape, itemsize, slot_bytes)
        part = [-(-n // k) for n, k in zip(shape, counts, strict=True)]
        n_bytes = math.prod(part) * itemsize
        for place in np.ndindex(*counts):
            if rounds[-1] and used + n_bytes > slot_bytes:
                rounds.append([])
                used = 0
            rounds[-1].append(Slab(item, counts, place, used))
            used += -(-n_bytes // ALIGN) * ALIGN
    return tuple(tuple(slabs) for slabs in rounds)


def whole(n_dims: Sequence[int]) -> tuple[tuple[Slab, ...], ...]:
    """One round that takes everything: nothing passes through staging."""
    return (tuple(Slab(i, (1,) * n, (0,) * n, 0) for i, n in enumerate(n_dims)),)


def part_of(piece: Piece, slab: Slab) -> Piece | None:
    """What a piece has in a slab of its sender's tile."""
    at, shape = slab.box(piece.src_shape)
    lo = tuple(map(max, piece.src_lo, at))
    ends = (a + n for a, n in zip(piece.src_lo, piece.shape, strict=True))
    hi = tuple(map(min, ends, (a + n for a, n in zip(at, shape, strict=True))))
    size = tuple(b - a for a, b in zip(lo, hi, strict=True))
    if any(n <= 0 for n in size):
        return None
    moved = (d + a - s for d, a, s in zip(piece.dst_lo, lo, piece.src_lo, strict=True))
    return Piece(
        piece.sender,
        piece.receiver,
        piece.order,
        lo,
        tuple(moved),
        size,
        piece.src_shape,
        piece.dst_shape,
    )


def _counts(shape: Shape, itemsize: int, slot_bytes: int) -> Shape:
    """The least cut of a tile into parts that fit, outer dims first."""
    parts = max(1, -(-math.prod(shape) * itemsize // max(1, slot_bytes)))
    while True:
        counts = split_counts(shape, parts)
        part = math.prod(-(-n // k) for n, k in zip(shape, counts, strict=True))
        if part * itemsize <= slot_bytes or part <= 1:
            return counts
        parts = max(parts + 1, parts * 9 // 8)
