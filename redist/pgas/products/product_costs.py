"""What the ways to place a product cost, all at once: work, bytes that move, memory."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.cuts import cut_dim
from redist.layout.mesh import Mesh
from redist.layout.tiles import Ints, coordinates, grid
from redist.pgas.products.cut_candidates import Candidates, Cut

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class LabelCuts:
    """Every cut of one label: how many tiles, the size of a full one, and each device's range."""

    n_tiles: Ints
    tile_size: Ints
    lo: Ints
    hi: Ints

    @staticmethod
    def of(mesh: Mesh, size: int, cuts: Sequence[Cut]) -> LabelCuts:
        """The cuts of a label of this size."""
        lo, hi = np.zeros((2, len(cuts), mesh.n_devices), dtype=np.int64)
        n_tiles = np.ones(len(cuts), dtype=np.int64)
        tile_size = np.full(len(cuts), size, dtype=np.int64)
        for number, axes in enumerate(cuts):
            n_tiles[number] = math.prod(part.size for part in axes)
            cut = cut_dim(size, int(n_tiles[number]))
            tile_size[number] = cut.tile_size
            lo[number], hi[number] = cut.ranges_of(coordinates(mesh, axes))
        return LabelCuts(n_tiles, tile_size, lo, hi)


@dataclass(frozen=True, slots=True, eq=False)
class ProductCosts:
    """Tables of a search: every way, and every cut of every label."""

    mesh: Mesh
    sizes: Mapping[Hashable, int]
    ways: Candidates
    tables: Mapping[Hashable, LabelCuts]

    @staticmethod
    def of(mesh: Mesh, sizes: Mapping[Hashable, int], ways: Candidates) -> ProductCosts:
        """The tables of these ways."""
        tables = {
            label: LabelCuts.of(mesh, sizes[label], cuts)
            for label, cuts in zip(ways.labels, ways.cuts, strict=True)
        }
        return ProductCosts(mesh, sizes, ways, tables)

    def work(self) -> Floats:
        """Multiplications of the busiest device."""
        out = np.ones(len(self.ways.ids))
        for label, size in self.sizes.items():
            out = out * (self._of(label, "tile_size") if label in self.tables else size)
        return out

    def tile_bytes(self, labels: Sequence[Hashable], shape: Sequence[int], itemsize: int) -> Floats:
        """Bytes of the fullest device's tile of an array with these labels."""
        out = np.full(len(self.ways.ids), float(itemsize))
        for label, n in zip(labels, shape, strict=True):
            out = out * (self._of(label, "tile_size") if self._is_cut(label, n) else n)
        return out

    def n_tiles(self, labels: Sequence[Hashable], shape: Sequence[int]) -> Ints:
        """Into how many tiles an array with these labels is cut."""
        out = np.ones(len(self.ways.ids), dtype=np.int64)
        for label, n in zip(labels, shape, strict=True):
            if self._is_cut(label, n):
                out = out * self._of(label, "n_tiles")
        return out

    def longest_side(self, labels: Sequence[Hashable], shape: Sequence[int]) -> Ints:
        """The longest side of a full tile of an array with these labels; 0 without dims."""
        out = np.zeros(len(self.ways.ids), dtype=np.int64)
        for label, n in zip(labels, shape, strict=True):
            side = self._of(label, "tile_size") if self._is_cut(label, n) else n
            out = np.maximum(out, side)
        return out

    def moved(self, t: ArrayType, labels: Sequence[Hashable]) -> tuple[Bools, Floats]:
        """Whether an operand of this type must move at all, and bytes that are received at least.

        Of an array with pending axes it is taken that some holder of an element has a value of it.
        """
        n, itemsize = len(self.ways.ids), t.dtype.itemsize
        columns = [
            (i, label)
            for i, (label, size) in enumerate(zip(labels, t.shape, strict=True))
            if self._is_cut(label, size)
        ]
        stays = np.full(n, t.pending_op is None)
        for i, (label, size) in enumerate(zip(labels, t.shape, strict=True)):
            if self._is_cut(label, size):
                same = np.array([cut == t.dims[i] for cut in self._cuts(label)])
                stays &= same[self._ids(label)]
            else:
                stays &= not t.dims[i]
        if t.pending_op is not None:
            partials = math.prod(part.size for part in t.pending_axes)
            holders = self.mesh.n_devices // self.n_tiles(labels, t.shape)
            received = (partials + holders - 2) * float(t.global_elems * itemsize)
            return ~stays, received.astype(np.float64)
        kinds = np.stack([self._ids(label) for _, label in columns], axis=1) if columns else None
        if kinds is None:
            return ~stays, np.full(n, float(self._lacking(t, [], np.zeros((1, 0), np.int64))[0]))
        rows, back = np.unique(kinds, axis=0, return_inverse=True)
        lacks = self._lacking(t, columns, rows)
        return ~stays, lacks[back.reshape(-1)].astype(np.float64) * itemsize

    def _lacking(self, t: ArrayType, columns: Sequence[tuple[int, Hashable]], rows: Ints) -> Ints:
        """Elements that devices lack of their new tiles, of all together, for each kind of tile."""
        have_lo, have_hi = grid(t).boxes()
        need = np.ones((len(rows), self.mesh.n_devices), dtype=np.int64)
        both = np.ones_like(need)
        where = {i: k for k, (i, _) in enumerate(columns)}
        for i, size in enumerate(t.shape):
            if i in where:
                table = self.tables[columns[where[i]][1]]
                lo, hi = (table_[rows[:, where[i]]] for table_ in (table.lo, table.hi))
            else:
                lo, hi = np.zeros((1, 1), np.int64), np.full((1, 1), size)
            need *= hi - lo
            both *= np.maximum(np.minimum(hi, have_hi[:, i]) - np.maximum(lo, have_lo[:, i]), 0)
        lacks: Ints = (need - both).sum(axis=1)
        return lacks

    def _is_cut(self, label: Hashable, n: int) -> bool:
        """Whether a dim with this label follows its cuts: one of size 1 that stretches does not."""
        return label in self.tables and self.sizes[label] == n

    def _ids(self, label: Hashable) -> Ints:
        return self.ways.ids[:, self.ways.labels.index(label)]

    def _cuts(self, label: Hashable) -> tuple[Cut, ...]:
        return self.ways.cuts[self.ways.labels.index(label)]

    def _of(self, label: Hashable, what: str) -> Ints:
        out: Ints = getattr(self.tables[label], what)[self._ids(label)]
        return out
