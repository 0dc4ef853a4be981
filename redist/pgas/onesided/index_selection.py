"""What an index selects of a global array, and which part of it lies in which tile."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import IndexKeyError
from redist.layout.cuts import Cut, Ints
from redist.pgas.indexing.keys import (
    AtIndex,
    AtIndices,
    ByMask,
    Gap,
    InRange,
    Item,
    NewDim,
    out_of_bounds,
    parse,
)
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_host
from redist.runtime.index_sets.held import count_from, within
from redist.runtime.index_sets.part import Part, Selector

Shape = tuple[int, ...]
TilePart = tuple[int, Part, tuple[Any, ...]]
"""Number of a tile, part of it, and where that lies in the selection."""


@dataclass(frozen=True, slots=True, eq=False)
class TileSelection:
    """Elements of an array, by NumPy's rules of indexing: ``shape`` is that of the result.

    A ``part`` of the whole array, as if it were one tile; the result is its elements in order.

    >>> select((slice(None, None, 2), [3, 0]), (4, 5)).shape
    (2, 2)
    """

    part: Part
    shape: Shape

    def pieces(self, cuts: Sequence[Cut]) -> Iterator[TilePart]:
        """The selection tile by tile, of an array whose dims are cut so."""
        if self.part.flat:
            yield from _split_positions(self.part.dims[0], cuts)
            return
        along = [list(_along(dim, cut)) for dim, cut in zip(self.part.dims, cuts, strict=True)]
        for chosen in itertools.product(*along):
            shard = 0
            for (tile, _, _), cut in zip(chosen, cuts, strict=True):
                shard = shard * cut.n_tiles + tile
            part = Part(tuple(inside for _, inside, _ in chosen))
            yield shard, part, tuple(where for _, _, where in chosen)


def _along(dim: Selector, cut: Cut) -> Iterator[tuple[int, Selector, Any]]:
    """Tiles that a selector touches: number, indices in the tile, places in the result.

    >>> from redist.layout.cuts import cut_dim
    >>> list(_along(range(7, 0, -3), cut_dim(8, 2)))
    [(0, range(1, -2, -3), slice(2, 3, None)), (1, range(3, -3, -3), slice(0, 2, None))]
    """
    if not len(dim):
        return
    if isinstance(dim, range):
        low, high = sorted((dim[0], dim[-1]))
        for tile in range(cut.tile_of(low), cut.tile_of(high) + 1):
            held = within(dim, *cut.range_of(tile))
            if held.n:
                here = count_from(held.at, held.step, held.n)
                yield tile, here, slice(held.first, held.first + held.n)
        return
    tile_of = cut.tile_of(dim)
    for tile in np.unique(tile_of).tolist():
        where = np.flatnonzero(tile_of == tile)
        yield tile, dim[where] - cut.range_of(tile)[0], where


def _split_positions(positions: Any, cuts: Sequence[Cut]) -> Iterator[TilePart]:
    """Flat positions, tile by tile."""
    if not len(positions):
        return
    where_all = np.unravel_index(positions, tuple(cut.size for cut in cuts))
    shards = np.zeros(len(positions), np.int64)
    for c, cut in zip(where_all, cuts, strict=True):
        shards = shards * cut.n_tiles + cut.tile_of(c)
    order = np.argsort(shards, kind="stable")
    found, starts = np.unique(shards[order], return_index=True)
    for shard, start, end in zip(found.tolist(), starts, [*starts[1:], len(order)], strict=True):
        where = order[start:end]
        index, sizes, rest = [], [], shard
        for c, cut in reversed(list(zip(where_all, cuts, strict=True))):
            rest, tile = divmod(rest, cut.n_tiles)
            lo, hi = cut.range_of(tile)
            index.append(c[where] - lo)
            sizes.append(hi - lo)
        flat = np.ravel_multi_index(tuple(reversed(index)), tuple(reversed(sizes)))
        yield shard, Part((flat.astype(np.int64),), flat=True), (where,)


def select(index: Any, shape: Shape) -> TileSelection:
    """What NumPy would take of an array of this shape; its errors where it would refuse.

    Indices are ints, slices, ``...``, None, and NumPy arrays or lists of ints or of bools, mixed as
    NumPy mixes them. Memory is one word for each index in a list, where several arrays are mixed
    one for each element selected. Arrays of a GPU are copied to the host.
    """
    if any(isinstance(one, Tiled) for one in (index if isinstance(index, tuple) else (index,))):
        raise IndexKeyError(
            "cannot reach elements by a global array: one rank alone has no other rank's indices; "
            "give a NumPy array, such as the result of .gather()"
        )
    if is_device(index):
        index = to_host(index)
    elif isinstance(index, tuple):
        index = tuple(to_host(one) if is_device(one) else one for one in index)
    items = [one for item in parse(index, shape) for one in _per_dim(item, shape)]
    if sum(isinstance(item, np.ndarray) for item in items) == 0:
        return _product(items, shape)
    lists = [item for item in items if isinstance(item, np.ndarray)]
    ints = [item for item in items if isinstance(item, int)]
    if len(lists) == 1 and not ints and not any(item is None for item in items):
        return _product(items, shape)
    return _broadcast_lists(items, shape)


def _per_dim(item: Item, shape: Shape) -> list[Any]:
    """An item as an int, a range or a list of ints for each of its dims; None for a new dim."""
    match item:
        case AtIndex(index=one):
            return [one]
        case InRange(indices=indices):
            return [indices]
        case NewDim():
            return [None]
        case AtIndices(dim=dim, indices=indices):
            assert isinstance(indices, np.ndarray)
            return [_within_dim(indices.astype(np.int64), dim, shape[dim])]
        case ByMask(dims=(), mask=mask):
            raise IndexKeyError(
                f"cannot use {bool(mask)!r} as an index: give a mask of one dim or more"
            )
        case ByMask(mask=mask):
            assert isinstance(mask, np.ndarray)
            return list(mask.nonzero())
        case Gap():
            return [item]


def _within_dim(indices: Ints, dim: int, size: int) -> Ints:
    """Indices of a dim, negative ones counted from its end."""
    outside = (indices < -size) | (indices >= size)
    if outside.any():
        raise out_of_bounds(int(indices[outside][0]), dim, size)
    return np.where(indices < 0, indices + size, indices)


def _product(items: list[Any], shape: Shape) -> TileSelection:
    """Ints and slices, and at most one list without ints beside it."""
    dims: list[Selector] = []
    result: list[int] = []
    for item in items:
        if item is None:
            result.append(1)
        elif isinstance(item, int):
            dims.append(range(item, item + 1))
        elif isinstance(item, range):
            dims.append(item)
            result.append(len(item))
        elif isinstance(item, np.ndarray):
            dims.append(item.reshape(-1))
            result += item.shape
    return TileSelection(Part(tuple(dims)), tuple(result))


def _broadcast_lists(items: list[Any], shape: Shape) -> TileSelection:
    """Several lists, or lists and ints: broadcast together, in place where they stand side by side."""
    fancy = [k for k, item in enumerate(items) if isinstance(item, (int, np.ndarray))]
    arrays = [np.asarray(items[k]) for k in fancy]
    try:
        together = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        shapes = " ".join(str(array.shape) for array in arrays if array.ndim)
        raise IndexKeyError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        ) from None
    side_by_side = fancy[-1] - fancy[0] == len(fancy) - 1
    plain = [item for item in items if item is None or isinstance(item, range)]
    ahead = 0
    if side_by_side:
        ahead = sum(item is None or isinstance(item, range) for item in items[: fancy[0]])
    sizes = [1 if item is None else len(item) for item in plain]
    result = (*sizes[:ahead], *together, *sizes[ahead:])
    position: NDArray[Any] = np.zeros((), np.int64)
    stride, dim, seen = math.prod(shape), 0, 0
    for item in items:
        if item is None:
            seen += 1
        elif isinstance(item, (range, int, np.ndarray)):
            stride = stride // shape[dim] if shape[dim] else 0
            dim += 1
            values = np.asarray(item, dtype=np.int64) * stride
            if isinstance(item, range):
                at = seen if seen < ahead else seen + len(together)
                values = values.reshape(-1, *(1,) * (len(result) - 1 - at))
                seen += 1
            elif isinstance(item, np.ndarray):
                values = values.reshape(*values.shape, *(1,) * (len(sizes) - ahead))
            position = position + values
    flat = np.broadcast_to(position, result).reshape(-1)
    return TileSelection(Part((flat,), flat=True), result)
