"""DBSCAN on global arrays: rows are searched by slabs of space, and parts of clusters are joined over ranks.

On GPUs every rank compares its rows with the tiles of all ranks, and joins rows that are near each other.
For all rows it holds whether they are core rows, and the part and the cluster of each: 9 bytes a row, and a
few more temporarily; with weights 16 more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import sklearn.cluster
from numpy.typing import NDArray
from scipy.sparse import issparse

from redist import pgas
from redist.learn.borrowed import fit_context
from redist.learn.given import FLOATS, take_rows, take_weights
from redist.learn.kernels.cuda.near import (
    can_stay,
    flatten,
    join_near,
    join_told,
    least_near,
    weigh_near,
)
from redist.learn.kernels.steps import join_lists
from redist.learn.near.near_lists import ListPart, NearLists, near_lists, number_parts
from redist.learn.near.searching import Search, is_euclidean
from redist.learn.over_ranks import ClustersWeightedRows
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for
from redist.spmd import (
    ExactGrid,
    Rows,
    Totals,
    Visits,
    largest,
    total_of,
)
from redist.text.progress import phase

Values = NDArray[Any]
Numbers = NDArray[np.int64]
KEPT_BYTES = 2**27
"""Lists of neighbours that are kept for the second use; beyond that all are searched for again."""
NO_CLUSTER = np.iinfo(np.int64).max
NO_CLUSTER_ON_GPU = int(np.iinfo(np.int32).max)


class DBSCAN(ClustersWeightedRows, sklearn.cluster.DBSCAN):  # type: ignore[misc]
    """Clusters of dense regions, over all ranks: ``sklearn.cluster.DBSCAN`` for global arrays.

    In an SPMD program::

        model = DBSCAN(eps=0.3, min_samples=10).fit(x)     # x: a global array
        model.labels_                                      # global, cut as x; -1 is noise
        model.core_sample_indices_                         # global; components_, their rows, too

    Labels are scikit-learn's: clusters are numbered by their first core rows, and a row at the border of
    several clusters belongs to the first of them. A rank searches a slab of space and everything within
    ``eps`` of it. For metrics that do not allow this, and where scikit-learn searches by brute force, it
    visits the tiles of all ranks. Rows on GPUs stay there if the metric is Euclidean: every rank compares
    its own rows with all tiles. Distance matrices (``precomputed``) and sparse matrices are passed to
    scikit-learn's own ``fit``, whole on every rank.
    """

    components_: Any
    core_sample_indices_: Any

    @fit_context(prefer_skip_nested_validation=False)
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, progress: bool | None = None
    ) -> DBSCAN:
        """**Collective over** the communicator of ``X``. Find the clusters of the rows of ``X``."""
        if issparse(X) or self.metric == "precomputed":
            return self._fit_whole(X, sample_weight=sample_weight)
        stays = can_stay(X) and is_euclidean(self.metric, self.p, self.metric_params)
        rows = take_rows(self, X, on_gpu=stays, dtype="numeric", order=None, accept_sparse="csr")
        rows.need("fit DBSCAN to", 24 * rows.d + 64)
        weights = None
        if sample_weight is not None:
            weights = take_weights(rows, sample_weight, dtype=np.float64)
        search = Search.of(
            rows.n, rows.d, radius=self.eps, algorithm=self.algorithm, leaf_size=self.leaf_size,
            metric=self.metric, metric_params=self.metric_params, p=self.p,
        )  # fmt: skip
        if rows.on_gpu:
            floats = rows.dtype in FLOATS
            local = rows.local if floats else rows.local.astype(np.float64)
            plain = rows.holding(local)
            labels, core = find_dense_on_gpu(plain, weights, self.eps, self.min_samples)
        else:
            labels, core = find_dense(rows, weights, self.eps, self.min_samples, search)
        self.labels_ = rows.answer(labels)
        if rows.given is None:
            self.core_sample_indices_ = np.flatnonzero(rows.gather(core))
            whole = rows.fetch(self.core_sample_indices_)
            self.components_ = whole if len(whole) else np.empty((0, rows.d))
            return self
        mask = rows.answer(core)
        self.core_sample_indices_ = pgas.nonzero(mask)[0]
        self.components_ = rows.given[mask]
        return self


def dbscan(
    X: Any, eps: float = 0.5, *, min_samples: int = 5, metric: Any = "minkowski",
    metric_params: Any = None, algorithm: str = "auto", leaf_size: int = 30, p: float | None = 2,
    sample_weight: Any = None, n_jobs: int | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """**Collective.** Core rows and labels, as in :class:`DBSCAN`."""
    model = DBSCAN(
        eps, min_samples=min_samples, metric=metric, metric_params=metric_params,
        algorithm=algorithm, leaf_size=leaf_size, p=p, n_jobs=n_jobs,
    ).fit(X, sample_weight=sample_weight)  # fmt: skip
    return model.core_sample_indices_, model.labels_


def find_dense(
    rows: Rows, weights: Values | None, eps: float, min_samples: int, search: Search
) -> tuple[Numbers, NDArray[np.bool_]]:
    """**Collective.** The cluster of each of this rank's rows, and whether it is a core row."""
    lists = near_lists(rows, eps, search, phase("neighbours", 1, 2))
    bound = 0.0 if weights is None else float(np.abs(weights).max(initial=0.0))
    bound = float(total_of(rows.comm, np.array([bound]), "max")[0])
    kept = _KeptLists(rows, lists)
    if weights is None:
        dense = np.zeros(lists.n_own, np.int64)
        for part in kept.first_time():
            dense[part.first : part.first + len(part.ends) - 1] += np.diff(part.ends)
        is_core = dense >= min_samples
    else:
        own = lists.bring(weights)
        every = np.concatenate([own, lists.tell(own)])
        grid = ExactGrid.for_sum(bound, rows.n)
        sums = np.zeros((2, lists.n_own))
        for part in kept.first_time():
            for which, values in enumerate(grid.split(every[part.indices])):
                _combine(np.add, part, values, sums[which], 0.0)
        is_core = sums.sum(axis=0) >= min_samples
    marked = np.concatenate([is_core, lists.tell(is_core)])
    parent = np.arange(len(marked))
    borders = []
    phase("clusters", 2, 2)
    for part in kept.again():
        join_lists(part.ends, part.indices, part.first, marked, parent)
        borders.append(_borders(part, marked))
    clusters = number_parts(rows.comm, lists, marked, parent)
    labels = np.where(is_core, clusters[: lists.n_own], NO_CLUSTER)
    for row, near in borders:
        np.minimum.at(labels, row, clusters[near])
    labels[labels == NO_CLUSTER] = -1
    return lists.take_back(labels), lists.take_back(is_core)


