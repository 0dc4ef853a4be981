"""What ranks exchange within blocks of a topology whose ends are ends of factors.

If the ranks of a block are those that differ on some factors only (its near ones), then the senders of
a rank within its block are the ranks whose tiles agree with it on all other factors. How many of them
meet its box, and in how many elements, is a product over dims, as without blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from redist.layout.axes import SubAxis, coordinates
from redist.layout.mesh import Mesh
from redist.layout.tiles import Ints
from redist.synth.chains import Bools
from redist.synth.type_space import TypeSpace

# What ranks exchange within blocks of a topology that end anywhere, also inside a factor.


@dataclass(slots=True, eq=False)
class Beside:
    """What ranks exchange within their blocks, from every pair of ranks of a block.

    It answers what :class:`Within` does. ``mates`` has the ranks of the block
    of each rank, itself among them; -1 where a block has fewer.
    """

    space: TypeSpace
    kept: tuple[SubAxis, ...]
    mates: Ints
    _rows: dict[tuple[int, int, bool], Ints] = field(default_factory=dict)
    _agree: dict[tuple[int, int], Bools] = field(default_factory=dict)
    _same: dict[int, Bools] = field(default_factory=dict)

    @staticmethod
    def of(space: TypeSpace, kept: tuple[SubAxis, ...], size: int) -> Beside:
        """The ranks of a space in blocks."""
        block = space.table.ranks // size
        rows = [np.flatnonzero(block == b) for b in block]
        mates = np.full((len(block), max(map(len, rows))), -1, dtype=np.int64)
        for r, row in enumerate(rows):
            mates[r, : len(row)] = row
        return Beside(space, kept, mates)

    def marks(self, mesh: int, f: int) -> tuple[int, ...]:
        """The coordinates on a factor of the ranks beside that which has 0 on all of them."""
        table, parts = self.space.table, self.space.factors[mesh]
        zero = int(np.flatnonzero(table.place(mesh, (*parts, *self.kept)) == 0)[0])
        here = self.mates[zero][self.mates[zero] >= 0]
        return tuple(table.place(mesh, (parts[f],))[here].tolist())

    def agreeing(self, used: Ints, mesh: int, ranks: Ints, idle: bool) -> Bools:
        """[step, rank, mate]: which mates agree with some ranks, given the factors used before each step."""
        bits, which = np.unique(used, return_inverse=True)
        each = [self._agreeing(mesh, int(b), idle)[ranks] for b in bits]
        return np.stack(each)[which]

    def received(self, u: int, ids: Ints) -> tuple[Ints, Ints]:
        """As for :class:`Within`."""
        met = self._products(u, ids, False) * self._agree_in(u, True)
        return (met > 0).sum(axis=2), met.sum(axis=2)

    def sent(self, u: int, ids: Ints) -> tuple[Ints, Ints]:
        """As for :class:`Within`."""
        met = self._products(u, ids, True) * self._agree_in(u, True)
        return (met > 0).sum(axis=2), met.sum(axis=2)

    def held(self, v: int, ids: Ints) -> Ints:
        """As for :class:`Within`."""
        earlier = self._alike(ids) & (self.mates < np.arange(len(self.mates))[:, None])
        earlier &= self.space.volumes(ids)[:, self.mates] > 0
        first: Bools = np.logical_not(np.any(earlier, axis=2))
        elems: Ints = (self._products(v, ids, True) * first[:, self.mates]).sum(axis=2)
        return elems

    def holders(self, u: int, ids: Ints) -> Ints:
        """How many ranks of its block have each rank's tile before the permutes u -> ids."""
        met = self._products(u, ids, False) * self._agree_in(u, False)
        count: Ints = (met > 0).sum(axis=2)
        return count

    def asked(self, ids: Ints, open_: Bools) -> Ints:
        """As for :class:`Within`."""
        waits = open_[:, self.mates] & self._alike(ids) & self._agree_in(int(ids[0]), False)
        count: Ints = waits.sum(axis=2)
        return count

    def _alike(self, ids: Ints) -> Bools:
        """Whether each rank and each of its mates hold the same tile, under each of the types ids."""
        alike = np.broadcast_to(self.mates >= 0, (len(ids), *self.mates.shape)).copy()
        for i in range(self.space.n_dims):
            alike &= self._same_tile(i)[self.space.rows[ids, i]]
        return alike

    def _products(self, u: int, ids: Ints, sent: bool) -> Ints:
        """Elements in common: of each rank and each of its mates, before and after each step."""
        space = self.space
        out = np.ones((len(ids), *self.mates.shape), dtype=np.int64)
        for i in range(space.n_dims):
            out *= self._row(i, int(space.rows[u, i]), sent)[space.rows[ids, i]]
        return out

    def _row(self, dim: int, chain: int, sent: bool) -> Ints:
        key = (dim, chain, sent)
        if key not in self._rows:
            lo, hi = self.space.table.lo[dim], self.space.table.hi[dim]
            if sent:
                low = np.maximum(lo[chain][None, :, None], lo[:, self.mates])
                high = np.minimum(hi[chain][None, :, None], hi[:, self.mates])
            else:
                low = np.maximum(lo[chain][self.mates][None], lo[:, :, None])
                high = np.minimum(hi[chain][self.mates][None], hi[:, :, None])
            self._rows[key] = np.maximum(high - low, 0) * (self.mates >= 0)
        return self._rows[key]

    def _same_tile(self, dim: int) -> Bools:
        """Whether each rank and each of its mates have the same range of a dim, under every chain."""
        if dim not in self._same:
            lo = self.space.table.lo[dim]
            self._same[dim] = lo[:, :, None] == lo[:, self.mates]
        return self._same[dim]

    def _agreeing(self, mesh: int, used: int, idle: bool) -> Bools:
        """Which mates agree with a rank on kept axes, and if ``idle`` on factors not used."""
        space, used = self.space, used if idle else -1
        if (mesh, used) not in self._agree:
            parts = [part for f, part in enumerate(space.factors[mesh]) if not used >> f & 1]
            place = space.table.place(mesh, (*parts, *self.kept))
            here = space.table.present[mesh]
            alike = (place[:, None] == place[self.mates]) & here[:, None] & here[self.mates]
            self._agree[mesh, used] = alike & (self.mates >= 0)
        return self._agree[mesh, used]

    def _agree_in(self, u: int, idle: bool) -> Bools:
        """The same under type u."""
        space = self.space
        return self._agreeing(int(space.mesh_of[u]), int(space.used_factors()[u]), idle)


