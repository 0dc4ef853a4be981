"""Dense clusters of rows on GPUs: every rank compares its rows with the tiles of all, and joins what is near.

A rank holds, for all rows, whether they are core rows, the part and the cluster of each: 9 bytes a row, and a
few more for a moment; with weights 16 more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.kernels.cuda.near import flatten, join_near, join_told, least_near, weigh_near
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for
from redist.spmd import ExactGrid, Rows, Totals, Visits, largest, total_of

Values = NDArray[Any]
NO_CLUSTER = int(np.iinfo(np.int32).max)


def find_dense_on_gpu(
    rows: Rows, weights: Values | None, eps: float, min_samples: int
) -> tuple[Values, Values]:
    """**Collective.** The cluster of each own row, and whether it is a core row; both on the GPU.

    Distances are Euclidean, and compared as scikit-learn's trees do. Clusters are numbered in the order
    of their first core rows; a row at the border of several belongs to the first.
    """
    xp, visits, limit = functions_for(rows.local), Visits(rows), float(eps) * float(eps)
    is_core = _weights_near(rows, visits, weights, limit) >= min_samples
    core = _CoreRows(rows, is_core)
    parent = xp.arange(rows.n, dtype=np.int32)
    mine, numbers = core.of(rows.first, rows.local)
    for first, tile in visits:
        is_own = first == rows.first and len(tile) == len(rows.local)
        theirs = (mine, numbers) if is_own else core.of(first, tile)
        join_near(mine, numbers, *theirs, limit, parent)
    _agree(rows, parent)
    starts = core.every & (parent == xp.arange(rows.n, dtype=np.int32))
    clusters = (xp.cumsum(starts, dtype=np.int64) - 1).astype(np.int32)[parent]
    labels = xp.full(len(rows.local), NO_CLUSTER, np.int32)
    labels[numbers - rows.first] = clusters[numbers]
    outer = xp.flatnonzero(~is_core)
    points, found = rows.local[outer], labels[outer]
    for first, tile in visits:
        theirs = core.of(first, tile)
        least_near(points, theirs[0], clusters[theirs[1]], limit, found)
    labels[outer] = found
    return xp.where(labels == NO_CLUSTER, -1, labels).astype(np.int64), is_core


class _CoreRows:
    """The core rows of all ranks, by their tiles."""

    def __init__(self, rows: Rows, is_core: Any) -> None:
        self.every = to_device(rows.gather(is_core))

    def of(self, first: int, tile: Any) -> tuple[Any, Any]:
        """**Local.** Those of a tile, and their numbers in the whole."""
        xp = functions_for(tile)
        here = xp.flatnonzero(self.every[first : first + len(tile)])
        return xp.ascontiguousarray(tile[here]), (here + first).astype(np.int32)


def _weights_near(rows: Rows, visits: Visits, weights: Values | None, limit: float) -> Any:
    """**Collective.** How much is near each own row, itself included: an exact sum, rounded once."""
    xp, parts = functions_for(rows.local), None
    if weights is not None:
        grid = ExactGrid.for_sum(largest(rows.comm, weights), rows.n)
        parts = xp.stack(grid.split(to_device(rows.gather(weights))))
    sums = xp.zeros((2, len(rows.local)))
    for first, tile in visits:
        theirs = None
        if parts is not None:
            theirs = xp.ascontiguousarray(parts[:, first : first + len(tile)])
        weigh_near(rows.local, tile, limit, theirs, sums)
    return sums[0] + sums[1]


def _agree(rows: Rows, parent: Any) -> None:
    """**Collective.** Let all ranks know of the same parts: each joins with what others found lowest.

    In a round every part meets those that share a row with it on any rank, until all ranks say the same.
    """
    flatten(rows.local, parent)
    if rows.comm.size == 1:
        return
    lowest = Totals(rows.comm, rows.n, "min", np.int32)
    while True:
        own = to_host(parent)
        told = lowest(own)
        if not total_of(rows.comm, np.array([(told != own).any()], np.int64))[0]:
            return
        join_told(rows.local, parent, to_device(told))
        flatten(rows.local, parent)
