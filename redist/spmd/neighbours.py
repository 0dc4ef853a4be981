"""Ranks of one node that read each other's tiles in place, and C loops that synchronise at every step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import RequestError
from redist.runtime.ranks import neighbours
from redist.runtime.ranks.neighbours import NodeLoops
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, world_of
from redist.runtime.shm.segments import find, shared_empty
from redist.spmd.totals import all_parts, all_rows

Values = NDArray[Any]


def include() -> str:
    """**Local.** The folder that holds ``redist_spmd.h``, the header for loops run by :func:`node_loops`.

    >>> Path(include(), "redist_spmd.h").is_file()
    True
    """
    return str(Path(__file__).parent)


def share(values: Values) -> Values:
    """**Local.** Values where neighbours can read them: the same array if they can, else a copy."""
    if values.flags.c_contiguous and (not values.size or find(values) is not None):
        return values
    out = shared_empty(values.shape, values.dtype)
    np.copyto(out, values)
    return out


@contextmanager
def neighbour_tiles(comm: Comm, tile: Values) -> Iterator[dict[int, Values]]:
    """**Collective over** ``comm``. The tiles passed by the ranks of this node, while a block runs.

    >>> from mpi4py import MPI
    >>> with neighbour_tiles(MPI.COMM_SELF, np.arange(3)) as tiles:
    ...     tiles[0].tolist()
    [0, 1, 2]

    Nothing is copied between ranks: each reads the others' tiles where they lie, and at the end of the block
    every rank waits until all have finished reading. Tiles may differ in shape but not in dtype. Only read
    them, and do not move data inside the block. Empty tiles and tiles of ranks on other nodes are left out.
    """
    said = np.frombuffer(tile.dtype.str.encode(), np.uint8)
    every, ends = all_parts(comm, said)
    kinds = [every[lo:hi].tobytes().decode() for lo, hi in pairwise(ends)]
    if len(set(kinds)) > 1:
        other = next(rank for rank, kind in enumerate(kinds) if kind != kinds[0])
        raise RequestError(
            f"cannot read the neighbours' tiles: rank 0 has {np.dtype(kinds[0])}, rank {other} has "
            f"{np.dtype(kinds[other])}; give tiles of one dtype"
        )
    what = "read the neighbours' tiles"
    world = world_of(comm)
    with neighbours.neighbour_tiles(world, share(tile), tile.dtype, what, TIMEOUT_S) as near:
        yield near.tiles


@contextmanager
def node_loops(
    comm: Comm, shape: tuple[int, ...], dtype: Any = np.float64, what: str = "run a loop"
) -> Iterator[NodeLoops | None]:
    """**Collective over** ``comm``. A runner for C loops in which ranks synchronise, while a block runs.

    In an SPMD program, with a C library that includes ``redist_spmd.h`` (see :func:`include`)::

        with node_loops(comm, (2, width)) as loops:
            if loops is None:
                ...                                      # by all_rows, a step at a time
            else:
                loops.run(lambda ranks: library.my_loop(n_steps, ranks))

    ``loops.tile`` is the tile that this rank lets the others read: a new array of zeros. ``loops`` is None
    on all ranks if they are on several nodes or if redist's kernels were not built. Errors name ``what``.
    """
    every = all_rows(comm, np.array([math.prod(shape), np.dtype(dtype).itemsize]))
    if (every != every[0]).any() or not every[0, 0]:
        each = ", ".join(f"rank {rank} {n} of {size} bytes" for rank, (n, size) in enumerate(every))
        raise RequestError(
            f"cannot {what}: tiles must have as many elements on all ranks, at least one, not {each}; "
            "give the same shape and dtype on all"
        )
    tile = shared_empty(shape, np.dtype(dtype))
    tile[...] = 0
    with neighbours.node_loops(world_of(comm), tile, what, TIMEOUT_S) as loops:
        yield loops
