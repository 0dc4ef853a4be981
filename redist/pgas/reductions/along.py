"""Operations along one dim that need other tiles: each rank sends one value per row to the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.tiles import tile_index
from redist.pgas.kinds import number_kind
from redist.pgas.memory import as_tile
from redist.pgas.tiles.arguments import dim_of
from redist.pgas.tiles.layouts import dtype_of
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import T, Tile, Tiled, own_box
from redist.pgas.watch.seam import ElementExchange, traffic


def gather_along(x: Tiled, dim: int, tile: Tile | None, dtype: np.dtype[Any]) -> Tile | None:
    """**Collective.** Stack one slab from every tile along ``dim`` (without that dim), in order, as dim 0.

    Tiles that are empty for want of indices are left out.
    """
    t = x.type
    rest = [i for i in range(t.ndim) if i != dim]
    said = ArrayType(
        t.mesh,
        dtype_of(dtype),
        (t.cuts[dim], *(t.shape[i] for i in rest)),
        (t.dims[dim], *(t.dims[i] for i in rest)),
    )
    own = x.new(said, None if tile is None else x.memory.contiguous(tile[np.newaxis]))
    whole = move(own, said.with_dims(((), *(t.dims[i] for i in rest))))
    return None if whole.tile is None else whole.tile[: max(1, t.cut(dim).n_filled)]


def cumulate(x: T, function: np.ufunc, axis: int, dtype: np.dtype[Any]) -> T:
    """**Collective** if the dim is cut. Compute running sums or products along a dim."""
    x = resolve_pending(x)
    dim = dim_of(axis, x.ndim)
    t = ArrayType(x.mesh, dtype_of(dtype), x.shape, x.type.dims)
    x.memory.check_room(t.tile_bytes)
    local = x.tile
    out = None if local is None else function.accumulate(local, axis=dim, dtype=dtype)
    if x.type.cuts[dim] > 1:
        total = None if local is None else function.reduce(local, axis=dim, dtype=dtype)
        totals = gather_along(x, dim, total, dtype)
        if out is not None and totals is not None:
            before = totals[: tile_index(x.type, x.comm.rank)[dim]]
            offset = np.expand_dims(function.reduce(before, axis=0, dtype=dtype), dim)
            function(out, offset, out=out)
    return x.new(t, out)


def argument(x: T, function: Callable[..., Any], axis: int, keepdims: bool) -> T:
    """**Collective** if the dim is cut. Find the index of the first largest or smallest value."""
    x = resolve_pending(x)
    dim = dim_of(axis, x.ndim)
    if x.shape[dim] == 0:
        raise ArgumentError("cannot find a largest or smallest value in nothing")
    keep = [i for i in range(x.ndim) if keepdims or i != dim]
    t = ArrayType(
        x.mesh,
        dtype_of(np.dtype(np.int64)),
        tuple(1 if i == dim else x.shape[i] for i in keep),
        tuple(() if i == dim else x.type.dims[i] for i in keep),
    )
    x.memory.check_room(x.type.tile_bytes + 2 * t.tile_bytes)  # NumPy brings the dim to the end
    place = _local_argument(x, function, dim)
    if x.type.cuts[dim] > 1:
        best = None
        if x.tile is not None and place is not None:
            best = _take_at(x.tile, place, dim)
            place = place + own_box(x)[dim][0]
        values = gather_along(x, dim, best, x.dtype)
        places = gather_along(x, dim, place, np.dtype(np.int64))
        if values is not None and places is not None:
            place = _take_at(places, _first_argument(x, function, values, 0), 0)
    if place is None:
        return x.new(t, None)
    return x.new(t, np.expand_dims(place, dim) if keepdims else place)


def _local_argument(x: Tiled, function: Callable[..., Any], dim: int) -> Tile | None:
    if x.tile is None:
        return None
    if x.tile.shape[dim] == 0:
        shape = [n for i, n in enumerate(x.tile.shape) if i != dim]
        return x.memory.asarray(np.zeros(shape, np.int64))
    return as_tile(_first_argument(x, function, x.tile, dim)).astype(np.int64, copy=False)


def _first_argument(x: Tiled, function: Callable[..., Any], values: Tile, axis: int | None) -> Any:
    """Find the first largest or smallest value; the first NaN if there is one, on a GPU too.

    CuPy gives any of several NaNs, NumPy and the standard the first.
    """
    found = function(values, axis=axis)
    if not x.memory.on_device or number_kind(values.dtype) not in "fc":
        return found
    nan = np.isnan(values)
    return np.where(nan.any(axis=axis), nan.argmax(axis=axis), found)


def _take_at(values: Tile, place: Tile, dim: int) -> Tile:
    """Take values at places along a dim, which goes away; zeros if there are none."""
    if values.shape[dim] == 0:
        return np.zeros_like(place, values.dtype)
    return np.take_along_axis(values, np.expand_dims(place, dim), dim).squeeze(dim)


def argument_of_all(x: T, function: Callable[..., Any], keepdims: bool) -> T:
    """**Collective** if the array is cut. Find the flat index of the first largest or smallest value."""
    if x.size == 0:
        raise ArgumentError("cannot find a largest or smallest value in nothing")
    ndim = x.ndim if keepdims else 0
    t = ArrayType(x.mesh, dtype_of(np.dtype(np.int64)), (1,) * ndim, ((),) * ndim)
    if x.memory.is_ghost:
        given = x, function, t
        what = ElementExchange(function.__name__, x.type, t)
        tile = traffic().perform(what, _argument_tile, given, lambda: new_tile(x, t))
    else:
        tile, _ = _argument_tile(x, function, t)
    return x.new(t, tile)


def _argument_tile(x: Tiled, function: Callable[..., Any], t: ArrayType) -> tuple[Tile | None, int]:
    """**Collective** if the array is cut. The place as a tile, and nothing that was not counted."""
    parts = x.type.used
    n = math.prod(part.size for part in parts)
    value, place = np.zeros(1, x.dtype), np.full(1, -1, np.int64)
    if x.tile is not None and x.tile.size:
        at = np.unravel_index(int(_first_argument(x, function, x.tile, None)), x.tile.shape)
        value[0] = x.memory.host(x.tile[at])
        index = tuple(int(i) + start for i, (start, _) in zip(at, own_box(x), strict=True))
        place[0] = np.ravel_multi_index(index, x.shape) if x.ndim else 0
    values, places = (_from_all(x, tile, parts, n) for tile in (value, place))
    if values is None or places is None:
        return None, 0
    values, places = x.memory.host(values), x.memory.host(places)
    held = places >= 0
    values, places = values[held], places[held]
    best = values[function(values)]
    same = (values == best) | ((values != values) & (best != best))
    return x.memory.asarray(np.asarray(places[same].min()).reshape(t.shape)), 0


def _from_all(x: Tiled, tile: Tile, parts: Sequence[SubAxis], n: int) -> Tile | None:
    said = ArrayType(x.mesh, dtype_of(tile.dtype), (n,), (tuple(parts),))
    own = x.new(said, None if x.tile is None else x.memory.asarray(tile))
    return move(own, said.with_dims(((),))).tile
