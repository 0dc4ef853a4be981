"""Move chosen elements between tiles of GPUs, by index along every dim.

The blocks are those of :mod:`redist.runtime.elements.by_index`. What stays on a rank is copied from tile to
tile; of the rest each rank packs what others lack, parts are exchanged, and each takes apart what came.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.layout.dtype import DType
from redist.runtime.cuda.arrays import empty_on_device
from redist.runtime.cuda.exchange import exchange as exchange_parts
from redist.runtime.elements.block_copies import read, write
from redist.runtime.elements.by_index import Blocks, Side, find_plan
from redist.runtime.index_sets.held import cut
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import world_of

Tile = Any


def exchange(
    comm: MPI.Comm,
    source: Side,
    target: Side,
    from_tile: Tile | None,
    to_tile: Tile | None,
    dtype: DType,
    staging_bytes: int,
    timeout_s: float | None = TIMEOUT_S,
) -> int:
    """**Collective over** ``comm``. Fill the target's tiles; the bytes that this rank received.

    ``dtype`` is that of the tiles; a rank outside the meshes has none, but agrees on it with the others. What
    is packed and unpacked takes up to ``staging_bytes`` in each of as many rounds as are needed, the same on
    all ranks.
    """
    world = world_of(comm, timeout_s=timeout_s)
    plan, raw = find_plan(source, target, world.rank), dtype.to_numpy()
    from_tile, to_tile = dtype.raw(from_tile), dtype.raw(to_tile)  # CuPy does not know all dtypes
    if to_tile is not None and from_tile is not None:
        for block in plan.blocks(plan.got.get(world.rank)):
            write(to_tile, block, read(from_tile, block))
    if world.size == 1:
        return 0
    most = max(1, staging_bytes // (2 * world.size * raw.itemsize))
    given, got = (
        {rank: list(_portions(plan.blocks(pair), most)) for rank, pair in pairs.items() if rank != world.rank}
        for pairs in (plan.given, plan.got)
    )  # fmt: skip
    rounds = np.array(
        [max((len(one) for one in (*given.values(), *got.values())), default=0)], np.int64
    )
    with world.operation(timeout_s):
        world.all_max(rounds)
    received = 0
    for k in range(int(rounds[0])):
        outgoing = {rank: own[k] for rank, own in given.items() if k < len(own)}
        incoming = {rank: own[k] for rank, own in got.items() if k < len(own)}
        sent, come = _sizes(outgoing, world.size), _sizes(incoming, world.size)
        data = empty_on_device((int(sent.sum()),), raw)
        out = empty_on_device((int(come.sum()),), raw)
        for block, part in _parts(outgoing, data):
            assert from_tile is not None
            part[...] = read(from_tile, block)
        received += exchange_parts(
            comm,
            data,
            (sent, np.cumsum(sent) - sent),
            out,
            (come, np.cumsum(come) - come),
            timeout_s,
        )
        for block, part in _parts(incoming, out):
            assert to_tile is not None
            write(to_tile, block, part)
    return received


def _portions(blocks: Blocks, most: int) -> Iterator[Blocks]:
    """Blocks in portions of at most so many elements; sender and receiver find the same."""
    portion: Blocks = []
    n = 0
    for block in blocks:
        for part in cut(block, most):
            size = _elems(part)
            if portion and n + size > most:
                yield portion
                portion, n = [], 0
            portion.append(part)
            n += size
    if portion:
        yield portion


def _elems(block: Any) -> int:
    return math.prod(piece.n for piece in block)


def _sizes(portions: dict[int, Blocks], n_ranks: int) -> Any:
    """How many elements go to each rank, or come from it."""
    out = np.zeros(n_ranks, np.int64)
    for rank, blocks in portions.items():
        out[rank] = sum(map(_elems, blocks))
    return out


def _parts(portions: dict[int, Blocks], packed: Tile) -> Iterator[tuple[Any, Tile]]:
    """Each block with its place in what is packed, by rank."""
    at = 0
    for rank in sorted(portions):
        for block in portions[rank]:
            n = _elems(block)
            yield block, packed[at : at + n].reshape([piece.n for piece in block])
            at += n
