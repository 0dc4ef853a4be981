"""Take parts of an array along a dim: all, those at given indices, or different ones for each row."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.errors import ArgumentError, IndexKeyError
from redist.pgas.indexing import dispatch
from redist.pgas.indexing.basic import get_basic
from redist.pgas.indexing.chosen import in_bounds
from redist.pgas.indexing.keys import AtIndex, InRange
from redist.pgas.tiles.arguments import dims_of, takes_array
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.devices import check_alike
from redist.pgas.tiles.layouts import make_type, place_axes
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import T, Tile, Tiled
from redist.pgas.watch.seam import ElementExchange, traffic
from redist.runtime.elements.by_position import rounds_of


@asked
@takes_array
def unstack(x: T, /, *, axis: int = 0) -> tuple[T, ...]:
    """**Collective** if that dim is cut. Split an array along a dim, which the parts no longer have."""
    (dim,) = dims_of(axis, x.ndim)
    x = resolve_pending(x)
    if x.type.cuts[dim] > 1:
        dims = tuple(() if i == dim else d for i, d in enumerate(x.type.dims))
        others = [i for i in range(x.ndim) if i != dim]
        t = place_axes(
            x.type,
            tuple(x.shape[i] for i in others),
            tuple(dims[i] for i in others),
            x.type.dims[dim],
        )
        x = move(x, x.type.with_dims((*t.dims[:dim], (), *t.dims[dim:])))
    items = [InRange(i, range(n)) for i, n in enumerate(x.shape)]
    return tuple(
        get_basic(x, (*items[:dim], AtIndex(dim, k), *items[dim + 1 :]))
        for k in range(x.shape[dim])
    )


@asked
@takes_array
def take(x: T, indices: Any, /, *, axis: int | None = None) -> T:
    """**Collective.** Take the parts of an array at given indices along a dim."""
    if axis is None and x.ndim != 1:
        raise ArgumentError(f"cannot take along {x.ndim} dims: name one with axis=")
    (dim,) = dims_of(0 if axis is None else axis, x.ndim)
    return dispatch.get(x, (*(slice(None),) * dim, indices))


@asked
@takes_array
def take_along_axis(x: T, indices: Any, /, *, axis: int = -1) -> T:
    """**Collective** if that dim is cut. Take elements along a dim, at separate indices for each row."""
    (dim,) = dims_of(axis, x.ndim)
    x = resolve_pending(x)
    check_alike("take_along_axis", x, indices)
    if indices.ndim != x.ndim:
        raise ArgumentError(f"cannot take along {x.ndim} dims by indices of {indices.ndim}")
    alike = all(
        n == m for i, (n, m) in enumerate(zip(x.shape, indices.shape, strict=True)) if i != dim
    )
    if alike and x.type.cuts[dim] == 1 and isinstance(indices, Tiled):
        t = make_type(x.mesh, indices.type.dtype, indices.shape, x.type.dims)
        return _along(x, move(resolve_pending(indices), t), dim)
    key: list[Any] = [*np.ix_(*map(np.arange, x.shape))]
    key[dim] = indices
    return dispatch.get(x, tuple(key))


def _along(x: T, indices: Tiled, dim: int) -> T:
    """Take from rows that lie whole on their ranks; ranks agree on whether all indices are inside."""
    t = make_type(x.mesh, x.type.dtype, indices.shape, x.type.dims)
    if not x.memory.is_ghost:
        return x.new(t, _taken_along(x, indices, dim)[0])
    exchange = ElementExchange("take", x.type, t)
    tile = traffic().perform(exchange, _taken_along, (x, indices, dim), lambda: new_tile(x, t))
    return x.new(t, tile)


def _taken_along(x: Tiled, indices: Tiled, dim: int) -> tuple[Tile | None, int]:
    """**Collective.** The tile of the elements taken; nothing moves for it."""
    own, n = indices.tile, x.shape[dim]
    wrong = own is not None and own.size > 0 and not (-n <= int(own.min()) and int(own.max()) < n)
    if rounds_of(x.comm, 0, wrong)[1]:
        raise IndexKeyError(f"an index is out of bounds for dim {dim} of size {n}")
    if x.tile is None or own is None:
        return None, 0
    known = own if x.memory.on_device else in_bounds(own, dim, n)  # CuPy counts from the end itself
    if not x.memory.on_device:
        return np.take_along_axis(x.tile, known, dim), 0
    taken: Tile = np.take_along_axis(x.type.dtype.raw(x.tile), known, dim)
    return taken.view(x.tile.dtype), 0
