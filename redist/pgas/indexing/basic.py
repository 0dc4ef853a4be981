"""Elements by ints, slices and new dims, read and written; what values may be written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import ArgumentError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import box_of
from redist.pgas.indexing.keys import AtIndex, InRange, Item, NewDim, result_shape
from redist.pgas.memory import round_to_grains
from redist.pgas.tiles.budget import staging_room
from redist.pgas.tiles.devices import check_alike
from redist.pgas.tiles.layouts import Shape, make_type, place_axes
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.select import Link, carry, new_tile, select
from redist.pgas.tiles.tiled import T, Tile, Tiled
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import overlap, to_host
from redist.runtime.index_sets.held import EdgeConstant, EdgeRange, as_slice, count_from, within


def get_basic(x: T, items: tuple[Item, ...]) -> T:
    """**Collective** if a cut dim is not taken whole. Take elements by ints and slices."""
    t = slice_type(x.type, items)
    if is_local(x.type, items):
        tile = new_tile(x, t)
        if tile is not None and x.tile is not None:
            tile[...] = x.tile[tuple(_own(item) for item in items)]
        return x.new(t, tile)
    return select(x, t, _links(x.type, t, items))


@lru_cache(maxsize=4096)
def slice_type(t: ArrayType, items: tuple[Item, ...]) -> ArrayType:
    """The type of a part: cut as before, with the axes of dims that go away on the largest dim.

    >>> from redist.layout.mesh import Mesh
    >>> t = ArrayType.parse("f32[8{x}, 9{y}, 7]", Mesh(x=2, y=2))
    >>> print(slice_type(t, (AtIndex(0, 3), InRange(1, range(0, 9, 2)), InRange(2, range(7)))))
    f32[5{y}, 7{x}]
    """
    dims = tuple(
        () if isinstance(item, NewDim) else t.dims[item.dim]
        for item in items
        if isinstance(item, (NewDim, InRange))
    )
    free = tuple(part for item in items if isinstance(item, AtIndex) for part in t.dims[item.dim])
    return place_axes(t, result_shape(items), dims, free)


@lru_cache(maxsize=4096)
def is_local(t: ArrayType, items: tuple[Item, ...]) -> bool:
    """Whether each rank has its part already, because cut dims are taken whole."""
    return all(
        t.cuts[item.dim] == 1
        or (isinstance(item, InRange) and item.indices == range(t.shape[item.dim]))
        for item in items
        if isinstance(item, (AtIndex, InRange))
    )


def _own(item: Item) -> Any:
    match item:
        case AtIndex(index=index):
            return index
        case InRange(indices=indices):
            return as_slice(indices)
        case _:
            return None


@lru_cache(maxsize=1024)
def _links(t: ArrayType, result: ArrayType, items: tuple[Item, ...]) -> tuple[Link, ...]:
    links = []
    to = 0
    for item in items:
        if isinstance(item, AtIndex):
            one = range(item.index, item.index + 1)
            source = EdgeRange(t.cut(item.dim), one)
            links.append(Link(item.dim, source, None, EdgeConstant(1)))
        elif isinstance(item, InRange):
            n = len(item.indices)
            source = EdgeRange(t.cut(item.dim), item.indices)
            links.append(Link(item.dim, source, to, EdgeRange(result.cut(to), range(n))))
            to += 1
        else:
            links.append(Link(None, EdgeConstant(1), to, EdgeRange(result.cut(to), range(1))))
            to += 1
    return tuple(links)


def as_values(a: T, value: Any) -> T:
    """Convert values, global or alike on all ranks, to a global array of a's dtype over its ranks."""
    if isinstance(value, Tiled):
        if value.comm != a.comm or value.mesh != a.mesh:
            raise RequestError(
                f"cannot write an array on {value.mesh} into one on {a.mesh}: bring it there with "
                ".to(type)"
            )
        check_alike("write", value, a)
        value = resolve_pending(value)
        t = make_type(a.mesh, a.type.dtype, value.shape, value.type.dims)
        tile = value.tile
        meets = np.may_share_memory if a.memory.is_ghost else overlap
        copies = tile is not None and (
            tile.dtype != a.dtype or (a.tile is not None and meets(tile, a.tile))
        )
        staging_room(a, 0, round_to_grains(t.tile_bytes) if copies else 0)
        if tile is not None and copies:
            fresh = a.memory.empty(tile.shape, a.dtype, t.tile_bytes)
            np.copyto(fresh, tile, casting="unsafe")
            tile = fresh
        return a.new(t, tile)
    given: Tile = np.asarray(to_host(value) if is_device(value) else value)
    given = given.astype(a.dtype) if not isinstance(value, (bool, int, float, complex)) else (
        np.asarray(value, dtype=a.dtype)
    )  # fmt: skip
    t = make_type(a.mesh, a.type.dtype, given.shape, ((),) * given.ndim)
    return a.new(t, None if a.tile is None else a.memory.asarray(given))


