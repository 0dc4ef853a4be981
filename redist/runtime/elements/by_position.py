"""Read and write elements by their number in the whole array, whoever holds them.

Ranks work in rounds, so that the staging of a round is bounded however many elements are asked for.
On a node each takes what it asks for from its neighbours' tiles; other nodes get lists of numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.tiles import Ints, grid
from redist.runtime.ranks.collectives import tell_all
from redist.runtime.ranks.neighbours import neighbour_tiles
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import World, world_of
from redist.runtime.shm.segments import can_share, shared_bytes
from redist.text.units import ceil_div

Tile = NDArray[Any]
ROUND_ELEMS = 2**17
"""Elements that a rank asks for or sends in one round."""
FEW = 12
"""Up to this many tiles are looked for one by one: quicker than sorting."""


class Places:
    """Where the elements of an array lie: who holds the tile, and at which place in it."""

    def __init__(self, t: ArrayType) -> None:
        self.shape, self.cuts = t.shape, tuple(map(t.cut, range(t.ndim)))
        self.edges = [cut.edges() for cut in self.cuts]
        first = next((i for i, k in enumerate(t.cuts) if k > 1), 0)
        in_order = math.prod(t.shape[:first]) == 1 == math.prod(t.cuts[first + 1 :])
        self.cut_dim = first if in_order and t.shape else None
        """The one dim that is cut, if every tile has consecutive elements."""
        shards = grid(t).shards()
        ranks = t.mesh.rank_array()
        n_shards = math.prod(t.cuts)
        self.copies = t.mesh.n_devices // n_shards
        order = np.argsort(shards, kind="stable")
        self.holders: Ints = ranks[order].reshape(n_shards, self.copies)
        self.shard_of: dict[int, int] = dict(zip(ranks.tolist(), shards.tolist(), strict=True))

    def find(self, positions: Ints) -> tuple[Ints, Ints]:
        """The shard of each element, and its place in the shard's tile, row by row."""
        if self.cut_dim is not None:
            behind = math.prod(self.shape[self.cut_dim + 1 :])
            along = positions if behind == 1 else positions // max(1, behind)
            shard = self.cuts[self.cut_dim].tile_of(along)
            return shard, positions - self.edges[self.cut_dim][shard] * behind
        shard = np.zeros(len(positions), dtype=np.int64)
        place = np.zeros(len(positions), dtype=np.int64)
        index = np.unravel_index(positions, self.shape) if self.shape else ()
        for i, cut, edges in zip(index, self.cuts, self.edges, strict=True):
            tile = cut.tile_of(i)
            shard = shard * cut.n_tiles + tile
            place = place * (edges[1:] - edges[:-1])[tile] + (i - edges[tile])
        return shard, place

    def nearest(self, rank: int) -> Ints:
        """For each shard, the rank that serves this one: itself where it holds the shard."""
        out = self.holders[:, rank % self.copies].copy()
        if rank in self.shard_of:
            out[self.shard_of[rank]] = rank
        return out


@lru_cache(maxsize=256)
def places_of(t: ArrayType) -> Places:
    """The places of a type."""
    return Places(t)


def rounds_of(
    comm: MPI.Comm,
    n: int,
    wrong: bool,
    round_elems: int | None = None,
    timeout_s: float | None = TIMEOUT_S,
) -> tuple[int, bool]:
    """**Collective.** How many rounds all ranks need, and whether something is wrong on any."""
    said = np.array([ceil_div(n, round_elems or ROUND_ELEMS), wrong], dtype=np.int64)
    world = world_of(comm, timeout_s=timeout_s)
    with world.operation(timeout_s):
        world.all_max(said)
    return int(said[0]), bool(said[1])


def fetch(
    comm: MPI.Comm,
    t: ArrayType,
    tile: Tile | None,
    rounds: int,
    positions: Callable[[int, int], Ints],
    out: Tile,
    round_elems: int | None = None,
    timeout_s: float | None = TIMEOUT_S,
) -> int:
    """**Collective over** ``comm``. Fill ``out``, one dim, from any elements of an array.

    ``positions(lo, hi)`` has the numbers of the elements for that part of ``out``. Gives the bytes of
    values that came from other ranks.
    """
    world = world_of(comm, timeout_s=timeout_s)
    places = places_of(t)
    serving = places.nearest(world.rank)
    tile, out = t.dtype.raw(tile), t.dtype.raw(out)
    flat = np.zeros(0, t.dtype.to_numpy()) if tile is None else tile.reshape(-1)
    received = 0
    with neighbour_tiles(world, flat, flat.dtype, "fetch elements", timeout_s) as nearby:
        for k in range(rounds):
            lo, hi = (min(len(out), i * (round_elems or ROUND_ELEMS)) for i in (k, k + 1))
            shard, place = places.find(positions(lo, hi))
            part = out[lo:hi]
            order, ends = _by_number(shard, len(serving))
            far = [order[:0]]
            for number, (a, b) in enumerate(itertools.pairwise(ends)):
                rank, which = int(serving[number]), order[a:b]
                if a == b:
                    continue
                if rank in nearby.tiles:
                    part[which] = nearby.tiles[rank].take(place.take(which))
                else:
                    far.append(which)
                received += 0 if rank == world.rank else len(which) * flat.itemsize
            if nearby.complete:
                continue
            rest = np.concatenate(far)
            rest = rest[np.argsort(serving[shard[rest]], kind="stable")]
            asked, sent, come = pass_numbers(world, place[rest], serving[shard[rest]])
            part[rest] = _pass_back(world, flat[asked], come, sent)
    return received


