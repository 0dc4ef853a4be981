"""The space of types that the search walks: all ordered layouts of some factors of the meshes.

Every type is a row of chain numbers, one per dim; a chain is an ordered tuple of factors of one
mesh. What ranks hold along a dim depends on the chain alone, so overlaps are looked up per chain
and multiplied over dims, for thousands of types at once.
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
from redist.layout.mesh import Mesh
from redist.layout.tiles import Ints, bounds, coordinates
from redist.plan.rules import nested
from redist.text.units import ceil_div

Bools = NDArray[np.bool_]


@lru_cache(maxsize=64)
def _arrangements(n_factors: int, n_dims: int) -> tuple[tuple[tuple[int, ...], ...], Ints]:
    """All chains of so many factors, and all rows of disjoint chains over so many dims."""
    chains = tuple(
        chain for k in range(n_factors + 1) for chain in permutations(range(n_factors), k)
    )
    masks = np.array([sum(1 << f for f in chain) for chain in chains], dtype=np.int64)
    rows = np.zeros((1, 0), dtype=np.int64)
    used = np.zeros(1, dtype=np.int64)
    for _ in range(n_dims):
        left, right = np.nonzero((used[:, None] & masks[None, :]) == 0)
        rows = np.concatenate([rows[left], right[:, None]], axis=1)
        used = used[left] | masks[right]
    return chains, rows


def n_types(n_factors: int, n_dims: int) -> int:
    """How many ordered layouts there are.

    >>> n_types(4, 4), n_types(5, 4)
    (1457, 12341)
    """
    if n_dims == 0:
        return 1
    return sum(
        math.comb(n_factors, k) * math.factorial(k) * math.comb(k + n_dims - 1, k)
        for k in range(n_factors + 1)
    )


@dataclass(slots=True, eq=False)
class TypeSpace:
    """Types of one array over the factors of one or two meshes, as numbers."""

    shape: tuple[int, ...]
    like: tuple[ArrayType, ...]
    factors: tuple[tuple[SubAxis, ...], ...]
    chains: list[tuple[int, tuple[int, ...]]]
    cuts: Ints
    rows: Ints
    mesh_of: Ints
    present: Bools
    lo: list[Ints]
    hi: list[Ints]
    volumes: Ints
    tile_elems: Ints
    _number: dict[tuple[int, tuple[int, ...]], int]
    ranks: Ints
    every_row: Ints
    kept_rows: Ints
    _blocks: dict[int, Ints] = field(default_factory=dict)
    _overlap: dict[tuple[int, int], Ints] = field(default_factory=dict)
    _count: dict[tuple[int, int], Ints] = field(default_factory=dict)
    _types: dict[int, ArrayType] = field(default_factory=dict)

    @staticmethod
    def over(
        like: tuple[ArrayType, ...],
        factors: tuple[tuple[SubAxis, ...], ...],
        cap_elems: int | None,
        even: bool,
        distinct: bool,
        also: tuple[ArrayType, ...],
    ) -> TypeSpace:
        """All types like those given (one per mesh), of at most ``cap_elems`` a tile, and ``also``.

        ``even`` leaves out types with short tiles, ``distinct`` those that are another spelling of
        the layout of an earlier type.
        """
        shape = like[0].shape
        ranks = np.unique(np.concatenate([t.mesh.rank_array() for t in like]))
        chains: list[tuple[int, tuple[int, ...]]] = []
        rows, mesh_of, index, cuts = [], [], [], []
        present = np.zeros((len(like), len(ranks)), dtype=np.bool_)
        for number, (t, parts) in enumerate(zip(like, factors, strict=True)):
            own_chains, own_rows = _arrangements(len(parts), len(shape))
            at = np.searchsorted(ranks, t.mesh.rank_array())
            present[number, at] = True
            digits = [_scatter(t.mesh, [part], at, len(ranks)) for part in parts]
            for chain in own_chains:
                place = np.zeros(len(ranks), dtype=np.int64)
                for f in chain:
                    place = place * parts[f].size + digits[f]
                index.append(place)
                cuts.append(math.prod(parts[f].size for f in chain))
            rows.append(own_rows + len(chains))
            mesh_of.append(np.full(len(own_rows), number, dtype=np.int64))
            chains += [(number, chain) for chain in own_chains]
        mesh_of_chain = np.array([number for number, _ in chains], dtype=np.int64)
        outside = ~present[mesh_of_chain]
        lo, hi = [], []
        for n in shape:
            pairs = [bounds(n, k, place) for k, place in zip(cuts, index, strict=True)]
            starts = np.stack([start for start, _ in pairs])
            ends = np.stack([end for _, end in pairs])
            starts[outside] = 0
            ends[outside] = 0
            lo.append(starts)
            hi.append(ends)
        space = TypeSpace(
            shape,
            like,
            factors,
            chains,
            np.array(cuts, dtype=np.int64),
            every_row := np.concatenate(rows),
            np.concatenate(mesh_of),
            present,
            lo,
            hi,
            np.empty((0, 0), dtype=np.int64),
            np.empty(0, dtype=np.int64),
            {chain: i for i, chain in enumerate(chains)},
            ranks,
            every_row,
            np.arange(len(every_row), dtype=np.int64),
        )
        keep = space._kept(cap_elems, even)
        if distinct:
            keep = space._first_of_layout(keep)
        for t in also:
            keep[space.find(t)] = True
        space.every_row, space.kept_rows = space.rows, np.flatnonzero(keep)
        space.rows, space.mesh_of = space.rows[keep], space.mesh_of[keep]
        space.tile_elems = space._tiles()
        space.volumes = space.present[space.mesh_of].astype(np.int64)
        for i in range(len(shape)):
            space.volumes *= (hi[i] - lo[i])[space.rows[:, i]]
        return space

    def _tiles(self) -> Ints:
        out = np.ones(len(self.rows), dtype=np.int64)
        for i, n in enumerate(self.shape):
            out *= -(-n // self.cuts[self.rows[:, i]])
        return out

    def _kept(self, cap_elems: int | None, even: bool) -> Bools:
        keep = np.ones(len(self.rows), dtype=np.bool_)
        if cap_elems is not None:
            keep &= self._tiles() <= cap_elems
        if even:
            for i, n in enumerate(self.shape):
                keep &= n % self.cuts[self.rows[:, i]] == 0
        return keep

    def _first_of_layout(self, keep: Bools) -> Bools:
        """Of the types to keep, those whose ranks hold other boxes than under any before them."""
        ids = np.flatnonzero(keep)
        holds = self.present[self.mesh_of[ids]]
        for i in range(len(self.shape)):
            holds = holds & (self.hi[i] > self.lo[i])[self.rows[ids, i]]
        boxes = np.concatenate(
            [
                np.where(holds, ends[i][self.rows[ids, i]], -1)
                for i in range(len(self.shape))
                for ends in (self.lo, self.hi)
            ]
            or [holds.astype(np.int64)],
            axis=1,
        )
        first: dict[bytes, int] = {}
        for v, row in zip(ids.tolist(), boxes, strict=True):
            first.setdefault(row.tobytes(), v)
        out = np.zeros(len(keep), dtype=np.bool_)
        out[list(first.values())] = True
        return out

    def __len__(self) -> int:
        return len(self.rows)

    def find(self, t: ArrayType) -> int:
        """The number of a type."""
        for number, like in enumerate(self.like):
            if like.mesh != t.mesh:
                continue
            dims = [self._chain(self.factors[number], dim) for dim in t.dims]
            if None in dims:
                continue
            row = [self._number[number, chain] for chain in dims if chain is not None]
            same = (self.rows == np.array(row, dtype=np.int64)).all(axis=1)
            hits = np.flatnonzero(same & (self.mesh_of == number))
            if len(hits):
                return int(hits[0])
        raise KeyError(str(t))

    @staticmethod
    def _chain(parts: tuple[SubAxis, ...], dim: tuple[SubAxis, ...]) -> tuple[int, ...] | None:
        """A dim in terms of factors, None if these factors cannot spell it."""
        chain = tuple(f for part in dim for f, piece in enumerate(parts) if piece.inside(part))
        exact = math.prod(parts[f].size for f in chain) == math.prod(part.size for part in dim)
        return chain if exact else None

    def chain_number(self, mesh: int, chain: tuple[int, ...]) -> int:
        """The number of a chain of factors of a mesh."""
        return self._number[mesh, chain]

    def type(self, v: int) -> ArrayType:
        """Type number v."""
        if v not in self._types:
            number = int(self.mesh_of[v])
            parts = self.factors[number]
            self._types[v] = self.like[number].with_dims(
                [parts[f] for f in self.chains[c][1]] for c in self.rows[v]
            )
        return self._types[v]

    def copies(self) -> Ints:
        """How many ranks hold each element (the first one, say) under every type."""
        out = self.present.sum(axis=1)[self.mesh_of]
        for i in range(len(self.shape)):
            out = out // self.cuts[self.rows[:, i]]
        return out

    def block_volumes(self, size: int) -> Ints:
        """Distinct elements that each block of ``size`` ranks holds under every type."""
        if size not in self._blocks:
            shard = np.zeros(self.volumes.shape, dtype=np.int64)
            for i in range(len(self.shape)):
                shard = shard * (self.shape[i] + 1) + self.lo[i][self.rows[:, i]]
            block = self.ranks // size
            numbers = np.unique(block)
            out = np.zeros((len(self.rows), len(numbers)), dtype=np.int64)
            for at, number in enumerate(numbers):
                here = np.flatnonzero(block == number)
                key = np.where(self.volumes[:, here] > 0, shard[:, here], -1)
                order = np.argsort(key, axis=1, kind="stable")
                ordered = np.take_along_axis(key, order, axis=1)
                fresh = np.ones_like(ordered, dtype=np.bool_)
                fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
                held = np.take_along_axis(self.volumes[:, here], order, axis=1)
                out[:, at] = (held * fresh).sum(axis=1)
            self._blocks[size] = out
        return self._blocks[size]

    def block_sizes(self, size: int) -> Ints:
        """How many ranks each block has."""
        return np.unique(self.ranks // size, return_counts=True)[1]

    def overlap_row(self, dim: int, chain: int) -> Ints:
        """Elements that each rank has in common along a dim under this chain and under every other."""
        key = (dim, chain)
        if key not in self._overlap:
            lo, hi = self.lo[dim], self.hi[dim]
            inner = np.minimum(hi, hi[chain]) - np.maximum(lo, lo[chain])
            self._overlap[key] = np.maximum(inner, 0)
        return self._overlap[key]

    def count_row(self, dim: int, chain: int) -> Ints:
        """How many tiles of this chain meet each rank's interval under every other chain."""
        key = (dim, chain)
        if key not in self._count:
            tile = max(1, ceil_div(self.shape[dim], int(self.cuts[chain])))
            lo, hi = self.lo[dim], self.hi[dim]
            self._count[key] = np.where(hi > lo, (hi - 1) // tile - lo // tile + 1, 0)
        return self._count[key]

    def count_to_row(self, dim: int, chain: int) -> Ints:
        """How many tiles of every other chain meet each rank's interval under this chain."""
        key = (-1 - dim, chain)
        if key not in self._count:
            tile = np.maximum(1, -(-self.shape[dim] // self.cuts))[:, None]
            lo, hi = self.lo[dim][chain], self.hi[dim][chain]
            self._count[key] = np.where(hi > lo, (hi - 1) // tile - lo // tile + 1, 0)
        return self._count[key]

    def overlap(self, u: int, ids: Ints) -> Ints:
        """Elements that each rank keeps from type u to each of the types ``ids``."""
        both = (self.present[self.mesh_of[u]] & self.present[self.mesh_of[ids]]).astype(np.int64)
        for i in range(len(self.shape)):
            both *= self.overlap_row(i, int(self.rows[u, i]))[self.rows[ids, i]]
        return both

    def pieces(self, u: int, ids: Ints) -> Ints:
        """How many tiles of type u meet each rank's box under each of the types ``ids``."""
        count = (self.volumes[ids] > 0).astype(np.int64)
        for i in range(len(self.shape)):
            count *= self.count_row(i, int(self.rows[u, i]))[self.rows[ids, i]]
        return count

    def pieces_to(self, ids: Ints, v: int) -> Ints:
        """How many tiles of each of the types ``ids`` meet each rank's box under type v."""
        count = np.broadcast_to(self.volumes[v] > 0, (len(ids), self.volumes.shape[1])).astype(
            np.int64
        )
        for i in range(len(self.shape)):
            count *= self.count_to_row(i, int(self.rows[v, i]))[self.rows[ids, i]]
        return count

    def nested_prefix(self, dim: int) -> Bools:
        """[c, d]: chain c begins chain d, and the tiles of d nest in those of c."""
        n = self.shape[dim]
        return _prefix_table(tuple(self.chains), tuple(int(k) for k in self.cuts), n)


@lru_cache(maxsize=256)
def _prefix_table(
    chains: tuple[tuple[int, tuple[int, ...]], ...], cuts: tuple[int, ...], n: int
) -> Bools:
    number = {chain: i for i, chain in enumerate(chains)}
    table = np.zeros((len(chains), len(chains)), dtype=np.bool_)
    for d, (mesh, chain) in enumerate(chains):
        for k in range(len(chain) + 1):
            c = number[mesh, chain[:k]]
            table[c, d] = nested(n, cuts[c], cuts[d])
    return table


def _scatter(mesh: Mesh, parts: list[SubAxis], at: Ints, n_ranks: int) -> Ints:
    out = np.zeros(n_ranks, dtype=np.int64)
    out[at] = coordinates(mesh, parts)
    return out
