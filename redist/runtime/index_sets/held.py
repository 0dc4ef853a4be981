"""Which coordinates of a link a tile holds along one dim, and at which of its own positions.

A link is a product of dims; along each, coordinates 0, 1, ... name an index of the source and one of
the target. An edge is one end of a link: it says what each tile holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.layout.cuts import Cut, Ints
from redist.text.units import ceil_div


@dataclass(frozen=True, slots=True)
class HeldRun:
    """Coordinates ``first, first + 1, ...``, kept at ``at, at + step, ...``."""

    first: int
    n: int
    at: int
    step: int


@dataclass(frozen=True, slots=True, eq=False)
class HeldRuns:
    """Runs of ``n`` coordinates from each of ``firsts``, kept one behind the other."""

    firsts: Ints
    n: int


@dataclass(frozen=True, slots=True, eq=False)
class HeldList:
    """Coordinates one by one, ascending, and where each is kept."""

    coordinates: Ints
    at: Ints


Held = HeldRun | HeldRuns | HeldList


@dataclass(frozen=True, slots=True)
class EdgeRange:
    """Coordinate t is the index ``indices[t]`` of a dim cut into tiles.

    >>> from redist.layout.cuts import cut_dim
    >>> EdgeRange(cut_dim(10, 2), range(9, -1, -2)).held(0)
    HeldRun(first=3, n=2, at=3, step=-2)
    """

    cut: Cut
    indices: range

    def held(self, tile: Any) -> HeldRun:
        """What a tile holds."""
        return within(self.indices, *self.cut.range_of(tile))


@dataclass(frozen=True, slots=True)
class EdgeConstant:
    """Every coordinate is the one index of a dim of size 1, cut or not."""

    n: int

    def held(self, tile: Any) -> HeldRun:
        """What a tile holds."""
        return HeldRun(0, self.n if tile == 0 else 0, 0, 0)


@dataclass(frozen=True, slots=True)
class EdgeRagged:
    """Tile k holds the coordinates from ``starts[k]`` to ``starts[k + 1]``."""

    starts: tuple[int, ...]

    def held(self, tile: Any) -> HeldRun:
        """What a tile holds."""
        return HeldRun(self.starts[tile], self.starts[tile + 1] - self.starts[tile], 0, 1)


@dataclass(frozen=True, slots=True, eq=False)
class EdgeList:
    """Coordinate t is any index ``indices[t]``, alike on all ranks."""

    cut: Cut
    indices: Ints

    def held(self, tile: Any) -> HeldList:
        """What a tile holds."""
        lo, hi = self.cut.range_of(tile)
        (found,) = np.nonzero((self.indices >= lo) & (self.indices < hi))
        return HeldList(found, self.indices[found] - lo)


@dataclass(frozen=True, slots=True)
class EdgeFlat:
    """Coordinate t is an index of several dims together, counted row by row; a tile is a box.

    >>> from redist.layout.cuts import cut_dim
    >>> EdgeFlat((cut_dim(4, 1), cut_dim(6, 2))).held((0, 1)).firsts.tolist()
    [3, 9, 15, 21]
    """

    cuts: tuple[Cut, ...]

    def held(self, tile: Any) -> HeldRuns:
        """What a tile holds."""
        sizes = [cut.size for cut in self.cuts]
        box = [cut.range_of(i) for cut, i in zip(self.cuts, tile, strict=True)]
        if any(lo == hi for lo, hi in box):
            return HeldRuns(np.zeros(0, dtype=np.int64), 0)
        inner, at = 1, len(box)
        while at > 0 and box[at - 1] == (0, sizes[at - 1]):
            at -= 1
            inner *= sizes[at]
        firsts, n = np.zeros(1, dtype=np.int64), inner
        if at > 0:
            lo, hi = box[at - 1]
            firsts, n = firsts + lo * inner, (hi - lo) * inner
        stride = inner * (sizes[at - 1] if at > 0 else 1)
        for i in range(at - 2, -1, -1):
            steps = np.arange(*box[i], dtype=np.int64) * stride
            firsts = (steps[:, np.newaxis] + firsts).reshape(-1)
            stride *= sizes[i]
        return HeldRuns(firsts, n)


def within(indices: range, lo: int, hi: int) -> HeldRun:
    """Which of a range are in a tile from lo to hi."""
    start, step, n = indices.start, indices.step, len(indices)
    if step > 0:
        first, last = ceil_div(lo - start, step), ceil_div(hi - start, step)
    else:
        first, last = (start - hi) // -step + 1, (start - lo) // -step + 1
    first, last = max(0, first), min(n, last)
    return HeldRun(first, max(0, last - first), start + step * first - lo, step)


Edge = EdgeRange | EdgeConstant | EdgeRagged | EdgeList | EdgeFlat