def store(
    comm: MPI.Comm,
    t: ArrayType,
    tile: Tile | None,
    rounds: int,
    n: int,
    positions: Callable[[int, int], Ints],
    values: Callable[[int, int], Tile],
    round_elems: int | None = None,
    timeout_s: float | None = TIMEOUT_S,
) -> int:
    """**Collective over** ``comm``. Write ``n`` elements of this rank to any place of an array.

    Every copy of a tile is written, in the same order: by rounds, and in a round by senders. Gives
    the bytes of values that came from other ranks.
    """
    world = world_of(comm, timeout_s=timeout_s)
    places = places_of(t)
    most = round_elems or ROUND_ELEMS
    received = 0
    dtype, tile = t.dtype.to_numpy(), t.dtype.raw(tile)
    nearby = world.one_node and can_share()
    with world.operation(timeout_s):
        outbox = _Outbox(len(places.holders), min(n, most), dtype, nearby)
        for k in range(rounds):
            lo, hi = (min(n, i * most) for i in (k, k + 1))
            shard, place = places.find(positions(lo, hi))
            given = np.ascontiguousarray(t.dtype.raw(values(lo, hi)))
            if nearby:
                outbox.fill(shard, place, given)
                received += _take_all(world, outbox, places, tile, timeout_s)
                continue
            for copy in range(places.copies):
                owner = places.holders[shard, copy]
                order = np.argsort(owner, kind="stable")
                at, sent, come = pass_numbers(world, place[order], owner[order])
                got = _pass_back(world, given[order], sent, come)
                received += (len(got) - int(come[world.rank])) * got.itemsize
                _put(tile, at, got)
    return received


class _Outbox:
    """The writes of a rank in a round, sorted by shard, in memory that its neighbours read."""

    def __init__(self, n_shards: int, most: int, dtype: np.dtype[Any], shared: bool) -> None:
        self._n, self._dtype = n_shards, dtype
        n_bytes = 8 * (n_shards + 2) + most * (8 + dtype.itemsize)
        self.memory = shared_bytes(n_bytes) if shared else np.empty(0, np.uint8)

    def fill(self, shard: Ints, place: Ints, values: Tile) -> None:
        """**Local.** Put in what this rank writes."""
        order, ends = _by_number(shard, self._n)
        words, at, given = self.open(self.memory, len(order))
        words[0], words[1:] = len(order), ends
        np.take(place, order, out=at)
        np.take(values, order, out=given)

    def open(self, memory: NDArray[np.uint8], n: int | None = None) -> tuple[Ints, Ints, Tile]:
        """The count and ends, places and values that a rank has put in."""
        start = 8 * (self._n + 2)
        words = memory[:start].view(np.int64)
        n = int(words[0]) if n is None else n
        middle = start + 8 * n
        end = middle + n * self._dtype.itemsize
        return words, memory[start:middle].view(np.int64), memory[middle:end].view(self._dtype)


def _take_all(
    world: World, outbox: _Outbox, places: Places, tile: Tile | None, timeout_s: float | None
) -> int:
    """**Collective.** Apply the writes of all ranks, in order, to this rank's tile; bytes of others."""
    received = 0
    with neighbour_tiles(
        world, outbox.memory, outbox.memory.dtype, "store elements", timeout_s
    ) as nearby:
        shard = places.shard_of.get(world.rank, -1)
        for rank in range(world.size if shard >= 0 else 0):
            words, at, values = outbox.open(nearby.tiles[rank])
            a, b = words[1:][shard : shard + 2].tolist()
            _put(tile, at[a:b], values[a:b])
            received += 0 if rank == world.rank else values[a:b].nbytes
    return received


def _put(tile: Tile | None, at: Ints, values: Tile) -> None:
    """Write to places of a tile; of values for one place, the last stays."""
    if not len(at) or tile is None:
        return
    if tile.flags.c_contiguous:
        tile.reshape(-1)[at] = values
    else:
        tile[np.unravel_index(at, tile.shape)] = values


def _by_number(numbers: Ints, most: int) -> tuple[Ints, list[int]]:
    """The order that sorts small numbers and keeps what is equal in order; where each begins.

    >>> _by_number(np.array([1, 0, 1]), 2)
    (array([1, 0, 2]), [0, 1, 3])
    """
    if most <= FEW:
        small = numbers.astype(np.uint8)
        found = [np.flatnonzero(small == k) for k in range(most)]
        return np.concatenate(found), [0, *itertools.accumulate(map(len, found))]
    short = numbers.astype(np.uint16) if most < 2**16 else numbers  # sorted in linear time
    counts = np.bincount(numbers, minlength=most)
    return np.argsort(short, kind="stable"), [0, *np.cumsum(counts).tolist()]


def pass_numbers(world: World, values: Ints, ranks: Ints) -> tuple[Ints, Ints, Ints]:
    """**Collective.** Send numbers, ordered by rank; what came, how many went and how many came."""
    sent = np.bincount(ranks, minlength=world.size).astype(np.int64)
    come = np.empty(world.size, dtype=np.int64)
    world.wait([world.comm.Ialltoall(sent, come)])
    return _pass_back(world, values, sent, come), sent, come


def _pass_back(world: World, values: Tile, sent: Ints, come: Ints) -> Tile:
    """**Collective.** Send values, this many to each rank, and receive this many from each."""
    out = np.empty(int(come.sum()), values.dtype)
    values = np.ascontiguousarray(values)
    size = values.dtype.itemsize
    there, here = (
        (
            array.view(np.uint8),
            ((n * size).tolist(), ((np.cumsum(n) - n) * size).tolist()),
            MPI.BYTE,
        )
        for array, n in ((values, sent), (out, come))
    )
    world.wait([world.comm.Ialltoallv(list(there), list(here))])
    return out


def all_counts(comm: MPI.Comm, n: int) -> list[int]:
    """**Collective.** A number of every rank, in order."""
    return tell_all(comm, np.array(n, dtype=np.int64)).tolist()
