"""Values without repetitions: sorted over all ranks, and each counted on the rank where it begins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.cuts import EvenCut
from redist.layout.tiles import Ints, grid
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.ordering.lines import flags_of, lengths_of, order_of_lines, runs_of, sorted_lines
from redist.pgas.ordering.sorting import merge_runs
from redist.pgas.tiles.arguments import takes_array
from redist.pgas.tiles.arranging import left_alone
from redist.pgas.tiles.budget import require_room, round_elems
from redist.pgas.tiles.layouts import default_dims, dtype_of, idle_parts, make_type, with_dtype
from redist.pgas.tiles.move import move, resolve_pending, tile_shape
from redist.pgas.tiles.tiled import T, Tile, Tiled, own_box
from redist.pgas.watch.seam import ElementExchange, traffic
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_host
from redist.runtime.cuda.loops import functions_for
from redist.text.units import ceil_div

INT = np.dtype(np.int64)


class UniqueAll(NamedTuple):
    """The result of :func:`unique_all`."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """The result of :func:`unique_counts`."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """The result of :func:`unique_inverse`."""

    values: Any
    inverse_indices: Any


@in_f32
@left_alone
@takes_array
def unique_values(x: T, /) -> T:
    """**Collective.** Find the distinct values, in ascending order; every NaN counts as distinct."""
    return _count(x).values


@in_f32
@left_alone
@takes_array
def unique_counts(x: Tiled, /) -> UniqueCounts:
    """**Collective.** Find the distinct values, and how often each occurs."""
    return _count(x)


@in_f32
@left_alone
@takes_array
def unique_inverse(x: Tiled, /) -> UniqueInverse:
    """**Collective.** Find the distinct values, and for each element the index of its value among them."""
    values, _, inverse, _ = unique_all(x)
    return UniqueInverse(values, inverse)


@in_f32
@left_alone
@takes_array
def unique_all(x: Tiled, /) -> UniqueAll:
    """**Collective.** Find the distinct values, their first indices, the inverse indices, and the counts."""
    x = _hold_once(x)
    require_room(
        x,
        "find what is unique in",
        2 * x.type.tile_bytes + 5 * x.type.tile_bytes * 8 // x.dtype.itemsize,
    )
    keys, places = _own_elements(x), _positions(x)
    order = order_of_lines(keys, 0)
    keys, places = _balance(x, keys[order], places[order])
    if x.memory.on_device and x.comm.size > 1:  # so that a run begins with its least place
        order = order_of_lines(places, 0)
        order = order[order_of_lines(keys[order], 0)]
        keys, places = keys[order], places[order]
    runs = ValueRuns.of(x, keys)
    flags = runs.flags
    ones = functions_for(keys).ones(len(keys), np.int64)
    total = _to_array(x, runs, runs.join_runs(np.add, ones, 0))
    first = _to_array(x, runs, runs.join_runs(np.minimum, places, 2**62))
    ids = np.cumsum(flags) - 1 + runs.offset
    inverse = _scatter(x, places, ids)
    return UniqueAll(_to_array(x, runs, keys[flags]), first, inverse, total)


def _count(x: Tiled) -> UniqueCounts:
    """Count values; what repeats in a tile does not travel."""
    x = _hold_once(x)
    require_room(
        x,
        "find what is unique in",
        2 * x.type.tile_bytes + 3 * x.type.tile_bytes * 8 // x.dtype.itemsize,
    )
    keys, counts = _distinct(_own_elements(x))
    if x.comm.size == 1:
        alone = ValueRuns(x, None, np.array([len(keys)]), 0)
        return UniqueCounts(_to_array(x, alone, keys), _to_array(x, alone, counts))
    keys, counts = _balance(x, keys, counts)
    runs = ValueRuns.of(x, keys)
    total = runs.join_runs(np.add, counts, 0)
    return UniqueCounts(_to_array(x, runs, keys[runs.flags]), _to_array(x, runs, total))


def _distinct(values: Tile) -> tuple[Tile, Tile]:
    """**Local.** Different values, ascending, and how often each occurs."""
    if not is_device(values):
        keys, counts = np.unique(values, return_counts=True, equal_nan=False)
        return keys, counts.astype(np.int64)
    ordered = sorted_lines(values, 0)
    starts = runs_of(ordered)
    return ordered[starts], lengths_of(starts, len(ordered))


@lru_cache(maxsize=4096)
def held_once(t: ArrayType) -> ArrayType:
    """The type with every element on one device: axes that replicate cut the largest tile.

    >>> from redist.layout.mesh import Mesh
    >>> print(held_once(ArrayType.parse("f32[8{x}, 9]", Mesh(x=2, y=2))))
    f32[8{x}, 9{y}]
    """
    idle = idle_parts(t, t.dims)
    if not t.shape or not idle:
        return t
    at = t.tile_shape.index(max(t.tile_shape))
    return t.with_dims([(*dim, *idle) if i == at else dim for i, dim in enumerate(t.dims)])


def _hold_once(x: T) -> T:
    why = "how many values there are depends on the data"
    traffic().require_data(f"what is unique in {x.type}", why)
    x = resolve_pending(x)
    return move(x, held_once(x.type))


def _own_elements(x: Tiled) -> Tile:
    """Elements of the tile in one dim; those of an array without dims are with one rank."""
    if x.tile is None or (x.ndim == 0 and x.comm.rank != x.mesh.ranks[0]):
        return x.memory.empty((0,), x.dtype, 0)
    return x.tile.reshape(-1)


def _positions(x: Tiled) -> Ints:
    """The number of each of these elements in the whole array."""
    own = _own_elements(x)
    xp = functions_for(own)
    if x.tile is None or x.ndim == 0:
        return xp.zeros(own.shape, np.int64)
    at: Any = 0
    for i, (ends, size) in enumerate(zip(own_box(x), x.shape, strict=True)):
        along = xp.arange(*ends).reshape(-1, *(1,) * (x.ndim - 1 - i))
        at = at * size + along
    return np.broadcast_to(at, x.tile.shape).reshape(-1)


def _balance(x: Tiled, *columns: Tile) -> list[Tile]:
    """Merge sorted columns of all ranks, with as many elements on each."""
    comm = x.comm
    if comm.size == 1:
        return list(columns)
    sizes = traffic().tell_all(comm, np.array(len(columns[0]), dtype=np.int64))
    wanted = np.diff(EvenCut(int(sizes.sum()), comm.size).edges())
    rows, everyone = [c.reshape(1, -1) for c in columns], list(range(comm.size))
    out = traffic().perform(
        ElementExchange("unique", x.type, x.type), merge_runs, (comm, rows, everyone, sizes, wanted)
    )
    return [column.reshape(-1) for column in out]


@dataclass(frozen=True, slots=True, eq=False)
class ValueRuns:
    """Runs of equal elements over the ranks; a run belongs to the rank where it begins."""

    x: Tiled
    flags: Any
    begun: Ints
    offset: int

    @staticmethod
    def of(x: Tiled, keys: Tile) -> ValueRuns:
        """**Collective.** Find the runs of keys that are sorted over all ranks."""
        flags = flags_of(keys)
        if x.comm.size == 1:
            return ValueRuns(x, flags, np.array([int(np.count_nonzero(flags))]), 0)
        ends = np.zeros(2, x.dtype)
        if len(keys):
            ends = to_host(np.concatenate([keys[:1], keys[-1:]]))
        lasts = traffic().tell_all(x.comm, ends)[:, 1]
        sizes = traffic().tell_all(x.comm, np.array(len(keys), dtype=np.int64))
        before = np.flatnonzero(sizes[: x.comm.rank])
        if len(keys) and len(before):
            flags[:1] = bool(lasts[before[-1]] != ends[0])
        begun = traffic().tell_all(x.comm, np.array(int(np.count_nonzero(flags))))
        return ValueRuns(x, flags, begun, int(begun[: x.comm.rank].sum()))

    def join_runs(self, function: np.ufunc, values: Ints, nothing: int) -> Ints:
        """**Collective.** Combine the values of each run that begins here, also those on other ranks.

        On a GPU a run begins with the least of its values.
        """
        starts = self.flags.nonzero()[0]
        lead = values[: int(starts[0])] if len(starts) else values
        if is_device(lead):
            whole = lead.sum() if function is np.add else lead[:1].sum()
            led_here = int(whole) if len(lead) else nothing
        else:
            led_here = function.reduce(lead, initial=nothing)
        led = traffic().tell_all(self.x.comm, np.array(led_here, np.int64))
        if not len(starts):
            return values[:0]
        out = _combined(function, values, starts)
        for rank in range(self.x.comm.rank + 1, self.x.comm.size):
            out[-1:] = function(out[-1:], int(led[rank]))
            if self.begun[rank]:
                break
        return out


def _combined(function: np.ufunc, values: Ints, starts: Ints) -> Ints:
    """**Local.** Values of runs together; on a GPU a run begins with the least of its values."""
    if not is_device(values):
        return np.asarray(function.reduceat(values, starts), np.int64)
    if function is np.minimum:
        return values[starts]
    sums = np.cumsum(values)
    before = sums[starts] - values[starts]
    return np.diff(np.concatenate([before, sums[-1:]]))


def _to_array(x: T, runs: ValueRuns, values: Tile) -> T:
    """**Collective.** Make a global array from what the ranks hold one after the other."""
    comm, n = x.comm, int(runs.begun.sum())
    t = make_type(x.mesh, dtype_of(values.dtype), (n,), default_dims(x.mesh, (n,)))
    starts = np.cumsum(runs.begun) - runs.begun
    wants = np.zeros((2, comm.size), dtype=np.int64)
    lo, hi = grid(t).boxes()
    wants[:, x.mesh.rank_array()] = lo[:, 0], hi[:, 0]

    def overlap(begin: Any, end: Any, rows: Any) -> tuple[Ints, Ints]:
        a = np.maximum(begin, rows[0])
        return np.maximum(np.minimum(end, rows[1]) - a, 0), a

    own = runs.offset
    counts, at = overlap(own, own + len(values), wants)
    received, _ = overlap(wants[0, comm.rank], wants[1, comm.rank], (starts, starts + runs.begun))
    shape = tile_shape(t, comm.rank)
    out = x.memory.empty((0,) if shape is None else shape, values.dtype, t.tile_bytes)
    sent = counts, np.where(counts, at - own, 0)
    places = received, np.cumsum(received) - received
    given, seam = x.memory.contiguous(values), traffic()
    seam.perform(
        ElementExchange("spread", t, t),
        lambda: (None, seam.exchange(comm, given, sent, out, places)),
        (),
    )
    return x.new(t, None if shape is None else out)


def _scatter(x: T, places: Ints, ids: Ints) -> T:
    """**Collective.** Make an array like x with ids at places of the whole array."""
    t = with_dtype(x.type, dtype_of(INT))
    tile = None if x.tile is None else x.memory.empty(x.tile.shape, INT, t.tile_bytes)
    most = ceil_div(math.prod(x.shape), x.comm.size)
    rounds = ceil_div(most, round_elems(x))
    seam = traffic()

    def work() -> tuple[None, int]:
        return None, seam.store(
            x.comm, t, tile, rounds, len(places),
            lambda lo, hi: places[lo:hi], lambda lo, hi: ids[lo:hi], round_elems(x),
        )  # fmt: skip

    seam.perform(ElementExchange("store", t, t), work, ())
    return x.new(t, tile)