MANY_CHAINS = 400
"""Of more chains, only those that are asked for are looked at, and not remembered."""


def near_factors(
    mesh: Mesh, factors: tuple[SubAxis, ...], kept: tuple[SubAxis, ...], size: int
) -> frozenset[int] | None:
    """The factors on which alone the ranks of a block of ``size`` differ, besides those kept; else None.

    >>> from redist.layout.axes import prime_parts
    >>> mesh = Mesh(x=2, y=4)
    >>> [near_factors(mesh, prime_parts(mesh), (), size) for size in (4, 3)]
    [frozenset({1, 2}), None]
    """
    block = mesh.rank_array() // size
    parts = (*factors, *kept)
    near = [part for part in parts if _stays(mesh, part, block)]
    far = [part for part in parts if part not in near]
    place = coordinates(mesh, far)
    pairs = np.unique(np.stack([place, block]), axis=1).shape[1]
    if not pairs == len(np.unique(place)) == len(np.unique(block)):
        return None
    return frozenset(f for f, part in enumerate(factors) if part in near)


def _stays(mesh: Mesh, part: SubAxis, block: Ints) -> bool:
    """Whether ranks that differ on one factor only lie in one block."""
    digit = coordinates(mesh, [part])
    stride = math.prod(size for name, size in mesh.axes[_index(mesh, part.name) + 1 :])
    stride *= mesh.size(part.name) // part.end
    device = np.arange(mesh.n_devices, dtype=np.int64)
    return bool(np.all(block[device - digit * stride] == block))


