"""Dask arrays as global arrays: every block is computed once, by one rank; and back, tiles as blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from redist.errors import ConversionError, ReadError
from redist.layout.mesh import Mesh
from redist.layout.tiles import is_first_copy, tile_index
from redist.pgas.creation import Type
from redist.pgas.files.shares import Wanted
from redist.pgas.foreign.blocks import BlockGrid, take_blocks
from redist.pgas.global_array import Array
from redist.pgas.tiles.move import as_plain, resolve_pending
from redist.runtime.ranks.agreement import all_agree
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm, comm_or_world

SHARES = False


def as_global(
    x: Any, *, type: Type | None, mesh: Mesh | None, comm: Comm | None, limit_bytes: Any
) -> Array:
    """**Collective.** What ``pgas.asarray`` makes of a Dask array, which is the same on all ranks.

    Blocks of one rank that the limit lets it hold together are computed together, so that what they need
    in common is computed once. The scheduler is that which Dask would use on this rank.
    """
    import dask

    def find() -> BlockGrid:
        if any(math.isnan(n) for sizes in x.chunks for n in sizes):
            raise ReadError(
                f"cannot take a Dask array of shape {x.shape}: it does not know how long its chunks are; "
                "x.compute_chunk_sizes() finds out"
            )
        sizes = tuple(tuple(map(int, along)) for along in x.chunks)
        return BlockGrid(sizes, np.dtype(x.dtype).newbyteorder("="))

    def take(indices: Any) -> Any:
        return dask.compute(*(x.blocks[index] if index else x for index in indices))

    wanted = Wanted(comm_or_world(comm), type, mesh, None)
    return take_blocks("a Dask array", find, take, wanted, limit_bytes)


def to_dask(a: Array) -> Any:
    """**Collective.** Make a Dask array, the same on all ranks, whose blocks are the tiles of a global array.

    ``x = pgas.to_dask(a)`` works where every rank is a worker of a Dask cluster or has a ``Client`` of it.
    Each rank gives its tile to Dask, which keeps it in the memory of this worker or of another one. A pending
    reduction is completed first. To get other blocks, call ``a.to(type)`` first.
    """
    a = as_plain(resolve_pending(a.to_device("cpu")))
    client, error = None, None
    try:
        from distributed import get_client

        client = get_client()
    except (ImportError, ValueError) as problem:
        error = ConversionError(
            f"cannot give {a.type} to Dask: {problem}; call it on workers, or make a "
            "distributed.Client(address) on every rank first"
        )
    all_agree(a.comm, f"cannot give {a.type} to Dask", str(a.type), error, TIMEOUT_S)
    return _given(a, client)


def _given(a: Array, client: Any) -> Any:
    """**Collective.** Give own tiles to Dask, and make an array of those of all ranks."""
    import dask.array
    from distributed import Future

    own: dict[Any, Any] = {}
    if a.tile is not None and is_first_copy(a.type, a.comm.rank):
        tile = np.array(a.tile)  # Dask takes for granted that nobody writes to it
        own[tile_index(a.type, a.comm.rank)] = client.scatter(tile, hash=False)
    told = gather(a.comm, {index: one.key for index, one in own.items()}, TIMEOUT_S)
    keys = {index: key for one in told for index, key in one.items()}
    held = {index: own.get(index) or Future(key, client) for index, key in keys.items()}
    gather(a.comm, None, TIMEOUT_S)  # all hold what is theirs before anybody lets go
    sizes = tuple(tuple(np.diff(a.type.cut(dim).edges()).tolist()) for dim in range(a.ndim))
    name = f"redist-{keys[(0,) * a.ndim]}"
    graph = {(name, *index): future for index, future in held.items()}
    return dask.array.Array(graph, name, sizes, dtype=a.dtype, shape=a.shape)
