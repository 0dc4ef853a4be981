"""SpectralCoclustering and SpectralBiclustering on global arrays: singular vectors are found over ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn.cluster
from numpy.typing import NDArray
from scipy.sparse import issparse

from redist.learn.borrowed import fit_context
from redist.learn.cluster.kmeans import KMeans
from redist.learn.cluster.minibatch import MiniBatchKMeans
from redist.learn.given import one_random_state, take_rows
from redist.learn.over_ranks import OverRanks
from redist.learn.vectors.eigenvectors import inner, times
from redist.learn.vectors.singular_vectors import (
    SingularVectors,
    balanced,
    bistochastic,
    exact_singular_vectors,
    logarithmic,
    random_singular_vectors,
)
from redist.runtime.cuda.loops import functions_for
from redist.runtime.ranks.world import comm_or_world
from redist.spmd import Rows, all_rows, cut_like, own_range, total_of, whole_of
from redist.text.progress import stage

Values = NDArray[Any]
SPARE = 10
"""Random vectors beyond those asked for, as in scikit-learn."""


class _Biclusters(OverRanks):
    """What both estimators do alike: checks, singular vectors, k-means on rows of a block."""

    row_labels_: Any
    column_labels_: Any
    rows_: Values
    columns_: Values
    random_state: Any
    svd_method: str
    n_svd_vecs: int | None
    mini_batch: bool
    init: Any
    n_init: int

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, progress: bool | None = None) -> Any:
        """**Collective over** the communicator of ``X``. Cluster the rows and the columns of ``X``."""
        if issparse(X):
            return self._fit_whole(X)
        rows = take_rows(self, X, on_gpu=True, dtype=np.float64, accept_sparse="csr")
        self._check_parameters(rows.n)
        rows.need(f"fit {type(self).__name__} to", 24 * rows.d, 8 * rows.d * 64)
        given = self.random_state
        if given is None:
            self.random_state = one_random_state(rows.comm, None)
        try:
            local = functions_for(rows.local).ascontiguousarray(rows.local)
            if not self._fit_rows(rows.holding(local)):
                return self._fit_whole(X)
        finally:
            self.random_state = given
        return self

    def _fit_rows(self, rows: Rows) -> bool:
        """**Collective.** Fit; False if the scaled matrix is not finite."""
        raise NotImplementedError

    def _fit_whole(self, X: Any, **weights: Any) -> Any:
        """**Collective.** scikit-learn's own fit, on every rank; what the first one found."""
        given, comm = self.random_state, comm_or_world(None) if issparse(X) else _comm_of(X)
        if given is None:
            self.random_state = one_random_state(comm, None)
        try:
            super().fit(whole_of(X))  # type: ignore[misc]
        finally:
            self.random_state = given
        for name in ("row_labels_", "column_labels_", "rows_", "columns_"):
            setattr(self, name, all_rows(comm, getattr(self, name))[0])
        return self

    def _vectors(self, scaled: Rows, k: int) -> SingularVectors:
        """**Collective.** The singular vectors of a scaled matrix."""
        stage("vectors")
        if self.svd_method == "arpack":
            return exact_singular_vectors(scaled, k)
        spare = SPARE if self.n_svd_vecs is None else self.n_svd_vecs
        return random_singular_vectors(scaled, k, spare, self.random_state)

    def _cluster(self, rows: Rows, block: Values, k: int) -> tuple[Values, Values]:
        """**Collective.** The centres of the own rows of a block, and their labels."""
        kind: Any = MiniBatchKMeans if self.mini_batch else KMeans
        options = {"init": self.init, "n_init": self.n_init, "random_state": self.random_state}
        model = kind(k, **options).fit(rows.as_global(block))
        return model.cluster_centers_, np.asarray(model.labels_.tile)

    def _set_labels(self, rows: Rows, of_rows: Values, of_columns: Values) -> None:
        """**Local.** Labels of all rows, and of all columns, as a user gets them."""
        self.row_labels_ = of_rows if rows.given is None else cut_like(rows.given, of_rows)
        self.column_labels_ = of_columns


