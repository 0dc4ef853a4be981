"""MeanShift on global arrays: the bandwidth, bins of rows to start from, and seeds that climb over ranks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import sklearn.cluster
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import DistanceMetric, pairwise_distances_argmin
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from redist.learn.borrowed import fit_context
from redist.learn.given import take_rows
from redist.learn.kernels.cuda.near import all_squares, can_stay, nearest_of, sums_near
from redist.learn.near.searching import Slabs, parts_of
from redist.learn.over_ranks import OverRanks
from redist.learn.working import working
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for
from redist.spmd import (
    ExactGrid,
    Passing,
    Rows,
    Visits,
    all_parts,
    all_rows,
    is_global,
    largest,
    own_range,
    total_of,
    whole_of,
)
from redist.text.progress import stage

Values = NDArray[Any]
PART_BYTES = 2**25
"""Places of all ranks, and their sums, that a rank holds at a time."""
BLOCK_BYTES, GPU_BLOCK_BYTES = 2**24, 2**28
"""Distances that a rank holds at a time."""


class MeanShift(OverRanks, sklearn.cluster.MeanShift):  # type: ignore[misc]
    """Clusters around peaks of density, over all ranks: ``sklearn.cluster.MeanShift`` for global arrays.

    In an SPMD program::

        model = MeanShift(bandwidth=2.0, bin_seeding=True).fit(x)     # x: a global array
        model.labels_                                                 # global, cut as x

    Each rank holds a slab of space and everything within the bandwidth of it. In each round every seed is
    passed to the rank whose slab it is in, and comes back with its new mean. Means are exact sums, rounded
    once: they have the same bits for every number of ranks, and agree with scikit-learn's up to rounding.
    Rows on GPUs stay there: the seeds are passed round, and each rank adds up its own rows.
    """

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, progress: bool | None = None) -> MeanShift:
        """**Collective over** the communicator of ``X``. Let seeds climb to where rows are dense."""
        rows = take_rows(self, X, on_gpu=can_stay(X), dtype="numeric", order=None)
        rows.need("fit MeanShift to", 32 * rows.d + 64)
        plain = _plain(rows)
        bandwidth = self.bandwidth
        if bandwidth is None:
            stage("bandwidth")
            bandwidth = np.float64(bandwidth_of(plain))
        seeds = self._own_seeds(plain, bandwidth)
        means, counts, rounds = climb(plain, seeds, bandwidth, self.max_iter)
        self.n_iter_ = int(all_rows(rows.comm, rounds.max(initial=0)).max())
        centers = _peaks(plain, means[counts > 0], counts[counts > 0])
        if not len(centers):
            raise ValueError(
                f"No point was within bandwidth={bandwidth:f} of any seed. Try a different seeding"
                " strategy                              or increase the bandwidth."
            )
        self.cluster_centers_ = _thin(centers, bandwidth)
        far, found = _nearest(plain, self.cluster_centers_)
        if not self.cluster_all:
            found = functions_for(found).where(far <= bandwidth, found, -1)
        self.labels_ = rows.answer(found)
        return self

    def _own_seeds(self, rows: Rows, bandwidth: Any) -> Values:
        """**Collective.** This rank's share of the seeds."""
        seeds = self.seeds
        if seeds is None and self.bin_seeding:
            seeds = bins_of(rows, bandwidth, self.min_bin_freq)
        if seeds is None:
            return np.asarray(to_host(rows.local))
        every = np.asarray(whole_of(seeds), dtype=np.float64)
        lo, hi = own_range(rows.comm, len(every))
        return every[lo:hi]

    def predict(self, X: Any) -> Any:
        """**Collective.** The nearest centre of every row; global, cut as ``X``, if ``X`` is."""
        check_is_fitted(self)
        rows = take_rows(self, X, reset=False, on_gpu=can_stay(X), dtype="numeric", order=None)
        if rows.on_gpu:
            return rows.answer(_nearest(_plain(rows), self.cluster_centers_)[1])
        if not len(rows.local):
            return rows.answer(np.empty(0, np.int64))
        return rows.answer(pairwise_distances_argmin(rows.local, self.cluster_centers_))


