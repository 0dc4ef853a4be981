"""Join several arrays into one, along a dim that they have or along a new one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError, IndexKeyError
from redist.pgas.elementwise.apply import astype
from redist.pgas.kinds import promote
from redist.pgas.tiles.arguments import check_one_mesh, kind_of_value
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.devices import check_alike
from redist.pgas.tiles.layouts import make_type, meet
from redist.pgas.tiles.move import move, paid, resolve_pending
from redist.pgas.tiles.reshape import reshape
from redist.pgas.tiles.select import carry, links_of_ranges, new_tile
from redist.pgas.tiles.tiled import T, Tiled


@asked
def concat(arrays: Sequence[T], /, *, axis: int | None = 0) -> T:
    """**Collective** if elements must move. Join arrays along a dim.

    The result is cut like the largest of them; with ``axis=None``, all are flattened first.
    """
    given = [resolve_pending(x) for x in _alike("concat", arrays)]
    if axis is None:
        given, axis = [reshape(x, (x.size,)) for x in given], 0
    first = given[0]
    if not -first.ndim <= axis < first.ndim:
        raise IndexKeyError(f"there is no dim {axis}: the array has {first.ndim}")
    dim = axis % first.ndim
    for x in given[1:]:
        if x.ndim != first.ndim or any(
            n != m for i, (n, m) in enumerate(zip(x.shape, first.shape, strict=True)) if i != dim
        ):
            raise ArgumentError(
                f"cannot concat shapes {first.shape} and {x.shape}: only dim {dim} may differ"
            )
    largest = max(given, key=lambda x: x.size)
    total = sum(x.shape[dim] for x in given)
    shape = (*first.shape[:dim], total, *first.shape[dim + 1 :])
    t = make_type(first.mesh, first.type.dtype, shape, largest.type.dims)
    if t.cuts[dim] == 1:
        given = [move(x, make_type(x.mesh, x.type.dtype, x.shape, t.dims)) for x in given]
        out = first.new(t, new_tile(first, t))
        tiles = [x.tile for x in given if x.tile is not None]
        if out.tile is not None and tiles:
            np.concatenate(tiles, axis=dim, out=out.tile)
        return out
    out = first.new(t, new_tile(first, t))
    at = 0
    for x in given:
        here = list(map(range, x.shape))
        there = [*here[:dim], range(at, at + x.shape[dim]), *here[dim + 1 :]]
        if x.size:
            carry(x, out, links_of_ranges(x.type, here, t, there))
        at += x.shape[dim]
    return out


@asked
def stack(arrays: Sequence[T], /, *, axis: int = 0) -> T:
    """**Collective** if types differ. Join arrays of the same shape along a new dim, which is not cut."""
    given = [paid(x) for x in _alike("stack", arrays)]
    first = given[0]
    for x in given[1:]:
        if x.shape != first.shape:
            raise ArgumentError(
                f"cannot stack shapes {first.shape} and {x.shape}: they must be the same"
            )
    n = first.ndim + 1
    if not -n <= axis < n:
        raise IndexKeyError(f"there is no dim {axis}: the result has {n}")
    dim = axis % n
    *ends, t = meet(tuple(x.type for x in given))
    moved = [move(x, end) for x, end in zip(given, ends, strict=True)]
    result = make_type(
        t.mesh,
        t.dtype,
        (*t.shape[:dim], len(given), *t.shape[dim:]),
        (*t.dims[:dim], (), *t.dims[dim:]),
    )
    out = first.new(result, new_tile(first, result))
    tiles = [x.tile for x in moved if x.tile is not None]
    if out.tile is not None and tiles:
        np.stack(tiles, axis=dim, out=out.tile)
    return out


def _alike(what: str, arrays: Sequence[T]) -> list[T]:
    """Convert arrays to the dtype that they promote to; raise if they are not on one mesh."""
    given = list(arrays)
    if not given:
        raise ArgumentError(f"cannot use {what} without arrays: need at least one")
    for x in given:
        if not isinstance(x, Tiled):
            raise ArgumentTypeError(
                f"cannot use {kind_of_value(x)} in {what}: make it global with pgas.asarray"
            )
    check_one_mesh(what, *given)
    check_alike(what, *given)
    kind = promote(*(x.dtype for x in given))
    return [x if x.dtype == kind else astype(x, kind) for x in given]
