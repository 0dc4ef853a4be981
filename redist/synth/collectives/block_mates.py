"""What ranks exchange within blocks of a topology that end anywhere, also inside a factor."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from redist.layout.axes import SubAxis
from redist.layout.tiles import Ints
from redist.synth.chains import EVERY, Bools
from redist.synth.type_space import TypeSpace


@dataclass(slots=True, eq=False)
class Beside:
    """What ranks exchange within their blocks, from every pair of ranks of a block.

    It answers what :class:`redist.synth.collectives.blocks.Within` does. ``mates`` has the ranks of the block
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

    def received(self, u: int, ids: Ints, ranks: slice = EVERY) -> tuple[Ints, Ints]:
        """As for :class:`redist.synth.collectives.blocks.Within`."""
        met = self._products(u, ids, False, ranks) * self._agree_in(u, True)[ranks]
        return (met > 0).sum(axis=2), met.sum(axis=2)

    def sent(self, u: int, ids: Ints, ranks: slice = EVERY) -> tuple[Ints, Ints]:
        """As for :class:`redist.synth.collectives.blocks.Within`."""
        met = self._products(u, ids, True, ranks) * self._agree_in(u, True)[ranks]
        return (met > 0).sum(axis=2), met.sum(axis=2)

    def held(self, v: int, ids: Ints) -> Ints:
        """As for :class:`redist.synth.collectives.blocks.Within`."""
        earlier = self._alike(ids) & (self.mates < np.arange(len(self.mates))[:, None])
        earlier &= self.space.volumes(ids)[:, self.mates] > 0
        first: Bools = np.logical_not(np.any(earlier, axis=2))
        elems: Ints = (self._products(v, ids, True, EVERY) * first[:, self.mates]).sum(axis=2)
        return elems

    def holders(self, u: int, ids: Ints, ranks: slice = EVERY) -> Ints:
        """How many ranks of its block have each rank's tile before the permutes u -> ids."""
        met = self._products(u, ids, False, ranks) * self._agree_in(u, False)[ranks]
        count: Ints = (met > 0).sum(axis=2)
        return count

    def asked(self, ids: Ints, open_: Bools) -> Ints:
        """As for :class:`redist.synth.collectives.blocks.Within`."""
        waits = open_[:, self.mates] & self._alike(ids) & self._agree_in(int(ids[0]), False)
        count: Ints = waits.sum(axis=2)
        return count

    def _alike(self, ids: Ints) -> Bools:
        """Whether each rank and each of its mates hold the same tile, under each of the types ids."""
        alike = np.broadcast_to(self.mates >= 0, (len(ids), *self.mates.shape)).copy()
        for i in range(self.space.n_dims):
            alike &= self._same_tile(i)[self.space.rows[ids, i]]
        return alike

    def _products(self, u: int, ids: Ints, sent: bool, ranks: slice) -> Ints:
        """Elements in common: of each rank and each of its mates, before and after each step."""
        space = self.space
        out = np.ones((len(ids), *self.mates[ranks].shape), dtype=np.int64)
        for i in range(space.n_dims):
            out *= self._row(i, int(space.rows[u, i]), sent)[:, ranks][space.rows[ids, i]]
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
