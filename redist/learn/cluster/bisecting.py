"""BisectingKMeans on global arrays: rows stay where they are, and clusters of them are split in two."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn.cluster
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import check_is_fitted

from redist.learn.borrowed import BisectingTree, fit_context
from redist.learn.cluster.kmeans import (
    SPARSE_TOO,
    RowsOfCenters,
    check_counts,
    start_centers,
)
from redist.learn.cluster.lloyd import (
    Clusters,
    WeightedRows,
    inertia_by_label,
    inertia_of,
    label_rows,
    mean_of,
    run_lloyd,
    squared_norms,
    variance_of,
)
from redist.learn.given import one_random_state, take_rows, take_weights
from redist.runtime.cuda.loops import functions_for
from redist.spmd import Rows, all_rows, total_of

Values = NDArray[Any]


class BisectingKMeans(RowsOfCenters, sklearn.cluster.BisectingKMeans):  # type: ignore[misc]
    """K-means by splitting clusters in two, over all ranks: ``sklearn.cluster.BisectingKMeans``.

    In an SPMD program::

        labels = BisectingKMeans(n_clusters=16, random_state=0).fit(x).labels_   # x: a global array

    Every rank holds the same tree of clusters, and for each cluster those of its own rows that belong to it.
    """

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, progress: bool | None = None
    ) -> BisectingKMeans:
        """**Collective over** the communicator of ``X``. Split its rows until there are enough clusters."""
        if issparse(X):
            return self._fit_whole(X, sample_weight=sample_weight)
        rows = take_rows(self, X, on_gpu=True, **SPARSE_TOO)
        xp = functions_for(rows.local)
        check_counts(self, rows)
        rows.need("fit BisectingKMeans to", 2 * rows.d * rows.dtype.itemsize + 40)
        self._random_state = one_random_state(rows.comm, self.random_state)
        weights = take_weights(rows, sample_weight)
        self._n_threads = 1
        self._X_mean = mean_of(rows)
        centred = rows.holding(rows.local - rows.beside(self._X_mean))
        self._tol = variance_of(centred) * self.tol
        norms = squared_norms(centred.local)
        self._bisecting_tree = BisectingTree(
            indices=xp.arange(len(rows.local)), center=mean_of(centred), score=0
        )
        for i in range(1, self.n_clusters):
            name = f"cut {i} of {self.n_clusters - 1}"
            cluster = self._bisecting_tree.get_cluster_to_bisect()
            self._cut(centred, weights, norms, cluster, name)
        labels = xp.full(len(rows.local), -1, np.int32)
        self.cluster_centers_ = np.empty((self.n_clusters, rows.d), rows.dtype)
        for i, leaf in enumerate(self._bisecting_tree.iter_leaves()):
            labels[leaf.indices] = i
            self.cluster_centers_[i] = leaf.center
            leaf.label, leaf.indices = i, None
        self.cluster_centers_ += self._X_mean
        self.labels_ = rows.answer(labels)
        self.inertia_ = inertia_of(rows, weights, self.cluster_centers_, labels)
        self._n_features_out = self.n_clusters
        return self

    def _cut(self, centred: Rows, weights: Values, norms: Values, cluster: Any, name: str) -> None:
        """**Collective.** Cut the rows of one cluster in two."""
        own = cluster.indices
        counts = all_rows(centred.comm, np.int64(len(own)))
        rows = Rows(
            centred.local[own],
            int(counts[: centred.comm.rank].sum()),
            int(counts.sum()),
            centred.comm,
            centred.given,
            is_even=False,
        )
        weighted = WeightedRows.of(rows, weights[own])
        best: Clusters | None = None
        for _ in range(self.n_init):
            start = start_centers(self, weighted, norms[own], self.init, 2, self._random_state)
            found = run_lloyd(weighted, start, self.max_iter, self.tol, self.verbose, name)
            if best is None or found.inertia < best.inertia * (1 - 1e-6):
                best = found
        assert best is not None
        if self.verbose and rows.comm.rank == 0:
            print(f"New centroids from bisection: {best.centers}")
        labels = best.labels
        if self.bisecting_strategy == "biggest_inertia":
            scores = inertia_by_label(rows, weighted.weights, best.centers, labels, 2, labels)
        else:
            scores = total_of(rows.comm, functions_for(labels).bincount(labels, minlength=2))
        cluster.split(labels, best.centers, scores)

    def predict(self, X: Any) -> Any:
        """**Collective.** The cluster of every row, found down the tree; cut as ``X`` if that is global."""
        check_is_fitted(self)
        if issparse(X):
            return super().predict(X)
        rows = take_rows(self, X, reset=False, on_gpu=True, **SPARSE_TOO)
        return rows.answer(self._go_down(rows.local, self._bisecting_tree))

    def _go_down(self, local: Values, node: Any) -> NDArray[np.int32]:
        """**Local.** The labels of rows that are somewhere below a node of the tree."""
        xp = functions_for(local)
        if node.left is None:
            found: NDArray[np.int32] = xp.full(len(local), node.label, np.int32)
            return found
        centers = np.vstack((node.left.center, node.right.center)) + self._X_mean
        left = label_rows(local, centers) == 0
        labels: NDArray[np.int32] = xp.empty(len(local), np.int32)
        labels[left] = self._go_down(local[left], node.left)
        labels[~left] = self._go_down(local[~left], node.right)
        return labels
