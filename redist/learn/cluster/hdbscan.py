"""HDBSCAN on global arrays: core distances and the spanning tree are found over all ranks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import sklearn.cluster
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.metrics import DistanceMetric
from sklearn.neighbors import KDTree

from redist.learn.borrowed import (
    FAST_METRICS,
    OUTLIERS,
    fit_context,
    remap_single_linkage_tree,
    single_linkage_of,
    tree_to_labels,
)
from redist.learn.given import take_rows
from redist.learn.kernels.cuda.near import MOST_NEAREST, can_stay
from redist.learn.near.nearest import distances_to_nearest
from redist.learn.near.searching import Search, is_euclidean
from redist.learn.near.spanning_tree import spanning_tree
from redist.learn.over_ranks import ClustersRows
from redist.runtime.cuda.arrays import to_host
from redist.runtime.cuda.loops import functions_for
from redist.spmd import Rows, all_rows, cut_like, is_global, whole_of
from redist.text.progress import phase

Values = NDArray[Any]
Numbers = NDArray[np.int64]
PLAIN = ("euclidean", "l2")


class HDBSCAN(ClustersRows, sklearn.cluster.HDBSCAN):  # type: ignore[misc]
    """Clusters from a hierarchy of densities, over all ranks: ``sklearn.cluster.HDBSCAN`` for global arrays.

    In an SPMD program::

        labels = HDBSCAN(min_cluster_size=20, copy=True).fit(x).labels_     # x: a global array

    The spanning tree grows as scikit-learn's does, bit for bit, over the points of all ranks. Its ``n - 1``
    edges, of at most 48 bytes each, are on every rank, which condenses them with scikit-learn's own code.
    Rows on GPUs stay there if the metric is Euclidean, all values are finite and ``min_samples`` is at most
    64. Metrics that no tree can search, ``algorithm="brute"``, distance matrices and sparse matrices are
    passed to scikit-learn's own ``fit``, whole on every rank; ``store_centers`` gathers the rows.
    """

    _per_row = ("labels_", "probabilities_")

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None, *, progress: bool | None = None) -> HDBSCAN:
        """**Collective over** the communicator of ``X``. Find the clusters of the rows of ``X``.

        With ``progress=True`` the first rank reports its progress on stderr. By default there is a bar on a
        terminal, and elsewhere a line if the fit takes more than 5 s; with False, nothing.
        """
        if issparse(X) or self._is_brute():
            return self._fit_whole(X)
        if not is_global(X):  # a global array is never changed
            self._warn_of_copy()
        self._metric_params = self.metric_params or {}
        checks: dict[str, Any] = {"ensure_all_finite": False, "accept_sparse": ["csr", "lil"]}
        rows = take_rows(self, X, on_gpu=self._stays(X), dtype=np.float64, **checks)
        sums = to_host(rows.local.sum(axis=1))
        rows, rest = _finite_rows(rows, np.isfinite(sums))
        self._check_count(rest.n)
        rows.need("fit HDBSCAN to", 24 * rows.d + 64, 48 * rows.n)
        said = phase("neighbours", 1, 3)
        core = distances_to_nearest(rest, self._min_samples, self._search(rest), said)[:, -1]
        metric = None
        if self.metric not in PLAIN:
            metric = DistanceMetric.get_metric(self.metric, **self._metric_params)
        core = functions_for(core).ascontiguousarray(core)
        tree = spanning_tree(rest.even_out(), core, self.alpha, metric, phase("tree", 2, 3))
        phase("clusters", 3, 3)
        self._single_linkage_tree_ = single_linkage_of(tree)
        labels, strengths = tree_to_labels(
            self._single_linkage_tree_, self.min_cluster_size, self.cluster_selection_method,
            self.allow_single_cluster, self.cluster_selection_epsilon, self.max_cluster_size,
        )  # fmt: skip
        if rest.n < rows.n:
            labels, strengths = self._with_outliers(rows.gather(sums), labels, strengths)
        if self.store_centers:
            self._store_centers(rest, labels, strengths, rows.n)
        own = slice(rows.first, rows.first + len(rows.local))
        self._raw_data = X
        self.labels_, self.probabilities_ = labels, strengths
        if rows.given is not None:
            self.labels_ = rows.answer(labels[own])
            self.probabilities_ = rows.answer(strengths[own])
        return self

    def dbscan_clustering(self, cut_distance: float, min_cluster_size: int = 5) -> Any:
        """**Collective.** The clusters that DBSCAN finds without border points, cut as the labels are."""
        given = self.labels_
        if not is_global(given):
            return super().dbscan_clustering(cut_distance, min_cluster_size)
        self.labels_ = whole_of(given)
        try:
            found = super().dbscan_clustering(cut_distance, min_cluster_size)
        finally:
            self.labels_ = given
        return cut_like(given, found)

    def _is_brute(self) -> bool:
        """Whether scikit-learn would work out all distances; also where it refuses the options."""
        if self.algorithm == "auto":
            return self.metric not in FAST_METRICS
        trees = {"kd_tree": KDTree.valid_metrics, "ball_tree": FAST_METRICS}
        return self.metric not in trees.get(self.algorithm, ())

    def _stays(self, X: Any) -> bool:
        """Whether rows on GPUs can stay there."""
        k = self.min_cluster_size if self.min_samples is None else self.min_samples
        is_plain = self.metric in PLAIN and is_euclidean(self.metric, None, self.metric_params)
        return can_stay(X) and is_plain and k <= MOST_NEAREST

    def _search(self, rows: Rows) -> Search:
        """The search that scikit-learn takes for core distances."""
        by_tree = "kd_tree" if self.metric in KDTree.valid_metrics else "ball_tree"
        algorithm = by_tree if self.algorithm == "auto" else self.algorithm
        return Search.of(
            rows.n, rows.d, n_neighbors=self._min_samples, algorithm=algorithm,
            leaf_size=self.leaf_size, metric=self.metric, metric_params=self._metric_params, p=None,
        )  # fmt: skip

    def _check_count(self, n: int) -> None:
        """**Local.** Refuse too few rows, in scikit-learn's words."""
        if n == 1:
            raise ValueError("n_samples=1 while HDBSCAN requires more than one sample")
        asked = self.min_samples
        self._min_samples = self.min_cluster_size if asked is None else asked
        if self._min_samples > n:
            raise ValueError(
                f"min_samples ({self._min_samples}) must be at most the number of samples in X ({n})"
            )

    def _warn_of_copy(self) -> None:
        """**Local.** The warning of scikit-learn 1.9 about its new default."""
        if getattr(self, "copy", False) == "warn":
            warnings.warn(
                "The default value of `copy` will change from False to True in 1.10."
                " Explicitly set a value for `copy` to silence this warning.",
                FutureWarning,
                stacklevel=5,
            )

    def _with_outliers(
        self, sums: Values, labels: Values, strengths: Values
    ) -> tuple[Values, Values]:
        """**Local.** Labels of all rows, those with infinite or missing values included."""
        finite = np.flatnonzero(np.isfinite(sums))
        places = {
            "infinite": np.flatnonzero(np.isinf(sums)),
            "missing": np.flatnonzero(np.isnan(sums)),
        }
        self._single_linkage_tree_ = remap_single_linkage_tree(
            self._single_linkage_tree_,
            dict(enumerate(finite)),
            non_finite=set(np.hstack(list(places.values()))),
        )
        every, strong = np.empty(len(sums), np.int32), np.zeros(len(sums))
        every[finite], strong[finite] = labels, strengths
        for kind, rows in places.items():
            every[rows], strong[rows] = OUTLIERS[kind]["label"], OUTLIERS[kind]["prob"]
        return every, strong

    def _store_centers(self, rest: Rows, labels: Values, strengths: Values, n: int) -> None:
        """**Collective.** Centroids and medoids by scikit-learn's own code, from all finite rows."""
        whole = rest.gather(rest.local)
        kept = np.ones(n, bool) if rest.n == n else labels > OUTLIERS["infinite"]["label"]
        self.labels_, self.probabilities_ = labels[kept], strengths[kept]
        self._weighted_cluster_center(whole)


def _finite_rows(rows: Rows, finite: NDArray[np.bool_]) -> tuple[Rows, Rows]:
    """**Collective.** The rows, and those without infinite and missing values; in memory if they differ."""
    counts = all_rows(rows.comm, np.int64(np.count_nonzero(finite)))
    if int(counts.sum()) == rows.n:
        return rows, rows
    rows = rows.holding(to_host(rows.local))
    before = int(counts[: rows.comm.rank].sum())
    chosen = rows.local[finite]
    rest = Rows(chosen, before, int(counts.sum()), rows.comm, rows.given, is_even=False)
    return rows, rest.even_out()
