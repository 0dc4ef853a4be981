"""SpectralClustering on global arrays: affinities are cut by rows, and eigenvectors are found over ranks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import sklearn.cluster
from numpy.typing import NDArray
from scipy.sparse import issparse

from redist.learn.borrowed import cluster_qr, discretize, fit_context
from redist.learn.cluster.kmeans import KMeans
from redist.learn.given import one_random_state, take_rows
from redist.learn.near.nearest import nearest_rows
from redist.learn.near.searching import Search
from redist.learn.over_ranks import ClustersRows
from redist.learn.vectors.affinities import (
    SYMMETRIC,
    ScaledAffinity,
    diagonal_of,
    gathered_graph,
    gaussian_rows,
    kernel_rows,
    nearest_affinity,
    transposed_rows,
)
from redist.learn.vectors.eigenvectors import (
    block_width,
    largest_eigenvectors,
    start_block,
    with_signs,
)
from redist.runtime.cuda.loops import functions_for
from redist.spmd import Rows, all_rows, total_of
from redist.text.progress import stage

Values = NDArray[Any]
BASIS = 9
"""Blocks of vectors that are held while eigenvectors are sought."""
ON_GPU = ("rbf", "precomputed")
"""Affinities that stay on a GPU if the rows are there."""


class SpectralClustering(ClustersRows, sklearn.cluster.SpectralClustering):  # type: ignore[misc]
    """Clusters of a graph of affinities, over all ranks: ``sklearn.cluster.SpectralClustering``.

    In an SPMD program::

        model = SpectralClustering(n_clusters=8, random_state=0).fit(x)     # x: a global array
        model.labels_, model.affinity_matrix_                               # global, cut as x by rows

    A rank holds its rows of the affinities, ``n^2 / p`` numbers. With ``affinity="nearest_neighbors"`` it
    holds its rows of a sparse graph, and for a global array ``affinity_matrix_`` is these rows. If several
    rows are equally near, the first ones are taken as neighbours.

    Eigenvectors are found by products with blocks of vectors, each gathered to every rank, and have the same
    bits for every number of ranks. scikit-learn's come from a factorisation: they differ in the last digits
    or, where eigenvalues are equal, by a rotation.

    If rows are on GPUs, the affinities ``"rbf"`` and ``"precomputed"`` lie there too, and blocks of vectors
    travel between the GPU and memory; the bits then depend on how a GPU adds up products. Other affinities
    are computed in memory. Sparse matrices, ``eigen_solver="amg"``, precomputed distances to neighbours,
    kernels with negative values, and inputs with no more rows than vectors are passed to scikit-learn's own
    ``fit``, whole on every rank.
    """

    labels_: Any
    affinity_matrix_: Any
    _per_row = ("labels_", "affinity_matrix_")

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, progress: bool | None = None) -> SpectralClustering:
        """**Collective over** the communicator of ``X``. Cluster its rows, or the affinities in it."""
        k = self.n_clusters if self.n_components is None else self.n_components
        given = self.affinity == "precomputed_nearest_neighbors"
        if issparse(X) or given or self.eigen_solver == "amg":
            return self._fit_whole(X)
        rows = take_rows(
            self, X, on_gpu=self.affinity in ON_GPU, dtype=np.float64, ensure_min_samples=2,
            accept_sparse=["csr", "csc", "coo"],
        )  # fmt: skip
        if rows.n <= k:
            return self._fit_whole(X)
        sparse = self.affinity == "nearest_neighbors"
        width = block_width(rows.n, k)
        row_bytes = 16 * self.n_neighbors if sparse else 8 * rows.n
        rows.need(
            "fit SpectralClustering to", row_bytes + 8 * BASIS * width, 8 * rows.n * (width + 1)
        )
        if rows.n == rows.d and self.affinity != "precomputed":
            warnings.warn(
                "The spectral clustering API has changed. ``fit``now constructs an affinity matrix from "
                "data. To use a custom affinity matrix, set ``affinity=precomputed``.",
                stacklevel=4,
            )
        random_state = one_random_state(rows.comm, self.random_state)
        stage("affinities")
        own = self._affinities(rows)
        is_negative = bool(own.size and own.min() < 0)
        if total_of(rows.comm, np.array([is_negative], np.int8), "max")[0]:
            return self._fit_whole(X)
        stage("vectors")
        vectors = self._embed(rows, own, k, random_state)
        self._keep(rows, own)
        stage("labels")
        if self.verbose and rows.comm.rank == 0:
            print(f"Computing label assignment using {self.assign_labels}")
        self.labels_ = rows.answer(self._label(rows, vectors, random_state))
        return self

    def _affinities(self, rows: Rows) -> Any:
        """**Collective.** The own rows of the affinities, with their diagonal."""
        if self.affinity == "nearest_neighbors":
            search = Search.of(rows.n, rows.d, n_neighbors=self.n_neighbors)
            return nearest_affinity(rows, nearest_rows(rows, self.n_neighbors, search))
        if self.affinity == "rbf":
            return gaussian_rows(rows, self.gamma)
        if self.affinity == "precomputed":
            return _made_symmetric(rows)
        params = dict(self.kernel_params or {})
        if not callable(self.affinity):
            params |= {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        return kernel_rows(rows, self.affinity, params)

    def _embed(self, rows: Rows, own: Any, k: int, random_state: np.random.RandomState) -> Values:
        """**Collective.** The own rows of the vectors by which rows are clustered."""
        diagonal, kept = diagonal_of(rows), _diagonal(rows, own)
        own[diagonal] = 0
        scaled = ScaledAffinity.of(rows, own)
        if not scaled.is_connected():
            warnings.warn(
                "Graph is not fully connected, spectral embedding may not work as expected.",
                stacklevel=5,
            )
        n, width = rows.n, block_width(rows.n, k)
        if self.eigen_solver == "lobpcg":
            drawn = random_state.standard_normal(size=(n, k + 1)) if n >= 5 * k + 1 else None
        else:
            drawn = random_state.uniform(-1, 1, n)[:, None]  # as scikit-learn draws
        whose = (rows.first, rows.first + len(rows.local))
        tol = 0.0 if self.eigen_tol == "auto" else float(self.eigen_tol)
        start = start_block(n, whose, width, drawn)
        found = largest_eigenvectors(scaled.symmetric(), k, start, tol)
        if self.verbose and rows.comm.rank == 0:
            print(f"Eigenvectors after {found.n_products} products, residual {found.residual:.1e}")
        own[diagonal] = kept
        return with_signs(rows.comm, found.vectors / scaled.roots[:, None])[0]

    def _keep(self, rows: Rows, own: Any) -> None:
        """**Collective.** Set the affinities that a user sees."""
        if self.affinity == "precomputed":
            self.affinity_matrix_ = rows.gather(rows.local) if rows.given is None else rows.given
        elif not issparse(own):
            self.affinity_matrix_ = rows.holding(own).answer(own)
        elif rows.given is not None:
            self.affinity_matrix_ = own
        else:
            self.affinity_matrix_ = gathered_graph(rows, own)

    def _label(self, rows: Rows, vectors: Values, random_state: np.random.RandomState) -> Values:
        """**Collective.** The labels of the own rows."""
        last = rows.first + len(rows.local)
        if self.assign_labels == "cluster_qr":
            return np.asarray(cluster_qr(rows.gather(vectors)))[rows.first : last]
        if self.assign_labels == "discretize":
            found = discretize(rows.gather(vectors), random_state=random_state)
            return np.asarray(found)[rows.first : last]
        model = KMeans(
            self.n_clusters, random_state=random_state, n_init=self.n_init, verbose=self.verbose
        )
        labels = model.fit(rows.as_global(vectors)).labels_.tile
        assert labels is not None
        return np.asarray(labels)


def spectral_clustering(
    affinity: Any, *, n_clusters: int = 8, n_components: int | None = None,
    eigen_solver: str | None = None, random_state: Any = None, n_init: int = 10,
    eigen_tol: Any = "auto", assign_labels: str = "kmeans", verbose: bool = False,
) -> Any:  # fmt: skip
    """**Collective.** Labels as in :class:`SpectralClustering`, from a matrix of affinities."""
    return SpectralClustering(
        n_clusters, n_components=n_components, eigen_solver=eigen_solver, random_state=random_state,
        n_init=n_init, affinity="precomputed", eigen_tol=eigen_tol, assign_labels=assign_labels,
        verbose=verbose,
    ).fit(affinity).labels_  # fmt: skip


def _made_symmetric(rows: Rows) -> Values:
    """**Collective.** A copy of the own rows of a matrix, averaged with its transpose if that is another."""
    if rows.n != rows.d:
        raise ValueError(f"array must be 2-dimensional and square. shape = {(rows.n, rows.d)}")
    turned, xp = transposed_rows(rows, rows.local), functions_for(rows.local)
    same = bool(xp.allclose(rows.local, turned, atol=SYMMETRIC))
    if all_rows(rows.comm, np.array([same])).all():
        copied: Values = xp.array(rows.local, order="C")
        return copied
    warnings.warn(
        "Array is not symmetric, and will be converted to symmetric by average with its transpose.",
        stacklevel=6,
    )
    return 0.5 * (rows.local + turned)


def _diagonal(rows: Rows, own: Any) -> Values:
    """**Local.** The diagonal of the own rows."""
    if issparse(own):
        return np.asarray(own.diagonal(rows.first))[: len(rows.local)]
    found: Values = own[diagonal_of(rows)]
    return found
