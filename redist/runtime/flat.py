"""Elements by their number in the whole array: each rank asks for any, or writes to any.

Ranks work in rounds, so that the staging of a round is bounded however many elements are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.tiles import Ints, grid
from redist.runtime.requests import TIMEOUT_S
from redist.runtime.world import World
from redist.runtime.worlds import world_of

Tile = NDArray[Any]
ROUND_ELEMS = 2**17
"""Elements that a rank asks for or sends in one round."""


class Places:
    """Where the elements of an array lie: who holds the tile, and at which place in it."""

    def __init__(self, t: ArrayType) -> None:
        self.shape, self.full, self.cuts = t.shape, t.tile_shape, t.cuts
        shards = grid(t).shards()
        ranks = t.mesh.rank_array()
        n_shards = math.prod(t.cuts)
        self.copies = t.mesh.n_devices // n_shards
        order = np.argsort(shards, kind="stable")
        self.holders: Ints = ranks[order].reshape(n_shards, self.copies)
        self.shard_of = dict(zip(ranks.tolist(), shards.tolist(), strict=True))

    def find(self, positions: Ints) -> tuple[Ints, Ints]:
        """The shard of each element, and its place in the shard's tile, row by row."""
        shard = np.zeros(len(positions), dtype=np.int64)
        place = np.zeros(len(positions), dtype=np.int64)
        index = np.unravel_index(positions, self.shape) if self.shape else ()
        for i, n, full, k in zip(index, self.shape, self.full, self.cuts, strict=True):
            tile = i // full
            shard = shard * k + tile
            place = place * np.minimum(full, n - tile * full) + (i - tile * full)
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
    comm: MPI.Comm, n: int, wrong: bool, timeout_s: float | None = TIMEOUT_S
) -> tuple[int, bool]:
    """**Collective.** How many rounds all ranks need, and whether something is wrong on any."""
    said = np.array([-(-n // ROUND_ELEMS), wrong], dtype=np.int64)
    world_of(comm, timeout_s=timeout_s).all_max(said, timeout_s)
    return int(said[0]), bool(said[1])


def fetch(
    comm: MPI.Comm,
    t: ArrayType,
    tile: Tile | None,
    rounds: int,
    positions: Callable[[int, int], Ints],
    out: Tile,
    timeout_s: float | None = TIMEOUT_S,
) -> int:
    """**Collective over** ``comm``. Fill ``out``, one dim, from any elements of an array.

    ``positions(lo, hi)`` has the numbers of the elements for that part of ``out``. Gives the bytes of
    values that came from other ranks.
    """
    world = world_of(comm, timeout_s=timeout_s)
    world.check_usable()
    world.finish()
    places = places_of(t)
    serving = places.nearest(world.rank)
    flat = np.zeros(0, t.dtype.to_numpy()) if tile is None else tile.reshape(-1)
    received = 0
    with world.failing_together():
        for k in range(rounds):
            lo, hi = (min(len(out), i * ROUND_ELEMS) for i in (k, k + 1))
            shard, place = places.find(positions(lo, hi))
            owner = serving[shard]
            mine = owner == world.rank
            part = out[lo:hi]
            part[mine] = flat[place[mine]]
            (others,) = np.nonzero(~mine)
            order = others[np.argsort(owner[others], kind="stable")]
            asked, sent, come = _pass(world, place[order], owner[order], timeout_s)
            values, _, _ = _pass_back(world, flat[asked], come, sent, timeout_s)
            part[order] = values
            received += values.nbytes
    return received


def store(
    comm: MPI.Comm,
    t: ArrayType,
    tile: Tile | None,
    rounds: int,
    n: int,
    positions: Callable[[int, int], Ints],
    values: Callable[[int, int], Tile],
    timeout_s: float | None = TIMEOUT_S,
) -> int:
    """**Collective over** ``comm``. Write ``n`` elements of this rank to any place of an array.

    Every copy of a tile is written, in the same order: by rounds, and in a round by senders. Gives
    the bytes of values that came from other ranks.
    """
    world = world_of(comm, timeout_s=timeout_s)
    world.check_usable()
    world.finish()
    places = places_of(t)
    received = 0
    with world.failing_together():
        for k in range(rounds):
            lo, hi = (min(n, i * ROUND_ELEMS) for i in (k, k + 1))
            shard, place = places.find(positions(lo, hi))
            given = np.ascontiguousarray(values(lo, hi))
            for copy in range(places.copies):
                owner = places.holders[shard, copy]
                order = np.argsort(owner, kind="stable")
                at, sent, come = _pass(world, place[order], owner[order], timeout_s)
                got, _, _ = _pass_back(world, given[order], sent, come, timeout_s)
                received += (len(got) - int(come[world.rank])) * got.itemsize
                if len(at) and tile is not None:
                    tile[np.unravel_index(at, tile.shape) if tile.ndim else ()] = (
                        got if tile.ndim else got[-1]
                    )
    return received


def _pass(
    world: World, values: Ints, ranks: Ints, timeout_s: float | None
) -> tuple[Ints, Ints, Ints]:
    """**Collective.** Send numbers, ordered by rank; what came, how many went and how many came."""
    sent = np.bincount(ranks, minlength=world.size).astype(np.int64)
    come = np.empty(world.size, dtype=np.int64)
    world.wait([world.comm.Ialltoall(sent, come)], timeout_s)
    return _pass_back(world, values, sent, come, timeout_s)


def _pass_back(
    world: World, values: Tile, sent: Ints, come: Ints, timeout_s: float | None
) -> tuple[Tile, Ints, Ints]:
    """**Collective.** Send values, so many to each rank, and receive so many from each."""
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
    world.wait([world.comm.Ialltoallv(list(there), list(here))], timeout_s)
    return out, sent, come


def all_counts(comm: MPI.Comm, n: int, timeout_s: float | None = TIMEOUT_S) -> list[int]:
    """**Collective.** A number of every rank, in order."""
    world = world_of(comm, timeout_s=timeout_s)
    world.check_usable()
    world.finish()
    said = np.empty(world.size, dtype=np.int64)
    with world.failing_together():
        world.wait([world.comm.Iallgather(np.array([n], dtype=np.int64), said)], timeout_s)
    return said.tolist()
