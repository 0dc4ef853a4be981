"""Elements where a condition holds: each rank picks its own, then the result is made even."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.pgas import elementwise, picking
from redist.pgas.carrying import Link, box_of, selected
from redist.pgas.keys import Cut, Item, Many, Mask, New
from redist.pgas.moving import move, settle
from redist.pgas.reshaping import reshape
from redist.pgas.tiled import Tile, Tiled
from redist.pgas.types import dtype_of, folded, make_type
from redist.runtime.flat import all_counts
from redist.runtime.links import Ragged, Ranged
from redist.runtime.selection import rows


def get(x: Tiled, items: Sequence[Item]) -> Any:
    """**Collective.** The elements that a key with a mask names."""
    mask = next(item for item in items if isinstance(item, Mask))
    if not all(item is mask or _is_whole(item, x) for item in items):
        return picking.get(x, _spelled(x, items))
    if not mask.dims:
        return _as_dim(x, items, bool(_value(mask.mask)))
    at = mask.dims[0]
    n = math.prod(x.shape[i] for i in mask.dims)
    flat = reshape(x, (*x.shape[:at], n, *x.shape[mask.dims[-1] + 1 :]))
    keep = _flat_mask(flat, mask.mask, at, n)
    tile = None if flat.local is None else flat.local.compress(keep, axis=at)
    return evened(flat, tile, at)


def put(a: Tiled, items: Sequence[Item], values: Tiled) -> None:
    """**Collective.** Write to the elements that a key with a mask names."""
    mask = next(item for item in items if isinstance(item, Mask))
    whole = all(item is mask or _is_whole(item, a) for item in items)
    if whole and values.size == 1 and values.ndim <= 1 + a.ndim - len(mask.dims):
        values = move(values, make_type(a.mesh, a.type.dtype, values.shape, ((),) * values.ndim))
        if a.local is None:
            _own_mask(a, mask)
            return
        assert values.local is not None
        where = _own_mask(a, mask)
        a.local[(slice(None),) * (mask.dims[0] if mask.dims else 0) + (where,)] = (
            values.local.reshape(())
        )
        return
    if not mask.dims:
        if len(items) - 1 != a.ndim or not whole:
            raise IndexError("a mask without dims must stand alone")
        from redist.pgas.indexing import put as put_all

        if bool(_value(mask.mask)):
            put_all(a, (None, ...), values)
        return
    picking.put(a, _spelled(a, items), values)


def nonzero(x: Tiled, /) -> tuple[Any, ...]:
    """**Collective.** The indices of all elements that are not zero, one array for every dim."""
    if x.ndim == 0:
        raise ValueError("cannot list the elements of an array without dims")
    x = settle(x)
    truth = x if x.dtype == np.bool_ else elementwise.apply(np.not_equal, x, x.dtype.type(0))
    flat = reshape(truth, (x.size,))
    found = None
    if flat.local is not None:
        box = box_of(flat.type, x.comm.rank)
        assert box is not None
        found = np.flatnonzero(flat.local).astype(np.int64) + box[0][0]
    kind = make_type(x.mesh, dtype_of(np.dtype(np.int64)), flat.shape, flat.type.dims)
    places = evened(flat.new(kind, found), found, 0)
    if places.local is None:
        return tuple(places.new(places.type, None) for _ in x.shape)
    return tuple(places.new(places.type, i) for i in picking.unravel(places.local, x.shape))


def evened(x: Tiled, tile: Tile | None, dim: int) -> Any:
    """**Collective.** An array whose tiles have any size along one dim, in order, made even along it.

    ``tile`` is this rank's; along the other dims it is as ``x`` says.
    """
    counts = all_counts(x.comm, 0 if tile is None else tile.shape[dim])
    ranks, index = rows(x.type)
    own = {tiles[dim]: counts[rank] for rank, tiles in zip(ranks, index, strict=True)}
    starts = [0]
    for k in range(x.type.cuts[dim]):
        starts.append(starts[-1] + own[k])
    total = starts[-1]
    shape = (*x.shape[:dim], total, *x.shape[dim + 1 :])
    t = make_type(x.mesh, x.type.dtype, shape, x.type.dims)
    even = Ranged(total, t.cuts[dim], range(total))
    if all(even.held(k) == Ragged(tuple(starts)).held(k) for k in range(t.cuts[dim])):
        return x.new(t, tile)
    links = [
        Link(
            i,
            Ragged(tuple(starts)) if i == dim else Ranged(shape[i], t.cuts[i], range(shape[i])),
            i,
            Ranged(shape[i], t.cuts[i], range(shape[i])),
        )
        for i in range(len(shape))
    ]
    return selected(x.new(t, tile), t, links)


def _is_whole(item: Item, x: Tiled) -> bool:
    return isinstance(item, Cut) and item.indices == range(x.shape[item.dim])


def _value(mask: Any) -> Any:
    return picking.on_all(mask) if isinstance(mask, Tiled) else mask


def _as_dim(x: Tiled, items: Sequence[Item], keep: bool) -> Any:
    """A mask without dims is a new dim of size 1 or 0."""
    from redist.pgas.indexing import basic

    out = basic(x, tuple(New() if isinstance(item, Mask) else item for item in items))
    at = next(i for i, item in enumerate(items) if isinstance(item, Mask))
    if keep:
        return out
    return basic(out, tuple(Cut(i, range(0 if i == at else n)) for i, n in enumerate(out.shape)))


def _spelled(x: Tiled, items: Sequence[Item]) -> list[Item]:
    """**Collective.** Masks as arrays of the indices where they hold."""
    out: list[Item] = []
    for item in items:
        if not isinstance(item, Mask):
            out.append(item)
        elif not item.dims:
            raise IndexError("a mask without dims must stand alone")
        elif isinstance(item.mask, Tiled):
            found: Any = nonzero(item.mask)
            out += [Many(i, one) for i, one in zip(item.dims, found, strict=True)]
        else:
            found = np.nonzero(item.mask)
            out += [Many(i, one) for i, one in zip(item.dims, found, strict=True)]
    return out


def _flat_mask(flat: Tiled, mask: Any, at: int, n: int) -> Tile:
    """This rank's part of a mask, cut as the flattened dim is."""
    t = make_type(flat.mesh, dtype_of(np.dtype(np.bool_)), (n,), (flat.type.dims[at],))
    if isinstance(mask, Tiled):
        tile = move(reshape(mask, (n,)), t).local
        return np.zeros(0, np.bool_) if tile is None else tile
    box = box_of(t, flat.comm.rank)
    return mask.reshape(-1)[slice(*box[0])] if box is not None else np.zeros(0, np.bool_)


def _own_mask(a: Tiled, item: Mask) -> Tile:
    """This rank's part of a mask, cut as the array is."""
    mask = item.mask
    dims = tuple(a.type.dims[i] for i in item.dims)
    t = make_type(a.mesh, dtype_of(np.dtype(np.bool_)), mask.shape, dims)
    if isinstance(mask, Tiled):
        mask = settle(mask)
        tile = move(mask, folded(mask.type, t)).local
        return np.zeros(0, np.bool_) if tile is None else tile
    box = box_of(t, a.comm.rank)
    return (
        mask[tuple(slice(lo, hi) for lo, hi in box)] if box is not None else np.zeros(0, np.bool_)
    )
