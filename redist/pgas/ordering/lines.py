"""The order of lines: sort the lines of a tile along a dim, or list the places that do, wherever it lies.

NaN comes last, both zeros are equal, and what is equal stays in its order, on GPUs as in memory. On a GPU
CuPy sorts by radix, where a NaN goes by its sign and its other bits. So it sorts first, and one look at the
ends of the lines says whether there is a NaN; only then places are found by keys, integers in the order of
the values::

    values    1.5  -0.0  nan  -2.0  0.0  -nan        keys of NaN are alike, and those of both zeros
    CuPy      -nan  -2.0  -0.0  0.0  1.5  nan        an end is NaN: by keys
    by keys   -2.0  -0.0  0.0  1.5  nan  -nan

Complex numbers are ordered by their real parts, equal ones by their imaginary parts, those with a NaN behind
all others: three stable sorts by keys, the last one by what is NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.pgas.kinds import number_kind, promote
from redist.pgas.tiles.tiled import Tile
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.loops import functions_for


def sort_lines(tile: Tile, dim: int, kind: Any) -> None:
    """**Local.** Sort the lines of a tile along a dim, in its own memory; ``kind`` is for tiles in memory.

    On a GPU several NaN come in the order of their bits.

    >>> tile = np.array([[3.0, np.nan], [-1.0, 2.0]])
    >>> sort_lines(tile, 0, None)
    >>> tile.tolist()
    [[-1.0, 2.0], [3.0, nan]]
    """
    if not is_device(tile):
        tile.sort(axis=dim, kind=kind)
        return
    numbers = number_kind(tile.dtype)
    if not tile.size:
        return
    if numbers != "c":
        _sort_on_gpu(tile.view(np.uint8) if numbers == "b" else tile, dim)
        if numbers != "f" or not _have_nan(_parts(tile, dim, 0, tile.shape[dim] - 1)):
            return
    tile[...] = np.take_along_axis(tile, _order_by_keys(tile, dim), dim)


def sorted_lines(tile: Tile, dim: int, kind: Any = None) -> Tile:
    """**Local.** A copy with sorted lines."""
    out: Tile = tile.copy()
    sort_lines(out, dim, kind)
    return out


def kind_of_sort(values: Tile, stable: bool = True) -> Any:
    """The kind of sort in memory: stable only if equal elements can differ, as 0.0 and -0.0."""
    return "stable" if stable and number_kind(values.dtype) in "fc" else None


def order_of_lines(tile: Tile, dim: int) -> Tile:
    """**Local.** The places that sort lines.

    >>> order_of_lines(np.array([0.0, np.nan, -0.0, -1.0]), 0).tolist()
    [3, 0, 2, 1]
    """
    if not is_device(tile):
        return np.argsort(tile, axis=dim, kind="stable")
    kind = number_kind(tile.dtype)
    if not tile.size:
        return np.zeros_like(tile, dtype=np.int64)
    if kind == "c":
        return _order_by_keys(tile, dim)
    order = _argsort(tile.view(np.uint8) if kind == "b" else tile, dim)
    if kind == "f":
        ends = _parts(order, dim, 0, tile.shape[dim] - 1)
        if _have_nan(np.take_along_axis(tile, ends, dim)):
            return _order_by_keys(tile, dim)
    return order


def places_among(ordered: Tile, values: Tile, side: Any) -> Tile:
    """**Local.** Before which elements of a sorted line values go.

    CuPy has no places of complex numbers and of truth values, and compares values of two dtypes as C++ does.
    Complex numbers are sorted together with the line: how many of that come before is the place.

    >>> places_among(np.array([1.0, 2.0]), np.array([[2.0], [0.0]]), "right").tolist()
    [[2], [0]]
    """
    if not is_device(ordered):
        return np.searchsorted(ordered, values, side)
    dtype = promote(ordered.dtype, values.dtype)
    ordered, values = ordered.astype(dtype, copy=False), values.astype(dtype, copy=False)
    if number_kind(dtype) == "b":
        ordered, values = ordered.view(np.uint8), values.view(np.uint8)
    if number_kind(dtype) != "c":
        return np.searchsorted(ordered, values, side)
    n, flat = len(values.reshape(-1)), values.reshape(-1)
    first = (flat, ordered) if side == "left" else (ordered, flat)
    order = order_of_lines(np.concatenate(first), 0)
    begin = 0 if side == "left" else len(ordered)
    is_value = (order >= begin) & (order < begin + n)
    before = np.cumsum(~is_value)
    out: Tile = np.zeros_like(before, shape=(n,))
    out[order[is_value] - begin] = before[is_value]
    return out.reshape(values.shape)


def runs_of(ordered: Tile) -> Tile:
    """**Local.** Where runs of equal elements begin in a sorted line; every NaN is one of its own.

    >>> runs_of(np.array([1.0, 1.0, 2.0, np.nan, np.nan])).tolist()
    [0, 2, 3, 4]
    """
    return flags_of(ordered).nonzero()[0]


def flags_of(ordered: Tile) -> Tile:
    """**Local.** Whether an element of a sorted line differs from the one before it."""
    flags: Tile = functions_for(ordered).ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=flags[1:])
    return flags


def lengths_of(starts: Tile, n: int) -> Tile:
    """**Local.** How long runs are in a line of ``n`` elements."""
    ends = functions_for(starts).full(1, n, starts.dtype)
    return np.diff(np.concatenate([starts, ends]))


LONG_LINE = 2**17
"""CuPy sorts several lines by comparing, and one by radix: long ones are sorted one after another."""


def _lines_one_by_one(tile: Tile, dim: int) -> Tile | None:
    """**Local.** The lines as rows, in a view or a copy, if each is to be sorted by itself."""
    n = tile.shape[dim]
    if tile.ndim == 1 or (n < LONG_LINE and tile.size != n):
        return None
    return functions_for(tile).ascontiguousarray(np.moveaxis(tile, dim, -1)).reshape(-1, n)


def _sort_on_gpu(tile: Tile, dim: int) -> None:
    """**Local.** Sort lines by CuPy."""
    rows = _lines_one_by_one(tile, dim)
    if rows is None:
        tile.sort(axis=dim)
        return
    for k in range(len(rows)):
        rows[k].sort()
    there = np.moveaxis(tile, dim, -1)
    there[...] = rows.reshape(there.shape)  # nothing to do where these are the same memory


def _argsort(tile: Tile, dim: int) -> Tile:
    """**Local.** Places in order; equal elements stay in theirs, as they always do in CuPy's sort."""
    rows = _lines_one_by_one(tile, dim)
    if rows is None:
        return tile.argsort(axis=dim)
    places = functions_for(tile).stack([rows[k].argsort() for k in range(len(rows))])
    shape = (*tile.shape[:dim], *tile.shape[dim % tile.ndim + 1 :], tile.shape[dim])
    return np.moveaxis(places.reshape(shape), -1, dim)


