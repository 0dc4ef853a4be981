"""Birch on global arrays: every rank grows the same tree, from all rows in order, a block at a time.

The tree is small compared with the distances between its subclusters, which are merged into the requested
clusters. Those distances are shared among ranks, and lie on the GPU if the rows do.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import sklearn.cluster
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from redist.learn.borrowed import cut_tree
from redist.learn.cluster.agglomerative import merges_of
from redist.learn.cluster.kmeans import distances_to
from redist.learn.given import take_rows
from redist.learn.kernels.cuda.near import can_stay, nearest_of
from redist.learn.near.spanning_tree import is_fused_by_scipy
from redist.learn.over_ranks import ClustersRows
from redist.learn.working import working
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_device
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.spmd import Rows, is_global
from redist.text.progress import phase

Values = NDArray[Any]
BLOCK = 4096
"""Rows that are fetched to all ranks at a time."""
ALONE = 2000
"""So many subclusters are merged by scikit-learn on every rank: 16 MB of distances."""


@dataclass(frozen=True, slots=True)
class _Merging:
    """Merges subclusters over ranks until ``k`` are left, with the labels of scikit-learn."""

    k: int
    comm: Comm
    on_gpu: bool

    def fit_predict(self, centers: Values) -> Values:
        """**Collective.** The cluster of each subcluster, which all ranks have."""
        rows = Rows.share(centers, self.comm)
        if self.on_gpu and is_fused_by_scipy() is not None:
            rows = rows.holding(to_device(rows.local))
        merges = merges_of(rows, "ward", "euclidean")
        return np.asarray(cut_tree(self.k, merges[:, :2].astype(int), rows.n))


class Birch(ClustersRows, sklearn.cluster.Birch):  # type: ignore[misc]
    """Clusters of a tree of features, over all ranks: ``sklearn.cluster.Birch`` for global arrays.

    In an SPMD program::

        model = Birch(threshold=0.5, n_clusters=8).fit(x)      # x: a global array
        model.labels_, model.transform(x)                      # global, cut as x

    The order of rows decides how the tree grows, so every rank inserts all rows in order into a tree of its
    own, fetching them in blocks. The tree is the same as scikit-learn's, its size is what ``threshold``
    allows, and it takes no less time. Distances of more than 2000 subclusters are shared among ranks while
    these are merged. Labels, and distances to subclusters, are computed where the rows are.
    """

    labels_: Any
    n_clusters: Any
    compute_labels: Any
    subcluster_centers_: Values
    subcluster_labels_: Values

    @working
    def fit(self, X: Any, y: Any = None, *, progress: bool | None = None) -> Birch:
        """**Collective over** the communicator of ``X``. Build the tree of its rows, and cluster the tree."""
        super().fit(X)
        return self

    @working
    def partial_fit(self, X: Any = None, y: Any = None) -> Birch:
        """**Collective.** Insert more rows into the tree; without rows, cluster the tree as it is."""
        super().partial_fit(X)
        return self

    def _fit(self, X: Any, partial: bool) -> Birch:
        """**Collective over** the communicator of ``X``. Put its rows into the tree, and cluster that."""
        if not is_global(X):
            super()._fit(X, partial)
            return self
        goes_on = bool(partial and getattr(self, "root_", None))
        rows = take_rows(self, X, reset=not goes_on, on_gpu=can_stay(X))
        asked = self.n_clusters, self.compute_labels
        self.n_clusters, self.compute_labels = None, False  # not for every block
        try:
            said = phase("tree", 1, 2)
            for lo in range(0, rows.n, BLOCK):
                block = rows.fetch(np.arange(lo, min(lo + BLOCK, rows.n)))
                super()._fit(block, goes_on or lo > 0)
                said(lo + len(block), rows.n)
        finally:
            self.n_clusters, self.compute_labels = asked
        phase("labels", 2, 2)
        self._global_clustering(rows=rows)
        if self.compute_labels:
            self.labels_ = rows.answer(self._own_labels(rows.local))
        return self

    def _global_clustering(self, X: Any = None, rows: Rows | None = None) -> None:
        """**Collective.** Cluster the subclusters, where ``rows`` are; label ``X`` if it is there."""
        asked: Any = self.n_clusters
        if isinstance(asked, Integral) and len(self.subcluster_centers_) > max(int(asked), ALONE):
            comm = comm_or_world(None) if rows is None else rows.comm
            self.n_clusters = _Merging(int(asked), comm, rows is not None and rows.on_gpu)
        try:
            super()._global_clustering(X)
        finally:
            self.n_clusters = asked

    def _own_labels(self, local: Values) -> Values:
        """**Local.** The labels of rows, where they lie."""
        if is_device(local):
            near = nearest_of(local, to_device(self.subcluster_centers_.astype(local.dtype)))[0]
            labels: Values = to_device(self.subcluster_labels_)[near]
            return labels
        return np.asarray(self._predict(local)) if len(local) else np.empty(0, np.int64)

    def predict(self, X: Any) -> Any:
        """**Collective.** The cluster of the nearest subcluster; global, cut as ``X``, if ``X`` is."""
        if not is_global(X):
            return super().predict(X)
        check_is_fitted(self)
        rows = take_rows(self, X, reset=False, on_gpu=can_stay(X))
        return rows.answer(self._own_labels(rows.local))

    def transform(self, X: Any) -> Any:
        """**Collective.** The distance of every row to every subcluster."""
        if not is_global(X):
            return super().transform(X)
        check_is_fitted(self)
        rows = take_rows(self, X, reset=False, on_gpu=True)
        return rows.answer(distances_to(rows, self.subcluster_centers_))
