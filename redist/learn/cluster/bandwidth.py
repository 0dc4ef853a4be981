"""What mean shift starts from: how wide to look, and bins of rows to start in."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import DistanceMetric
from sklearn.utils import check_array, check_random_state

from redist.learn.given import take_rows
from redist.learn.kernels.cuda.near import MOST_DIMS, all_squares
from redist.learn.working import working
from redist.runtime.cuda.arrays import to_host
from redist.runtime.cuda.loops import functions_for
from redist.spmd import (
    ExactGrid,
    Rows,
    Visits,
    all_parts,
    all_rows,
    is_global,
    largest,
    lies_on_gpu,
    own_range,
    total_of,
)

Values = NDArray[Any]
BLOCK_BYTES, GPU_BLOCK_BYTES = 2**24, 2**28
"""Distances that a rank holds at a time."""


@working
def estimate_bandwidth(
    X: Any,
    *,
    quantile: float = 0.3,
    n_samples: int | None = None,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> float:
    """**Collective.** The mean distance to the farthest of the nearest ``quantile`` of all rows."""
    rows = take_plain(X)
    if n_samples is not None:
        chosen = check_random_state(random_state).permutation(rows.n)[:n_samples]
        sample = rows.fetch(chosen)
        lo, hi = own_range(rows.comm, len(sample))
        rows = Rows(rows.beside(sample[lo:hi]), lo, len(sample), rows.comm, None)
    return bandwidth_of(rows, quantile)


def bandwidth_of(rows: Rows, quantile: float = 0.3) -> float:
    """**Collective.** The same for rows that are known."""
    far = kth_distances(rows, max(1, int(rows.n * quantile)))
    grid = ExactGrid.for_sum(largest(rows.comm, far), rows.n)
    return float(total_of(rows.comm, grid.sum_rows(far)).sum()) / rows.n


def take_plain(x: Any) -> Rows:
    """**Collective.** Rows of what belongs to no estimator, as floats of double precision."""
    checked = x if is_global(x) else check_array(x)
    return take_rows(BaseEstimator(), checked, on_gpu=can_stay(x), dtype=np.float64)


def can_stay(x: Any) -> bool:
    """**Local.** Whether something is rows on GPUs for which there are loops."""
    return bool(lies_on_gpu(x) and x.shape[-1] <= MOST_DIMS)


def kth_distances(rows: Rows, k: int) -> Values:
    """**Collective.** How far each own row is from the ``k``-th nearest of all rows, itself the first.

    Blocks of rows are compared with every tile, so that ``k`` may be a large part of all rows.
    """
    visits, metric = Visits(rows), DistanceMetric.get_metric("euclidean")
    xp = functions_for(rows.local)
    size = max(1, (GPU_BLOCK_BYTES if rows.on_gpu else BLOCK_BYTES) // (8 * rows.n))
    blocks = int(all_rows(rows.comm, np.int64(-(-len(rows.local) // size))).max())
    out: Values = xp.empty(len(rows.local))
    for block in range(blocks):
        own = slice(block * size, (block + 1) * size)
        part = xp.ascontiguousarray(rows.local[own])
        far = xp.empty((rows.n, len(part)) if rows.on_gpu else (len(part), rows.n))
        for first, tile in visits:
            theirs = slice(first, first + len(tile))
            if rows.on_gpu:
                all_squares(part, tile, far[theirs])
            elif len(part) and len(tile):
                far[:, theirs] = metric.pairwise(part, np.asarray(tile))
        if len(part) and rows.on_gpu:
            out[own] = xp.sqrt(xp.partition(far, k - 1, axis=0)[k - 1])
        elif len(part):
            out[own] = np.partition(far, k - 1, axis=1)[:, k - 1]
    return out


def get_bin_seeds(X: Any, bin_size: float, min_bin_freq: int = 1) -> Any:
    """**Collective.** The middles of bins that hold enough rows, NumPy and the same on every rank.

    In the order of their first rows. ``X`` itself where every row has a bin of its own.
    """
    seeds = bins_of(take_plain(X), bin_size, min_bin_freq)
    return X if seeds is None else seeds


def bins_of(rows: Rows, bin_size: float, least: int) -> Values | None:
    """**Collective.** The middles of bins with at least this many rows; None if bins would be rows."""
    if bin_size == 0:
        return None
    found, first, counts = _own_bins(rows, bin_size)
    every, _ = all_parts(rows.comm, np.column_stack([found, first + rows.first, counts]))
    found, place = np.unique(every[:, : rows.d], axis=0, return_inverse=True)
    total, lowest = np.zeros(len(found)), np.full(len(found), np.inf)
    np.add.at(total, place.reshape(-1), every[:, -1])
    np.minimum.at(lowest, place.reshape(-1), every[:, -2])
    order = np.argsort(lowest)
    seeds = found[order][total[order] >= least].astype(np.float32)
    if len(seeds) == rows.n:
        warnings.warn(
            f"Binning data failed with provided bin_size={bin_size:f}, using data points as seeds.",
            stacklevel=3,
        )
        return None
    return seeds * bin_size


def _own_bins(rows: Rows, bin_size: float) -> tuple[Values, Values, Values]:
    """**Local.** The bins of the own rows in order, the first row of each, and how many it has; in memory."""
    xp = functions_for(rows.local)
    bins = xp.rint(rows.local / float(bin_size)) + 0.0  # no minus zero
    if not rows.on_gpu or not len(bins):
        found = np.unique(to_host(bins), axis=0, return_index=True, return_counts=True)
        return found[0], found[1], found[2]
    places = xp.arange(len(bins))
    order = xp.lexsort(xp.stack([places.astype(np.float64), *bins.T[::-1]]))
    bins = bins[order]
    starts = xp.ones(len(bins), bool)
    starts[1:] = (bins[1:] != bins[:-1]).any(axis=1)
    begins = to_host(xp.flatnonzero(starts))
    counts = np.diff(np.append(begins, len(bins)))
    return to_host(bins[starts]), to_host(order[starts]), counts
