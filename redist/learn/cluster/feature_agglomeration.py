"""FeatureAgglomeration on global arrays: how far columns are apart is an exact sum over all ranks' rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn.cluster
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from sklearn.utils.validation import check_is_fitted

from redist.learn.borrowed import fit_context
from redist.learn.cluster.agglomerative import check_merging, take_merges
from redist.learn.given import take_rows
from redist.learn.kept import KeepsAnswers
from redist.learn.kernels.steps import pair_sums
from redist.spmd import ExactGrid, Rows, is_global, largest, total_of, whole_of
from redist.text.progress import stage

Values = NDArray[Any]
SQUARED, PLAIN = ("euclidean", "l2"), ("l1", "manhattan", "cityblock")
"""Metrics that are sums over rows: of squares, and of magnitudes."""


class FeatureAgglomeration(KeepsAnswers, sklearn.cluster.FeatureAgglomeration):  # type: ignore[misc]
    """Columns merged into clusters of columns, over all ranks: ``sklearn.cluster.FeatureAgglomeration``.

    In an SPMD program::

        model = FeatureAgglomeration(n_clusters=16).fit(x)      # x: a global array
        model.labels_                                           # of columns: NumPy, on every rank
        model.transform(x)                                      # global, dim 0 cut as x

    Distances of columns, ``2 d^2`` numbers, are added up over ranks once and exactly; merges are SciPy's, on
    every rank alike. Other metrics than Euclidean and Manhattan, and ``connectivity``, gather the rows.
    """

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, progress: bool | None = None) -> FeatureAgglomeration:
        """**Collective over** the communicator of ``X``. Merge the columns of ``X``."""
        if self.connectivity is not None or self.metric not in (*SQUARED, *PLAIN):
            super().fit(whole_of(X))
            return self
        rows = take_rows(self, X, dtype="numeric", order=None, ensure_min_features=2)
        check_merging(self)
        rows.need("fit FeatureAgglomeration to", 8 * rows.d, 40 * rows.d * rows.d)
        stage("distances")
        merges = linkage(column_distances(rows, self.metric in SQUARED), self.linkage)
        self.labels_ = take_merges(self, merges, rows.d)
        self._n_features_out = self.n_clusters_
        return self

    def transform(self, X: Any) -> Any:
        """**Collective.** The pooled columns of each cluster; global, dim 0 cut as ``X``, if ``X`` is."""
        if not is_global(X):
            return super().transform(X)
        check_is_fitted(self)
        rows = take_rows(self, X, reset=False, dtype="numeric", order=None)
        if not len(rows.local):
            return rows.answer(np.empty((0, self.n_clusters_)))
        return rows.answer(np.asarray(super().transform(rows.local)))

    def inverse_transform(self, X: Any) -> Any:
        """**Collective.** Columns of the first size, each with the value of its cluster."""
        if not is_global(X):
            return super().inverse_transform(X)
        check_is_fitted(self)
        rows = take_rows(FeatureAgglomeration(), X, dtype="numeric", order=None)
        _, places = np.unique(self.labels_, return_inverse=True)
        return rows.answer(rows.local[:, places])


def column_distances(rows: Rows, squared: bool) -> Values:
    """**Collective.** How far each two columns are apart, in SciPy's order of pairs, on every rank."""
    local = np.ascontiguousarray(rows.local, dtype=np.float64)
    most = 2 * largest(rows.comm, local)
    grid = ExactGrid.for_sum(most * most if squared else most, rows.n)
    above = np.triu_indices(rows.d, k=1)
    sums = pair_sums(local, grid, squared)[:, above[0], above[1]]
    total: Values = total_of(rows.comm, sums).sum(axis=0)
    return np.sqrt(total) if squared else total
