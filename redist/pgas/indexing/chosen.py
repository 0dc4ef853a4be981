"""Which elements arrays of indices name together: the type of the result, and positions to ask for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.errors import IndexKeyError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import Ints, box_of
from redist.pgas.indexing.keys import AtIndex, AtIndices, InRange, Item, NewDim, out_of_bounds
from redist.pgas.memory import TileMemory, as_tile, memory_for
from redist.pgas.tiles.layouts import (
    Shape,
    dtype_of,
    idle_parts,
    make_type,
    operand_type,
    place_axes,
)
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.runtime.cuda.loops import functions_for
from redist.runtime.elements.by_position import rounds_of
from redist.runtime.ranks.world import Comm

INT = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class FixedIndex:
    """A dim of which one index is taken."""

    index: int


@dataclass(frozen=True, slots=True)
class ResultRange:
    """A dim of which a range is taken, along dim ``to`` of the result."""

    to: int
    indices: range


@dataclass(frozen=True, slots=True, eq=False)
class IndexTile:
    """A dim of which an array of indices is taken: this rank's part of that array."""

    tile: Tile


DimSource = FixedIndex | ResultRange | IndexTile


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Elements that arrays of indices name together, as this rank asks for them."""

    type: ArrayType
    """Of the result."""
    shape: Shape
    """Of the array that is indexed."""
    sizes: Shape
    """Of this rank's part of the result."""
    start: tuple[int, ...]
    """Where that part begins."""
    sources: tuple[DimSource, ...]
    """For every dim of the array that is indexed."""
    end: int
    """The dim of the result behind those of the arrays of indices."""
    memory: TileMemory
    """Where arrays of indices lie, and lists of positions."""

    @staticmethod
    def of(x: Tiled, items: Sequence[Item]) -> Chosen:
        """**Collective** if indices are global and must move. Find what items choose of an array."""
        many = [item for item in items if isinstance(item, AtIndices)]
        try:
            wide = np.broadcast_shapes(*(item.indices.shape for item in many))
        except ValueError:
            shapes = " and ".join(str(item.indices.shape) for item in many)
            raise IndexKeyError(
                f"cannot index by arrays of shapes {shapes}: they do not broadcast"
            ) from None
        arrays = [k for k, item in enumerate(items) if isinstance(item, (AtIndices, AtIndex))]
        together = arrays[-1] - arrays[0] + 1 == len(arrays)
        lead = items[: arrays[0]] if together else []
        before = sum(isinstance(item, (InRange, NewDim)) for item in lead)
        rest = [item for item in items if isinstance(item, (InRange, NewDim))]
        end = before + len(wide)
        t = _type(x, rest, many, wide, before)
        box = box_of(t, x.comm.rank)
        start = tuple(lo for lo, _ in box) if box is not None else (0,) * t.ndim
        sizes = tuple(hi - lo for lo, hi in box) if box is not None else (0,)
        indexed = make_type(x.mesh, dtype_of(INT), wide, t.dims[before:end])
        found: dict[int, DimSource] = {}
        for k, kept in enumerate(rest):
            if isinstance(kept, InRange):
                found[kept.dim] = ResultRange(k if k < before else k + len(wide), kept.indices)
        for item in items:
            if isinstance(item, AtIndex):
                found[item.dim] = FixedIndex(item.index)
            elif isinstance(item, AtIndices):
                found[item.dim] = IndexTile(own_indices(x, item.indices, indexed))
        sources = tuple(found[i] for i in range(x.ndim))
        memory = memory_for(x.memory.on_device)  # a program chooses when it runs
        return Chosen(t, x.shape, sizes, start, sources, end, memory)

    def round_bytes(self, x: Tiled, n: int) -> int:
        """What a round of this many elements takes: lists of numbers, and the values twice."""
        return n * (8 * (7 + len(self.sizes)) + 2 * x.dtype.itemsize)

    def agree(self, comm: Comm, n: int, round_elems: int) -> int:
        """**Collective.** Agree on the rounds that ranks need; raise on all if an index is outside."""
        wrong = False
        for size, source in zip(self.shape, self.sources, strict=True):
            if isinstance(source, IndexTile) and source.tile.size:
                low, high = int(source.tile.min()), int(source.tile.max())
                wrong = wrong or low < -size or high >= size
        rounds, wrong = rounds_of(comm, n, wrong, round_elems)
        if wrong:
            raise IndexKeyError(f"an index is out of bounds for an array of shape {self.shape}")
        return rounds

    def positions(self, lo: int, hi: int) -> Ints:
        """The number in the array of each element ``lo`` to ``hi`` of this rank's part of the result."""
        if hi <= lo:
            return self.memory.empty((0,), INT, 0)
        index = self._result_index(lo, hi)
        out: Any = 0
        for dim, (size, source) in enumerate(zip(self.shape, self.sources, strict=True)):
            match source:
                case FixedIndex(index=one):
                    here: Any = one
                case ResultRange(to=to, indices=indices):
                    here = indices.start + indices.step * (index[to] + self.start[to])
                case IndexTile(tile=tile):
                    here = self._listed_indices(tile, index, lo, hi)
                    if self.memory.on_device:
                        here = here % size  # one launch, and nothing to wait for
                    elif int(here.min()) < 0:
                        here = np.where(here < 0, here + size, here)
            out = here if dim == 0 else out * size + here
        return np.broadcast_to(as_tile(out, INT), (hi - lo,))

    def _result_index(self, lo: int, hi: int) -> tuple[Ints, ...]:
        """Indices of elements of this rank's part along its dims; nothing if no source needs them."""
        needed = any(
            isinstance(source, ResultRange)
            or (isinstance(source, IndexTile) and source.tile.shape != self.sizes)
            for source in self.sources
        )
        if not needed or not self.sizes:
            return ()
        if self.memory.on_device:
            numbers = functions_for(self._listed).arange(lo, hi)
            return tuple(unravel(numbers, self.sizes))
        return np.unravel_index(np.arange(lo, hi), self.sizes)

    @property
    def _listed(self) -> Tile:
        """One of the arrays of indices, of which there is at least one."""
        return next(one.tile for one in self.sources if isinstance(one, IndexTile))

    def _listed_indices(self, tile: Tile, index: tuple[Ints, ...], lo: int, hi: int) -> Ints:
        """The index that a tile of indices has for each element ``lo`` to ``hi``."""
        if tile.shape == self.sizes:
            return tile.reshape(-1)[lo:hi].astype(np.int64, copy=False)
        own = index[self.end - tile.ndim : self.end]
        at = (i if size > 1 else 0 for i, size in zip(own, tile.shape, strict=True))
        return as_tile(tile[tuple(at)], INT)


