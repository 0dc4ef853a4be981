"""Read and write elements on GPUs by their number in the whole array, whoever holds them.

As :mod:`redist.runtime.elements.by_position`, in three launches for each way: places are put in the order of
their holders, a kernel gathers, parts are exchanged, another one scatters. The host is told counts alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.layout.array_type import ArrayType
from redist.layout.tiles import Ints
from redist.runtime.cuda.arrays import empty_on_device, to_device, to_host
from redist.runtime.cuda.exchange import exchange
from redist.runtime.cuda.loops import n_processors, run_loop
from redist.runtime.elements.by_position import Places, places_of
from redist.runtime.ranks.collectives import tell_all

INT = np.dtype(np.int64)
N_THREADS = 256
BLOCKS_EACH = 32
"""A processor works on no more blocks of threads."""


def fetch(
    comm: MPI.Comm,
    t: ArrayType,
    tile: Any,
    rounds: int,
    positions: Callable[[int, int], Any],
    out: Any,
    round_elems: int,
) -> int:
    """**Collective over** ``comm``. Fill ``out``, one dim, from any elements of an array."""
    places = places_of(t)
    serving = places.nearest(comm.rank)
    tile, out = t.dtype.raw(tile), t.dtype.raw(out)
    flat = empty_on_device((0,), out.dtype) if tile is None else tile.reshape(-1)
    received = 0
    for k in range(rounds):
        lo, hi = (min(len(out), i * round_elems) for i in (k, k + 1))
        part, asked = out[lo:hi], positions(lo, hi)
        if comm.size == 1:
            flat.take(asked, out=part)
            continue
        shard, place = find(places, asked)
        post = Post.of(comm, to_device(serving)[shard])
        values = empty_on_device((hi - lo,), out.dtype)
        wanted, _ = post.send(place)
        received += post.send_back(flat.take(wanted), values)
        part[post.order] = values
    return received


def store(
    comm: MPI.Comm,
    t: ArrayType,
    tile: Any,
    rounds: int,
    n: int,
    positions: Callable[[int, int], Any],
    values: Callable[[int, int], Any],
    round_elems: int,
) -> int:
    """**Collective over** ``comm``. Write ``n`` elements of this rank to any place of an array.

    Every copy of a tile is written, in the same order: by rounds, and in a round by senders.
    """
    places, received = places_of(t), 0
    tile = t.dtype.raw(tile)
    flat: Any = None if tile is None else tile.reshape(-1)
    for k in range(rounds):
        lo, hi = (min(n, i * round_elems) for i in (k, k + 1))
        at, given = positions(lo, hi), t.dtype.raw(values(lo, hi))
        if comm.size == 1:
            put_last(flat, at, given)
            continue
        shard, place = find(places, at)
        for copy in range(places.copies):
            post = Post.of(comm, to_device(np.ascontiguousarray(places.holders[:, copy]))[shard])
            there, _ = post.send(place)
            got, n_bytes = post.send(given)
            received += n_bytes
            if flat is not None:
                put_last(flat, there, got)
    if flat is not None and not tile.flags.c_contiguous:
        tile[...] = flat.reshape(tile.shape)
    return received


def find(places: Places, positions: Any) -> tuple[Any, Any]:
    """**Local.** The shard of each element, and its place in the shard's tile, row by row."""
    if places.cut_dim is not None:
        behind = int(np.prod(places.shape[places.cut_dim + 1 :], dtype=np.int64))
        along = positions if behind == 1 else positions // max(1, behind)
        shard = places.cuts[places.cut_dim].tile_of(along)
        return shard, positions - to_device(places.edges[places.cut_dim] * behind)[shard]
    shard = place = to_device(np.zeros(1, np.int64))
    step = int(np.prod(places.shape, dtype=np.int64))
    for size, cut, edges in zip(places.shape, places.cuts, places.edges, strict=True):
        step //= max(1, size)
        index = positions // max(1, step) % max(1, size)
        tile = cut.tile_of(index)
        shard = shard * cut.n_tiles + tile
        place = place * to_device(np.diff(edges))[tile] + (index - to_device(edges)[tile])
    return np.broadcast_to(shard, positions.shape), np.broadcast_to(place, positions.shape)