def mean_shift(
    X: Any, *, bandwidth: float | None = None, seeds: Any = None, bin_seeding: bool = False,
    min_bin_freq: int = 1, cluster_all: bool = True, max_iter: int = 300, n_jobs: int | None = None,
) -> tuple[Values, Any]:  # fmt: skip
    """**Collective.** Centres and labels, as in :class:`MeanShift`."""
    model = MeanShift(
        bandwidth=bandwidth, seeds=seeds, bin_seeding=bin_seeding, min_bin_freq=min_bin_freq,
        cluster_all=cluster_all, max_iter=max_iter, n_jobs=n_jobs,
    ).fit(X)  # fmt: skip
    return model.cluster_centers_, model.labels_


def _plain(rows: Rows) -> Rows:
    """**Local.** The rows in double precision."""
    return rows.holding(functions_for(rows.local).ascontiguousarray(rows.local, dtype=np.float64))


def _nearest(rows: Rows, centers: Values) -> tuple[Values, Values]:
    """**Local.** How far the nearest centre of every row is, and which; where the rows lie."""
    if rows.on_gpu:
        found, squares = nearest_of(rows.local, rows.beside(centers))
        return functions_for(squares).sqrt(squares), found
    if not len(rows.local):
        return np.empty(0), np.empty(0, np.int64)
    search = NearestNeighbors(n_neighbors=1).fit(centers)
    far, found = (one[:, 0] for one in search.kneighbors(rows.local))
    return far, found


def climb(
    rows: Rows, seeds: Values, bandwidth: float, most: int
) -> tuple[Values, NDArray[np.int64], NDArray[np.int64]]:
    """**Collective.** Where seeds end up, how many rows are near there, and after how many rounds.

    A seed moves to the mean of the rows within the bandwidth, again and again, until it hardly moves.
    """
    around = MeansOnGpu(rows, bandwidth) if rows.on_gpu else SlabMeans(rows, bandwidth)
    means = np.array(seeds, dtype=np.float64)
    counts, rounds = np.zeros(len(means), np.int64), np.zeros(len(means), np.int64)
    moving = np.arange(len(means))
    while left := int(all_rows(rows.comm, np.int64(len(moving))).sum()):
        stage(f"round {int(rounds.max(initial=0)) + 1}, {left} seeds still move")
        found, near = around.means(means[moving])
        counts[moving] = near
        old = means[moving]
        some = near > 0
        means[moving[some]] = found[some]
        apart = np.linalg.norm(means[moving] - old, axis=1)
        goes_on = some & (apart > 1e-3 * bandwidth) & (rounds[moving] != most)
        moving = moving[goes_on]
        rounds[moving] += 1
    return means, counts, rounds


class SlabMeans:
    """Means of the rows within a radius of any point, found by the rank in whose slab the point lies."""

    def __init__(self, rows: Rows, radius: float) -> None:
        self._slabs = slabs = Slabs.of(rows)
        which, ranks = slabs.met(slabs.rows, np.full(len(slabs.rows), radius))
        halo = Passing.of(rows.comm, which, ranks)
        self._items = np.concatenate([slabs.rows, halo.there(slabs.rows)])
        self._search = (
            NearestNeighbors(radius=radius).fit(self._items) if len(self._items) else None
        )
        self._parts = ExactGrid.for_sum(largest(rows.comm, rows.local), rows.n).split(self._items)

    def means(self, points: Values) -> tuple[Values, NDArray[np.int64]]:
        """**Collective.** The mean around each point, and the number of rows in it."""
        ranks = np.searchsorted(self._slabs.edges, points[:, self._slabs.column], side="right")
        passing = Passing.of(self._slabs.came.comm, np.arange(len(points)), ranks)
        answers = passing.back(self._answers(passing.there(points)))
        told = np.empty((len(points), answers.shape[1]))
        told[passing.rows] = answers
        near = told[:, -1].astype(np.int64)
        return told[:, :-1] / np.maximum(near, 1)[:, None], near

    def _answers(self, points: Values) -> Values:
        """**Local.** The sum of the rows around each point, and their number."""
        out = np.zeros((len(points), self._items.shape[1] + 1))
        if self._search is None:
            return out
        for part in parts_of(self._search, len(points)):
            lo = part.start
            found = self._search.radius_neighbors(points[part], return_distance=False)
            n = np.array([len(one) for one in found])
            some = np.flatnonzero(n)
            if len(some):
                indices = np.concatenate([found[i] for i in some]).astype(np.int64)
                begins = np.cumsum(n[some]) - n[some]
                sums = [np.add.reduceat(part[indices], begins, axis=0) for part in self._parts]
                out[lo + some, :-1] = sums[0] + sums[1]
            out[lo : lo + len(n), -1] = n
        return out


