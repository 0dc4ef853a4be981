"""AgglomerativeClustering and FeatureAgglomeration on global arrays: merges of rows, and of columns.

Rows are merged by chains of nearest neighbours, or by a spanning tree, over ranks. The distance between two
columns is an exact sum over all ranks' rows.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import sklearn.cluster
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from sklearn.base import BaseEstimator
from sklearn.metrics import DistanceMetric
from sklearn.utils.validation import check_is_fitted

from redist.learn.borrowed import TREE_METRICS, cut_tree, fit_context, single_linkage_label
from redist.learn.given import FLOATS, take_rows
from redist.learn.kernels.cuda.columns import column_means
from redist.learn.kernels.cuda.near import can_stay
from redist.learn.kernels.steps import pair_sums
from redist.learn.near.nearest_chain import distance_columns, merge_all
from redist.learn.near.spanning_tree import is_fused_by_scipy, spanning_tree
from redist.learn.over_ranks import ClustersRows, OverRanks
from redist.learn.working import working
from redist.runtime.cuda.loops import functions_for
from redist.spmd import (
    ExactGrid,
    Rows,
    all_rows,
    cut_like,
    is_global,
    largest,
    total_of,
    whole_of,
)
from redist.text.progress import phase, stage

Values = NDArray[Any]
NAMES = {"l2": "euclidean", "l1": "cityblock", "manhattan": "cityblock"}
"""Metrics by the names that SciPy has for them."""
SQUARED, PLAIN = ("euclidean", "l2"), ("l1", "manhattan", "cityblock")
"""Metrics that are sums over rows: of squares, and of magnitudes."""


class AgglomerativeClustering(ClustersRows, sklearn.cluster.AgglomerativeClustering):  # type: ignore[misc]
    """A hierarchy of merges, over all ranks: ``sklearn.cluster.AgglomerativeClustering``.

    In an SPMD program::

        model = AgglomerativeClustering(n_clusters=8, linkage="average").fit(x)    # x: a global array
        model.labels_                                                              # global, cut as x
        model.children_                                                            # NumPy, on every rank

    For ``ward``, ``average`` and ``complete`` a rank holds ``n^2 / p`` distances; ``single`` grows a
    spanning tree and holds none. Merges are SciPy's, ties included. If the metric is Euclidean, rows on GPUs
    stay there with their distances. With ``connectivity``, distance matrices or a function as the metric,
    rows are gathered and scikit-learn's own ``fit`` runs on every rank; ``memory`` is used only then.
    """

    labels_: Any

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: Any = None, *, progress: bool | None = None
    ) -> AgglomerativeClustering:
        """**Collective over** the communicator of ``X``. Merge the rows of ``X``."""
        if self.connectivity is not None or not goes_over_ranks(self.metric):
            return self._fit_whole(X)
        stays = stays_on_gpu(X, self.linkage, self.metric)
        rows = take_rows(self, X, on_gpu=stays, dtype="numeric", order=None, ensure_min_samples=2)
        check_merging(self)
        if self.linkage != "single":
            rows.need("fit AgglomerativeClustering to", 8 * rows.n)
        labels = take_merges(self, merges_of(rows, self.linkage, self.metric), rows.n)
        self.labels_ = labels if rows.given is None else cut_like(rows.given, labels)
        return self


def take_merges(model: Any, merges: NDArray[np.float64], n_leaves: int) -> NDArray[np.intp]:
    """Set a model's tree from the merges of leaves; the label of every leaf, cut as the model asks."""
    model.children_ = merges[:, :2].astype(int)
    model.n_connected_components_, model.n_leaves_ = 1, n_leaves
    model.n_clusters_ = model.n_clusters
    if model.distance_threshold is not None or model.compute_distances:
        model.distances_ = np.ascontiguousarray(merges[:, 2])
    if model.distance_threshold is not None:
        far = np.count_nonzero(model.distances_ >= model.distance_threshold)
        model.n_clusters_ = far + 1
    labels: NDArray[np.intp] = cut_tree(model.n_clusters_, model.children_, n_leaves)
    return labels


def check_merging(model: Any) -> None:
    """**Local.** Refuse options that contradict each other, in scikit-learn's words."""
    if (model.n_clusters is None) == (model.distance_threshold is None):
        raise ValueError(
            "Exactly one of n_clusters and distance_threshold has to be set, and the other needs to "
            "be None."
        )
    if model.distance_threshold is not None and not model.compute_full_tree:
        raise ValueError("compute_full_tree must be True if distance_threshold is set.")
    if model.linkage == "ward" and model.metric not in ("euclidean", "l2"):
        raise ValueError(
            f"{model.metric} was provided as metric. Ward can only work with euclidean distances "
            "(i.e. 'euclidean' and 'l2')."
        )


def goes_over_ranks(metric: Any) -> bool:
    """**Local.** Whether distances are computed over ranks: not if they are given or from a function."""
    return isinstance(metric, str) and metric != "precomputed"


def stays_on_gpu(X: Any, linkage: str, metric: Any) -> bool:
    """**Local.** Whether rows on GPUs can stay there while distances still have SciPy's bits."""
    plain = can_stay(X) and metric in SQUARED
    return plain and (linkage == "single" or is_fused_by_scipy() is not None)


