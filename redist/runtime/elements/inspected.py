"""Elements by lists that ranks tell each other once: inspect, then read or combine as often as one likes.

Inspecting, each rank says which elements it asks for, each once, and hears which of its own the others ask
for. Both sides keep the lists. From then on values alone travel, at most one message between two ranks::

    rank A asks for 7 2 9 2            asks 2 of B, 1 of C            which: 1 0 2 0
    rank B hears: 2 7 are A's          gives A the elements at 2 and 7 of its tile
    read         A's results  <-  take which  <-  [2 7 | 9]  <-  B gives, C gives
    combine      A's values   ->  by element  ->  [2 7 | 9]  ->  B and C do it: the same lists backwards

On a node a rank that reads takes what it asks for from its neighbours' tiles, where these are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.tiles import Ints
from redist.runtime.elements.by_position import pass_numbers, places_of
from redist.runtime.ranks.neighbours import NeighbourTiles, neighbour_tiles
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import World, world_of
from redist.runtime.shm.segments import can_share, find, shared_bytes

Tile = NDArray[Any]
OPS: dict[str, np.ufunc | None] = {
    "replace": None,
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
"""How elements are combined with values; kernels know each by its number here."""
SMALL_BYTES = 2**16
"""Smaller tiles lie in memory of their ranks alone: neighbours read a copy."""
MOST_COUNT = 2**31 - 1
"""Of the bytes of a message that is not cut."""


class Passed(NamedTuple):
    """What an exchange by lists brought this rank, and how many messages it sent."""

    received_bytes: int
    messages: int


@dataclass(frozen=True, slots=True, eq=False)
class Inspection:
    """What a rank asks others for, and they ask of it: units of ``width`` elements that follow each other.

    ``which`` says, for each result, which of the units asked for each of its own is.
    """

    width: int
    asks: Ints
    """How many units of each rank."""
    at: Ints
    """Where they lie in the tiles of these ranks, rank by rank."""
    gives: Ints
    """How many units each rank asks of this one."""
    given: Ints
    """Where they lie in this rank's tile, rank by rank."""
    which: tuple[Ints, ...]

    @staticmethod
    def of_nothing(ranks: int = 1) -> Inspection:
        """**Local.** Of nothing that anybody asks for.

        >>> Inspection.of_nothing(3).n_bytes
        48
        """
        none, zeros = np.zeros(0, np.int64), np.zeros(ranks, np.int64)
        return Inspection(1, zeros, none, zeros, none, (none,))

    @property
    def n_bytes(self) -> int:
        """What the lists take."""
        return sum(a.nbytes for a in (self.asks, self.at, self.gives, self.given, *self.which))


