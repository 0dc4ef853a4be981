"""Birch on global arrays: every rank grows the same tree, from all rows in order, a block at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn.cluster
from numpy.typing import NDArray
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.validation import check_is_fitted

from redist.learn.given import take_rows
from redist.learn.over_ranks import ClustersRows
from redist.learn.working import working
from redist.spmd import is_global
from redist.text.progress import phase

Values = NDArray[Any]
BLOCK = 4096
"""Rows that are fetched to all ranks at a time."""


class Birch(ClustersRows, sklearn.cluster.Birch):  # type: ignore[misc]
    """Clusters of a tree of features, over all ranks: ``sklearn.cluster.Birch`` for global arrays.

    In an SPMD program::

        model = Birch(threshold=0.5, n_clusters=8).fit(x)      # x: a global array
        model.labels_, model.transform(x)                      # global, cut as x

    The order of rows decides what the tree becomes, so every rank puts all rows into one of its own, in
    order, fetched in blocks: the same tree as scikit-learn's, of the size that ``threshold`` allows, and no
    sooner. Labels and distances are worked out where the rows are.
    """

    labels_: Any
    n_clusters: Any
    compute_labels: Any

    @working
    def fit(self, X: Any, y: Any = None, *, progress: bool | None = None) -> Birch:
        """**Collective over** the communicator of ``X``. Build the tree of its rows, and cluster that."""
        super().fit(X)
        return self

    @working
    def partial_fit(self, X: Any = None, y: Any = None) -> Birch:
        """**Collective.** Put more rows into the tree; without any, cluster what it has."""
        super().partial_fit(X)
        return self

    def _fit(self, X: Any, partial: bool) -> Birch:
        """**Collective over** the communicator of ``X``. Put its rows into the tree, and cluster that."""
        if not is_global(X):
            super()._fit(X, partial)
            return self
        goes_on = bool(partial and getattr(self, "root_", None))
        rows = take_rows(self, X, reset=not goes_on)
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
        self._global_clustering()
        if self.compute_labels:
            self.labels_ = rows.answer(self._own_labels(rows.local))
        return self

    def _own_labels(self, local: Values) -> Values:
        """**Local.** The labels of rows."""
        return np.asarray(self._predict(local)) if len(local) else np.empty(0, np.int64)

    def predict(self, X: Any) -> Any:
        """**Collective.** The cluster of the nearest subcluster; global, cut as ``X``, if ``X`` is."""
        if not is_global(X):
            return super().predict(X)
        check_is_fitted(self)
        rows = take_rows(self, X, reset=False)
        return rows.answer(self._own_labels(rows.local))

    def transform(self, X: Any) -> Any:
        """**Collective.** The distance of every row to every subcluster."""
        if not is_global(X):
            return super().transform(X)
        check_is_fitted(self)
        rows = take_rows(self, X, reset=False)
        centers = self.subcluster_centers_
        if not len(rows.local):
            return rows.answer(np.empty((0, len(centers)), rows.dtype))
        return rows.answer(euclidean_distances(rows.local, centers))
