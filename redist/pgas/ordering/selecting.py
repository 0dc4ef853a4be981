"""Values by their places in the sorted order, without sorting over ranks: no element moves for a few places.

Where tiles hold whole rows, a partition of each finds the values. Where rows are cut, every rank sorts its
own part, and the ranks count: from samples that they show each other, all conclude how many of the smallest
``k`` elements each of them has, as for a sort (``find_splitters``). The value in question is the least of
those that come next on any rank. A sort would go on to send every element to another rank and merge there;
this sends a few thousand samples, whatever the size. Bisection by counting alone would need no sorted copy,
but up to 64 passes over the tile and as many meetings.

Rows that are many and short are moved so that tiles hold them whole, if another dim can take the axes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from redist.layout.array_type import ArrayType
from redist.pgas.kinds import number_kind
from redist.pgas.ordering.lines import sorted_lines
from redist.pgas.ordering.sorting import MOST_GROWTH, holders_of_rows
from redist.pgas.ordering.splitters import find_splitters, values_at
from redist.pgas.tiles.arguments import takes_array
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.budget import require_room
from redist.pgas.tiles.layouts import free_dims, make_type
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import T, Tile, Tiled
from redist.pgas.watch.seam import ElementExchange, traffic
from redist.runtime.copies.gpu_arrays import is_device

MOST_COUNTED = 64
"""Up to so many values of cut rows are found by counting; for more, rows are brought together."""


@asked
@takes_array
def values_in_order(x: T, places: tuple[int, ...], dims: tuple[int, ...]) -> T:
    """**Collective** if such a dim is cut. The values at places of the order over dims; NaN is the largest.

    They lie along a new first dim, which is not cut; the other dims stay cut as they are. Other than
    :func:`redist.pgas.sort` it treats several dims as one, wherever their elements lie.
    """
    x = resolve_pending(x)
    if _is_cut(x.type, dims) and _comes_together(x.type, places, dims):
        x = move(x, free_dims(x.type, frozenset(dims)))
    t = x.type
    kept = [i for i in range(x.ndim) if i not in dims]
    shape = (len(places), *(t.shape[i] for i in kept))
    made = make_type(t.mesh, t.dtype, shape, ((), *(t.dims[i] for i in kept)))
    require_room(x, "find values in order in", 2 * t.tile_bytes + made.tile_bytes)
    if not _is_cut(t, dims):
        out = new_tile(x, made)
        if out is not None:
            x.memory.write(_write_values, out, x.tile, places, dims)
        return x.new(made, out)
    told_bytes = made.tile_bytes * (len(holders_of_rows(t, dims, x.comm.rank)[0]) - 1)
    tile = traffic().perform(
        ElementExchange("values in order", t, made),
        _find_values,
        (x, places, dims, made),
        lambda: new_tile(x, made),
        lambda: told_bytes,
    )
    return x.new(made, tile)


def _is_cut(t: ArrayType, dims: tuple[int, ...]) -> bool:
    return any(t.cuts[i] > 1 for i in dims)


def _comes_together(t: ArrayType, places: tuple[int, ...], dims: tuple[int, ...]) -> bool:
    """Whether rows are so many that tiles shall hold them whole, and can."""
    n_rows = math.prod(n for i, n in enumerate(t.tile_shape) if i not in dims)
    if n_rows * len(places) <= MOST_COUNTED:
        return False
    return free_dims(t, frozenset(dims)).tile_bytes <= MOST_GROWTH * t.tile_bytes


def _as_rows(tile: Tile, dims: tuple[int, ...]) -> Tile:
    """The elements of a tile with one row for each element of the other dims."""
    last = np.moveaxis(tile, dims, tuple(range(tile.ndim - len(dims), tile.ndim)))
    n = math.prod(tile.shape[i] for i in dims)
    return last.reshape((math.prod(last.shape[: tile.ndim - len(dims)]), n))


def _write_values(out: Tile, tile: Tile, places: tuple[int, ...], dims: tuple[int, ...]) -> None:
    """**Local.** The values of rows that a tile holds whole."""
    rows = _as_rows(tile, dims)
    by_parts = not is_device(rows)
    ordered = np.partition(rows, sorted(set(places)), axis=1) if by_parts else sorted_lines(rows, 1)
    for k, place in enumerate(places):
        out[k] = ordered[:, place].reshape(out.shape[1:])


def _find_values(
    x: Tiled, places: tuple[int, ...], dims: tuple[int, ...], made: ArrayType
) -> tuple[Tile | None, int]:
    """**Collective.** The values of rows of which several ranks hold parts, on all of these."""
    members, sizes = holders_of_rows(x.type, dims, x.comm.rank)
    rows = np.empty((0, 0), x.dtype) if x.tile is None else sorted_lines(_as_rows(x.tile, dims), 1)
    most_rows = math.prod(n for i, n in enumerate(x.type.tile_shape) if i not in dims)
    targets, where = np.unique(np.asarray(places, np.int64), return_inverse=True)
    cuts, received = find_splitters(x.comm, rows, members, sizes, targets, most_rows)
    shown = np.zeros(
        (2, most_rows, len(targets)), x.dtype
    )  # what comes next here, and whether there is any
    if x.tile is not None:
        n = rows.shape[1]
        for r, row_cuts in enumerate(cuts[:, :, members.index(x.comm.rank)]):
            here = row_cuts < n
            shown[0, r, here] = values_at(rows[r], row_cuts[here])
            shown[1, r] = here
    told = traffic().tell_all(x.comm, shown)
    received += told.nbytes - shown.nbytes
    if x.tile is None:
        return None, received
    values, there = told[members, 0, : len(rows)], told[members, 1, : len(rows)] != 0
    values = np.where(there, values, _last(x.dtype))
    least = np.sort(values, axis=0)[0].T  # NaN is the largest, as everywhere in an order
    shape = (len(places), *(n for i, n in enumerate(x.tile.shape) if i not in dims))
    out = x.memory.empty(shape, x.dtype, made.tile_bytes)
    out[...] = x.memory.asarray(np.ascontiguousarray(least[where].reshape(shape)))
    return out, received


def _last(dtype: np.dtype[Any]) -> Any:
    """A value that no other of the dtype comes behind."""
    kind = number_kind(dtype)
    if kind == "b":
        return np.True_
    if kind in "iu":
        return dtype.type(np.iinfo(dtype).max)
    return dtype.type(np.nan if kind == "f" else complex(np.nan, np.nan))
