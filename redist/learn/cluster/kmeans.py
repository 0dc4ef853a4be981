"""KMeans on global arrays: scikit-learn's estimator for rows that are cut over ranks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import sklearn.cluster
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from redist.learn.borrowed import fit_context
from redist.learn.cluster.lloyd import (
    Clusters,
    WeightedRows,
    choose_seeds,
    inertia_of,
    label_rows,
    mean_of,
    run_lloyd,
    squared_norms,
    variance_of,
)
from redist.learn.given import one_random_state, take_rows, take_weights
from redist.learn.over_ranks import ClustersWeightedRows
from redist.runtime.cuda.loops import functions_for
from redist.spmd import Rows, draw_distinct, is_global, total_of, whole_of

Values = NDArray[Any]
SPARSE_TOO: dict[str, Any] = {"accept_sparse": "csr", "accept_large_sparse": False}
"""What scikit-learn's own fit takes besides; its errors say so."""


class RowsOfCenters(ClustersWeightedRows):
    """What estimators with centres do with rows: predict, transform, and score."""

    cluster_centers_: Values

    def predict(self, X: Any) -> Any:
        """**Collective.** The nearest centre of every row; global, cut as ``X``, if ``X`` is."""
        check_is_fitted(self)
        if issparse(X):
            return super().predict(X)  # type: ignore[misc]
        rows = take_rows(self, X, reset=False, on_gpu=True, **SPARSE_TOO)
        return rows.answer(label_rows(rows.local, self.cluster_centers_))

    def transform(self, X: Any) -> Any:
        """**Collective.** The distance of every row to every centre."""
        check_is_fitted(self)
        if issparse(X):
            return super().transform(X)  # type: ignore[misc]
        rows = take_rows(self, X, reset=False, on_gpu=True, **SPARSE_TOO)
        return rows.answer(distances_to(rows, self.cluster_centers_))

    def fit_transform(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, progress: bool | None = None
    ) -> Any:
        """**Collective.** Fit the model, and transform the same rows."""
        fitted: Any = self
        return fitted.fit(X, sample_weight=sample_weight, progress=progress).transform(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """**Collective.** Minus the inertia of the rows."""
        check_is_fitted(self)
        if issparse(X):
            return float(super().score(X, y, sample_weight))  # type: ignore[misc]
        rows = take_rows(self, X, reset=False, on_gpu=True, **SPARSE_TOO)
        weights = take_weights(rows, sample_weight)
        labels = label_rows(rows.local, self.cluster_centers_)
        return -inertia_of(rows, weights, self.cluster_centers_, labels)


class KMeans(RowsOfCenters, sklearn.cluster.KMeans):  # type: ignore[misc]
    """K-means over all ranks: ``sklearn.cluster.KMeans`` for global arrays.

    In an SPMD program::

        x = pgas.asarray(data, type="{x}, {}")        # or any global array of two dims
        model = KMeans(n_clusters=8, random_state=0).fit(x)
        model.labels_                                 # a global array, cut as x
        model.cluster_centers_                        # small: NumPy, the same on every rank

    Parameters, attributes and errors are scikit-learn's. The same random state gives the same labels as
    scikit-learn, and the same bits for every number of ranks. ``algorithm="elkan"`` runs Lloyd's rounds,
    which give the same result; ``copy_x`` is ignored because ``X`` is never changed. A round is one
    all-reduce of ``2 k (d + 1) + 1`` numbers. NumPy input must be the same on all ranks, and gives NumPy
    results.
    """

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, progress: bool | None = None
    ) -> KMeans:
        """**Collective over** the communicator of ``X``. Find the centres of the rows of ``X``.

        With ``progress=True`` the first rank reports its progress on stderr, here and in ``fit`` of all
        estimators. By default it shows a bar on a terminal, and elsewhere writes a line if the fit takes more
        than 5 s; with False, nothing.
        """
        if issparse(X):
            return self._fit_whole(X, sample_weight=sample_weight)
        rows = take_rows(self, X, on_gpu=True, **SPARSE_TOO)
        check_counts(self, rows)
        seeded = isinstance(self.init, str) and self.init == "k-means++"
        trials = 4 + int(np.log(self.n_clusters)) if seeded else 0
        rows.need("fit KMeans to", rows.d * rows.dtype.itemsize + 16 + 8 * trials)
        random_state = one_random_state(rows.comm, self.random_state)
        weights = take_weights(rows, sample_weight)
        self._n_threads = 1  # ranks are what works in parallel
        init = given_centers(self, rows)
        mean = mean_of(rows)
        rows = rows.holding(rows.local - rows.beside(mean))
        if isinstance(init, np.ndarray):
            init -= mean
        self._tol = variance_of(rows) * self.tol if self.tol else 0
        weighted = WeightedRows.of(rows, weights)
        norms = squared_norms(rows.local) if seeded else None
        best: Clusters | None = None
        for i in range(1, self._n_init + 1):
            start = start_centers(self, weighted, norms, init, self.n_clusters, random_state)
            if self.verbose and rows.comm.rank == 0:
                print("Initialization complete")
            name = f"start {i} of {self._n_init}"
            found = run_lloyd(weighted, start, self.max_iter, self._tol, self.verbose, name)
            if best is None or (
                found.inertia < best.inertia
                and not _same_clusters(rows, found.labels, best.labels, self.n_clusters)
            ):
                best = found
        assert best is not None
        _warn_of_few(rows, best.labels, self.n_clusters)
        self.cluster_centers_ = best.centers + mean
        self._n_features_out = self.n_clusters
        self.labels_ = rows.answer(best.labels)
        self.inertia_ = best.inertia
        self.n_iter_ = best.n_iter
        return self


