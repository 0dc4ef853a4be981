"""DBSCAN on global arrays: rows are searched by slabs of space, and parts of clusters joined over ranks."""

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
from redist.learn.kept import KeepsAnswers
from redist.learn.kernels.cuda.near import MOST_DIMS
from redist.learn.kernels.steps import join_lists
from redist.learn.near.components import number_parts
from redist.learn.near.dense_on_gpu import find_dense_on_gpu
from redist.learn.near.near_lists import ListPart, NearLists, near_lists
from redist.learn.near.searching import Search, is_euclidean
from redist.spmd import ExactGrid, Rows, cut_like, is_global, lies_on_gpu, total_of, whole_of
from redist.text.progress import phase

Values = NDArray[Any]
Numbers = NDArray[np.int64]
KEPT_BYTES = 2**27
"""Lists of neighbours that are kept for the second use; beyond that all are searched for again."""
NO_CLUSTER = np.iinfo(np.int64).max


class DBSCAN(KeepsAnswers, sklearn.cluster.DBSCAN):  # type: ignore[misc]
    """Clusters of dense regions, over all ranks: ``sklearn.cluster.DBSCAN`` for global arrays.

    In an SPMD program::

        model = DBSCAN(eps=0.3, min_samples=10).fit(x)     # x: a global array
        model.labels_                                      # global, cut as x; -1 is noise
        model.core_sample_indices_                         # global; components_, their rows, too

    Labels are scikit-learn's: clusters are numbered by their first core rows, and a row at the border
    of several belongs to the first. A rank searches a slab of space and what is within ``eps`` of
    it; for metrics without that bound, and where scikit-learn searches by brute force, it visits the
    tiles of all ranks. Rows on GPUs stay there if the metric is Euclidean: every rank compares its own
    with all tiles. Matrices of distances (``precomputed``) and sparse ones go to scikit-learn's own
    ``fit``, whole on every rank.
    """

    components_: Any
    core_sample_indices_: Any

    @fit_context(prefer_skip_nested_validation=False)
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, progress: bool | None = None
    ) -> DBSCAN:
        """**Collective over** the communicator of ``X``. Find the clusters of the rows of ``X``."""
        if issparse(X) or self.metric == "precomputed":
            return self._fit_whole(X, sample_weight)
        stays = lies_on_gpu(X) and is_euclidean(self.metric, self.p, self.metric_params)
        stays = stays and X.shape[-1] <= MOST_DIMS
        rows = take_rows(self, X, on_gpu=stays, dtype="numeric", order=None, accept_sparse="csr")
        rows.need("fit DBSCAN to", 24 * rows.d + 64)
        weights = None
        if sample_weight is not None:
            weights = take_weights(rows, sample_weight, dtype=np.float64)
        search = Search.of(
            rows.n,
            rows.d,
            radius=self.eps,
            algorithm=self.algorithm,
            leaf_size=self.leaf_size,
            metric=self.metric,
            metric_params=self.metric_params,
            p=self.p,
        )
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

    def _fit_whole(self, X: Any, sample_weight: Any) -> DBSCAN:
        """**Collective.** scikit-learn's own fit, on every rank alike."""
        super().fit(whole_of(X), sample_weight=whole_of(sample_weight))
        if is_global(X):
            self.labels_ = cut_like(X, self.labels_)
        return self

    def fit_predict(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, progress: bool | None = None
    ) -> Any:
        """**Collective.** The labels of the rows of ``X``."""
        return self.fit(X, sample_weight=sample_weight, progress=progress).labels_


def dbscan(
    X: Any,
    eps: float = 0.5,
    *,
    min_samples: int = 5,
    metric: Any = "minkowski",
    metric_params: Any = None,
    algorithm: str = "auto",
    leaf_size: int = 30,
    p: float | None = 2,
    sample_weight: Any = None,
    n_jobs: int | None = None,
) -> tuple[Any, Any]:
    """**Collective.** Core rows and labels of :class:`DBSCAN`."""
    model = DBSCAN(
        eps, min_samples=min_samples, metric=metric, metric_params=metric_params,
        algorithm=algorithm, leaf_size=leaf_size, p=p, n_jobs=n_jobs,
    ).fit(X, sample_weight=sample_weight)  # fmt: skip
    return model.core_sample_indices_, model.labels_


def find_dense(
    rows: Rows, weights: Values | None, eps: float, min_samples: int, search: Search
) -> tuple[Numbers, NDArray[np.bool_]]:
    """**Collective.** The cluster of each own row, and whether it is a core row."""
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