def _index(mesh: Mesh, name: str) -> int:
    return [axis for axis, _ in mesh.axes].index(name)


@dataclass(slots=True, eq=False)
class Within:
    """Pieces that ranks exchange if they differ on the ``near`` factors only, those of every mesh."""

    space: TypeSpace
    near: tuple[frozenset[int], ...]
    kept: tuple[SubAxis, ...]
    near_tiles: Ints
    """The product of the near factors of every chain."""
    copies: Ints
    """Ranks that differ on near factors only and hold the same, under every type."""
    _number: Ints | None = None
    _tiles: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)
    _rows: dict[tuple[int, int, bool], tuple[Ints, Ints]] = field(default_factory=dict)
    _places: dict[tuple[int, int], Ints] = field(default_factory=dict)

    @staticmethod
    def of(space: TypeSpace, near: tuple[frozenset[int], ...], kept: tuple[SubAxis, ...]) -> Within:
        """Pieces between the types of a space."""
        sizes = [
            [part.size if f in own else 1 for f, part in enumerate(parts)]
            for parts, own in zip(space.factors, near, strict=True)
        ]
        chains = space.table.chains
        near_tiles = np.array([math.prod(sizes[m][f] for f in chain) for m, chain in chains])
        copies = np.array([math.prod(own) for own in sizes], dtype=np.int64)[space.mesh_of]
        for i in range(space.n_dims):
            copies = copies // near_tiles[space.rows[:, i]]
        return Within(space, near, kept, near_tiles, copies)

    def marks(self, mesh: int, f: int) -> tuple[int, ...]:
        """The same for factors that ranks of a block differ on alike."""
        return (int(f in self.near[mesh]),)

    def received(self, u: int, ids: Ints) -> tuple[Ints, Ints]:
        """Tiles and elements that each rank needs of its block in each step u -> ids, its own included."""
        return self._products(u, ids, False)

    def sent(self, u: int, ids: Ints) -> tuple[Ints, Ints]:
        """Tiles and elements that its block needs of each rank in each step u -> ids, its own included."""
        count, elems = self._products(u, ids, True)
        times = (self.copies[ids] // self.copies[u])[:, None]
        return times * count, times * elems

    def held(self, v: int, ids: Ints) -> Ints:
        """Elements of each rank's tile under v that its block has under each of the types ids."""
        return self._products(v, ids, True)[1]

    def asked(self, ids: Ints, open_: Bools) -> Ints:
        """How many ranks of its block wait for the same tile as each rank, of those that wait at all."""
        group = self._groups(ids)
        width = len(self.space.table.ranks)
        key = group + width * np.arange(len(ids), dtype=np.int64)[:, None]
        counts: Ints = np.bincount(key[open_], minlength=width * len(ids))[key]
        return counts

    def _groups(self, ids: Ints) -> Ints:
        """A number for each rank, the same for ranks of a block that hold the same, under each type."""
        space = self.space
        out = []
        for v, used in zip(ids.tolist(), space.used_factors()[ids].tolist(), strict=True):
            mesh = int(space.mesh_of[v])
            if (mesh, used) not in self._places:
                parts = [
                    part
                    for f, part in enumerate(space.factors[mesh])
                    if used >> f & 1 or f not in self.near[mesh]
                ]
                self._places[mesh, used] = space.table.place(mesh, (*parts, *self.kept))
            out.append(self._places[mesh, used])
        return np.stack(out)

    def _products(self, u: int, ids: Ints, sent: bool) -> tuple[Ints, Ints]:
        space = self.space
        present = space.table.present[space.mesh_of[u]]
        here = np.broadcast_to(present, (len(ids), len(present)))
        count, elems = here.astype(np.int64), here.astype(np.int64)
        for i in range(space.n_dims):
            chain, others = int(space.rows[u, i]), space.rows[ids, i]
            tiles, lengths = self._met(i, chain, others, sent)
            count *= tiles
            elems *= lengths
        return count, elems

    def _met(self, dim: int, chain: int, others: Ints, sent: bool) -> tuple[Ints, Ints]:
        """Along a dim: tiles met and their lengths; remembered for all chains if these are not many."""
        n_chains = len(self.space.table)
        key = (dim, chain, sent)
        if key not in self._rows:
            if 2 * len(others) < n_chains:
                return self._lengths(dim, chain, others, sent)
            if n_chains > MANY_CHAINS:
                needed, at = np.unique(others, return_inverse=True)
                tiles, lengths = self._lengths(dim, chain, needed, sent)
                return tiles[at], lengths[at]
            every = np.arange(n_chains, dtype=np.int64)
            self._rows[key] = self._lengths(dim, chain, every, sent)
        tiles, lengths = self._rows[key]
        return tiles[others], lengths[others]

    def _lengths(self, dim: int, chain: int, others: Ints, sent: bool) -> tuple[Ints, Ints]:
        """Along a dim: tiles met and their lengths, for this chain and each of some others."""
        table = self.space.table
        start, end = self._near_tiles(dim)
        lo, hi = table.lo[dim], table.hi[dim]
        if sent:
            low = np.maximum(start[others], lo[chain].astype(start.dtype)[None, :, None])
            high = np.minimum(end[others], hi[chain].astype(start.dtype)[None, :, None])
        else:
            low = np.maximum(start[chain][None], lo[others].astype(start.dtype)[:, :, None])
            high = np.minimum(end[chain][None], hi[others].astype(start.dtype)[:, :, None])
        lengths = np.maximum(high - low, 0)
        return (lengths > 0).sum(axis=2), lengths.sum(axis=2, dtype=np.int64)

    def _near_tiles(self, dim: int) -> tuple[Ints, Ints]:
        """Starts and ends of the tiles of ranks that differ from each rank on near factors only.

        For every chain, rank and place in the block; where a chain has fewer, they are empty.
        """
        if dim not in self._tiles:
            table = self.space.table
            kind = np.int32 if table.shape[dim] < 2**31 else np.int64
            numbers, n = self._numbers(), table.shape[dim]
            size = table.tile_sizes(dim)[:, None, None]
            start = np.minimum(numbers * size, n)
            end = np.where(numbers < 0, start, np.minimum(start + size, n))
            self._tiles[dim] = start.astype(kind), end.astype(kind)
        return self._tiles[dim]

    def _numbers(self) -> Ints:
        """The same as numbers of tiles, -1 where a chain has fewer."""
        if self._number is None:
            space = self.space
            shape = (len(space.table), len(space.table.ranks), int(self.near_tiles.max(initial=1)))
            out = np.full(shape, -1, dtype=np.int64)
            digits = {
                (mesh, f): np.arange(part.size, dtype=np.int64)[None, :]
                if f in self.near[mesh]
                else space.table.place(mesh, (part,))[:, None]
                for mesh, parts in enumerate(space.factors)
                for f, part in enumerate(parts)
            }
            known: dict[tuple[int, tuple[int, ...]], Ints] = {}
            for c, (mesh, chain) in enumerate(space.table.chains):
                tiles = np.zeros((shape[1], 1), dtype=np.int64)
                if chain:
                    before = known[mesh, chain[:-1]] * space.factors[mesh][chain[-1]].size
                    own = digits[mesh, chain[-1]]
                    tiles = (before[:, :, None] + own[:, None, :]).reshape(shape[1], -1)
                known[mesh, chain] = tiles
                out[c, :, : tiles.shape[1]] = tiles
            self._number = out
        return self._number
