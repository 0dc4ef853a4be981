"""What ranks exchange within blocks of a topology whose ends are ends of factors.

If the ranks of a block are those that differ on some factors only (its near ones), then the senders of
a rank within its block are the ranks whose tiles agree with it on all other factors. How many of them
meet its box, and in how many elements, is a product over dims, as without blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from redist.layout.axes import SubAxis
from redist.layout.mesh import Mesh
from redist.layout.tiles import Ints, coordinates
from redist.synth.chains import EVERY, Bools
from redist.synth.type_space import TypeSpace

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
    _rows: dict[tuple[int, int, bool, object], tuple[Ints, Ints]] = field(default_factory=dict)
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

    def received(self, u: int, ids: Ints, ranks: slice = EVERY) -> tuple[Ints, Ints]:
        """Tiles and elements that each rank needs of its block in each step u -> ids, its own included."""
        return self._products(u, ids, False, ranks)

    def sent(self, u: int, ids: Ints, ranks: slice = EVERY) -> tuple[Ints, Ints]:
        """Tiles and elements that its block needs of each rank in each step u -> ids, its own included."""
        count, elems = self._products(u, ids, True, ranks)
        times = (self.copies[ids] // self.copies[u])[:, None]
        return times * count, times * elems

    def held(self, v: int, ids: Ints) -> Ints:
        """Elements of each rank's tile under v that its block has under each of the types ids."""
        return self._products(v, ids, True, EVERY)[1]

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

    def _products(self, u: int, ids: Ints, sent: bool, ranks: slice) -> tuple[Ints, Ints]:
        space = self.space
        present = space.table.present[space.mesh_of[u], ranks]
        here = np.broadcast_to(present, (len(ids), len(present)))
        count, elems = here.astype(np.int64), here.astype(np.int64)
        for i in range(space.n_dims):
            chain, others = int(space.rows[u, i]), space.rows[ids, i]
            tiles, lengths = self._met(i, chain, others, sent, ranks)
            count *= tiles
            elems *= lengths
        return count, elems

    def _met(
        self, dim: int, chain: int, others: Ints, sent: bool, ranks: slice
    ) -> tuple[Ints, Ints]:
        """Along a dim: tiles met and their lengths; remembered for all chains if these are not many."""
        n_chains = len(self.space.table)
        key = (dim, chain, sent, ranks.step)
        if key not in self._rows:
            if 2 * len(others) < n_chains:
                return self._lengths(dim, chain, others, sent, ranks)
            if n_chains > MANY_CHAINS:
                needed, at = np.unique(others, return_inverse=True)
                tiles, lengths = self._lengths(dim, chain, needed, sent, ranks)
                return tiles[at], lengths[at]
            every = np.arange(n_chains, dtype=np.int64)
            self._rows[key] = self._lengths(dim, chain, every, sent, ranks)
        tiles, lengths = self._rows[key]
        return tiles[others], lengths[others]

    def _lengths(
        self, dim: int, chain: int, others: Ints, sent: bool, ranks: slice
    ) -> tuple[Ints, Ints]:
        """Along a dim: tiles met and their lengths, for this chain and each of some others."""
        table = self.space.table
        start, end = (ends[:, ranks] for ends in self._near_tiles(dim))
        lo, hi = table.lo[dim][:, ranks], table.hi[dim][:, ranks]
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
