"""Tiles that shrink along a dim, in the place of even ones: who divides a dim alone gives itself away."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from redist.layout import cuts
from redist.layout.cuts import Index, Ints


@dataclass(frozen=True, slots=True)
class ShrinkingCut:
    """Tile i ends where ((k - i - 1) / k) ** 2 of the dim is left; finer cuts nest in coarser ones.

    >>> ShrinkingCut(16, 4).edges()
    array([ 0,  7, 12, 15, 16])
    """

    size: int
    n_tiles: int

    def edges(self) -> Ints:
        """Where the tiles start, and the end of the last."""
        return _edges(self.size, self.n_tiles)

    @property
    def tile_size(self) -> int:
        """Indices in the largest tile."""
        return int(np.diff(self.edges()).max())

    @property
    def is_even(self) -> bool:
        """Whether every tile has as many."""
        return len(set(np.diff(self.edges()).tolist())) == 1

    @property
    def n_filled(self) -> int:
        """Tiles up to the last that has an index."""
        return int(np.count_nonzero(self.edges()[:-1] < self.size))

    def range_of(self, tile: int) -> tuple[int, int]:
        """Start and end of a tile."""
        lo, hi = self.edges()[tile : tile + 2].tolist()
        return lo, hi

    def ranges_of(self, tiles: Ints) -> tuple[Ints, Ints]:
        """Starts and ends of many tiles."""
        return self.edges()[tiles], self.edges()[tiles + 1]

    def tile_of(self, index: Index) -> Index:
        """The tile that holds an index, or those that hold many."""
        found = np.searchsorted(self.edges(), index, side="right") - 1
        return int(found) if isinstance(index, int) else found

    def place_of(self, index: int) -> tuple[int, int]:
        """The tile that holds an index, and its place in the tile."""
        tile = self.tile_of(index)
        return tile, index - int(self.edges()[tile])

    def tiles_meeting(self, lo: Ints, hi: Ints) -> tuple[Ints, Ints]:
        """The first tile that meets each range, and how many do, empty ones in between included."""
        first, last = self.tile_of(lo), self.tile_of(hi - 1)
        return first, np.where(hi > lo, last - first + 1, 0)

    def nests_in(self, coarse: Any) -> bool:
        """Whether every coarse tile is so many of these."""
        if self.n_tiles % coarse.n_tiles:
            return False
        return bool(np.all(self.edges()[:: self.n_tiles // coarse.n_tiles] == coarse.edges()))

    def same_tiles(self, other: Any) -> bool:
        """Whether both have the same tiles, but for empty ones."""
        return set(self.edges().tolist()) == set(other.edges().tolist())


@cache
def _edges(size: int, n_tiles: int) -> Ints:
    left = np.arange(n_tiles, -1, -1, dtype=np.int64)
    return size - size * left * left // n_tiles**2


def install() -> None:
    """Cut every type so that this process makes from now on."""
    make_even, make = cuts.cut_dim, lru_cache(maxsize=None)(ShrinkingCut)
    for module in list(sys.modules.values()):
        if getattr(module, "cut_dim", None) is make_even:
            vars(module)["cut_dim"] = make
