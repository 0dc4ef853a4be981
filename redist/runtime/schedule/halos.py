"""Halos: what tiles reach of their neighbours', as the pieces of one step.

A tile and, along some dims, so many elements of its neighbours on both sides are made at once::

    dim 0      1 from above | the tile | 1 from below         3 ranges
    dim 1      1 from the left | the tile | 1 from the right  3 ranges
    together   faces, edges and corners: 9 boxes, of as many ranks

So corners need no turn of their own, and whoever makes copies of a step makes all of these in one launch.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.tiles import Ints, grid, tile_shapes
from redist.plan.pieces import Piece
from redist.runtime.schedule.pieces import StepPieces
from redist.runtime.schedule.stages import StagePart


@dataclass(frozen=True, slots=True)
class Halo:
    """How far tiles of a type reach into their neighbours along every dim, the same on both sides.

    No tile along a dim is shorter than the reach. ``wraps`` says that behind the last tile comes the first;
    without it nothing is written beyond the ends of the array.

    >>> from redist.layout.mesh import Mesh
    >>> halo = Halo(ArrayType.parse("f32[8{x}, 4]", Mesh(x=2)), (1, 2), wraps=False)
    >>> print(halo.grown), halo.is_local
    f32[12{x}, 8]
    (None, False)
    """

    type: ArrayType
    reach: tuple[int, ...]
    wraps: bool

    @property
    def grown(self) -> ArrayType:
        """The type of all tiles with what they reach, side by side: it is cut as the array is."""
        t = self.type
        sizes = zip(t.shape, self.reach, t.cuts, strict=True)
        shape = tuple(n + 2 * reach * cuts for n, reach, cuts in sizes)
        return ArrayType(t.mesh, t.dtype, shape, t.dims)

    @property
    def is_local(self) -> bool:
        """Whether no tile reaches into that of another rank."""
        return all(not n or cuts == 1 for n, cuts in zip(self.reach, self.type.cuts, strict=True))

    @property
    def text(self) -> str:
        """What ranks compare."""
        ends = ", around the ends" if self.wraps else ""
        return f"tiles of {self.type} on {self.type.mesh} that reach {self.reach} far{ends}"

    def part(self, rank: int) -> StagePart:
        """What the ranks give each other, as far as one takes part in it."""
        pieces = pieces_of_halo(self, rank)
        step = StepPieces(pieces, None, False, False, self.is_local, self.type.tile_shape)
        return StagePart(step, self.type.dtype)

    def received_bytes(self, rank: int) -> int:
        """What a rank gets from others."""
        got = (p for p in pieces_of_halo(self, rank) if p.receiver == rank != p.sender)
        return sum(math.prod(p.shape) for p in got) * self.type.dtype.itemsize


class _Range(NamedTuple):
    """Elements along a dim: of which tile, where they begin there and in the tile that is made, how many."""

    tile: int
    src: int
    dst: int
    n: int


@lru_cache(maxsize=1024)
def pieces_of_halo(halo: Halo, rank: int) -> tuple[Piece, ...]:
    """What a rank gives and gets, its own tile included.

    Of several ranks that hold a tile, one that asks for it takes the one at its own place among them.

    >>> from redist.layout.mesh import Mesh
    >>> halo = Halo(ArrayType.parse("f32[8{x}]", Mesh(x=2)), (1,), wraps=False)
    >>> [(p.sender, p.receiver, p.src_lo, p.dst_lo, p.shape) for p in pieces_of_halo(halo, 0)]
    [(0, 0, (0,), (1,), (4,)), (1, 0, (0,), (5,), (1,)), (0, 1, (3,), (0,), (1,))]
    """
    t = halo.type
    if rank not in t.mesh.ranks:
        return ()
    places, ranks = grid(t).index, t.mesh.rank_array()
    near = _neighbours(halo, places, places[t.mesh.ranks.index(rank)])
    holders: dict[tuple[int, ...], list[int]] = {}
    for row in near:
        holders.setdefault(tuple(places[row].tolist()), []).append(int(ranks[row]))
    before, after = tile_shapes(t), tile_shapes(halo.grown)
    pieces = []
    for row in near:
        receiver, index = int(ranks[row]), tuple(places[row].tolist())
        number = holders[index].index(receiver)
        along = [_ranges(halo, dim, i) for dim, i in enumerate(index)]
        for box in itertools.product(*along):
            held = holders.get(tuple(one.tile for one in box), ())
            sender = held[number] if held else -1
            shape = tuple(one.n for one in box)
            if 0 in shape or rank not in (sender, receiver):
                continue
            src, dst = tuple(one.src for one in box), tuple(one.dst for one in box)
            ends = before[sender], after[receiver]
            pieces.append(Piece(sender, receiver, 0, src, dst, shape, *ends))
    pieces.sort(key=lambda p: (p.sender - p.receiver) % (t.mesh.n_devices + 1))
    return tuple(pieces)


def _neighbours(halo: Halo, places: Ints, own: Ints) -> list[int]:
    """The devices whose tiles may have something to do with one's, in order."""
    apart = np.abs(places - own)
    cuts = np.array(halo.type.cuts, np.int64)
    apart = np.minimum(apart, cuts - apart) if halo.wraps else apart
    most = np.array([min(n, 1) for n in halo.reach], np.int64)
    return [int(row) for row in np.flatnonzero(np.all(apart <= most, axis=1))]


def _ranges(halo: Halo, dim: int, tile: int) -> list[_Range]:
    """What a tile has along a dim with what it reaches: of the tile before, its own, of the one behind."""
    edges = np.diff(halo.type.cut(dim).edges()).tolist()
    reach, n, size = halo.reach[dim], len(edges), edges[tile]
    own = _Range(tile, 0, reach, size)
    if not reach:
        return [own]
    found = [own]
    before, behind = tile - 1, tile + 1
    if before >= 0 or halo.wraps:
        found.append(_Range(before % n, edges[before % n] - reach, 0, reach))
    if behind < n or halo.wraps:
        found.append(_Range(behind % n, 0, reach + size, reach))
    return found
