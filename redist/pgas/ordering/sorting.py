"""Sort along a dim: in the tiles if they hold all of it, else by exact splitters.

A cut dim first gives its axes to another dim that is large enough: then tiles hold whole rows. Where
none is, as for arrays of one dim, every rank sorts its own, all find where to part the runs, and one
irregular all-to-all brings each element to the tile where it stays.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.layout.axes import coordinates
from redist.layout.lower_bound import lower_bound_bytes
from redist.layout.tiles import Ints, grid
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.kinds import array_dtype
from redist.pgas.ordering.lines import kind_of_sort, order_of_lines, sort_lines, sorted_lines
from redist.pgas.ordering.splitters import find_splitters
from redist.pgas.tiles.arguments import dim_of, takes_array
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.budget import require_room
from redist.pgas.tiles.layouts import dtype_of, idle_parts, with_dtype
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import T, Tile, Tiled, own_box
from redist.pgas.watch.seam import ElementExchange, traffic
from redist.runtime.cuda.loops import functions_for
from redist.runtime.ranks.world import Comm

NUMBER_BYTES = 8
"""Of each element, in a GPU's sort of several lines: the number of its line."""
KINDS = (None, "stable", "quicksort", "mergesort", "heapsort")
"""NumPy's ways to sort. All are satisfied: this one is stable."""
MOST_GROWTH = 2
"""A dim takes over axes where tiles grow to at most this many times their size."""


