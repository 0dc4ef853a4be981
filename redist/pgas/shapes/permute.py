"""Reorder, add and drop dims: the elements stay where they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from redist.errors import ArgumentError, DimError
from redist.layout.array_type import ArrayType
from redist.pgas.indexing.basic import get_basic
from redist.pgas.indexing.keys import AtIndex, InRange
from redist.pgas.tiles.arguments import dims_of, takes_array
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.layouts import select_dims
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.tiled import T

Axis = int | Sequence[int]


@asked
@takes_array
def permute_dims(x: T, /, axes: Sequence[int]) -> T:
    """**Local.** Put the dims in another order; the tile is a view."""
    order = dims_of(tuple(axes), x.ndim)
    if len(order) != x.ndim:
        raise DimError(f"cannot permute {x.ndim} dims by {tuple(axes)}: name each of them once")
    return x.sharing(
        select_dims(x.type, order), None if x.tile is None else x.tile.transpose(order)
    )


@takes_array
def matrix_transpose(x: T, /) -> T:
    """**Local.** Swap the last two dims."""
    if x.ndim < 2:
        raise ArgumentError(f"cannot transpose matrices of {x.ndim} dims: need 2")
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@takes_array
def moveaxis(x: T, source: Axis, destination: Axis, /) -> T:
    """**Local.** Move some dims to other places; the others stay in order."""
    of, to = dims_of(source, x.ndim), dims_of(destination, x.ndim)
    if len(of) != len(to):
        raise ArgumentError(f"cannot move {len(of)} dims to {len(to)} places")
    order = [i for i in range(x.ndim) if i not in of]
    for place, dim in sorted(zip(to, of, strict=True)):
        order.insert(place, dim)
    return permute_dims(x, order)


@asked
@takes_array
def expand_dims(x: T, /, axis: Axis = 0) -> T:
    """**Local.** Add dims of size 1; the tile is a view."""
    new = dims_of(axis, x.ndim + (1 if isinstance(axis, (int, np.integer)) else len(axis)))
    n = x.ndim + len(new)
    old = iter(range(x.ndim))
    order = [None if i in new else next(old) for i in range(n)]
    t = x.type
    result = ArrayType(
        t.mesh,
        t.dtype,
        tuple(1 if i is None else t.shape[i] for i in order),
        tuple(() if i is None else t.dims[i] for i in order),
        t.pending_op,
        t.pending_axes,
    )
    return x.sharing(result, None if x.tile is None else np.expand_dims(x.tile, new))


@asked
@takes_array
def squeeze(x: T, /, axis: Axis) -> T:
    """**Collective** if such a dim is cut. Drop dims of size 1."""
    gone = dims_of(axis, x.ndim)
    for i in gone:
        if x.shape[i] != 1:
            raise ArgumentError(f"cannot squeeze dim {i} of {x.shape}: its size is not 1")
    if any(x.type.dims[i] for i in gone):
        items = (
            AtIndex(i, 0) if i in gone else InRange(i, range(n)) for i, n in enumerate(x.shape)
        )
        return get_basic(resolve_pending(x), tuple(items))
    result = select_dims(x.type, tuple(i for i in range(x.ndim) if i not in gone))
    return x.sharing(result, None if x.tile is None else np.squeeze(x.tile, gone))