def k_means(
    X: Any, n_clusters: int, *, sample_weight: Any = None, init: Any = "k-means++",
    n_init: Any = "auto", max_iter: int = 300, verbose: Any = False, tol: float = 1e-4,
    random_state: Any = None, copy_x: bool = True, algorithm: str = "lloyd",
    return_n_iter: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """**Collective.** Centres, labels and inertia as in :class:`KMeans`, and its rounds if asked for."""
    made = KMeans(
        n_clusters, init=init, n_init=n_init, max_iter=max_iter, verbose=verbose, tol=tol,
        random_state=random_state, copy_x=copy_x, algorithm=algorithm,
    ).fit(X, sample_weight=sample_weight)  # fmt: skip
    out = (made.cluster_centers_, made.labels_, made.inertia_)
    return (*out, made.n_iter_) if return_n_iter else out


def kmeans_plusplus(
    X: Any, n_clusters: int, *, sample_weight: Any = None, x_squared_norms: Any = None,
    random_state: Any = None, n_local_trials: int | None = None,
) -> tuple[Values, NDArray[np.int64]]:  # fmt: skip
    """**Collective.** Rows of ``X`` to start k-means from, and their row numbers, the same on every rank."""
    if not is_global(X):
        if issparse(X):
            return sklearn.cluster.kmeans_plusplus(
                X, n_clusters, sample_weight=sample_weight, x_squared_norms=x_squared_norms,
                random_state=random_state, n_local_trials=n_local_trials,
            )  # fmt: skip
        X = check_array(X, dtype=[np.float64, np.float32])
    rows = take_rows(KMeans(n_clusters), X)
    weights = take_weights(rows, sample_weight)
    if rows.n < n_clusters:
        raise ValueError(f"n_samples={rows.n} should be >= n_clusters={n_clusters}.")
    norms = None
    if x_squared_norms is not None:
        norms = check_array(x_squared_norms, dtype=rows.dtype, ensure_2d=False)
        if len(norms) != rows.n:
            raise ValueError(
                f"The length of x_squared_norms {len(norms)} should be equal to the length of "
                f"n_samples {rows.n}."
            )
        norms = norms[rows.first : rows.first + len(rows.local)]
    chosen = one_random_state(rows.comm, random_state)
    return choose_seeds(rows, weights, n_clusters, chosen, norms, n_local_trials)


def check_counts(model: Any, rows: Rows) -> None:
    """**Local.** Let scikit-learn check its parameters against the number of rows, and fill in its own."""
    some = min(rows.n, model.n_clusters)  # all that it looks at
    model._check_params_vs_input(np.zeros((some, 1), rows.dtype))


def given_centers(model: Any, rows: Rows) -> Any:
    """**Local.** The centres that the user gave, checked; otherwise the name or function that finds some."""
    init = model.init
    if isinstance(init, str) or callable(init):
        return init
    init = check_array(whole_of(init), dtype=rows.dtype, copy=True, order="C")
    model._validate_center_shape(rows.local, init)
    return init


def start_centers(
    model: Any, weighted: WeightedRows, norms: Values | None, init: Any, k: int,
    random_state: np.random.RandomState,
) -> Values:  # fmt: skip
    """**Collective.** The centres that rounds start from."""
    rows = weighted.rows
    if isinstance(init, str) and init == "k-means++":
        return choose_seeds(rows, weighted.weights, k, random_state, norms)[0]
    if isinstance(init, str):
        return rows.fetch(draw_distinct(rows, weighted.weights, random_state, k))
    if not callable(init):
        return np.array(init)
    found = init(rows.answer(rows.local), k, random_state=random_state)
    found = check_array(whole_of(found), dtype=rows.dtype, copy=False, order="C")
    model._validate_center_shape(rows.local, found, n_centroids=k)
    return np.asarray(found)


def distances_to(rows: Rows, centers: Values) -> Values:
    """**Local.** The distance of every row to every centre, where the rows lie."""
    if not len(rows.local):
        nothing: Values = functions_for(rows.local).empty((0, len(centers)), rows.dtype)
        return nothing
    if not rows.on_gpu:
        return np.asarray(euclidean_distances(rows.local, centers))
    xp = functions_for(rows.local)
    local, places = rows.local.astype(np.float64, copy=False), rows.beside(centers)
    squares = (local * local).sum(axis=1)[:, None] + (places * places).sum(axis=1)
    far = xp.sqrt(xp.maximum(squares - 2 * (local @ places.T), 0.0))
    return far.astype(rows.dtype, copy=False)


def _same_clusters(rows: Rows, one: NDArray[Any], other: NDArray[Any], k: int) -> bool:
    """**Collective.** Whether all rows of each cluster of ``one`` are in one cluster of ``other``."""
    pairs = functions_for(one).bincount(one.astype(np.int64) * k + other, minlength=k * k)
    met = total_of(rows.comm, pairs.reshape(k, k).astype(np.int64)) > 0
    return bool((met.sum(axis=1) <= 1).all())


def _warn_of_few(rows: Rows, labels: NDArray[Any], k: int) -> None:
    """**Collective.** Warn, as scikit-learn does, if some clusters have no rows."""
    own = functions_for(labels).bincount(labels, minlength=k)
    found = int((total_of(rows.comm, own) > 0).sum())
    if found < k:
        warnings.warn(
            f"Number of distinct clusters ({found}) found smaller than n_clusters ({k}). "
            "Possibly due to duplicate points in X.",
            ConvergenceWarning,
            stacklevel=5,
        )