@in_f32
@asked
@takes_array
def sort(x: T, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> T:
    """**Collective** if the dim is cut. Sort the values along a dim; NaN is the largest."""
    return _sort(x, "sort", axis, descending, stable)


@in_f32
@asked
@takes_array
def argsort(x: T, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> T:
    """**Collective** if the dim is cut. Find the indices that sort along a dim."""
    return _sort(x, "argsort", axis, descending, stable)


def is_stable(kind: str | None, stable: bool | None) -> bool:
    """Whether equal elements keep their order, by NumPy's names of ways to sort; raise for other names.

    >>> is_stable("mergesort", None), is_stable(None, False)
    (True, False)
    """
    if kind not in KINDS:
        known = ", ".join(map(repr, KINDS[1:]))
        raise ArgumentError(f"cannot sort by kind={kind!r}: known are {known}, and all sort alike")
    return True if stable is None else bool(stable)


def _sort(x: T, what: str, axis: int, descending: bool, stable: bool) -> T:
    x = resolve_pending(x)
    dim = dim_of(axis, x.ndim)
    if x.type.cuts[dim] > 1:
        x = move(x, sorting_type(x.type, dim))
    with_places = what == "argsort"
    t = with_dtype(x.type, dtype_of(np.dtype(np.int64))) if with_places else x.type
    if x.type.cuts[dim] > 1:
        require_room(x, what, 2 * x.type.tile_bytes + 3 * with_places * t.tile_bytes)
        moved_bytes = x.type.tile_bytes + with_places * t.tile_bytes
        tile = traffic().perform(
            ElementExchange(what, x.type, t),
            _sort_cut,
            (x, dim, descending, stable, with_places),
            lambda: new_tile(x, t),
            lambda: moved_bytes,
        )
        return x.new(t, tile)
    if x.tile is None:
        return x.new(t, None)
    given = np.flip(x.tile, dim) if descending else x.tile
    if x.memory.on_device:
        places_bytes = NUMBER_BYTES * given.size
        x.memory.check_room(2 * x.type.tile_bytes + places_bytes * (2 * with_places + (x.ndim > 1)))
    if not with_places:
        out = x.memory.empty(given.shape, given.dtype, t.tile_bytes)
        np.copyto(out, given)
        x.memory.write(sort_lines, out, dim, kind_of_sort(out, stable))
        return x.new(t, x.memory.contiguous(np.flip(out, dim)) if descending else out)
    x.memory.check_room(2 * t.tile_bytes)
    if x.memory.on_device:
        out = x.memory.empty(given.shape, array_dtype(t.dtype), t.tile_bytes)
        x.memory.write(_write_order, out, given, dim, descending)
        return x.new(t, out)
    places = np.argsort(given, axis=dim, kind="stable")
    if descending:
        places = x.memory.contiguous(np.flip(given.shape[dim] - 1 - places, dim))
    return x.new(t, places)


def _write_order(out: Tile, given: Tile, dim: int, descending: bool) -> None:
    """**Local.** The places that sort lines, which are given backwards if they shall descend."""
    places = order_of_lines(given, dim)
    out[...] = np.flip(given.shape[dim] - 1 - places, dim) if descending else places


@lru_cache(maxsize=4096)
def sorting_type(t: ArrayType, dim: int) -> ArrayType:
    """Choose a type in which tiles hold a dim whole, by the least bytes; the same if none will do.

    >>> from redist.layout.mesh import Mesh
    >>> print(sorting_type(ArrayType.parse("f32[8{x}, 9, 2]", Mesh(x=2)), 0))
    f32[8, 9{x}, 2]
    >>> print(sorting_type(ArrayType.parse("f32[8{x}]", Mesh(x=2)), 0))
    f32[8{x}]
    """
    best: tuple[int, int, ArrayType] | None = None
    for other in range(t.ndim):
        if other == dim:
            continue
        dims = list(t.dims)
        dims[other], dims[dim] = (*t.dims[other], *t.dims[dim]), ()
        end = t.with_dims(dims)
        if end.tile_bytes <= MOST_GROWTH * t.tile_bytes:
            found = lower_bound_bytes(t, end), other, end
            best = found if best is None else min(best, found, key=lambda one: one[:2])
    return t if best is None else best[2]


@lru_cache(maxsize=1024)
def holders_of_rows(t: ArrayType, dims: tuple[int, ...], rank: int) -> tuple[list[int], Ints]:
    """The ranks that hold the rest of a rank's rows along some dims, and how many elements of each.

    They come in the order of their tiles. For a rank outside the mesh, those of its first device.

    >>> from redist.layout.mesh import Mesh
    >>> holders, sizes = holders_of_rows(ArrayType.parse("f32[5{x}, 8{y}]", Mesh(x=2, y=2)), (0,), 3)
    >>> holders, sizes.tolist()
    ([1, 3], [3, 2])
    """
    cells = grid(t)
    others = np.delete(cells.index, dims, axis=1)
    keys = np.column_stack([others, coordinates(t.mesh, idle_parts(t, t.dims))])
    ranks = t.mesh.rank_array()
    row = int(np.argmax(ranks == rank))
    (together,) = np.nonzero((keys == keys[row]).all(axis=1))
    own = cells.index[together][:, list(dims)]
    order = np.lexsort(own.T[::-1])
    sizes = np.ones(len(together), np.int64)
    for dim, places in zip(dims, own[order].T, strict=True):
        sizes *= np.diff(t.cut(dim).edges())[places]
    return ranks[together[order]].tolist(), sizes


def _sort_cut(
    x: Tiled, dim: int, descending: bool, stable: bool, with_places: bool
) -> tuple[Tile | None, int]:
    """Sort rows of which ranks hold parts. Descending is ascending from the last to the first."""
    t = x.type
    members, sizes = holders_of_rows(t, (dim,), x.comm.rank)
    if descending:
        members, sizes = members[::-1], sizes[::-1]
    most_rows = math.prod(n for i, n in enumerate(t.tile_shape) if i != dim)
    rows = x.memory.empty((0, 0), x.dtype, 0)
    if x.tile is not None:
        given = np.moveaxis(x.tile, dim, -1)
        rows = x.memory.contiguous(given[..., ::-1] if descending else given)
        rows = rows.reshape(math.prod(given.shape[:-1]), given.shape[-1])
    columns = [rows]
    if with_places:
        order = order_of_lines(rows, 1)
        local = rows.shape[1] - 1 - order if descending else order
        start = 0 if x.tile is None else own_box(x)[dim][0]
        columns = [np.take_along_axis(rows, order, axis=1), local + start]
    else:
        columns = [sorted_lines(rows, 1, kind_of_sort(rows, stable))]
    columns, received = merge_runs(x.comm, columns, members, sizes, sizes, most_rows)
    if x.tile is None:
        return None, received
    result = columns[-1][:, ::-1] if descending else columns[-1]
    worst = math.prod(x.type.tile_shape) * result.dtype.itemsize
    out = x.memory.empty(x.tile.shape, result.dtype, worst)
    seen = np.moveaxis(out, dim, -1)
    seen[...] = result.reshape(seen.shape)
    return out, received


def merge_runs(
    comm: Comm,
    columns: list[Tile],
    members: list[int],
    sizes: Ints,
    wanted: Ints,
    most_rows: int = 1,
) -> tuple[list[Tile], int]:
    """**Collective over** ``comm``. Merge sorted rows of a group; each member gets what it wanted.

    The first column has the keys, sorted in every rank; the others go along. Members hold ``sizes``
    elements of each row and get ``wanted``. Also gives the bytes that came from other ranks.
    """
    rows = columns[0]
    cuts, n_bytes = find_splitters(comm, rows, members, sizes, np.cumsum(wanted)[:-1], most_rows)
    if comm.rank not in members:
        cuts = np.zeros((0, len(members) - 1, len(members)), dtype=np.int64)
    me = members.index(comm.rank) if comm.rank in members else 0
    ends = np.broadcast_to(sizes, (len(cuts), 1, len(members)))
    edges = np.concatenate([np.zeros_like(ends), cuts, ends], axis=1)
    go = edges[:, :, me]
    come = edges[:, me + 1] - edges[:, me]
    sent = _by_rank(comm, members, np.diff(go, axis=1).sum(axis=0))
    received = _by_rank(comm, members, come.sum(axis=0))
    out = []
    for column in columns:
        parts = [
            column[r, go[r, k] : go[r, k + 1]]
            for k in range(len(members))
            for r in range(len(cuts))
        ]
        packed = column if len(column) == 1 else np.concatenate([*parts, column[:0].reshape(-1)])
        xp = functions_for(column)
        got = xp.empty(int(received[0].sum()), column.dtype)
        given = xp.ascontiguousarray(packed).reshape(-1)
        n_bytes += traffic().exchange(comm, given, sent, got, received)
        out.append(_unpack(got, come))
    return _merge_rows(out), n_bytes


def _by_rank(comm: Comm, members: list[int], counts: Ints) -> tuple[Ints, Ints]:
    """Turn counts of members into counts and places of all ranks; members lie in their own order."""
    both = np.zeros((2, comm.size), dtype=np.int64)
    both[0, members] = counts
    both[1, members] = np.cumsum(counts) - counts
    return both[0], both[1]


def _unpack(got: Tile, come: Ints) -> Tile:
    """Make rows from what came: by member, then by row."""
    n_rows = len(come)
    if n_rows <= 1:
        return got.reshape(n_rows, -1) if n_rows else got[:0].reshape(0, 0)
    pieces = np.split(got, np.cumsum(come.T.reshape(-1))[:-1].tolist())
    return np.stack([np.concatenate(pieces[r::n_rows]) for r in range(n_rows)])


def _merge_rows(columns: list[Tile]) -> list[Tile]:
    """Merge sorted runs; equal elements stay in the order of their runs."""
    if len(columns) == 1:
        return [sorted_lines(columns[0], 1, "stable")]
    order = order_of_lines(columns[0], 1)
    return [np.take_along_axis(column, order, axis=1) for column in columns]
