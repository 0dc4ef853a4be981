"""Other shapes and orders of the same values: what stays in place, and what must move."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.errors import DimError
from redist.layout.array_type import ArrayType
from redist.pgas.indexing import basic as indexing
from redist.pgas.indexing.boolean import nonzero
from redist.pgas.indexing.integer import in_bounds
from redist.pgas.indexing.keys import At, Cut
from redist.pgas.shapes.join import concat, stack
from redist.pgas.shapes.repeat import broadcast_arrays, broadcast_to, meshgrid, repeat, tile
from redist.pgas.tiles.axis_arguments import dims_of
from redist.pgas.tiles.devices import in_memory
from redist.pgas.tiles.layouts import make_type, picked
from redist.pgas.tiles.move import move, settle
from redist.pgas.tiles.ownership import box_of
from redist.pgas.tiles.reshape import reshape
from redist.pgas.tiles.select import Link, carry, new_tile, placed
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.runtime.elements.index_sets import EdgeRange

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "diff", "expand_dims", "flip", "matrix_transpose",
    "meshgrid", "moveaxis", "nonzero", "permute_dims", "repeat", "reshape", "roll", "squeeze", "stack",
    "take", "take_along_axis", "tile", "tril", "triu", "unstack",
]  # fmt: skip

Axis = int | Sequence[int]


def permute_dims(x: Tiled, /, axes: Sequence[int]) -> Any:
    """**Local.** The dims in another order; the tile is a view."""
    order = dims_of(tuple(axes), x.ndim)
    if len(order) != x.ndim:
        raise DimError(f"cannot permute {x.ndim} dims by {tuple(axes)}: name each of them once")
    return x.new(picked(x.type, order), None if x.local is None else x.local.transpose(order))


def matrix_transpose(x: Tiled, /) -> Any:
    """**Local.** The last two dims swapped."""
    if x.ndim < 2:
        raise ValueError(f"cannot transpose matrices of {x.ndim} dims: need 2")
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def moveaxis(x: Tiled, source: Axis, destination: Axis, /) -> Any:
    """**Local.** Some dims at other places, the others in order."""
    of, to = dims_of(source, x.ndim), dims_of(destination, x.ndim)
    if len(of) != len(to):
        raise ValueError(f"cannot move {len(of)} dims to {len(to)} places")
    order = [i for i in range(x.ndim) if i not in of]
    for place, dim in sorted(zip(to, of, strict=True)):
        order.insert(place, dim)
    return permute_dims(x, order)


def expand_dims(x: Tiled, /, axis: Axis = 0) -> Any:
    """**Local.** New dims of size 1; the tile is a view."""
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
    return x.new(result, None if x.local is None else np.expand_dims(x.local, new))


def squeeze(x: Tiled, /, axis: Axis) -> Any:
    """**Collective** where such a dim is cut. Without dims of size 1."""
    gone = dims_of(axis, x.ndim)
    for i in gone:
        if x.shape[i] != 1:
            raise ValueError(f"cannot squeeze dim {i} of {x.shape}: its size is not 1")
    if any(x.type.dims[i] for i in gone):
        items = (At(i, 0) if i in gone else Cut(i, range(n)) for i, n in enumerate(x.shape))
        return indexing.basic(settle(x), tuple(items))
    result = picked(x.type, tuple(i for i in range(x.ndim) if i not in gone))
    return x.new(result, None if x.local is None else np.squeeze(x.local, gone))


def flip(x: Tiled, /, *, axis: Axis | None = None) -> Any:
    """**Collective** where such a dim is cut. The order along dims reversed."""
    dims = dims_of(axis, x.ndim)
    items = (
        Cut(i, range(n - 1, -1, -1) if i in dims and n else range(n)) for i, n in enumerate(x.shape)
    )
    return indexing.basic(settle(x), tuple(items))


def roll(x: Tiled, /, shift: Axis, *, axis: Axis | None = None) -> Any:
    """**Collective** where such a dim is cut. Elements moved along dims; those at the end come first."""
    if axis is None:
        if not isinstance(shift, (int, np.integer)):
            raise ValueError("cannot roll by several shifts without dims: name them with axis=")
        return reshape(roll(reshape(x, (x.size,)), shift, axis=0), x.shape)
    x = settle(x)
    shifts = (shift,) if isinstance(shift, (int, np.integer)) else tuple(shift)
    axes = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"cannot roll {len(axes)} dims by {len(shifts)} shifts")
    total = [0] * x.ndim
    for one, by in zip(axes, shifts, strict=True):
        total[dims_of(one, x.ndim)[0]] += int(by)
    total = [by % n if n else 0 for by, n in zip(total, x.shape, strict=True)]
    near = [i for i, by in enumerate(total) if by and x.type.cuts[i] == 1]
    far = [i for i, by in enumerate(total) if by and x.type.cuts[i] > 1]
    out = x
    if near or not far:
        out = x.new(x.type, new_tile(x, x.type))
        if x.local is not None and out.local is not None:
            _roll_tile(x.local, out.local, {i: total[i] for i in near})
    for i in far:
        out = _rolled(out, i, total[i])
    return out


def _roll_tile(tile: Tile, out: Tile, shifts: dict[int, int]) -> None:
    """Rolled along dims that are not cut, piece by piece."""
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


def _rolled(x: Tiled, dim: int, by: int) -> Tiled:
    """Rolled along one cut dim: its end and its start change places."""
    out = x.new(x.type, new_tile(x, x.type))
    n = x.shape[dim]
    for source, target in (range(n - by), range(by, n)), (range(n - by, n), range(by)):
        links = [
            Link(
                i,
                EdgeRange(size, x.type.cuts[i], source if i == dim else range(size)),
                i,
                EdgeRange(size, x.type.cuts[i], target if i == dim else range(size)),
            )
            for i, size in enumerate(x.shape)
        ]
        carry(x, out, links)
    return out


def unstack(x: Tiled, /, *, axis: int = 0) -> tuple[Any, ...]:
    """**Collective** where that dim is cut. The parts along a dim, which goes away."""
    (dim,) = dims_of(axis, x.ndim)
    x = settle(x)
    if x.type.cuts[dim] > 1:
        dims = tuple(() if i == dim else d for i, d in enumerate(x.type.dims))
        others = [i for i in range(x.ndim) if i != dim]
        t = placed(
            x.type,
            tuple(x.shape[i] for i in others),
            tuple(dims[i] for i in others),
            x.type.dims[dim],
        )
        x = move(x, x.type.with_dims((*t.dims[:dim], (), *t.dims[dim:])))
    items = [Cut(i, range(n)) for i, n in enumerate(x.shape)]
    return tuple(
        indexing.basic(x, (*items[:dim], At(dim, k), *items[dim + 1 :]))
        for k in range(x.shape[dim])
    )


def take(x: Tiled, indices: Any, /, *, axis: int | None = None) -> Any:
    """**Collective.** Parts along a dim by their indices."""
    if axis is None and x.ndim != 1:
        raise ValueError(f"cannot take along {x.ndim} dims: name one with axis=")
    (dim,) = dims_of(0 if axis is None else axis, x.ndim)
    return indexing.get(x, (*(slice(None),) * dim, indices))


@in_memory
def take_along_axis(x: Tiled, indices: Any, /, *, axis: int = -1) -> Any:
    """**Collective** where that dim is cut. For each row along a dim, the elements at its own indices."""
    (dim,) = dims_of(axis, x.ndim)
    x = settle(x)
    if indices.ndim != x.ndim:
        raise ValueError(f"cannot take along {x.ndim} dims by indices of {indices.ndim}")
    alike = all(
        n == m for i, (n, m) in enumerate(zip(x.shape, indices.shape, strict=True)) if i != dim
    )
    if alike and x.type.cuts[dim] == 1 and isinstance(indices, Tiled):
        t = make_type(x.mesh, indices.type.dtype, indices.shape, x.type.dims)
        return _along(x, move(settle(indices), t), dim)
    key: list[Any] = [
        np.arange(n).reshape([-1 if i == d else 1 for i in range(x.ndim)])
        for d, n in enumerate(x.shape)
    ]
    key[dim] = indices
    return indexing.get(x, tuple(key))


def _along(x: Tiled, indices: Tiled, dim: int) -> Any:
    """Rows that lie whole on their ranks; ranks agree on whether all indices are inside."""
    from redist.runtime.elements.by_position import rounds_of

    own, n = indices.local, x.shape[dim]
    wrong = own is not None and own.size > 0 and not (-n <= int(own.min()) and int(own.max()) < n)
    if rounds_of(x.comm, 0, wrong)[1]:
        raise IndexError(f"an index is out of bounds for dim {dim} of size {n}")
    t = make_type(x.mesh, x.type.dtype, indices.shape, x.type.dims)
    if x.local is None or own is None:
        return x.new(t, None)
    return x.new(t, np.take_along_axis(x.local, in_bounds(own, dim, n), dim))


def diff(
    x: Tiled, /, *, axis: int = -1, n: int = 1, prepend: Tiled | None = None,
    append: Tiled | None = None,
) -> Any:  # fmt: skip
    """**Collective** where that dim is cut. Differences of neighbours along a dim, ``n`` times."""
    (dim,) = dims_of(axis, x.ndim)
    if n < 0:
        raise ValueError(f"cannot take differences {n} times")
    parts = [part for part in (prepend, x, append) if part is not None]
    x = concat(parts, axis=dim) if len(parts) > 1 else settle(x)
    from redist.pgas.elementwise import apply as elementwise

    for _ in range(n):
        size = x.shape[dim]
        ends = (
            tuple(
                Cut(i, r if i == dim else range(m)) for i, m in enumerate(x.shape)
            )
            for r in (range(1, max(1, size)), range(max(0, size - 1)))
        )  # fmt: skip
        later, earlier = (indexing.basic(x, items) for items in ends)
        x = elementwise.apply(np.not_equal if x.dtype == np.bool_ else np.subtract, later, earlier)
    return x


def tril(x: Tiled, /, *, k: int = 0) -> Any:
    """**Local** unless a reduction is pending. Zeros above a diagonal."""
    return _half(x, k, lower=True)


def triu(x: Tiled, /, *, k: int = 0) -> Any:
    """**Local** unless a reduction is pending. Zeros below a diagonal."""
    return _half(x, k, lower=False)


def _half(x: Tiled, k: int, *, lower: bool) -> Any:
    if x.ndim < 2:
        raise ValueError(f"cannot take half of an array of {x.ndim} dims: need 2")
    x = settle(x)
    out = x.new(x.type, new_tile(x, x.type))
    box = box_of(x.type, x.comm.rank)
    if out.local is not None and x.local is not None and box is not None:
        (first, last), (start, end) = box[-2:]
        if x._memory.on_device:
            out.local[...] = (np.tril if lower else np.triu)(x.local, k + first - start)
            return out
        np.copyto(out.local, x.local)
        for i in range(last - first):  # row by row: no table of the whole tile
            edge = min(max(first + i + k + int(lower) - start, 0), end - start)
            out.local[..., i, slice(edge, None) if lower else slice(0, edge)] = 0
    return out
