"""Where values go in a sorted array, or between edges: counted in the tiles, or asked of their holders.

Whether values are among others is found from their sorted order, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.lower_bound import lower_bound_bytes
from redist.pgas import reductions
from redist.pgas.elementwise.apply import apply
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.indexing import dispatch
from redist.pgas.kinds import number_kind, promote
from redist.pgas.memory import as_tile
from redist.pgas.ordering.lines import order_of_lines, places_among
from redist.pgas.ordering.sorting import sort
from redist.pgas.shapes.shift import flip
from redist.pgas.shapes.take import take
from redist.pgas.tiles.arguments import beside, check_arrays, numbers_of
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.budget import require_room
from redist.pgas.tiles.devices import check_alike
from redist.pgas.tiles.layouts import dtype_of, with_dtype
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.reshape import reshape
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import T, Tile, Tiled
from redist.pgas.watch.seam import ElementExchange, traffic
from redist.runtime.cuda.arrays import to_host
from redist.runtime.cuda.loops import functions_for
from redist.runtime.elements.by_position import places_of
from redist.text.units import ceil_div

SMALL_BYTES = 2**20
"""Sorted arrays up to this size may be brought to every rank."""
INT = np.dtype(np.int64)


@in_f32
@asked
def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """**Collective** if an axis cuts both ``x1`` and ``x2``. Find where values go in sorted ``x1``.

    The result is the index of ``x1`` before which each value would be inserted. One of the two is a global
    array; the other may be a number, a list or a NumPy array, the same on every rank. If no axis
    that cuts ``x1`` cuts ``x2`` too, each rank counts in its tile and the sum is pending. Otherwise, a small
    ``x1`` is brought to all ranks, or each value is sent to the rank that knows its place.
    """
    near = x1 if isinstance(x1, Tiled) else x2
    check_arrays("searchsorted", near)
    x1, x2 = (beside(near, one, "searchsorted") for one in (x1, x2))
    check_alike("searchsorted", x1, x2)
    if side not in ("left", "right"):
        raise ArgumentError(f"cannot search on side {side!r}: need 'left' or 'right'")
    if x1.ndim != 1:
        raise ArgumentError(f"cannot search in {x1.ndim} dims: x1 must have one")
    x1 = resolve_pending(x1)
    if sorter is not None:
        x1 = _in_order(x1, beside(x1, sorter, "searchsorted"))
    if x2.comm != x1.comm or x2.mesh != x1.mesh:
        raise RequestError(f"cannot search on {x1.mesh} for values on {x2.mesh}: need one mesh")
    x2 = resolve_pending(x2)
    axes = x1.type.dims[0]
    free = not any(a.name == b.name for a in axes for b in x2.type.used)
    if free:
        return _count_in_tiles(x1, x2, side)
    whole = x1.type.with_dims(((),))
    asked_bytes = x2.size * (x2.dtype.itemsize + INT.itemsize)
    if whole.tile_bytes <= max(SMALL_BYTES, x2.type.tile_bytes) and lower_bound_bytes(
        x1.type, whole
    ) <= max(asked_bytes, SMALL_BYTES):
        return _count_in_tiles(move(x1, whole), x2, side)
    t = with_dtype(x2.type, dtype_of(INT))
    moved_bytes = t.tile_bytes + x2.type.tile_bytes
    require_room(x2, "search for", 4 * moved_bytes)
    tile = traffic().perform(
        ElementExchange("search", x2.type, t),
        _ask_holders,
        (x1, x2, side),
        lambda: new_tile(x2, t),
        lambda: moved_bytes,
    )
    return x2.new(t, tile)


@in_f32
def digitize(x: Any, bins: Any, /, *, right: bool = False) -> Any:
    """**Collective** if edges are a global array. Find the bin of each value, like ``numpy.digitize``.

    ``pgas.digitize(a, [0.0, 1.0, 2.5])`` is 0 for values below 0.0, 1 for values in [0.0, 1.0), and so on;
    with ``right``, an edge belongs to the bin below it. The edges must ascend or descend; they are a list or
    a NumPy array that is the same on every rank, or a global array.
    """
    near = x if isinstance(x, Tiled) else bins
    check_arrays("digitize", near)
    if near is x and number_kind(x.dtype) == "c":
        raise ArgumentTypeError(f"cannot use {x.type} in digitize: need real numbers")
    edges = bins if isinstance(bins, Tiled) else numbers_of(bins, "digitize")
    if edges.ndim != 1:
        raise ArgumentError(f"cannot use edges of shape {edges.shape} in digitize: need one dim")
    side, n = "left" if right else "right", edges.shape[0]
    if n < 2:
        return searchsorted(edges, x, side=side)
    if not isinstance(edges, Tiled):
        steps = (edges[1:] >= edges[:-1]).all(), (edges[1:] <= edges[:-1]).all()
        _must_be_ordered(*map(bool, steps))
        if steps[0]:
            return searchsorted(edges, x, side=side)
        return apply(np.subtract, n, searchsorted(edges[::-1], x, side=side))
    lower, upper = (dispatch.get(edges, slice(*ends)) for ends in ((None, -1), (1, None)))
    if not edges.memory.is_ghost:  # nobody knows the values of a program before it runs
        ups, downs = (
            reductions.all(apply(test, upper, lower)) for test in (np.greater_equal, np.less_equal)
        )
        _must_be_ordered(bool(ups._element()), bool(downs._element()))
    falls = apply(np.greater, dispatch.get(edges, 0), dispatch.get(edges, -1))
    place = searchsorted(apply(np.where, falls, flip(edges), edges), x, side=side)
    return apply(np.where, falls, apply(np.subtract, n, place), place)


def _must_be_ordered(rises: bool, falls: bool) -> None:
    if not rises and not falls:
        raise ArgumentError(
            "cannot use these edges in digitize: they must rise or fall, without nan"
        )


@in_f32
def isin(
    x1: Any, x2: Any, /, *, invert: bool = False, assume_unique: bool = False, kind: str | None = None
) -> Any:  # fmt: skip
    """**Collective** if the values are a global array. Find which elements are among given values.

    ``a[pgas.isin(a, [1, 5, 7])]``. The values are a number, a list or a NumPy array, the same on every
    rank, or a global array, of which a sorted copy is made. NaN is never found, as in NumPy.
    ``assume_unique`` and ``kind`` are accepted, as in NumPy, but make no difference.
    """
    near = x1 if isinstance(x1, Tiled) else x2
    check_arrays("isin", near)
    x1 = beside(near, x1, "isin")
    if isinstance(x2, Tiled):
        if number_kind(x2.dtype) == "c":
            raise ArgumentTypeError(f"cannot use {x2.type} as values in isin: need real numbers")
        values: Any = sort(x2 if x2.ndim == 1 else reshape(x2, (x2.size,)))
    else:
        values = _exact(np.unique(numbers_of(x2, "isin")), x1.dtype)
    ends = (searchsorted(values, x1, side=side) for side in ("right", "left"))
    found = apply(np.greater, apply(np.subtract, *ends), 0)
    if number_kind(promote(x1.dtype, values.dtype)) in "fc":
        found = apply(np.logical_and, found, apply(np.equal, x1, x1))  # nan is not found
    return apply(np.logical_not, found) if invert else found


def _exact(values: Tile, dtype: np.dtype[Any]) -> Tile:
    """Values that integers of a dtype can have; 64 bits with and without a sign would meet in floats."""
    if number_kind(dtype) not in "iu" or number_kind(values.dtype) not in "iu":
        return values
    info = np.iinfo(dtype)
    least, most = (
        max(info.min, np.iinfo(values.dtype).min),
        min(info.max, np.iinfo(values.dtype).max),
    )
    return values[(values >= least) & (values <= most)].astype(dtype)


def _count_in_tiles(x1: T, x2: T, side: Any) -> T:
    """Find places in each rank's tile of x1: the sum over tiles is the place."""
    axes, t = x1.type.dims[0], x2.type
    pending = ArrayType(t.mesh, dtype_of(INT), t.shape, t.dims, "sum" if axes else None, axes)
    x2.memory.check_room(pending.tile_bytes)
    if x1.tile is None or x2.tile is None:
        return x2.new(pending, None)
    if x1.memory.on_device:
        out = x2.memory.empty(x2.tile.shape, INT, pending.tile_bytes)
        x2.memory.write(_write_places, out, x1.tile, x2.tile, side)
        return x2.new(pending, out)
    return x2.new(pending, as_tile(np.searchsorted(x1.tile, x2.tile, side), INT))