def _parts(tile: Tile, dim: int, *at: int) -> Tile:
    """**Local.** Some elements of each line, side by side."""
    every = (slice(None),) * dim
    return np.concatenate([tile[(*every, slice(k, k + 1))] for k in at], axis=dim)


def _have_nan(ends: Tile) -> bool:
    """Whether lines of CuPy's making begin or end with NaN; they have none elsewhere if they do not."""
    return bool((ends != ends).any())


def _order_by_keys(tile: Tile, dim: int) -> Tile:
    """**Local.** Places in order, by keys that are alike for what is equal."""
    if number_kind(tile.dtype) != "c":
        return _argsort(keys_of(tile), dim)
    real, imag = tile.real.copy(), tile.imag.copy()
    what_is_nan = 2 * (real != real).astype(np.uint8) + (imag != imag).astype(np.uint8)
    order = _argsort(keys_of(imag), dim)
    for keys in (keys_of(real), what_is_nan):
        order = np.take_along_axis(order, _argsort(np.take_along_axis(keys, order, dim), dim), dim)
    return order


def keys_of(values: Tile) -> Tile:
    """**Local.** Integers in the order of values that are no complex numbers: NaN last, both zeros alike.

    >>> keys_of(np.array([1.5, -0.0, -2.0, 0.0, np.nan], "f4")).argsort(kind="stable").tolist()
    [2, 1, 3, 0, 4]
    """
    kind = number_kind(values.dtype)
    if kind == "b":
        return values.astype(np.uint8)
    if kind != "f":
        return values
    bits = np.dtype(f"i{values.dtype.itemsize}")
    plain = np.where(values != values, values.dtype.type(np.nan), values + values.dtype.type(0))
    raw = plain.view(bits)
    most = bits.type(np.iinfo(bits).max)
    return np.where(raw < 0, raw ^ most, raw)  # of negative floats the larger one comes first
