"""Chains: ordered tuples of factors of a mesh, any of which may cut any dim.

What ranks hold along a dim depends on its chain alone, so ranges, overlaps and counts of tiles are
looked up here by the chain's number, for all chains and ranks at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, coordinates
from redist.layout.cuts import Cut, cut_dim
from redist.layout.mesh import Mesh
from redist.layout.tiles import Ints

Bools = NDArray[np.bool_]
Chain = tuple[int, tuple[int, ...]]
"""The number of a mesh, and numbers of its factors, major first."""


@lru_cache(maxsize=64)
def all_chains(n_factors: int) -> tuple[tuple[int, ...], ...]:
    """All ordered tuples of some of this many factors.

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

    like: tuple[ArrayType, ...]
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
        index: dict[Chain, Ints] = {}
        n_tiles: list[int] = []
        for number, (t, parts) in enumerate(zip(like, factors, strict=True)):
            at = np.searchsorted(ranks, t.mesh.rank_array())
            present[number, at] = True
            digits = [_scatter(t.mesh, [part], at, len(ranks)) for part in parts]
            index[number, ()] = np.zeros(len(ranks), dtype=np.int64)
            for chain in all_chains(len(parts)):
                if chain:
                    f = chain[-1]
                    index[number, chain] = index[number, chain[:-1]] * parts[f].size + digits[f]
                chains.append((number, chain))
                n_tiles.append(math.prod(parts[f].size for f in chain))
        outside = ~present[[number for number, _ in chains]]
        places = np.stack([index[chain] for chain in chains])
        counts = np.array(n_tiles, dtype=np.int64)
        alike = {int(k): np.flatnonzero(counts == k) for k in np.unique(counts)}
        lo, hi = [], []
        for n in like[0].shape:
            starts, ends = np.empty_like(places), np.empty_like(places)
            for k, rows in alike.items():
                starts[rows], ends[rows] = cut_dim(n, k).ranges_of(places[rows])
            starts[outside] = 0
            ends[outside] = 0
            lo.append(starts)
            hi.append(ends)
        return ChainTable(like, tuple(chains), tuple(n_tiles), ranks, present, tuple(lo), tuple(hi))

    def __len__(self) -> int:
        return len(self.chains)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.like[0].shape

    def place(self, mesh: int, parts: Sequence[SubAxis]) -> Ints:
        """The coordinate of every rank of a mesh on some axes; 0 for ranks that it does not have."""
        at = np.searchsorted(self.ranks, self.like[mesh].mesh.rank_array())
        return _scatter(self.like[mesh].mesh, parts, at, len(self.ranks))

    def cut(self, dim: int, chain: int) -> Cut:
        """How a chain cuts a dim."""
        return cut_dim(self.shape[dim], self.n_tiles[chain])

    def _by_cut(self, dim: int, ask: Callable[[Cut], int]) -> Ints:
        """An answer for every chain, asked once for every number of tiles."""
        answers = {k: ask(cut_dim(self.shape[dim], k)) for k in set(self.n_tiles)}
        return np.array([answers[k] for k in self.n_tiles], dtype=np.int64)

    def tile_sizes(self, dim: int) -> Ints:
        """The size of a full tile of a dim under every chain."""
        return self._by_cut(dim, lambda cut: cut.tile_size)

    def are_even(self, dim: int) -> Bools:
        """Whether all tiles of a dim are full, under every chain."""
        return self._by_cut(dim, lambda cut: cut.is_even) > 0

    def same_tiles(self, dim: int, chain: int) -> Bools:
        """Which chains cut a dim into the same tiles as this one."""
        key = (dim, self.n_tiles[chain])
        if key not in self._same:
            own = self.cut(dim, chain)
            self._same[key] = self._by_cut(dim, own.same_tiles) > 0
        return self._same[key]

    def length(self, dim: int) -> Ints:
        """Indices of a dim that each rank holds under every chain."""
        key = (dim, -1)
        if key not in self._overlap:
            self._overlap[key] = self.hi[dim] - self.lo[dim]
        return self._overlap[key]

    def overlaps(self, dim: int, chain: int, others: Ints) -> Ints:
        """Elements that each rank has in common along a dim under this chain and under each of others."""
        lo, hi = self.lo[dim], self.hi[dim]
        key = (dim, chain)
        if key not in self._overlap:
            if self._are_few(others):
                inner = np.minimum(hi[others], hi[chain]) - np.maximum(lo[others], lo[chain])
                return np.maximum(inner, 0)
            inner = np.minimum(hi, hi[chain]) - np.maximum(lo, lo[chain])
            self._overlap[key] = np.maximum(inner, 0)
        return self._overlap[key][others]

    def counts(self, dim: int, chain: int, others: Ints) -> Ints:
        """How many tiles of this chain meet each rank's range under each of others."""
        lo, hi = self.lo[dim], self.hi[dim]
        key = (dim, chain)
        if key not in self._count:
            cut = self.cut(dim, chain)
            if self._are_few(others):
                return cut.tiles_meeting(lo[others], hi[others])[1]
            self._count[key] = cut.tiles_meeting(lo, hi)[1]
        return self._count[key][others]

    def counts_of(self, dim: int, chain: int, others: Ints) -> Ints:
        """How many tiles of each of others meet each rank's range under this chain."""
        counts, kind = self._cut_kinds()
        key = (-1 - dim, chain)
        if key not in self._count:
            lo, hi = self.lo[dim][chain], self.hi[dim][chain]
            each = [cut_dim(self.shape[dim], int(k)).tiles_meeting(lo, hi)[1] for k in counts]
            self._count[key] = np.stack(each)
        return self._count[key][kind[others]]

    def _are_few(self, others: Ints) -> bool:
        """Whether it is quicker to look at these than at all chains once."""
        return 2 * len(others) < len(self)

    def _cut_kinds(self) -> tuple[Ints, Ints]:
        """The numbers of tiles that chains make, and which of them each chain makes."""
        if (-1, -1) not in self._count:
            counts, kind = np.unique(np.array(self.n_tiles), return_inverse=True)
            self._count[-1, -1] = counts
            self._count[-1, -2] = kind
        return self._count[-1, -1], self._count[-1, -2]

    def nested_prefix(self, dim: int) -> Bools:
        """[c, d]: chain c begins chain d, and the tiles of d nest in those of c."""
        key = (dim, -1)
        if key not in self._same:
            counts, kind = self._cut_kinds()
            cuts = [cut_dim(self.shape[dim], int(k)) for k in counts]
            nests = np.array([[fine.nests_in(cut) for fine in cuts] for cut in cuts])
            begins, where = _prefixes(self.chains)
            table = np.zeros((len(self), len(self)), dtype=np.bool_)
            table[begins, where] = nests[kind[begins], kind[where]]
            self._same[key] = table
        return self._same[key]


@lru_cache(maxsize=64)
def _prefixes(chains: tuple[Chain, ...]) -> tuple[Ints, Ints]:
    """All pairs of a chain that begins another, and that other."""
    number = {chain: i for i, chain in enumerate(chains)}
    pairs = [
        (number[mesh, chain[:k]], d)
        for d, (mesh, chain) in enumerate(chains)
        for k in range(len(chain) + 1)
    ]
    begins, where = np.array(pairs, dtype=np.int64).T
    return begins, where


def _scatter(mesh: Mesh, parts: Sequence[SubAxis], at: Ints, n_ranks: int) -> Ints:
    out = np.zeros(n_ranks, dtype=np.int64)
    out[at] = coordinates(mesh, parts)
    return out
