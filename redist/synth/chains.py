"""Chains: ordered tuples of factors of a mesh, any of which may cut any dim.

What ranks hold along a dim depends on its chain alone, so ranges, overlaps and counts of tiles are
looked up here by the chain's number, for all chains and ranks at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.cuts import Cut, cut_dim
from redist.layout.mesh import Mesh
from redist.layout.tiles import Ints, coordinates

Bools = NDArray[np.bool_]
Chain = tuple[int, tuple[int, ...]]
"""The number of a mesh, and numbers of its factors, major first."""


@lru_cache(maxsize=64)
def all_chains(n_factors: int) -> tuple[tuple[int, ...], ...]:
    """All ordered tuples of some of so many factors.

    >>> all_chains(2)
    ((), (0,), (1,), (0, 1), (1, 0))
    """
    return tuple(chain for k in range(n_factors + 1) for chain in permutations(range(n_factors), k))


@dataclass(frozen=True, slots=True, eq=False)
class ChainTable:
    """The chains of one or two meshes over which an array may be laid out.

    ``lo`` and ``hi`` have for every dim the range of each rank (column) under each chain (row);
    ``present`` says which ranks each mesh has.
    """

    shape: tuple[int, ...]
    chains: tuple[Chain, ...]
    n_tiles: tuple[int, ...]
    ranks: Ints
    present: Bools
    lo: tuple[Ints, ...]
    hi: tuple[Ints, ...]
    _overlap: dict[tuple[int, int], Ints] = field(default_factory=dict)
    _count: dict[tuple[int, int], Ints] = field(default_factory=dict)
    _same: dict[tuple[int, int], Bools] = field(default_factory=dict)

    @staticmethod
    def of(like: tuple[ArrayType, ...], factors: tuple[tuple[SubAxis, ...], ...]) -> ChainTable:
        """All chains of the factors of each mesh, for an array like the types given."""
        ranks = np.unique(np.concatenate([t.mesh.rank_array() for t in like]))
        present = np.zeros((len(like), len(ranks)), dtype=np.bool_)
        chains: list[Chain] = []
        index: list[Ints] = []
        n_tiles: list[int] = []
        for number, (t, parts) in enumerate(zip(like, factors, strict=True)):
            at = np.searchsorted(ranks, t.mesh.rank_array())
            present[number, at] = True
            digits = [_scatter(t.mesh, [part], at, len(ranks)) for part in parts]
            for chain in all_chains(len(parts)):
                place = np.zeros(len(ranks), dtype=np.int64)
                for f in chain:
                    place = place * parts[f].size + digits[f]
                chains.append((number, chain))
                index.append(place)
                n_tiles.append(math.prod(parts[f].size for f in chain))
        outside = ~present[[number for number, _ in chains]]
        lo, hi = [], []
        for n in like[0].shape:
            pairs = [cut_dim(n, k).ranges_of(i) for k, i in zip(n_tiles, index, strict=True)]
            starts = np.stack([start for start, _ in pairs])
            ends = np.stack([end for _, end in pairs])
            starts[outside] = 0
            ends[outside] = 0
            lo.append(starts)
            hi.append(ends)
        return ChainTable(
            like[0].shape, tuple(chains), tuple(n_tiles), ranks, present, tuple(lo), tuple(hi)
        )

    def __len__(self) -> int:
        return len(self.chains)

    def cut(self, dim: int, chain: int) -> Cut:
        """How a chain cuts a dim."""
        return cut_dim(self.shape[dim], self.n_tiles[chain])

    def tile_sizes(self, dim: int) -> Ints:
        """The size of a full tile of a dim under every chain."""
        return np.array([self.cut(dim, c).tile_size for c in range(len(self))], dtype=np.int64)

    def are_even(self, dim: int) -> Bools:
        """Whether all tiles of a dim are full, under every chain."""
        return np.array([self.cut(dim, c).is_even for c in range(len(self))], dtype=np.bool_)

    def same_tiles(self, dim: int, chain: int) -> Bools:
        """Which chains cut a dim into the same tiles as this one."""
        key = (dim, self.n_tiles[chain])
        if key not in self._same:
            own, every = self.cut(dim, chain), (self.cut(dim, c) for c in range(len(self)))
            self._same[key] = np.array([own.same_tiles(cut) for cut in every], dtype=np.bool_)
        return self._same[key]

    def overlap_row(self, dim: int, chain: int) -> Ints:
        """Elements that each rank has in common along a dim under this chain and under every other."""
        key = (dim, chain)
        if key not in self._overlap:
            lo, hi = self.lo[dim], self.hi[dim]
            inner = np.minimum(hi, hi[chain]) - np.maximum(lo, lo[chain])
            self._overlap[key] = np.maximum(inner, 0)
        return self._overlap[key]

    def count_row(self, dim: int, chain: int) -> Ints:
        """How many tiles of this chain meet each rank's range under every other chain."""
        key = (dim, chain)
        if key not in self._count:
            self._count[key] = self.cut(dim, chain).tiles_meeting(self.lo[dim], self.hi[dim])[1]
        return self._count[key]

    def count_to_row(self, dim: int, chain: int) -> Ints:
        """How many tiles of every other chain meet each rank's range under this chain."""
        key = (-1 - dim, chain)
        if key not in self._count:
            lo, hi = self.lo[dim][chain], self.hi[dim][chain]
            each = {
                k: cut_dim(self.shape[dim], k).tiles_meeting(lo, hi)[1] for k in set(self.n_tiles)
            }
            self._count[key] = np.stack([each[k] for k in self.n_tiles])
        return self._count[key]

    def nested_prefix(self, dim: int) -> Bools:
        """[c, d]: chain c begins chain d, and the tiles of d nest in those of c."""
        return _prefix_table(self.chains, self.n_tiles, self.shape[dim])


@lru_cache(maxsize=256)
def _prefix_table(chains: tuple[Chain, ...], n_tiles: tuple[int, ...], n: int) -> Bools:
    number = {chain: i for i, chain in enumerate(chains)}
    table = np.zeros((len(chains), len(chains)), dtype=np.bool_)
    for d, (mesh, chain) in enumerate(chains):
        for k in range(len(chain) + 1):
            c = number[mesh, chain[:k]]
            table[c, d] = cut_dim(n, n_tiles[d]).nests_in(cut_dim(n, n_tiles[c]))
    return table


def _scatter(mesh: Mesh, parts: list[SubAxis], at: Ints, n_ranks: int) -> Ints:
    out = np.zeros(n_ranks, dtype=np.int64)
    out[at] = coordinates(mesh, parts)
    return out