class Post:
    """Elements of a rank in the order of the ranks that they go to, and how many of each."""

    def __init__(self, comm: MPI.Comm, order: Any, told: Ints) -> None:
        self.comm, self.order = comm, order
        sent, come = np.ascontiguousarray(told[comm.rank]), np.ascontiguousarray(told[:, comm.rank])
        self.sent, self.come = ((n, np.cumsum(n) - n) for n in (sent, come))

    @staticmethod
    def of(comm: MPI.Comm, owner: Any) -> Post:
        """**Collective.** What goes to these ranks, of which all others are told how much."""
        short = np.uint8 if comm.size <= 2**8 else np.uint16 if comm.size <= 2**16 else np.int64
        order = owner.astype(short).argsort()  # by radix: stable, and in one pass
        ends = np.searchsorted(owner[order], to_device(np.arange(comm.size + 1)))
        return Post(comm, order, tell_all(comm, np.diff(to_host(ends)).astype(np.int64)))

    def send(self, values: Any) -> tuple[Any, int]:
        """**Collective.** What comes of the values of all ranks, by rank, and the bytes from others."""
        out = empty_on_device((int(self.come[0].sum()),), values.dtype)
        return out, exchange(self.comm, values[self.order], self.sent, out, self.come)

    def send_back(self, values: Any, out: Any) -> int:
        """**Collective.** Answer what came; ``out`` has the answers in the order in which was asked."""
        return exchange(self.comm, values, self.come, out, self.sent)


# Write values to places: of several for one place the last one stays, as in memory.
#
# Which thread writes last is chance. So the number of the last value of each place is found first, by a
# maximum, and then only that value is written::
#
#     at      3 1 3        last of place 1: 1, of place 3: 2        values 0 is dropped


SOURCE = """
typedef long long i64;
#ifndef ON_HOST
#define EACH_THREAD for (int tid = (int)threadIdx.x, once = 1; once; once = 0)
#define N_THREADS ((int)blockDim.x)
#endif
struct alignas(WIDTH < 16 ? WIDTH : 16) Item { unsigned char at[WIDTH]; };
extern "C" __global__ void mark(i64 n, const i64 *at, int *last)
{
    EACH_THREAD
    {
        for (i64 i = (i64)blockIdx.x * N_THREADS + tid; i < n; i += (i64)gridDim.x * N_THREADS)
            atomicMax(&last[at[i]], (int)i);
    }
}
extern "C" __global__ void put(i64 n, const i64 *at, const int *last, const Item *values, Item *out)
{
    EACH_THREAD
    {
        for (i64 i = (i64)blockIdx.x * N_THREADS + tid; i < n; i += (i64)gridDim.x * N_THREADS)
            if (last[at[i]] == (int)i)
                out[at[i]] = values[i];
    }
}
"""
MARK_BYTES = 4
"""Of each element of a tile that is written to."""


def put_last(flat: Any, at: Any, values: Any) -> None:
    """**Local.** Write fewer than 2**31 values to places of a tile, of those for one place the last one."""
    n = len(at)
    if not n:
        return
    last = empty_on_device(flat.shape, np.dtype(np.int32))
    last.fill(-1)
    at, values = _whole(at), _whole(values)
    blocks = min(-(-n // N_THREADS), BLOCKS_EACH * n_processors())
    options = (f"-DWIDTH={flat.dtype.itemsize}",)
    run_loop(SOURCE, "mark", blocks, N_THREADS, n, at, last, options=options)
    run_loop(SOURCE, "put", blocks, N_THREADS, n, at, last, values, flat, options=options)


def _whole(array: Any) -> Any:
    return array if array.flags.c_contiguous else array.copy()
