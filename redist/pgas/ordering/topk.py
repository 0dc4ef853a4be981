"""The largest or smallest elements along a dim: first the best of each tile, then the best of those."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.layout.array_type import ArrayType
from redist.layout.lower_bound import lower_bound_bytes
from redist.layout.tiles import box_of
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.global_array import Array
from redist.pgas.kinds import number_kind
from redist.pgas.ordering.lines import keys_of, order_of_lines
from redist.pgas.ordering.sorting import MOST_GROWTH
from redist.pgas.tiles.arguments import dim_of, takes_array
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.layouts import dtype_of, free_dims, make_type
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import T, Tile, Tiled
from redist.runtime.copies.gpu_arrays import is_device

INT = np.dtype(np.int64)


class TopK(NamedTuple):
    """The result of :func:`topk`: the values, best first, and the index of each along its dim."""

    values: Array
    indices: Array


@in_f32
@asked
@takes_array
def topk(x: T, k: int, /, *, axis: int = -1, largest: bool = True, sorted: bool = True) -> TopK:
    """**Collective** if the dim is cut. Find the ``k`` largest or smallest elements along a dim, and indices.

    ``values, indices = pgas.topk(scores, 5, axis=1)``. Of equal elements, those with the lowest indices are
    taken, on any number of ranks; NaN counts as the largest. The results are always sorted, best first;
    ``sorted`` is accepted, as in PyTorch, but makes no difference. Along a cut dim, ranks exchange only the
    best ``k`` elements of their tiles.
    """
    dim, x = dim_of(axis, x.ndim), resolve_pending(x)
    if number_kind(x.dtype) == "c":
        raise ArgumentTypeError(f"cannot find the largest of {x.dtype}: need real numbers")
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 0 <= k <= x.shape[dim]:
        raise ArgumentError(
            f"cannot find the best {k!r} of {x.shape[dim]} elements along dim {dim}: need an int from 0 to "
            f"{x.shape[dim]}"
        )
    x = _brought_together(x, int(k), dim)
    shape = tuple(int(k) if i == dim else n for i, n in enumerate(x.shape))
    dims = tuple(() if i == dim else d for i, d in enumerate(x.type.dims))
    ends = [make_type(x.mesh, dtype_of(kind), shape, dims) for kind in (x.dtype, INT)]
    x.memory.check_room(3 * x.type.tile_bytes)
    if x.type.cuts[dim] == 1 or not k:
        values, places = _best_of_tile(x, ends, dim, 0, bool(largest))
    else:
        values, places = _best_of_all(x, ends, dim, bool(largest))
    return TopK(x.new(ends[0], values), x.new(ends[1], places))  # type: ignore[arg-type]


def _brought_together(x: T, k: int, dim: int) -> T:
    """**Collective** if it moves. The array with the dim whole, if that is as cheap as telling the best."""
    t = x.type
    if t.cuts[dim] == 1:
        return x
    rows = math.prod(n for i, n in enumerate(t.tile_shape) if i != dim)
    told_bytes = rows * k * (t.cuts[dim] - 1) * (x.dtype.itemsize + INT.itemsize) * t.mesh.n_devices
    end = free_dims(t, frozenset({dim}))
    fits = end.tile_bytes <= MOST_GROWTH * t.tile_bytes
    return move(x, end) if fits and lower_bound_bytes(t, end) <= told_bytes else x


def _best_of_tile(
    x: Tiled, ends: Sequence[ArrayType], dim: int, start: int, largest: bool
) -> tuple[Tile | None, Tile | None]:
    """**Collective** under a memory limit. The best elements of the own tile, and their indices."""
    values, places = (new_tile(x, t) for t in ends)
    if x.tile is not None and values is not None and places is not None:
        x.memory.write(_write_best, places, x.tile, start, dim, largest)
        x.memory.write(_write_values, values, x.tile, places, start, dim)
    return values, places


def _best_of_all(
    x: Tiled, ends: Sequence[ArrayType], dim: int, largest: bool
) -> tuple[Tile | None, Tile | None]:
    """**Collective.** The best of the best of each tile; a tile that has fewer gives what it has."""
    t = x.type
    shape = tuple(t.cuts[dim] * n if i == dim else n for i, n in enumerate(ends[0].shape))
    told = [ArrayType(t.mesh, end.dtype, shape, t.dims) for end in ends]
    box = box_of(t, x.comm.rank)
    tiles = _best_of_tile(x, told, dim, 0 if box is None else box[dim][0], largest)
    every, at = (
        move(x.new(own, tile), make_type(t.mesh, own.dtype, shape, end.dims)).tile
        for own, tile, end in zip(told, tiles, ends, strict=True)
    )
    values, places = (new_tile(x, end) for end in ends)
    if every is not None and at is not None and values is not None and places is not None:
        order = x.memory.empty(places.shape, INT, ends[1].tile_bytes)
        x.memory.write(_write_order, order, every, at, dim, largest)
        x.memory.write(_write_taken, values, every, order, dim)
        x.memory.write(_write_taken, places, at, order, dim)
    return values, places


def _write_best(places: Tile, tile: Tile, start: int, dim: int, largest: bool) -> None:
    """**Local.** The indices of the best elements of a tile along a dim; -1 where it has too few."""
    out, rows = np.moveaxis(places, dim, -1), np.moveaxis(tile, dim, -1)
    n = min(out.shape[-1], rows.shape[-1])
    out[..., n:] = -1
    out[..., :n] = _best(_keys(rows, largest), n) + start


def _write_values(values: Tile, tile: Tile, places: Tile, start: int, dim: int) -> None:
    """**Local.** The elements at these indices; 0 where there is none."""
    out, rows, at = (np.moveaxis(one, dim, -1) for one in (values, tile, places))
    n = min(out.shape[-1], rows.shape[-1])
    out[..., n:] = 0
    out[..., :n] = np.take_along_axis(rows, at[..., :n] - start, -1)


def _write_order(order: Tile, every: Tile, at: Tile, dim: int, largest: bool) -> None:
    """**Local.** Where the best of those are that all tiles told, which come in the order of their tiles."""
    out, rows, indices = (np.moveaxis(one, dim, -1) for one in (order, every, at))
    first = order_of_lines(_keys(rows, largest), -1)
    missing = (np.take_along_axis(indices, first, -1) < 0).astype(np.uint8)
    out[...] = np.take_along_axis(first, order_of_lines(missing, -1), -1)[..., : out.shape[-1]]


def _write_taken(out: Tile, tile: Tile, order: Tile, dim: int) -> None:
    """**Local.** Elements in an order."""
    out[...] = np.take_along_axis(tile, order, dim)


def _best(keys: Tile, n: int) -> Tile:
    """**Local.** The places of the ``n`` smallest keys of each row, in order, those first that come first."""
    if is_device(keys) or n == 0:
        return order_of_lines(keys, -1)[..., :n]
    edge = np.partition(keys, n - 1, axis=-1)[..., n - 1 : n]
    below, level = keys < edge, keys == edge
    room = n - np.count_nonzero(below, axis=-1, keepdims=True)
    chosen = below | (level & (np.cumsum(level, axis=-1) <= room))
    places = np.nonzero(chosen)[-1].reshape((*keys.shape[:-1], n))
    order = order_of_lines(np.take_along_axis(keys, places, -1), -1)
    return np.take_along_axis(places, order, -1)


def _keys(values: Tile, largest: bool) -> Tile:
    """**Local.** Integers in the order of values, or in the other order: NaN last, both zeros alike."""
    keys = keys_of(values)
    return ~keys if largest else keys