def inspect(
    comm: MPI.Comm,
    t: ArrayType,
    positions: Ints,
    width: int = 1,
    every_copy: bool = False,
    timeout_s: float | None = TIMEOUT_S,
) -> Inspection:
    """**Collective over** ``comm``. Tell ranks which elements of an array this one asks for.

    ``positions`` are the numbers of elements in the whole array: of every unit the first. With ``every_copy``
    ranks hear of it that hold the same tile, for writes; else one that is near, for reads.
    """
    world = world_of(comm, timeout_s=timeout_s)
    places = places_of(t)
    wanted, which = np.unique(positions, return_inverse=True)
    shard, place = places.find(wanted)
    holders = places.holders.T if every_copy else places.nearest(world.rank)[None]
    owner = holders[:, shard].reshape(-1)
    order = np.argsort(owner, kind="stable")
    at = np.tile(place // width, len(holders))[order]
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    with world.operation(timeout_s):
        given, asks, gives = pass_numbers(world, at, owner[order])
    found = tuple(of_one[which.reshape(-1)] for of_one in number.reshape(len(holders), len(wanted)))
    return Inspection(width, asks, at, gives, given, found)


def joined(several: Sequence[Inspection]) -> Inspection:
    """**Local.** What several inspections of one array ask for, as one: of each rank one after another.

    >>> one = Inspection(1, *map(np.array, ([0, 2], [4, 5], [1, 0], [7])), (np.array([1, 0]),))
    >>> two = joined([one, one])
    >>> two.asks.tolist(), two.at.tolist(), two.given.tolist(), [w.tolist() for w in two.which]
    ([0, 4], [4, 5, 4, 5], [7, 7], [[1, 0], [3, 2]])
    """
    first, *others = several
    if not others:
        return first
    at, moved = _interleaved([one.asks for one in several], [one.at for one in several])
    given, _ = _interleaved([one.gives for one in several], [one.given for one in several])
    asks = np.sum([one.asks for one in several], axis=0)
    gives = np.sum([one.gives for one in several], axis=0)
    which = [to[w] for one, to in zip(several, moved, strict=True) for w in one.which]
    return Inspection(first.width, asks, at, gives, given, tuple(which))


def _interleaved(counts: Sequence[Ints], lists: Sequence[Ints]) -> tuple[Ints, list[Ints]]:
    """Lists that have parts for every rank as one that has; and where each element of each list is in it."""
    owner = np.concatenate([np.repeat(np.arange(len(n)), n) for n in counts])
    order = np.argsort(owner, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    ends = np.cumsum([len(one) for one in lists])[:-1]
    return np.concatenate(lists)[order], np.split(place, ends)


def read(
    comm: MPI.Comm,
    t: ArrayType,
    found: Inspection,
    tile: Tile | None,
    outs: Sequence[Tile],
    timeout_s: float | None = TIMEOUT_S,
) -> Passed:
    """**Collective over** ``comm``. Fill results with what was asked for: values alone travel."""
    world = world_of(comm, timeout_s=timeout_s)
    units = _units(t, tile, found.width)
    come = np.empty((len(found.at), found.width), units.dtype)
    starts = _starts(found.asks)
    with _neighbours(world, units, timeout_s) as nearby:
        for rank, own in nearby.tiles.items():
            a, b = starts[rank], starts[rank + 1]
            if b > a:
                source = own.reshape(-1, found.width)
                source.take(found.at[a:b], axis=0, out=come[a:b], mode="clip")
        near = world.node.ranks
        sends = [r for r in _others(world, found.gives) if not nearby.reads(r, near)]
        receives = [r for r in _others(world, found.asks) if r not in nearby.tiles]
        into = {rank: come[starts[rank] : starts[rank + 1]] for rank in receives}
        places = _starts(found.gives)
        given = {r: units.take(found.given[places[r] : places[r + 1]], axis=0) for r in sends}
        _pass_units(world, given, into)
    for which, out in zip(found.which, outs, strict=True):
        flat = t.dtype.raw(out).reshape(-1, found.width)
        come.take(which, axis=0, out=flat, mode="clip")
    return Passed(
        (len(come) - int(found.asks[world.rank])) * come.itemsize * found.width, len(sends)
    )


def combine(
    comm: MPI.Comm,
    t: ArrayType,
    found: Inspection,
    tile: Tile | None,
    values: Tile,
    op: str,
    timeout_s: float | None = TIMEOUT_S,
) -> Passed:
    """**Collective over** ``comm``. Combine elements that were asked for with values, or replace them.

    Each rank combines its own values of an element first, in order; the owner then takes those of the ranks,
    in order. The inspection is one of every copy.
    """
    world, function = world_of(comm, timeout_s=timeout_s), OPS[op]
    if function is None:
        tile, values = t.dtype.raw(tile), t.dtype.raw(values)
    flat = values.reshape(-1, found.width)
    units = np.ascontiguousarray(flat[:0] if tile is None else tile).reshape(-1, found.width)
    there = np.empty((len(found.at), found.width), units.dtype)
    for which in found.which:
        _combine_own(there, which, flat, function)
    starts, places = _starts(found.asks), _starts(found.gives)
    here = np.empty((len(found.given), found.width), units.dtype)
    own = world.rank
    here[places[own] : places[own + 1]] = there[starts[own] : starts[own + 1]]
    given = {r: there[starts[r] : starts[r + 1]] for r in _others(world, found.asks)}
    into = {r: here[places[r] : places[r + 1]] for r in _others(world, found.gives)}
    with world.operation(timeout_s):
        _pass_units(world, given, into)
    for rank in range(world.size):
        a, b = places[rank], places[rank + 1]
        at = found.given[a:b]  # each once
        units[at] = here[a:b] if function is None else function(units[at], here[a:b])
    if tile is not None and not tile.flags.c_contiguous:
        tile[...] = units.reshape(tile.shape)
    return Passed((len(here) - (places[own + 1] - places[own])) * units[:1].nbytes, len(given))


def _combine_own(out: Tile, which: Ints, values: Tile, function: np.ufunc | None) -> None:
    """Combine values that are for one unit, in order: the first is put there, the others join it."""
    if function is None:
        out[which] = values
        return
    out[which[::-1]] = values[::-1]
    first = np.zeros(len(which), bool)
    first[np.unique(which, return_index=True)[1]] = True
    if not first.all():
        function.at(out, which[~first], values[~first])


def _units(t: ArrayType, tile: Tile | None, width: int) -> Tile:
    """A tile as rows of units; a copy if it is not in C order."""
    raw = t.dtype.raw(tile)
    if raw is None:
        return np.empty((0, width), t.dtype.to_numpy())
    return np.ascontiguousarray(raw).reshape(-1, width)


def _neighbours(
    world: World, units: Tile, timeout_s: float | None
) -> AbstractContextManager[NeighbourTiles]:
    """**Collective.** The tiles that can be read in place; ranks alone on their nodes need not meet."""
    if world.size > 1 and len(set(world.node.groups)) == world.size:
        return _alone(world, units, timeout_s)
    if world.size > 1 and units.nbytes < SMALL_BYTES and find(units) is None:
        units = (world.kept(SmallCopy) or world.keep(SmallCopy())).of(units)
    return neighbour_tiles(world, units.reshape(-1), units.dtype, "read elements", timeout_s)


class SmallCopy:
    """Shared memory of a rank for the copy of a small tile: until the ranks of its node have all read it."""

    def __init__(self) -> None:
        self._memory = shared_bytes(SMALL_BYTES) if can_share() else np.empty(SMALL_BYTES, np.uint8)

    def of(self, units: Tile) -> Tile:
        """**Local.** The same values, where neighbours can read them."""
        out: Tile = self._memory[: units.nbytes].view(units.dtype).reshape(units.shape)
        out[...] = units
        return out

    def close(self) -> None:
        """**Local.** Nothing is left to do."""


@contextmanager
def _alone(world: World, units: Tile, timeout_s: float | None) -> Iterator[NeighbourTiles]:
    """Only the rank's own tile, in the place of those of its neighbours."""
    with world.operation(timeout_s):
        yield NeighbourTiles({world.rank: units.reshape(-1)}, False, False)


def _starts(counts: Ints) -> list[int]:
    """Where each rank's part of a list begins, and the end."""
    return [0, *np.cumsum(counts).tolist()]


def _others(world: World, counts: Ints) -> list[int]:
    """The ranks with which something is exchanged, the next ones first."""
    after = ((world.rank + k) % world.size for k in range(1, world.size))
    return [rank for rank in after if counts[rank]]


def _pass_units(world: World, given: dict[int, Tile], into: dict[int, Tile]) -> None:
    """Send each rank its units, and receive those of others: a message each, of known size."""
    if not given and not into:
        return
    comm = world.comm
    requests = [_start(comm.Irecv, units, rank) for rank, units in into.items()]
    requests += [_start(comm.Isend, units, rank) for rank, units in given.items()]
    world.wait_for_messages(requests)


def _start(call: Callable[..., Any], units: Tile, rank: int) -> Any:
    """Begin a message, of any size."""
    raw = units.reshape(-1).view(np.uint8)
    if raw.nbytes <= MOST_COUNT:
        return call([raw, MPI.BYTE], rank, Tag.ELEMENTS)
    row = MPI.BYTE.Create_contiguous(raw.nbytes // len(units)).Commit()
    try:
        return call([raw, len(units), row], rank, Tag.ELEMENTS)
    finally:
        row.Free()  # MPI keeps what a message under way still needs