def _peaks(rows: Rows, means: Values, counts: NDArray[np.int64]) -> Values:
    """**Collective.** Where seeds ended, each place once, the densest first, as scikit-learn sorts them."""
    own = np.unique(np.column_stack([counts, means]), axis=0)
    every, _ = all_parts(rows.comm, own)
    ordered = np.unique(every, axis=0)[::-1]
    return np.ascontiguousarray(ordered[:, 1:])


def _thin(centers: Values, bandwidth: float) -> Values:
    """**Local.** Leave out what is within the bandwidth of a denser peak."""
    search = NearestNeighbors(radius=bandwidth).fit(centers)
    kept = np.ones(len(centers), bool)
    for i, center in enumerate(centers):
        if kept[i]:
            kept[search.radius_neighbors([center], return_distance=False)[0]] = False
            kept[i] = True
    return centers[kept]


class MeansOnGpu:
    """Means of the rows within a radius of any point; each rank adds up its own rows.

    Rows are doubles. Sums are exact, so they have the same bits for every number of ranks.
    """

    def __init__(self, rows: Rows, radius: float) -> None:
        self._rows, self._limit = rows, float(radius) * float(radius)
        self._grid = ExactGrid.for_sum(largest(rows.comm, rows.local), rows.n)

    def means(self, points: Values) -> tuple[Values, NDArray[np.int64]]:
        """**Collective.** The mean and number of rows around each point; points may differ by rank."""
        comm, d = self._rows.comm, self._rows.d
        most = int(all_rows(comm, np.int64(len(points))).max())
        size = max(1, PART_BYTES // (8 * (3 * d + 1) * comm.size))
        sums = np.zeros((len(points), 2 * d + 1))
        for lo in range(0, most, size):
            every, begins = all_parts(comm, points[lo : lo + size])
            found = sums_near(to_device(every), self._rows.local, self._limit, self._grid)
            own = slice(int(begins[comm.rank]), int(begins[comm.rank + 1]))
            sums[lo : lo + size] = total_of(comm, found)[own]
        near = sums[:, -1].astype(np.int64)
        return (sums[:, :d] + sums[:, d:-1]) / np.maximum(near, 1)[:, None], near


@working
def estimate_bandwidth(
    X: Any,
    *,
    quantile: float = 0.3,
    n_samples: int | None = None,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> float:
    """**Collective.** The mean distance of rows to the farthest of their nearest ``quantile`` of all rows."""
    rows = take_plain(X)
    if n_samples is not None:
        chosen = check_random_state(random_state).permutation(rows.n)[:n_samples]
        sample = rows.fetch(chosen)
        lo, hi = own_range(rows.comm, len(sample))
        rows = Rows(rows.beside(sample[lo:hi]), lo, len(sample), rows.comm, None)
    return bandwidth_of(rows, quantile)


def bandwidth_of(rows: Rows, quantile: float = 0.3) -> float:
    """**Collective.** The bandwidth as :func:`estimate_bandwidth` finds it, for rows already taken."""
    far = kth_distances(rows, max(1, int(rows.n * quantile)))
    grid = ExactGrid.for_sum(largest(rows.comm, far), rows.n)
    return float(total_of(rows.comm, grid.sum_rows(far)).sum()) / rows.n


def take_plain(x: Any) -> Rows:
    """**Collective.** Rows that belong to no estimator, as double-precision floats."""
    checked = x if is_global(x) else check_array(x)
    return take_rows(BaseEstimator(), checked, on_gpu=can_stay(x), dtype=np.float64)


def kth_distances(rows: Rows, k: int) -> Values:
    """**Collective.** The distance from each own row to the ``k``-th nearest of all rows, itself the first.

    Blocks of rows are compared with every tile, so ``k`` may be a large part of all rows.
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
    """**Collective.** The centres of bins that hold enough rows, as a NumPy array, the same on every rank.

    They are in the order of the bins' first rows. If every row has a bin of its own, ``X`` itself is
    returned.
    """
    seeds = bins_of(take_plain(X), bin_size, min_bin_freq)
    return X if seeds is None else seeds


def bins_of(rows: Rows, bin_size: float, least: int) -> Values | None:
    """**Collective.** The centres of bins with at least ``least`` rows; None where rows are seeds."""
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