def _write_places(out: Tile, ordered: Tile, values: Tile, side: Any) -> None:
    """**Local.** Where values go in a sorted tile."""
    out[...] = places_among(ordered, values, side)


def _in_order(x1: T, sorter: T) -> T:
    """**Collective.** Put x1 in the order of ``sorter``, cut like x1."""
    sorter = resolve_pending(sorter)
    if sorter.shape != x1.shape or number_kind(sorter.dtype) not in "iu":
        raise ArgumentError(f"cannot sort {x1.shape} by {sorter.dtype} of {sorter.shape}")
    return move(take(x1, sorter), x1.type)


def _ask_holders(x1: Tiled, x2: Tiled, side: Any) -> tuple[Tile | None, int]:
    """**Collective.** Send every value to the rank whose tile of x1 has its place, and the place back."""
    comm, seam = x1.comm, traffic()
    first = np.zeros(1, x1.dtype) if x1.tile is None or not x1.tile.size else to_host(x1.tile[:1])
    firsts = seam.tell_all(comm, first)[:, 0]
    places = places_of(x1.type)
    cut = x1.type.cut(0)
    starts = firsts[places.holders[: cut.n_filled, 0]]
    memory = x2.memory
    asked = memory.empty((0,), x2.dtype, 0)
    if x2.tile is not None:
        asked = memory.contiguous(x2.tile).reshape(-1)
    shard = np.maximum(places_among(memory.asarray(starts), asked, side) - 1, 0)
    owner = memory.asarray(places.nearest(comm.rank))[shard]
    order = order_of_lines(owner, 0)
    n_owned = functions_for(owner).bincount(owner, minlength=comm.size)
    matrix = seam.tell_all(comm, to_host(n_owned).astype(np.int64))
    most = max(1, x2.type.tile_bytes // max(1, x2.dtype.itemsize))
    rounds = ceil_div(int(matrix.sum(axis=0).max()), most)
    offset, _ = cut.range_of(places.shard_of.get(comm.rank, 0))
    tile = memory.empty((0,), x1.dtype, 0) if x1.tile is None else x1.tile
    sizes = matrix[comm.rank]
    at = np.cumsum(sizes) - sizes
    out, received = memory.empty(asked.shape, INT, 0), 0
    for k in range(rounds):
        lo, hi = (matrix * j // rounds for j in (k, k + 1))
        parts = hi - lo
        sent = np.ascontiguousarray(parts[comm.rank])
        mine = np.concatenate(
            [
                order[a : a + n]
                for a, n in zip((at + lo[comm.rank]).tolist(), sent.tolist(), strict=True)
            ]
        )
        questions = asked[mine]
        come = np.ascontiguousarray(parts[:, comm.rank])
        heard = memory.empty((int(come.sum()),), x2.dtype, 0)
        go, back = (sent, np.cumsum(sent) - sent), (come, np.cumsum(come) - come)
        received += seam.exchange(comm, questions, go, heard, back)
        found = as_tile(places_among(tile, heard, side) + offset, INT)
        answers = memory.empty(questions.shape, INT, 0)
        received += seam.exchange(comm, found, back, answers, go)
        out[mine] = answers
    return None if x2.tile is None else out.reshape(x2.tile.shape), received
