"""Elements for which a condition holds: each rank takes its own, then tiles get equal sizes."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.errors import ArgumentError, IndexKeyError
from redist.layout.array_type import ArrayType
from redist.layout.segments import Factor
from redist.layout.tiles import box_of
from redist.pgas.elementwise.apply import apply
from redist.pgas.indexing import integer
from redist.pgas.indexing.basic import get_basic, put_basic
from redist.pgas.indexing.chosen import unravel
from redist.pgas.indexing.keys import AtIndices, ByMask, InRange, Item, NewDim
from redist.pgas.kinds import is_half, is_stored, number_kind, tile_dtype
from redist.pgas.memory import round_to_grains
from redist.pgas.tiles.arguments import check_arrays, dim_of, takes_array
from redist.pgas.tiles.arranging import left_alone
from redist.pgas.tiles.budget import require_room
from redist.pgas.tiles.devices import check_alike
from redist.pgas.tiles.layouts import dtype_of, make_type, operand_type
from redist.pgas.tiles.move import as_plain, move, resolve_pending
from redist.pgas.tiles.reshape import reshape
from redist.pgas.tiles.select import Link, links_of_ranges, select
from redist.pgas.tiles.tiled import T, Tile, Tiled
from redist.pgas.watch.seam import traffic
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_host
from redist.runtime.elements.by_index import rows
from redist.runtime.elements.by_position import all_counts
from redist.runtime.index_sets.held import EdgeRagged, EdgeRange
from redist.runtime.ranks.world import Comm

CHUNK_ELEMS = 2**14
"""This many elements are looked at in one go."""
PLACE_BYTES = 8
"""Of an element that is kept: a GPU lists their places."""


def get(x: T, items: Sequence[Item]) -> T:
    """**Collective.** Take the elements that a key with a mask names."""
    mask = next(item for item in items if isinstance(item, ByMask))
    if not all(item is mask or _is_whole(item, x) for item in items):
        return integer.get(x, _mask_indices(x, items))
    if not mask.dims:
        return _as_dim(x, items, bool(_value(mask.mask)))
    at = mask.dims[0]
    n = math.prod(x.shape[i] for i in mask.dims)
    flat = reshape(x, (*x.shape[:at], n, *x.shape[mask.dims[-1] + 1 :]))
    tile, counts = _kept(flat, mask.mask, at)
    return rebalance(flat, tile, at, counts)


def _kept(x: Tiled, mask: Any, dim: int) -> tuple[Tile | None, list[int]]:
    """**Collective.** What each rank keeps of its tile along a dim, and how many every rank does."""
    _refuse_to_explain(x)
    shape = (x.shape[dim],)
    flat = reshape(mask, shape) if isinstance(mask, Tiled) else mask.reshape(shape)
    keep = _own_mask(x, [dim], flat)
    which = _listed_on_gpu(keep)
    counts = _counts_of_one_mask(x.comm, mask, _count(keep, which))
    tile = _uneven_tile(x, x.type, counts, dim)
    if tile is not None and x.tile is not None:
        if which is None:
            _compress(x.tile, keep, dim, tile)
        else:
            raw = x.type.dtype.raw
            raw(x.tile).take(which, axis=dim, out=raw(tile))
    return tile, counts


@left_alone
def compress(condition: Any, x: T, /, *, axis: int = 0, ragged: bool = False) -> T:
    """**Collective.** Keep the indices of a dim for which a condition holds, as ``x[condition]`` does.

    With ``ragged``, the elements that a rank keeps stay where they are: nothing moves, and tiles may have any
    length along the dim, as in ``f64[1000{x=300;300;400}]``. ``a.to("{x}, {}")`` makes them even again.
    """
    check_arrays("compress", x)
    x = resolve_pending(as_plain(x))
    dim = dim_of(axis, x.ndim)
    shape = condition.shape if isinstance(condition, Tiled) else np.shape(condition)
    if shape != (x.shape[dim],):
        raise ArgumentError(
            f"cannot use a condition of shape {shape} in compress: dim {dim} has {x.shape[dim]} indices"
        )
    given = condition if isinstance(condition, Tiled) else np.asarray(to_host(condition), np.bool_)
    check_alike("compress", x, given)
    tile, counts = _kept(x, given, dim)
    if not ragged:
        return rebalance(x, tile, dim, counts)
    lengths = tuple(_counts_along(x, dim, counts))
    t, n = x.type, sum(lengths)
    segments = tuple(
        ((Factor(n, t.dims[i], lengths=lengths),),) if i == dim and t.dims[i] else ()
        for i in range(t.ndim)
    )
    sizes = (*t.shape[:dim], n, *t.shape[dim + 1 :])
    return x.new(ArrayType(t.mesh, t.dtype, sizes, t.dims, None, (), segments), tile)


def _listed_on_gpu(tile: Tile | None) -> Tile | None:
    """**Local.** The places of a tile of one dim whose elements are not zero, if it lies on a GPU."""
    return tile.nonzero()[0] if tile is not None and is_device(tile) else None


def _count(tile: Tile, which: Tile | None) -> int:
    """**Local.** How many elements are not zero, of which a GPU has listed the places."""
    return int(np.count_nonzero(tile)) if which is None else len(which)


def _counts_along(x: Tiled, dim: int, counts: Sequence[int]) -> list[int]:
    """How many indices each tile of a dim keeps, of what every rank keeps."""
    ranks, index = rows(x.type)
    own = {tiles[dim]: counts[rank] for rank, tiles in zip(ranks, index, strict=True)}
    return [own[k] for k in range(x.type.cuts[dim])]


def _counts_of_one_mask(comm: Comm, mask: Any, own: int) -> list[int]:
    """**Collective.** How many elements each rank keeps; an error on all if NumPy's masks differ."""
    if isinstance(mask, Tiled):
        return all_counts(comm, own)
    said = traffic().tell_all(
        comm, np.array([own, zlib.crc32(np.packbits(mask).tobytes()), np.count_nonzero(mask)])
    )
    if (said[:, 1:] == said[0, 1:]).all():
        return [int(n) for n in said[:, 0]]
    holds = "; ".join(f"rank {rank}: {int(n)} True" for rank, n in enumerate(said[:, 2]))
    raise IndexKeyError(
        f"cannot index by masks that differ between ranks, of shape {mask.shape} ({holds}); every rank "
        "must give the same mask; a.local[mask] takes of a rank's own tile"
    )


