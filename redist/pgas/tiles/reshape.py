"""Reshape: most elements stay where they are, and only the rest moves.

Sizes fall into groups with equal products, (6, 4, 5) -> (24, 5) into 6, 4 -> 24 and 5 -> 5; each group is
judged alone. A group's axes go to one of its new dims, and tiles are boxes before and after, so each
pair of ranks knows which runs of elements it has to pass on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.cuts import cut_dim
from redist.pgas.memory import round_to_grains
from redist.pgas.tiles.arguments import takes_array
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.budget import staging_room
from redist.pgas.tiles.layouts import Shape, default_dims, make_type
from redist.pgas.tiles.move import resolve_pending, tile_shape
from redist.pgas.tiles.select import Link, select
from redist.pgas.tiles.tiled import T, Tile
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import view_as
from redist.runtime.index_sets.held import EdgeFlat

DimGroup = tuple[tuple[int, ...], tuple[int, ...]]


@asked
@takes_array
def reshape(x: T, /, shape: int | Sequence[int], *, copy: bool | None = None) -> T:
    """**Collective** if elements must move. Arrange the same elements, row by row, in another shape."""
    x = resolve_pending(x)
    sizes = full_shape(shape, x.shape)
    t, stays = plan_reshape(x.type, sizes)
    if stays:
        own = tile_shape(t, x.comm.rank)
        is_ghost = x.memory.is_ghost
        view = None if x.tile is None or own is None else _try_view(x.tile, own, is_ghost)
        if copy is False and view is None and x.tile is not None:
            raise ArgumentError(
                f"cannot reshape {x.type} without a copy: its tiles are not contiguous"
            )
        copies = x.tile is not None and (copy or view is None)
        staging_room(x, 0, round_to_grains(t.tile_bytes) if copies else 0)
        if x.tile is None or own is None or not copies:
            return x.sharing(t, view)
        fresh = x.memory.empty(x.tile.shape, x.tile.dtype, t.tile_bytes)
        fresh[...] = x.tile
        return x.new(t, fresh.reshape(own))
    if copy is False:
        raise ArgumentError(
            f"cannot reshape {x.type} to {sizes} without a copy: elements must move"
        )
    return select(x, t, _links(x.type, t))


def _try_view(tile: Tile, shape: Shape, is_ghost: bool) -> Tile | None:
    """View a tile in another shape; None if that takes a copy."""
    if is_device(tile) and not is_ghost:
        return view_as(tile, shape)
    try:
        return tile.reshape(shape, copy=False)
    except ValueError:
        return None


def full_shape(shape: int | Sequence[int], old: Shape) -> Shape:
    """Fill in the one -1 of a shape.

    >>> full_shape((-1, 4), (6, 2))
    (3, 4)
    """
    given = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    sizes = tuple(int(n) for n in given)
    n = math.prod(old)
    known = math.prod(s for s in sizes if s != -1)
    if sizes.count(-1) == 1 and known > 0 and n % known == 0:
        return tuple(n // known if s == -1 else s for s in sizes)
    if any(s < 0 for s in sizes) or known != n:
        raise ArgumentError(f"cannot reshape {old} to {sizes}: {n} elements do not fill it")
    return sizes


@lru_cache(maxsize=4096)
def groups(old: Shape, new: Shape) -> tuple[DimGroup, ...]:
    """Group dims of two shapes, none of size 0, that cover the same elements, the fewest at a time.

    >>> groups((6, 4, 5), (24, 5))
    (((0, 1), (0,)), ((2,), (1,)))
    """
    out: list[DimGroup] = []
    i = j = 0
    while i < len(old) and j < len(new):
        i0, j0 = i, j
        a, b = old[i], new[j]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a, i = a * old[i], i + 1
            else:
                b, j = b * new[j], j + 1
        out.append((tuple(range(i0, i)), tuple(range(j0, j))))
    rest = tuple(range(i, len(old))), tuple(range(j, len(new)))
    if (rest[0] or rest[1]) and out:  # sizes of 1 at the end
        last = out.pop()
        out.append((last[0] + rest[0], last[1] + rest[1]))
    elif rest[0] or rest[1]:
        out.append(rest)
    return tuple(out)


@lru_cache(maxsize=4096)
def plan_reshape(t: ArrayType, shape: Shape) -> tuple[ArrayType, bool]:
    """Find the type after reshaping, and whether every rank keeps what it has.

    >>> from redist.layout.mesh import Mesh
    >>> t, stays = plan_reshape(ArrayType.parse("f32[8{x}, 6]", Mesh(x=2)), (48,))
    >>> str(t), stays
    ('f32[48{x}]', True)
    """
    if t.global_elems == 0:
        return make_type(t.mesh, t.dtype, shape, default_dims(t.mesh, shape)), True
    dims: list[tuple[SubAxis, ...]] = [()] * len(shape)
    stays = True
    for olds, news in groups(t.shape, shape):
        parts = tuple(part for i in olds for part in t.dims[i])
        if not parts:
            continue
        old = EdgeFlat(tuple(map(t.cut, olds)))
        at, same = _best_dim(old, tuple(shape[j] for j in news), math.prod(p.size for p in parts))
        if at is None:
            plain = t.with_dims(() if i in olds else dim for i, dim in enumerate(t.dims))
            found, _ = plan_reshape(plain, shape)
            return found, False
        dims[news[at]] = parts
        stays = stays and same
    return make_type(t.mesh, t.dtype, shape, tuple(dims)), stays


def _best_dim(old: EdgeFlat, sizes: Shape, cuts: int) -> tuple[int | None, bool]:
    """Choose the new dim to cut: one for which nothing moves, else the one with the smallest tiles."""
    cut = [i for i, one in enumerate(old.cuts) if one.n_tiles > 1]
    for at in range(len(sizes)):
        if len(cut) == 1 and _same(old, cut[0], sizes, at, cuts):
            return at, True
    if not sizes:
        return None, False
    return min(
        range(len(sizes)), key=lambda at: cut_dim(sizes[at], cuts).tile_size / sizes[at]
    ), False


def _same(old: EdgeFlat, dim: int, sizes: Shape, at: int, cuts: int) -> bool:
    """Whether tiles along two dims of a group hold the same elements."""
    whole = [cut.size for cut in old.cuts]
    before, after = math.prod(whole[:dim]), math.prod(sizes[:at])
    behind, beyond = math.prod(whole[dim + 1 :]), math.prod(sizes[at + 1 :])
    here, there = old.cuts[dim].edges() * behind, cut_dim(sizes[at], cuts).edges() * beyond
    return before == after and bool(np.array_equal(here, there))


def _links(t: ArrayType, result: ArrayType) -> list[Link]:
    return [
        Link(olds, EdgeFlat(tuple(map(t.cut, olds))), news, EdgeFlat(tuple(map(result.cut, news))))
        for olds, news in groups(t.shape, result.shape)
    ]