class SpectralCoclustering(_Biclusters, sklearn.cluster.SpectralCoclustering):  # type: ignore[misc]
    """Clusters of rows together with columns, over all ranks: ``sklearn.cluster.SpectralCoclustering``.

    In an SPMD program::

        model = SpectralCoclustering(n_clusters=4, random_state=0).fit(x)      # x: a global array
        model.row_labels_                                                      # global, cut as x by rows
        model.column_labels_, model.rows_, model.columns_                      # NumPy, on every rank

    A rank holds a scaled copy of its rows. Singular vectors come from the same random numbers as
    scikit-learn's, and have the same bits for every number of ranks. ``svd_method="arpack"`` finds them as
    exactly as rounding allows, but with other products than ARPACK's. Rows on GPUs and their scaled copy
    stay there; blocks of vectors, and matrices of up to 65,536 numbers, are handled in memory. Sparse
    matrices, and matrices in which a row or a column adds up to 0, are passed to scikit-learn's own ``fit``,
    whole on every rank.
    """

    def _fit_rows(self, rows: Rows) -> bool:
        scaled, of_rows, of_columns = balanced(rows)
        if not _all_finite(scaled):
            return False
        vectors = self._vectors(scaled, 1 + int(np.ceil(np.log2(self.n_clusters))))
        here = of_rows[:, None] * vectors.of_rows[:, 1:]
        there = of_columns[:, None] * vectors.of_columns[:, 1:]
        both = _stacked(rows, here, there)
        labels = both.gather(self._cluster(both, both.local, self.n_clusters)[1])
        self._set_labels(rows, labels[: rows.n].copy(), labels[rows.n :].copy())
        self.rows_ = np.vstack([labels[: rows.n] == c for c in range(self.n_clusters)])
        self.columns_ = np.vstack([labels[rows.n :] == c for c in range(self.n_clusters)])
        return True


class SpectralBiclustering(_Biclusters, sklearn.cluster.SpectralBiclustering):  # type: ignore[misc]
    """A checkerboard of clusters of rows and of columns, over all ranks: ``SpectralBiclustering``.

    In an SPMD program::

        model = SpectralBiclustering(n_clusters=(4, 3), random_state=0).fit(x)  # x: a global array
        model.row_labels_                                                       # global, cut as x by rows
        model.column_labels_, model.rows_, model.columns_                       # NumPy, on every rank

    A rank holds a scaled copy of its rows; a round of ``method="bistochastic"`` is one all-reduce of ``2 d``
    numbers and one of two numbers. Otherwise it works like :class:`SpectralCoclustering`.
    """

    def _fit_rows(self, rows: Rows) -> bool:
        how = {"bistochastic": bistochastic, "scale": lambda x: balanced(x)[0], "log": logarithmic}
        scaled = how[self.method](rows)
        if not _all_finite(scaled):
            return False
        skip = 0 if self.method == "log" else 1
        vectors = self._vectors(scaled, self.n_components + skip)
        try:
            n_rows, n_columns = self.n_clusters
        except TypeError:
            n_rows = n_columns = self.n_clusters
        tall = _columns(rows)
        own = slice(tall.first, tall.first + len(tall.local))
        left = self._best(rows, vectors.of_rows[:, skip:], n_rows)
        right = self._best(tall, vectors.of_columns[own, skip:], n_columns)
        there = times(rows.local, tall.gather(right))
        of_rows = rows.gather(self._cluster(rows, there, n_rows)[1])
        back = inner(rows.comm, rows.n, rows.local, left)
        of_columns = tall.gather(self._cluster(tall, back[own], n_columns)[1])
        self._set_labels(rows, of_rows, of_columns)
        self.rows_ = np.vstack([of_rows == a for a in range(n_rows) for _ in range(n_columns)])
        self.columns_ = np.vstack(
            [of_columns == b for _ in range(n_rows) for b in range(n_columns)]
        )
        return True

    def _best(self, rows: Rows, block: Values, k: int) -> Values:
        """**Collective.** The columns of a block that ``k`` numbers approximate best."""
        apart = np.empty_like(block)
        for j in range(block.shape[1]):
            column = np.ascontiguousarray(block[:, j : j + 1])
            centers, labels = self._cluster(rows, column, k)
            apart[:, j] = block[:, j] - centers[labels, 0]
        far = np.sqrt(np.diag(inner(rows.comm, rows.n, apart, apart)))
        return np.ascontiguousarray(block[:, np.argsort(far)[: self.n_best]])


def _comm_of(X: Any) -> Any:
    return getattr(X, "comm", None) or comm_or_world(None)


def _all_finite(rows: Rows) -> bool:
    """**Collective.** Whether all numbers of a matrix are finite."""
    bad = np.array([not bool(np.isfinite(rows.local).all())], np.int8)
    return not total_of(rows.comm, bad, "max")[0]


def _columns(rows: Rows) -> Rows:
    """**Local.** The columns of a matrix, as things that are cut over ranks."""
    lo, hi = own_range(rows.comm, rows.d)
    return Rows(np.empty((hi - lo, 1)), lo, rows.d, rows.comm, None)


def _stacked(rows: Rows, here: Values, below: Values) -> Rows:
    """**Collective.** The own rows of a block whose rows are cut, above one that all ranks have."""
    last = rows.comm.rank == rows.comm.size - 1
    local = np.concatenate([here, below]) if last else here
    first = rows.first if not last else rows.n - len(here)
    return Rows(local, first, rows.n + len(below), rows.comm, None, is_even=False).even_out()
