"""Boxes of a regular grid over an array: which parts of one grid another one meets, and how often."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from redist.layout.tiles import Box
from redist.text.units import ceil_div

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """An array cut into boxes of one shape; those at the far edges are cut off.

    >>> grid = Grid((10, 6), (4, 6))
    >>> grid.counts, grid.box((2, 0))
    ((3, 1), ((8, 10), (0, 6)))
    >>> [*grid.met_by(((3, 9), (0, 2)))]
    [(0, 0), (1, 0), (2, 0)]
    """

    shape: Shape
    part: Shape

    @property
    def counts(self) -> Shape:
        """How many boxes there are along each dim."""
        return tuple(ceil_div(n, p) for n, p in zip(self.shape, self.part, strict=True))

    @property
    def n_boxes(self) -> int:
        """How many boxes there are."""
        return math.prod(self.counts)

    def box(self, index: Sequence[int]) -> Box:
        """The box at an index of the grid."""
        return tuple(
            (i * p, min(n, (i + 1) * p))
            for i, p, n in zip(index, self.part, self.shape, strict=True)
        )

    def boxes(self) -> Iterator[Box]:
        """All boxes, in C order of the grid."""
        return (self.box(index) for index in product(*map(range, self.counts)))

    def nth(self, n: int) -> Box:
        """The box that is the nth in C order of the grid."""
        index = []
        for count in reversed(self.counts):
            n, i = divmod(n, count)
            index.append(i)
        return self.box(index[::-1])

    def met_by(self, box: Box) -> Iterator[Shape]:
        """The indices of the boxes that share elements with a box that is not empty."""
        ranges = [
            range(lo // p, ceil_div(hi, p)) for (lo, hi), p in zip(box, self.part, strict=True)
        ]
        return product(*ranges)


def extent(box: Box) -> Shape:
    """The shape of a box."""
    return tuple(hi - lo for lo, hi in box)


def shared(a: Box, b: Box) -> Box:
    """What two boxes share, where they share something."""
    return tuple((max(lo, low), min(hi, high)) for (lo, hi), (low, high) in zip(a, b, strict=True))


def inside(box: Box, around: Box) -> tuple[Any, ...]:
    """Where a box lies in a buffer that holds the box around it; the index of a view, also without dims.

    >>> inside(((4, 6), (0, 3)), ((2, 8), (0, 3)))
    (slice(2, 4, None), slice(0, 3, None), Ellipsis)
    """
    slices = (slice(lo - at, hi - at) for (lo, hi), (at, _) in zip(box, around, strict=True))
    return (*slices, ...)


def meetings(n: int, part: int, other: int) -> int:
    """How many pairs of parts of two cuts of ``n`` indices share an index.

    Reading the parts of the second cut for each of the first reads so many.

    >>> meetings(12, 4, 4), meetings(12, 4, 6), meetings(12, 4, 12)
    (3, 4, 3)
    """
    if other % part == 0 or part % other == 0:
        return ceil_div(n, min(part, other))
    starts = np.arange(0, n, part, dtype=np.int64)
    ends = np.minimum(starts + part, n)
    return int(np.sum(-(-ends // other) - starts // other))


def place_in_order(box: Box, shape: Sequence[int]) -> int:
    """Elements before a box where boxes of a regular grid lie one behind the other, in C order.

    >>> grid = Grid((5, 3), (2, 2))
    >>> [place_in_order(box, grid.shape) for box in grid.boxes()]
    [0, 4, 6, 10, 12, 14]
    """
    before, outer = 0, 1
    for dim, (lo, hi) in enumerate(box):
        before += outer * lo * math.prod(shape[dim + 1 :])
        outer *= hi - lo
    return before


def place_of_piece(piece: Box, unit: Box, shape: Sequence[int]) -> int:
    """Elements before a piece of a unit where units lie one behind the other, each as its pieces.

    Pieces are what the boxes of another grid share with a unit. A unit, and each piece of it, is one run.

    >>> place_of_piece(((2, 4), (2, 3)), ((0, 4), (2, 3)), (5, 3))
    10
    """
    within = tuple((lo - at, hi - at) for (lo, hi), (at, _) in zip(piece, unit, strict=True))
    return place_in_order(unit, shape) + place_in_order(within, extent(unit))
