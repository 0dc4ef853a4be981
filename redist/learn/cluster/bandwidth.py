"""What mean shift starts from: how wide to look, and bins of rows to start in."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import DistanceMetric
from sklearn.utils import check_array, check_random_state

from redist.learn.kernels.exact_sums import ExactGrid
from redist.learn.ranks.draws import largest
from redist.learn.ranks.passing import all_parts
from redist.learn.ranks.rows import Rows, is_global, own_range, take_rows
from redist.learn.ranks.totals import all_rows, total_of
from redist.learn.ranks.visits import Visits

Values = NDArray[Any]
BLOCK_BYTES = 2**24
"""Distances that a rank holds at a time."""


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
        rows = Rows(sample[lo:hi], lo, len(sample), rows.comm, None)
    return bandwidth_of(rows, quantile)


def bandwidth_of(rows: Rows, quantile: float = 0.3) -> float:
    """**Collective.** The same for rows that are known."""
    far = kth_distances(rows, max(1, int(rows.n * quantile)))
    grid = ExactGrid.for_sum(largest(rows, far), rows.n)
    return float(total_of(rows.comm, grid.sum_rows(far)).sum()) / rows.n


def take_plain(x: Any) -> Rows:
    """**Collective.** Rows of what belongs to no estimator, as floats of double precision."""
    checked = x if is_global(x) else check_array(x)
    return take_rows(BaseEstimator(), checked, dtype=np.float64)


def kth_distances(rows: Rows, k: int) -> Values:
    """**Collective.** How far each own row is from the ``k``-th nearest of all rows, itself the first.

    Blocks of rows are compared with every tile, so that ``k`` may be a large part of all rows.
    """
    visits, metric = Visits(rows), DistanceMetric.get_metric("euclidean")
    size = max(1, BLOCK_BYTES // (8 * rows.n))
    blocks = int(all_rows(rows.comm, np.int64(-(-len(rows.local) // size))).max())
    out = np.empty(len(rows.local))
    for block in range(blocks):
        own = slice(block * size, (block + 1) * size)
        part = np.ascontiguousarray(rows.local[own])
        far = np.empty((len(part), rows.n))
        for first, tile in visits:
            if len(part) and len(tile):
                far[:, first : first + len(tile)] = metric.pairwise(part, np.asarray(tile))
        if len(part):
            out[own] = np.partition(far, k - 1, axis=1)[:, k - 1]
    return out


def get_bin_seeds(X: Any, bin_size: float, min_bin_freq: int = 1) -> Any:
    """**Collective.** The middles of bins that hold enough rows, NumPy and the same on every rank.

    In the order of their first rows. ``X`` itself where every row has a bin of its own.
    """
    seeds = bins_of(take_plain(X), bin_size, min_bin_freq)
    return X if seeds is None else seeds


def bins_of(rows: Rows, bin_size: float, least: int) -> Values | None:
    """**Collective.** The middles of bins with at least so many rows; None if bins would be rows."""
    if bin_size == 0:
        return None
    bins = np.round(rows.local / bin_size) + 0.0  # no minus zero
    found, first, counts = np.unique(bins, axis=0, return_index=True, return_counts=True)
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