def fit_values(values: T, shape: Shape) -> T:
    """Drop leading dims of size 1 that a shape does not have; raise if values do not fit it."""
    extra = max(0, values.ndim - len(shape))
    own = values.shape[extra:]
    wide = (1,) * (len(shape) - len(own)) + own
    if any(n != 1 for n in values.shape[:extra]) or any(
        n not in (1, size) for n, size in zip(wide, shape, strict=True)
    ):
        raise ArgumentError(
            f"cannot write values of shape {values.shape} to elements of shape {shape}"
        )
    if not extra:
        return values
    return get_basic(values, tuple([AtIndex(i, 0) for i in range(extra)] + [
        InRange(i, range(values.shape[i])) for i in range(extra, values.ndim)
    ]))  # fmt: skip


def put_basic(a: Tiled, items: Sequence[Item], values: Tiled) -> None:
    """**Collective** if values must move. Write values to elements by ints and slices."""
    shape = result_shape(items)
    values = fit_values(values, shape)
    if 0 in shape:
        return
    missing = len(shape) - values.ndim
    if not values.type.used:
        _put_own(a, items, values, shape)
        return
    links = []
    at = 0
    for item in items:
        if isinstance(item, AtIndex):
            one = range(item.index, item.index + 1)
            target = EdgeRange(a.type.cut(item.dim), one)
            links.append(Link(None, EdgeConstant(1), item.dim, target))
            continue
        n, own = shape[at], at - missing
        if own >= 0 and values.shape[own] == n:
            source: Any = EdgeRange(values.type.cut(own), range(n))
        else:
            source = EdgeConstant(n)
        dim = own if own >= 0 else None
        at += 1
        if isinstance(item, InRange):
            target = EdgeRange(a.type.cut(item.dim), item.indices)
            links.append(Link(dim, source, item.dim, target))
        else:
            links.append(Link(dim, source, None, EdgeConstant(1)))
    carry(values, a, links)


def _put_own(a: Tiled, items: Sequence[Item], values: Tiled, shape: Shape) -> None:
    """**Local.** Write values that every rank has whole: each writes those of its own tile."""
    box = box_of(a.type, a.comm.rank)
    if box is None or a.tile is None or values.tile is None:
        return
    own: list[Any] = []
    theirs: list[Any] = []
    for item in items:
        if isinstance(item, NewDim):
            own.append(None)
            theirs.append(slice(None))
            continue
        assert isinstance(item, (AtIndex, InRange))
        lo, hi = box[item.dim]
        if isinstance(item, AtIndex):
            if not lo <= item.index < hi:
                return
            own.append(item.index - lo)
            continue
        inside = within(item.indices, lo, hi)
        if inside.n == 0:
            return
        own.append(as_slice(count_from(inside.at, inside.step, inside.n)))
        theirs.append(slice(inside.first, inside.first + inside.n))
    missing = len(shape) - values.ndim
    chosen = (
        one if n > 1 else slice(None) for one, n in zip(theirs[missing:], values.shape, strict=True)
    )
    a.tile[tuple(own)] = values.tile[tuple(chosen)]
