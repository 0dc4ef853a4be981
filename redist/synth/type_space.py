"""The space of types that the search walks: all ordered layouts of some factors of the meshes.

Every type is a row of chain numbers, one per dim. What ranks hold along a dim depends on the chain
alone (:mod:`redist.synth.chains`), so volumes, overlaps and pieces are products over dims of what is
looked up per chain, for thousands of types at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.tiles import Ints
from redist.synth.chains import Bools, Chain, ChainTable, all_chains

REMEMBERED_CELLS = 300_000
"""What ranks hold is remembered for this many types times ranks."""


@lru_cache(maxsize=64)
def _arrangements(n_factors: int, n_dims: int) -> Ints:
    """All rows of disjoint chains of this many factors over this many dims, in order."""
    chains = all_chains(n_factors)
    masks = np.array([sum(1 << f for f in chain) for chain in chains], dtype=np.int64)
    by_mask = {int(mask): np.flatnonzero(masks == mask) for mask in np.unique(masks)}
    rows = {0: np.zeros((1, 0), dtype=np.int64)}
    for _ in range(n_dims):
        longer: dict[int, list[Ints]] = {}
        for used, own in rows.items():
            for mask, numbers in by_mask.items():
                if used & mask == 0:
                    left = np.repeat(own, len(numbers), axis=0)
                    right = np.tile(numbers, len(own))[:, None]
                    longer.setdefault(used | mask, []).append(np.concatenate([left, right], axis=1))
        rows = {used: np.concatenate(parts) for used, parts in longer.items()}
    every = np.concatenate(list(rows.values()))
    return every[np.lexsort(every.T[::-1])] if n_dims else every


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


@dataclass(frozen=True, slots=True, eq=False)
class TypeRows:
    """Types as chain numbers, one column per dim, and the mesh that each is on."""

    table: ChainTable
    chains: Ints
    mesh_of: Ints

    @staticmethod
    def every(table: ChainTable, factors: tuple[tuple[SubAxis, ...], ...]) -> TypeRows:
        """All types over the factors of the meshes."""
        rows, mesh_of, first = [], [], 0
        for number, parts in enumerate(factors):
            own = _arrangements(len(parts), len(table.shape))
            rows.append(own + first)
            mesh_of.append(np.full(len(own), number, dtype=np.int64))
            first += len(all_chains(len(parts)))
        return TypeRows(table, np.concatenate(rows), np.concatenate(mesh_of))

    def choose(self, keep: Bools) -> TypeRows:
        """Some of the types."""
        return TypeRows(self.table, self.chains[keep], self.mesh_of[keep])

    def tile_elems(self) -> Ints:
        """Elements of a full tile of every type."""
        out = np.ones(len(self.chains), dtype=np.int64)
        for i in range(len(self.table.shape)):
            out *= self.table.tile_sizes(i)[self.chains[:, i]]
        return out

    def small(self, cap_elems: int | None, even: bool) -> Bools:
        """Which types have at most this many elements a tile, and no short tile if ``even``."""
        keep = np.ones(len(self.chains), dtype=np.bool_)
        if cap_elems is not None:
            keep &= self.tile_elems() <= cap_elems
        if even:
            for i in range(len(self.table.shape)):
                keep &= self.table.are_even(i)[self.chains[:, i]]
        return keep

    def first_of_layout(self, keep: Bools) -> Bools:
        """Of the types to keep, those whose ranks hold other boxes than under any before them."""
        ids = np.flatnonzero(keep)
        lo, hi = self.table.lo, self.table.hi
        holds = self.table.present[self.mesh_of[ids]]
        for i in range(len(lo)):
            holds = holds & (hi[i] > lo[i])[self.chains[ids, i]]
        ends = [
            np.where(holds, end[i][self.chains[ids, i]], -1)
            for i in range(len(lo))
            for end in (lo, hi)
        ]
        boxes = np.concatenate(ends or [holds.astype(np.int64)], axis=1)
        first: dict[bytes, int] = {}
        for v, row in zip(ids.tolist(), boxes, strict=True):
            first.setdefault(row.tobytes(), v)
        out = np.zeros(len(keep), dtype=np.bool_)
        out[list(first.values())] = True
        return out


@dataclass(frozen=True, slots=True, eq=False)
class TypeSpace:
    """Types of one array over the factors of one or two meshes, as numbers.

    ``every`` has all types that these factors can spell; the space has those of them at
    ``kept_rows``, numbered in that order.
    """

    like: tuple[ArrayType, ...]
    factors: tuple[tuple[SubAxis, ...], ...]
    table: ChainTable
    every: TypeRows
    kept_rows: Ints
    rows: Ints
    mesh_of: Ints
    tile_elems: Ints
    _number: dict[Chain, int]
    _blocks: dict[int, Ints] = field(default_factory=dict)
    """By number of ranks: what blocks of this many hold; under 0, -1 and -2, copies, factors and volumes."""
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
        table = ChainTable.of(like, factors)
        every = TypeRows.every(table, factors)
        keep = every.small(cap_elems, even)
        if distinct:
            keep = every.first_of_layout(keep)
        number = {chain: i for i, chain in enumerate(table.chains)}
        for t in also:
            keep[_find(t, like, factors, number, every)] = True
        kept = every.choose(keep)
        own = kept.chains, kept.mesh_of, kept.tile_elems()
        return TypeSpace(like, factors, table, every, np.flatnonzero(keep), *own, number)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_dims(self) -> int:
        """Number of dims of the array."""
        return len(self.table.shape)

    def find(self, t: ArrayType) -> int:
        """The number of a type."""
        rows = TypeRows(self.table, self.rows, self.mesh_of)
        return _find(t, self.like, self.factors, self._number, rows)

    def chain(self, number: int) -> tuple[int, ...]:
        """The factors of a chain, major first."""
        return self.table.chains[number][1]

    def chain_number(self, mesh: int, chain: tuple[int, ...]) -> int:
        """The number of a chain of factors of a mesh."""
        return self._number[mesh, chain]

    def type(self, v: int) -> ArrayType:
        """Type number v."""
        if v not in self._types:
            number = int(self.mesh_of[v])
            parts = self.factors[number]
            self._types[v] = self.like[number].with_dims(
                [parts[f] for f in self.chain(c)] for c in self.rows[v]
            )
        return self._types[v]

    @property
    def n_cells(self) -> int:
        """Types times ranks."""
        return len(self) * len(self.table.ranks)

    def volumes(self, ids: Ints) -> Ints:
        """Elements that each rank holds under some types."""
        if self.n_cells > REMEMBERED_CELLS:
            return self._volumes(ids)
        if -2 not in self._blocks:
            self._blocks[-2] = self._volumes(np.arange(len(self), dtype=np.int64))
        return self._blocks[-2][ids]

    def _volumes(self, ids: Ints) -> Ints:
        out = self.table.present[self.mesh_of[ids]].astype(np.int64)
        for i in range(self.n_dims):
            out *= self.table.length(i)[self.rows[ids, i]]
        return out

    def copies(self) -> Ints:
        """How many ranks hold each element (the first one, say) under every type."""
        if 0 not in self._blocks:
            n_tiles = np.array(self.table.n_tiles, dtype=np.int64)
            out = self.table.present.sum(axis=1)[self.mesh_of]
            for i in range(self.n_dims):
                out = out // n_tiles[self.rows[:, i]]
            self._blocks[0] = out
        return self._blocks[0]

    def used_factors(self) -> Ints:
        """The factors that cut some dim, as bits, under every type."""
        if -1 not in self._blocks:
            bits = [sum(1 << f for f in chain) for _, chain in self.table.chains]
            chosen = np.array(bits, dtype=np.int64)[self.rows]
            self._blocks[-1] = chosen.sum(axis=1) if self.n_dims else np.zeros(len(self), np.int64)
        return self._blocks[-1]

    def block_volumes(self, size: int, ids: Ints) -> Ints:
        """Distinct elements that each block of ``size`` ranks holds under some types."""
        block = self.table.ranks // size
        numbers = np.unique(block)
        if size not in self._blocks:
            self._blocks[size] = np.full((len(self), len(numbers)), -1, dtype=np.int64)
        known = self._blocks[size]
        new = ids[known[ids, 0] < 0]
        if len(new):
            new = np.unique(new)
            known[new] = self._count_distinct(new, block, numbers)
        return known[ids]

    def _count_distinct(self, ids: Ints, block: Ints, numbers: Ints) -> Ints:
        shard = np.zeros((len(ids), len(block)), dtype=np.int64)
        for i, n in enumerate(self.table.shape):
            shard = shard * (n + 1) + self.table.lo[i][self.rows[ids, i]]
        out = np.zeros((len(ids), len(numbers)), dtype=np.int64)
        every = self.volumes(ids)
        for at, number in enumerate(numbers):
            here = np.flatnonzero(block == number)
            volumes = every[:, here]
            key = np.where(volumes > 0, shard[:, here], -1)
            order = np.argsort(key, axis=1, kind="stable")
            ordered = np.take_along_axis(key, order, axis=1)
            fresh = np.ones_like(ordered, dtype=np.bool_)
            fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
            held = np.take_along_axis(volumes, order, axis=1)
            out[:, at] = (held * fresh).sum(axis=1)
        return out

    def block_sizes(self, size: int) -> Ints:
        """How many ranks each block has."""
        return np.unique(self.table.ranks // size, return_counts=True)[1]

    def overlap(self, u: int, ids: Ints) -> Ints:
        """Elements that each rank keeps from type u to each of the types ``ids``."""
        present = self.table.present
        both = (present[self.mesh_of[u]] & present[self.mesh_of[ids]]).astype(np.int64)
        for i in range(self.n_dims):
            both *= self.table.overlaps(i, int(self.rows[u, i]), self.rows[ids, i])
        return both

    def pieces(self, u: int, ids: Ints) -> Ints:
        """How many tiles of type u meet each rank's box under each of the types ``ids``."""
        count = (self.volumes(ids) > 0).astype(np.int64)
        for i in range(self.n_dims):
            count *= self.table.counts(i, int(self.rows[u, i]), self.rows[ids, i])
        return count

    def pieces_to(self, ids: Ints, v: int) -> Ints:
        """How many tiles of each of the types ``ids`` meet each rank's box under type v."""
        holds = self.volumes(np.array([v]))[0] > 0
        count = np.broadcast_to(holds, (len(ids), len(holds))).astype(np.int64)
        for i in range(self.n_dims):
            count *= self.table.counts_of(i, int(self.rows[v, i]), self.rows[ids, i])
        return count


def _find(
    t: ArrayType,
    like: tuple[ArrayType, ...],
    factors: tuple[tuple[SubAxis, ...], ...],
    number: dict[Chain, int],
    rows: TypeRows,
) -> int:
    """The row of a type."""
    for mesh, (one, parts) in enumerate(zip(like, factors, strict=True)):
        if one.mesh != t.mesh:
            continue
        dims = [_chain(parts, dim) for dim in t.dims]
        if None in dims:
            continue
        row = [number[mesh, chain] for chain in dims if chain is not None]
        same = (rows.chains == np.array(row, dtype=np.int64)).all(axis=1)
        hits = np.flatnonzero(same & (rows.mesh_of == mesh))
        if len(hits):
            return int(hits[0])
    raise KeyError(str(t))


def _chain(parts: tuple[SubAxis, ...], dim: tuple[SubAxis, ...]) -> tuple[int, ...] | None:
    """A dim in terms of factors, None if these factors cannot spell it."""
    chain = tuple(f for part in dim for f, piece in enumerate(parts) if piece.inside(part))
    exact = math.prod(parts[f].size for f in chain) == math.prod(part.size for part in dim)
    return chain if exact else None