def _refuse_to_explain(x: Tiled) -> None:
    traffic().require_data(f"which elements of {x.type} are taken", "how many depends on the data")


def _uneven_tile(x: Tiled, t: ArrayType, counts: Sequence[int], dim: int) -> Tile | None:
    """**Collective** under a memory limit. Allocate a tile like x's, of t's dtype, with this rank's count."""
    row_elems = math.prod(n for i, n in enumerate(t.tile_shape) if i != dim)
    row_bytes = row_elems * t.dtype.itemsize
    worst = round_to_grains(max(counts) * row_bytes)
    listed = PLACE_BYTES * max(counts) if x.memory.on_device else 0
    require_room(x, "take elements of", worst + listed)
    if x.tile is None:
        return None
    own = (*x.tile.shape[:dim], counts[x.comm.rank], *x.tile.shape[dim + 1 :])
    return x.memory.empty(own, tile_dtype(t.dtype), worst)


def _compress(tile: Tile, keep: Tile, dim: int, out: Tile) -> None:
    """Copy the rows that are kept, some at a time, so that their numbers stay in the cache."""
    step = max(1, CHUNK_ELEMS * len(keep) // max(1, tile.size)) if dim == 0 else max(1, len(keep))
    at = 0
    for lo in range(0, len(keep), step):
        (which,) = keep[lo : lo + step].nonzero()
        to = out[at : at + len(which)] if dim == 0 else out
        of = tile[lo : lo + step] if dim == 0 else tile
        of.take(which, axis=dim, out=to, mode="clip")  # without a copy, as no index is outside
        at += len(which)


def put(a: Tiled, items: Sequence[Item], values: Tiled) -> None:
    """**Collective.** Write to the elements that a key with a mask names."""
    mask = next(item for item in items if isinstance(item, ByMask))
    whole = all(item is mask or _is_whole(item, a) for item in items)
    if whole and values.size == 1 and values.ndim <= 1 + a.ndim - len(mask.dims):
        values = move(values, make_type(a.mesh, a.type.dtype, values.shape, ((),) * values.ndim))
        where = _own_mask(a, mask.dims, mask.mask)
        if a.tile is None:
            return
        assert values.tile is not None
        to, one = map(a.type.dtype.raw, (a.tile, values.tile))
        to[(slice(None),) * (mask.dims[0] if mask.dims else 0) + (where,)] = one.reshape(())
        return
    if not mask.dims:
        if len(items) - 1 != a.ndim or not whole:
            raise IndexKeyError("a mask without dims must stand alone")
        if bool(_value(mask.mask)):
            put_basic(a, (NewDim(), *(InRange(i, range(n)) for i, n in enumerate(a.shape))), values)
        return
    integer.put(a, _mask_indices(a, items), values)


@takes_array
def nonzero(x: T, /) -> tuple[T, ...]:
    """**Collective.** Find the indices of all nonzero elements, as one array for each dim."""
    if x.ndim == 0:
        raise ArgumentError("cannot list the elements of an array without dims")
    _refuse_to_explain(x)
    x = resolve_pending(x)
    narrow = is_half(x.dtype) or is_stored(x.dtype)
    counted = x.memory.on_device and number_kind(x.dtype) in "biuf" and not narrow  # by CuPy
    truth = x if counted or x.dtype == np.bool_ else apply(np.not_equal, x, x.dtype.type(0))
    flat = reshape(truth, (x.size,))
    kind = make_type(x.mesh, dtype_of(np.dtype(np.int64)), flat.shape, flat.type.dims)
    which = _listed_on_gpu(flat.tile)
    own = 0 if flat.tile is None else _count(flat.tile, which)
    counts = all_counts(x.comm, own)
    found = _uneven_tile(flat, kind, counts, 0)
    box = box_of(flat.type, x.comm.rank)
    if which is not None and found is not None and box is not None:
        np.add(which, box[0][0], out=found)
    elif found is not None and flat.tile is not None and box is not None:
        at = 0
        for lo in range(0, flat.tile.size, CHUNK_ELEMS):
            (which,) = flat.tile[lo : lo + CHUNK_ELEMS].nonzero()
            np.add(which, box[0][0] + lo, out=found[at : at + len(which)])
            at += len(which)
    places = rebalance(flat.new(kind, found), found, 0, counts)
    require_room(
        places, "list", (x.ndim + 2) * places.type.tile_bytes
    )  # NumPy makes two on the way
    if places.tile is None:
        return tuple(places.new(places.type, None) for _ in x.shape)
    return tuple(places.new(places.type, i) for i in unravel(places.tile, x.shape))


def rebalance(x: T, tile: Tile | None, dim: int, counts: Sequence[int]) -> T:
    """**Collective.** Give tiles that have any size along one dim, in order, equal sizes along it.

    ``tile`` is this rank's, ``counts`` the sizes of all; along the other dims they are as ``x`` says.
    """
    starts = [0, *itertools.accumulate(_counts_along(x, dim, counts))]
    total = starts[-1]
    shape = (*x.shape[:dim], total, *x.shape[dim + 1 :])
    t = make_type(x.mesh, x.type.dtype, shape, x.type.dims)
    even, uneven = EdgeRange(t.cut(dim), range(total)), EdgeRagged(tuple(starts))
    if all(even.held(k) == uneven.held(k) for k in range(t.cuts[dim])):
        return x.new(t, tile)
    every = list(map(range, shape))
    links = links_of_ranges(t, every, t, every)
    links[dim] = Link(dim, uneven, dim, even)
    return select(x.new(t, tile), t, links)


def _is_whole(item: Item, x: Tiled) -> bool:
    return isinstance(item, InRange) and item.indices == range(x.shape[item.dim])


def _value(mask: Any) -> Any:
    return integer.gather_small(mask) if isinstance(mask, Tiled) else mask


def _as_dim(x: T, items: Sequence[Item], keep: bool) -> T:
    """Take elements by a mask without dims: a new dim of size 1 or 0."""
    out = get_basic(x, tuple(NewDim() if isinstance(item, ByMask) else item for item in items))
    at = next(i for i, item in enumerate(items) if isinstance(item, ByMask))
    if keep:
        return out
    return get_basic(
        out, tuple(InRange(i, range(0 if i == at else n)) for i, n in enumerate(out.shape))
    )


def _mask_indices(x: Tiled, items: Sequence[Item]) -> list[Item]:
    """**Collective.** Replace masks by arrays of the indices for which they hold."""
    out: list[Item] = []
    for item in items:
        if not isinstance(item, ByMask):
            out.append(item)
        elif not item.dims:
            raise IndexKeyError("a mask without dims must stand alone")
        else:
            mask: Any = item.mask
            found: Any = nonzero(mask) if isinstance(mask, Tiled) else np.nonzero(mask)
            out += [AtIndices(i, one) for i, one in zip(item.dims, found, strict=True)]
    return out


def _own_mask(a: Tiled, dims: Sequence[int], mask: Any) -> Tile:
    """This rank's part of a mask on some dims, cut as the array is."""
    cuts = tuple(a.type.dims[i] for i in dims)
    t = make_type(a.mesh, dtype_of(np.dtype(np.bool_)), mask.shape, cuts)
    if isinstance(mask, Tiled):
        mask = resolve_pending(mask)
        tile = move(mask, operand_type(mask.type, t)).tile
        return np.zeros(0, np.bool_) if tile is None else tile
    box = box_of(t, a.comm.rank)
    if box is None:
        return np.zeros(0, np.bool_)
    return a.memory.asarray(mask[tuple(slice(lo, hi) for lo, hi in box)])