def _borders(part: ListPart, marked: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """**Local.** The rows of a part that are no core rows, each with the core rows near it."""
    n = np.diff(part.ends)
    outer = np.flatnonzero(~marked[part.first : part.first + len(n)])
    starts = np.repeat(part.ends[outer] - np.cumsum(n[outer]) + n[outer], n[outer])
    near = part.indices[starts + np.arange(len(starts))]
    row = np.repeat(outer + part.first, n[outer])
    is_core = marked[near]
    return row[is_core], near[is_core].astype(np.int64)


class _KeptLists:
    """Lists that are searched for once if all ranks have room for theirs, else each time."""

    def __init__(self, rows: Rows, lists: NearLists) -> None:
        self._rows, self._lists = rows, lists
        self._parts: list[ListPart] = []
        self._all_kept: bool | None = None

    def first_time(self) -> Iterable[ListPart]:
        """**Collective.** The lists, kept as long as there is room."""
        left = KEPT_BYTES
        for part in self._lists.lists():
            left -= part.n_bytes
            if left >= 0:
                self._parts.append(part)
            else:
                self._parts.clear()
            yield part
        self._all_kept = not total_of(self._rows.comm, np.array([left < 0], np.int64))[0]

    def again(self) -> Iterable[ListPart]:
        """**Collective.** The same lists."""
        assert self._all_kept is not None
        return self._parts if self._all_kept else self._lists.lists()


def _combine(how: Any, part: ListPart, values: Values, into: Values, nothing: Any) -> None:
    """**Local.** Combine the values of each list, and what was there before, by a ufunc."""
    some = np.diff(part.ends) > 0
    found = np.full(len(some), nothing)
    if some.any():
        found[some] = how.reduceat(values, part.ends[:-1][some])
    own = into[part.first : part.first + len(some)]
    how(own, found, out=own)


def find_dense_on_gpu(
    rows: Rows, weights: Values | None, eps: float, min_samples: int
) -> tuple[Values, Values]:
    """**Collective.** The cluster of each of this rank's rows, and whether it is a core row; both on the GPU.

    Distances are Euclidean, and are compared as in scikit-learn's trees. Clusters are numbered in the order
    of their first core rows; a row at the border of several clusters belongs to the first of them.
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
    labels = xp.full(len(rows.local), NO_CLUSTER_ON_GPU, np.int32)
    labels[numbers - rows.first] = clusters[numbers]
    outer = xp.flatnonzero(~is_core)
    points, found = rows.local[outer], labels[outer]
    for first, tile in visits:
        theirs = core.of(first, tile)
        least_near(points, theirs[0], clusters[theirs[1]], limit, found)
    labels[outer] = found
    return xp.where(labels == NO_CLUSTER_ON_GPU, -1, labels).astype(np.int64), is_core


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
