"""What an index selects of a global array, and which part of it lies in which tile."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.tiles import Ints
from redist.runtime.onesided.parts import Part, Selector

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

    def pieces(self, shape: Shape, tiles: Shape, cuts: Shape) -> Iterator[TilePart]:
        """The selection tile by tile, of an array cut into so many tiles of that size."""
        if self.part.flat:
            yield from _scattered(self.part.dims[0], shape, tiles, cuts)
            return
        along = [list(_along(dim, n)) for dim, n in zip(self.part.dims, tiles, strict=True)]
        for chosen in itertools.product(*along):
            shard = 0
            for (tile, _, _), k in zip(chosen, cuts, strict=True):
                shard = shard * k + tile
            part = Part(tuple(inside for _, inside, _ in chosen))
            yield shard, part, tuple(where for _, _, where in chosen)


def _along(dim: Selector, n: int) -> Iterator[tuple[int, Selector, Any]]:
    """Tiles of size n that a selector touches: number, indices in the tile, places in the result.

    >>> list(_along(range(7, 0, -3), 4))
    [(0, range(1, -2, -3), slice(2, 3, None)), (1, range(3, -3, -3), slice(0, 2, None))]
    """
    if not len(dim):
        return
    if isinstance(dim, range):
        step = dim.step
        for tile in range(min(dim[0], dim[-1]) // n, max(dim[0], dim[-1]) // n + 1):
            ends = (tile * n, tile * n + n - 1) if step > 0 else (tile * n + n - 1, tile * n)
            first = max(0, -((dim.start - ends[0]) // step))
            last = min(len(dim) - 1, (ends[1] - dim.start) // step)
            if first <= last:
                inside = dim[first : last + 1]
                start = inside.start - tile * n
                here = range(start, start + len(inside) * step, step)
                yield tile, here, slice(first, last + 1)
        return
    tile_of = dim // n
    for tile in np.unique(tile_of).tolist():
        where = np.flatnonzero(tile_of == tile)
        yield tile, dim[where] - tile * n, where


def _scattered(positions: Any, shape: Shape, tiles: Shape, cuts: Shape) -> Iterator[TilePart]:
    """Flat positions, tile by tile."""
    if not len(positions):
        return
    where_all = np.unravel_index(positions, shape)
    shards = np.zeros(len(positions), np.int64)
    for c, n, k in zip(where_all, tiles, cuts, strict=True):
        shards = shards * k + c // n
    order = np.argsort(shards, kind="stable")
    found, starts = np.unique(shards[order], return_index=True)
    for shard, start, end in zip(found.tolist(), starts, [*starts[1:], len(order)], strict=True):
        where = order[start:end]
        index, sizes, rest = [], [], shard
        for c, n, k, total in reversed(list(zip(where_all, tiles, cuts, shape, strict=True))):
            rest, tile = divmod(rest, k)
            index.append(c[where] - tile * n)
            sizes.append(min(n, total - tile * n))
        flat = np.ravel_multi_index(tuple(reversed(index)), tuple(reversed(sizes)))
        yield shard, Part((flat.astype(np.int64),), flat=True), (where,)


def select(index: Any, shape: Shape) -> TileSelection:
    """What NumPy would take of an array of this shape; its errors where it would refuse.

    Indices are ints, slices, ``...``, None, and NumPy arrays or lists of ints or of bools, mixed as
    NumPy mixes them. Memory is one word for each index in a list, where several arrays are mixed
    one for each element selected.
    """
    items = _expanded(index if isinstance(index, tuple) else (index,), shape)
    if sum(isinstance(item, np.ndarray) for item in items) == 0:
        return _product(items, shape)
    lists = [item for item in items if isinstance(item, np.ndarray)]
    ints = [item for item in items if isinstance(item, int)]
    if len(lists) == 1 and not ints and not any(item is None for item in items):
        return _product(items, shape)
    return _mixed(items, shape)


def _expanded(index: tuple[Any, ...], shape: Shape) -> list[Any]:
    """One item for each dim, as int, range or list of ints, and None for new dims."""
    items: list[Any] = []
    for item in index:
        items += _item(item)
    n_dims = sum(item is not None and item is not Ellipsis for item in items)
    if sum(item is Ellipsis for item in items) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if n_dims > len(shape):
        raise IndexError(
            f"too many indices: the array has {len(shape)} dims, but {n_dims} were indexed"
        )
    if Ellipsis not in [item for item in items if not isinstance(item, (np.ndarray, _Mask))]:
        items.append(Ellipsis)
    at = next(k for k, item in enumerate(items) if item is Ellipsis)
    fill: list[Any] = [slice(None)] * (len(shape) - n_dims)
    items[at : at + 1] = fill or [_NOTHING]
    out: list[Any] = []
    dim = 0
    for item in items:
        if item is None or item is _NOTHING:
            out.append(item)
            continue
        out.append(_checked(item, shape[dim], dim))
        dim += 1
    return out


@dataclass(frozen=True, slots=True, eq=False)
class _Mask:
    """One dim of a mask: where it is true, and how long the mask is there."""

    where: Ints
    size: int


class _Nothing:
    """An ellipsis that stands for no dim; it still parts the indices around it."""


_NOTHING = _Nothing()


def _item(item: Any) -> list[Any]:
    """An index as items for one dim each."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return [item]
    if isinstance(item, (bool, np.bool_)):
        raise IndexError(f"cannot use {item!r} as an index: give a mask of one dim or more")
    if isinstance(item, int):
        return [item]
    if isinstance(item, range):
        item = list(item)
    if not isinstance(item, (np.ndarray, np.generic, list, tuple)):
        try:
            return [operator.index(item)]
        except TypeError:
            pass
    array = np.asarray(item)
    if array.size == 0 and not isinstance(item, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype == bool and array.ndim:
        return [_Mask(where, n) for where, n in zip(array.nonzero(), array.shape, strict=True)]
    if array.dtype.kind not in "iu":
        raise IndexError(
            f"cannot use {array.dtype} as an index: only integers, slices (':'), ellipsis ('...'), "
            "None and integer or boolean arrays are valid indices"
        )
    return [int(array) if array.ndim == 0 else array.astype(np.int64)]


def _checked(item: Any, n: int, dim: int) -> Any:
    """An item within a dim of size n: negative indices counted from the end."""
    if isinstance(item, slice):
        return range(*item.indices(n))
    if isinstance(item, _Mask):
        if item.size not in (0, n):
            raise IndexError(
                f"boolean index did not match indexed array along axis {dim}: the size of the axis "
                f"is {n} but that of the mask is {item.size}"
            )
        return item.where
    if isinstance(item, int):
        if not -n <= item < n:
            raise IndexError(f"index {item} is out of bounds for axis {dim} with size {n}")
        return item % n
    bad = (item < -n) | (item >= n)
    if bad.any():
        first = int(item[bad][0])
        raise IndexError(f"index {first} is out of bounds for axis {dim} with size {n}")
    return np.where(item < 0, item + n, item)


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


def _mixed(items: list[Any], shape: Shape) -> TileSelection:
    """Several lists, or lists and ints: broadcast together, in place where they stand side by side."""
    fancy = [k for k, item in enumerate(items) if isinstance(item, (int, np.ndarray))]
    arrays = [np.asarray(items[k]) for k in fancy]
    try:
        together = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        shapes = " ".join(str(array.shape) for array in arrays if array.ndim)
        raise IndexError(
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