def in_bounds(indices: Tile, dim: int, size: int) -> Ints:
    """Convert indices to those that count from 0; raise if one is outside."""
    if indices.size and not (-size <= int(indices.min()) and int(indices.max()) < size):
        worst = indices.max() if int(indices.max()) >= size else indices.min()
        raise out_of_bounds(worst, dim, size)
    indices = indices.astype(np.int64)
    return np.where(indices < 0, indices + size, indices)


def _type(
    x: Tiled, rest: Sequence[InRange | NewDim], many: Sequence[AtIndices], wide: Shape, before: int
) -> ArrayType:
    """The type of the result: ranges stay cut, and the axes left cut the dims of the indices."""
    sizes = [1 if isinstance(item, NewDim) else len(item.indices) for item in rest]
    cuts = [() if isinstance(item, NewDim) else x.type.dims[item.dim] for item in rest]
    shape = (*sizes[:before], *wide, *sizes[before:])
    dims = (*cuts[:before], *((),) * len(wide), *cuts[before:])
    lead = [item.indices.type for item in many if isinstance(item.indices, Tiled)]
    if not lead and not x.type.used:
        return make_type(x.mesh, x.type.dtype, shape, dims)
    free = idle_parts(x.type, dims)
    inner = place_axes(x.type, wide, ((),) * len(wide), free)
    for t in lead:  # indices that are cut by these axes alone need not move
        if t.shape == wide and set(t.used) == set(inner.used):
            inner = inner.with_dims(t.dims)
            break
    if inner.used:
        return make_type(x.mesh, x.type.dtype, shape, (*cuts[:before], *inner.dims, *cuts[before:]))
    return place_axes(x.type, shape, dims, free)


def own_indices(x: Tiled, indices: Any, indexed: ArrayType) -> Tile:
    """This rank's part of an index, cut as the result is."""
    if isinstance(indices, Tiled):
        here = resolve_pending(indices)
        end = operand_type(here.type, indexed)
        moved = move(here, end)
        return x.memory.empty((0,), INT, 0) if moved.tile is None else moved.tile
    box = box_of(indexed, x.comm.rank)
    if box is None:
        return x.memory.empty((0,), INT, 0)
    own = box[len(box) - indices.ndim :]
    part: Tile = indices[
        tuple(
            slice(None) if n == 1 else slice(lo, hi)
            for n, (lo, hi) in zip(indices.shape, own, strict=True)
        )
    ]
    return x.memory.asarray(part)


def unravel(positions: Ints, shape: Shape) -> list[Ints]:
    """Indices along every dim from numbers in the whole array."""
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    out = []
    for i, (s, n) in enumerate(zip(strides, shape, strict=True)):
        along = positions if s == 1 else positions // max(1, s)
        out.append(along % max(1, n) if i else along)
    return out