def merges_of(rows: Rows, linkage: str, metric: str) -> Values:
    """**Collective.** The merges of all rows, in the form of SciPy's ``linkage``."""
    xp = functions_for(rows.local)
    plain = rows.holding(xp.ascontiguousarray(rows.local, dtype=np.float64))
    if metric == "cosine" and all_rows(rows.comm, (~plain.local.any(axis=1)).any()).any():
        raise ValueError("Cosine affinity cannot be used when X contains zero vectors")
    name = NAMES.get(metric, metric)
    if linkage == "single" and name in TREE_METRICS:
        measured = None if name == "euclidean" else DistanceMetric.get_metric(name)
        edges = spanning_tree(plain, xp.zeros(len(plain.local)), 1.0, measured, phase("tree"))
        reached = np.append(0, edges["next_node"])
        pairs = np.column_stack([reached[:-1], reached[1:], edges["distance"]]).astype(np.float64)
        ordered = pairs[np.argsort(pairs[:, 2], kind="stable")]
        return np.asarray(single_linkage_label(np.ascontiguousarray(ordered)))
    far = distance_columns(plain, name, phase("distances", 1, 2))
    return merge_all(plain, far, linkage, phase("merges", 2, 2))


@working
def ward_tree(
    X: Any,
    *,
    connectivity: Any = None,
    n_clusters: int | None = None,
    return_distance: bool = False,
) -> tuple[Any, ...]:
    """**Collective.** Merges by least variance: children, parts, leaves, None, and distances if asked for."""
    if connectivity is not None:
        return sklearn.cluster.ward_tree(
            whole_of(X), connectivity=connectivity, n_clusters=n_clusters,
            return_distance=return_distance,
        )  # fmt: skip
    return _tree(X, "ward", "euclidean", n_clusters, return_distance)


@working
def linkage_tree(
    X: Any, connectivity: Any = None, n_clusters: int | None = None, linkage: str = "complete",
    affinity: Any = "euclidean", return_distance: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """**Collective.** Merges by distance: children, parts, leaves, None, and distances if asked for."""
    if connectivity is not None or not goes_over_ranks(affinity):
        return sklearn.cluster.linkage_tree(
            whole_of(X), connectivity, n_clusters, linkage, affinity, return_distance
        )
    if linkage not in ("average", "complete", "single"):
        return sklearn.cluster.linkage_tree(np.zeros((2, 1)), linkage=linkage)  # which says why not
    return _tree(X, linkage, affinity, n_clusters, return_distance)


def _tree(
    X: Any, linkage: str, metric: str, n_clusters: int | None, return_distance: bool
) -> tuple[Any, ...]:
    if not is_global(X):
        X = np.asarray(X)
        X = X.reshape(-1, 1) if X.ndim == 1 else X
    if n_clusters is not None:
        warnings.warn(
            "Partial build of the tree is implemented only for structured clustering (i.e. with "
            "explicit connectivity). The algorithm will build the full tree and only retain the lower "
            "branches required for the specified number of clusters",
            stacklevel=4,
        )
    stays = stays_on_gpu(X, linkage, metric)
    rows = take_rows(BaseEstimator(), X, on_gpu=stays, dtype="numeric", order=None)
    merges = merges_of(rows, linkage, metric)
    out = (merges[:, :2].astype(int), 1, rows.n, None)
    return (*out, merges[:, 2].copy()) if return_distance else out


class FeatureAgglomeration(OverRanks, sklearn.cluster.FeatureAgglomeration):  # type: ignore[misc]
    """Columns merged into clusters of columns, over all ranks: ``sklearn.cluster.FeatureAgglomeration``.

    In an SPMD program::

        model = FeatureAgglomeration(n_clusters=16).fit(x)      # x: a global array
        model.labels_                                           # of columns: NumPy, on every rank
        model.transform(x)                                      # global, dim 0 cut as x

    The distances between columns, ``2 d^2`` numbers, are added up over ranks once and exactly; merges are
    SciPy's, the same on every rank. Rows on GPUs are compared there and also pooled there, except that
    pooling functions other than the mean run in memory. Metrics other than Euclidean and Manhattan, and
    ``connectivity``, gather the rows.
    """

    _per_row = ()

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, progress: bool | None = None) -> FeatureAgglomeration:
        """**Collective over** the communicator of ``X``. Merge the columns of ``X``."""
        if self.connectivity is not None or self.metric not in (*SQUARED, *PLAIN):
            return self._fit_whole(X)
        rows = take_rows(self, X, on_gpu=True, dtype="numeric", order=None, ensure_min_features=2)
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
        stays = self.pooling_func is np.mean
        rows = take_rows(self, X, on_gpu=stays, reset=False, dtype="numeric", order=None)
        if rows.on_gpu:
            kept = rows.dtype in FLOATS
            values = rows.local if kept else rows.local.astype(np.float64)
            return rows.answer(column_means(values, self.labels_))
        if not len(rows.local):
            return rows.answer(np.empty((0, self.n_clusters_)))
        return rows.answer(np.asarray(super().transform(rows.local)))

    def inverse_transform(self, X: Any) -> Any:
        """**Collective.** As many columns as at first, each with the value of its cluster."""
        if not is_global(X):
            return super().inverse_transform(X)
        check_is_fitted(self)
        rows = take_rows(FeatureAgglomeration(), X, on_gpu=True, dtype="numeric", order=None)
        _, places = np.unique(self.labels_, return_inverse=True)
        return rows.answer(rows.local[:, rows.beside(places)])


def column_distances(rows: Rows, squared: bool) -> Values:
    """**Collective.** The distance between each two columns, in SciPy's order of pairs, on every rank."""
    local = functions_for(rows.local).ascontiguousarray(rows.local, dtype=np.float64)
    most = 2 * largest(rows.comm, local)
    grid = ExactGrid.for_sum(most * most if squared else most, rows.n)
    above = np.triu_indices(rows.d, k=1)
    sums = pair_sums(local, grid, squared)[:, above[0], above[1]]
    total: Values = total_of(rows.comm, sums).sum(axis=0)
    return np.sqrt(total) if squared else total
