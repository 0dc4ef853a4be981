"""Values added to zeros at what a key names: ``x[key]`` read backwards.

Each rank adds what it has. Where two ranks may name one element the sum over them is pending, so that it is
finished where a result is needed, by reduce_scatter if that is cut::

    g: f64[1000{x}, 64{y}], at rows i    ->    f64[50000, 64{y}] sum{x}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.layout.array_type import ArrayType
from redist.pgas.indexing import boolean
from redist.pgas.indexing.basic import put_basic
from redist.pgas.indexing.chosen import own_indices
from redist.pgas.indexing.dispatch import over_ranks
from redist.pgas.indexing.keys import AtIndex, AtIndices, ByMask, InRange, Item, NewDim, parse
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.layouts import (
    Shape,
    default_dims,
    dtype_of,
    free_dims,
    make_type,
)
from redist.pgas.tiles.move import as_plain, move, resolve_pending
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import T, Tile, Tiled, own_box
from redist.runtime.cuda.arrays import to_device
from redist.runtime.cuda.parts import CODES, fold_in


@asked
def add_at(values: T, key: Any, shape: Sequence[int]) -> T:
    """**Collective.** Zeros of a shape, with values added at what a key names, as often as it names it."""
    values = as_plain(resolve_pending(values))
    sizes = tuple(shape)
    items = parse(over_ranks(values, key), sizes)
    if any(isinstance(item, AtIndices) for item in items) and not any(
        isinstance(item, ByMask) for item in items
    ):
        return _add_listed(values, items, sizes)
    out = _zeros(values, _type_of_part(values.type, items, sizes))
    if any(isinstance(item, ByMask) for item in items):
        boolean.put(out, items, values)
    else:
        put_basic(out, items, values)
    return out


def _zeros(x: T, t: ArrayType) -> T:
    out = x.new(t, new_tile(x, t))
    if out.tile is not None:
        out.tile[...] = 0
    return out


def _type_of_part(t: ArrayType, items: Sequence[Item], shape: Shape) -> ArrayType:
    """The type of an array of which a part, by slices, is of type ``t``: cut as that, or evenly for masks."""
    if any(isinstance(item, ByMask) for item in items):
        return make_type(t.mesh, t.dtype, shape, default_dims(t.mesh, shape))
    kept = [item for item in items if isinstance(item, (InRange, NewDim))]
    cuts = {
        item.dim: cut for item, cut in zip(kept, t.dims, strict=True) if isinstance(item, InRange)
    }
    return make_type(t.mesh, t.dtype, shape, tuple(cuts.get(i, ()) for i in range(len(shape))))


def _add_listed(values: T, items: Sequence[Item], shape: Shape) -> T:
    """Add at arrays of indices: dims that are taken whole stay cut, the others are whole on every rank."""
    many = [item for item in items if isinstance(item, AtIndices)]
    wide = np.broadcast_shapes(*(item.indices.shape for item in many))
    arrays = [k for k, item in enumerate(items) if isinstance(item, (AtIndices, AtIndex))]
    together = arrays[-1] - arrays[0] + 1 == len(arrays)
    rest = [item for item in items if isinstance(item, (InRange, NewDim))]
    before = sum(isinstance(item, (InRange, NewDim)) for item in items[: arrays[0]] if together)
    places = [*range(before), *range(before + len(wide), values.ndim)]
    stays = {
        item.dim: place
        for item, place in zip(rest, places, strict=True)
        if isinstance(item, InRange) and item.indices == range(shape[item.dim])
    }
    t = values.type
    cuts = tuple(t.dims[stays[i]] if i in stays else () for i in range(len(shape)))
    gone = [k for k in range(t.ndim) if k not in stays.values()]
    pending = tuple(part for k in gone for part in t.dims[k])
    made = ArrayType(t.mesh, t.dtype, shape, cuts, "sum" if pending else None, pending)
    indexed = make_type(
        t.mesh, dtype_of(np.dtype(np.int64)), wide, t.dims[before : before + len(wide)]
    )
    listed = {item.dim: own_indices(values, item.indices, indexed) for item in many}
    out = _zeros(values, made)
    if out.tile is None or values.tile is None or not values.tile.size:
        return out
    box = own_box(values)
    index: list[Any] = [0] * len(shape)
    for item in items:
        if isinstance(item, AtIndex):
            index[item.dim] = item.index
        elif isinstance(item, AtIndices):
            own = listed[item.dim]
            tail = values.ndim - before - len(wide)
            index[item.dim] = own.reshape((*own.shape, *(1,) * tail))
    for item, place in zip(rest, places, strict=True):
        if isinstance(item, InRange):
            lo, hi = box[place]
            own = np.arange(hi - lo) if item.dim in stays else np.asarray(item.indices)[lo:hi]
            index[item.dim] = own.reshape([-1 if k == place else 1 for k in range(values.ndim)])
    _add_in(out, tuple(index), values.tile)
    return out


def _add_in(out: Tiled, index: tuple[Any, ...], values: Tile) -> None:
    """**Local.** Add values at arrays of indices, which broadcast, to this rank's tile."""
    assert out.tile is not None
    if out.memory.on_device:
        out.memory.write(_add_on_gpu, out.tile, index, values)
    else:
        np.add.at(out.tile, index, values)


def _add_on_gpu(tile: Tile, index: tuple[Any, ...], values: Tile) -> None:
    """**Local.** The same on a GPU: each element adds its values in their order, as in memory."""
    flat: Any = 0
    for n, one in zip(tile.shape, index, strict=True):
        at = one if isinstance(one, int) else to_device(one).astype(np.int64, copy=False)
        flat = flat * n + at % n
    places = np.broadcast_to(flat, values.shape).reshape(-1)
    fold_in(tile, places, values.reshape(-1), ((CODES["sum"], values.size),))


@asked
def add_along(values: T, indices: Any, dim: int, n: int) -> T:
    """**Collective** if that dim is cut. Zeros, ``n`` along a dim, with values added at each row's indices.

    ``take_along_axis`` read backwards, for arrays of one shape.
    """
    values = as_plain(resolve_pending(values))
    values = move(values, free_dims(values.type, frozenset({dim})))
    t = values.type
    at = resolve_pending(indices)
    at = move(at, make_type(t.mesh, at.type.dtype, at.shape, t.dims))
    sizes = tuple(n if i == dim else m for i, m in enumerate(values.shape))
    out = _zeros(values, make_type(t.mesh, t.dtype, sizes, t.dims))
    if out.tile is None or values.tile is None or at.tile is None:
        return out
    index: list[Any] = [
        np.arange(m).reshape([-1 if i == d else 1 for i in range(values.ndim)])
        for d, m in enumerate(values.tile.shape)
    ]
    index[dim] = at.tile
    _add_in(out, tuple(index), values.tile)
    return out
