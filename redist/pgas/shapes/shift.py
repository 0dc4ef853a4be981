"""Reverse, roll and subtract elements along dims."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from redist.errors import ArgumentError
from redist.pgas.elementwise.apply import apply
from redist.pgas.indexing import dispatch
from redist.pgas.indexing.basic import get_basic
from redist.pgas.indexing.keys import InRange
from redist.pgas.shapes.join import concat
from redist.pgas.tiles.arguments import dims_of, takes_array
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.reshape import reshape
from redist.pgas.tiles.select import carry, links_of_ranges, new_tile
from redist.pgas.tiles.tiled import T, Tile

Axis = int | Sequence[int]


@asked
@takes_array
def flip(x: T, /, *, axis: Axis | None = None) -> T:
    """**Collective** if such a dim is cut. Reverse the order along dims."""
    dims = dims_of(axis, x.ndim)
    items = (
        InRange(i, range(n - 1, -1, -1) if i in dims and n else range(n))
        for i, n in enumerate(x.shape)
    )
    return get_basic(resolve_pending(x), tuple(items))


@asked
@takes_array
def roll(x: T, /, shift: Axis, *, axis: Axis | None = None) -> T:
    """**Collective** if such a dim is cut. Shift elements along dims; those past the end come first."""
    if axis is None:
        if not isinstance(shift, (int, np.integer)):
            raise ArgumentError("cannot roll by several shifts without dims: name them with axis=")
        return reshape(roll(reshape(x, (x.size,)), shift, axis=0), x.shape)
    x = resolve_pending(x)
    shifts = (shift,) if isinstance(shift, (int, np.integer)) else tuple(shift)
    axes = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(shifts) != len(axes):
        raise ArgumentError(f"cannot roll {len(axes)} dims by {len(shifts)} shifts")
    total = [0] * x.ndim
    for one, by in zip(axes, shifts, strict=True):
        total[dims_of(one, x.ndim)[0]] += int(by)
    total = [by % n if n else 0 for by, n in zip(total, x.shape, strict=True)]
    near = [i for i, by in enumerate(total) if by and x.type.cuts[i] == 1]
    far = [i for i, by in enumerate(total) if by and x.type.cuts[i] > 1]
    out = x
    if near or not far:
        out = x.new(x.type, new_tile(x, x.type))
        if x.tile is not None and out.tile is not None:
            _roll_tile(x.tile, out.tile, {i: total[i] for i in near})
    for i in far:
        out = _roll_cut(out, i, total[i])
    return out


def _roll_tile(tile: Tile, out: Tile, shifts: dict[int, int]) -> None:
    """Roll a tile along dims that are not cut, piece by piece."""
    pairs = [
        [(slice(None), slice(None))]
        if i not in shifts
        else [
            (slice(None, n - shifts[i]), slice(shifts[i], None)),
            (slice(n - shifts[i], None), slice(None, shifts[i])),
        ]
        for i, n in enumerate(tile.shape)
    ]
    for choice in itertools.product(*pairs):
        out[tuple(to for _, to in choice)] = tile[tuple(of for of, _ in choice)]


def _roll_cut(x: T, dim: int, by: int) -> T:
    """Roll along one cut dim: its end and its start change places."""
    out = x.new(x.type, new_tile(x, x.type))
    n = x.shape[dim]
    for source, target in (range(n - by), range(by, n)), (range(n - by, n), range(by)):
        of, to = list(map(range, x.shape)), list(map(range, x.shape))
        of[dim], to[dim] = source, target
        carry(x, out, links_of_ranges(x.type, of, x.type, to))
    return out


@takes_array
def diff(
    x: T, /, *, axis: int = -1, n: int = 1, prepend: T | None = None,
    append: T | None = None,
) -> T:  # fmt: skip
    """**Collective** if that dim is cut. The differences of neighbours along a dim, taken ``n`` times."""
    (dim,) = dims_of(axis, x.ndim)
    if n < 0:
        raise ArgumentError(f"cannot take differences {n} times")
    parts = [part for part in (prepend, x, append) if part is not None]
    x = concat(parts, axis=dim) if len(parts) > 1 else resolve_pending(x)
    before = (slice(None),) * dim
    for _ in range(n):
        ends = slice(1, None), slice(max(0, x.shape[dim] - 1))
        later, earlier = (dispatch.get(x, (*before, end)) for end in ends)
        x = apply(np.not_equal if x.dtype == np.bool_ else np.subtract, later, earlier)
    return x
