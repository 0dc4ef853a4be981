"""Cuts: into which tiles a dim is divided; the one place that says which tile holds which index.

>>> cut = cut_dim(10, 4)
>>> [cut.range_of(tile) for tile in range(4)], cut.tile_of(7)
([(0, 3), (3, 6), (6, 9), (9, 10)], 2)

Everything else asks a cut and never multiplies a tile number by a size, nor divides an index by one.
Only `check` does its own arithmetic, so that its verdict is independent of this file.

A further kind of cut is a further frozen class here, a member of the union ``Cut``, and a case where
:func:`cut_dim` makes cuts. It answers the same questions. One whose tiles are several ranges each
(blocks dealt in turn) has no ``range_of``, ``ranges_of``, ``place_of`` or ``tiles_meeting``: the type
checker then names every place that takes a tile for one range, first of all
:class:`redist.layout.tiles.Grid`, which takes it for a box.

Who assumes that cuts are even, and says so with :class:`EvenCut` or by its nature: `check` (above) and the
formulas of `proofs`; rounds and shares of one tile; functions of `pgas` that make a type of k c indices
so that each of k tiles has c (products in blocks, values along a cut dim, tall QR, transforms of cut
lines); exchange with JAX and PyTorch, which cut evenly. The program tests/programs/mpi/shrinking.py puts
tiles of other sizes here and finds that all the rest follows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from redist.text.units import ceil_div

Ints = NDArray[np.int64]
Index = TypeVar("Index", int, Ints)


@dataclass(frozen=True, slots=True)
class EvenCut:
    """``size`` indices in ``n_tiles`` ranges of one length, in order; the last ones may be short or empty.

    >>> EvenCut(5, 4).tile_size, EvenCut(5, 4).n_filled, EvenCut(5, 4).is_even
    (2, 3, False)
    """

    size: int
    n_tiles: int
    tile_size: int = field(init=False, repr=False, compare=False)
    """Indices in a full tile; no tile has more."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tile_size", ceil_div(self.size, self.n_tiles))

    @property
    def is_even(self) -> bool:
        """Whether every tile is full."""
        return self.size % self.n_tiles == 0

    @property
    def n_filled(self) -> int:
        """The number of tiles that are not empty; they come first."""
        return ceil_div(self.size, self.tile_size or 1)

    def range_of(self, tile: int) -> tuple[int, int]:
        """Start and end of a tile."""
        start = min(tile * self.tile_size, self.size)
        return start, min(start + self.tile_size, self.size)

    def ranges_of(self, tiles: Ints) -> tuple[Ints, Ints]:
        """Starts and ends of many tiles.

        >>> EvenCut(10, 4).ranges_of(np.array([0, 3]))
        (array([0, 9]), array([ 3, 10]))
        """
        start = np.minimum(tiles * self.tile_size, self.size)
        return start, np.minimum(start + self.tile_size, self.size)

    def edges(self) -> Ints:
        """The starts of the tiles, in order, and the end of the last one.

        >>> EvenCut(5, 4).edges()
        array([0, 2, 4, 5, 5])
        """
        return self.ranges_of(np.arange(self.n_tiles + 1, dtype=np.int64))[0]

    def tile_of(self, index: Index) -> Index:
        """The tile that holds an index; for an array of indices, an array of tiles."""
        return index // (self.tile_size or 1)

    def place_of(self, index: int) -> tuple[int, int]:
        """The tile that holds an index, and its place in the tile.

        >>> EvenCut(10, 4).place_of(7)
        (2, 1)
        """
        return divmod(index, self.tile_size or 1)

    def tiles_meeting(self, lo: Ints, hi: Ints) -> tuple[Ints, Ints]:
        """For each range from lo to hi, the first tile that shares an index with it, and how many tiles do.

        >>> EvenCut(10, 4).tiles_meeting(np.array([2, 4]), np.array([7, 4]))
        (array([0, 1]), array([3, 0]))
        """
        tile_size = self.tile_size or 1
        first = lo // tile_size
        return first, np.where(hi > lo, (hi - 1) // tile_size - first + 1, 0)

    def nests_in(self, coarse: Cut) -> bool:
        """Whether every tile of a coarser cut consists of the same number of tiles of this cut, in order.

        >>> [EvenCut(n, 4).nests_in(EvenCut(n, k)) for n, k in ((10, 2), (12, 2), (7, 1))]
        [False, True, True]
        """
        if self.n_tiles % coarse.n_tiles != 0:
            return False
        if coarse.n_tiles == 1 or self.is_even:
            return True
        tiles = np.arange(coarse.n_tiles, dtype=np.int64)
        starts, _ = self.ranges_of(tiles * (self.n_tiles // coarse.n_tiles))
        return bool(np.all(starts == coarse.ranges_of(tiles)[0]))

    def same_tiles(self, other: Cut) -> bool:
        """Whether both cuts have the same tiles, apart from empty ones.

        >>> EvenCut(5, 4).same_tiles(EvenCut(5, 3))
        True
        """
        return (self.size, self.tile_size) == (other.size, other.tile_size)


Cut: TypeAlias = EvenCut
"""How a dim is cut: today one kind, later a union of several."""


@lru_cache(maxsize=2**16)
def cut_dim(size: int, n_tiles: int) -> Cut:
    """The cut of a dim of this many indices into this many tiles."""
    return EvenCut(size, n_tiles)
