"""OPTICS on global arrays: rows in the order in which a tree of one-sided reach grows over all ranks."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import sklearn.cluster
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.spatial.distance import cdist
from sklearn.metrics import pairwise_distances

from redist.learn.borrowed import BOOLEAN_METRICS, check_optics_size, fit_context
from redist.learn.given import take_rows
from redist.learn.kernels.cuda.near import MOST_NEAREST, can_stay
from redist.learn.near.nearest import distances_to_nearest
from redist.learn.near.searching import Search
from redist.learn.near.spanning_tree import (
    Apart,
    OutsideTree,
    approach,
    grow,
    grow_on_gpu,
    is_fused_by_scipy,
)
from redist.learn.over_ranks import OverRanks
from redist.spmd import Rows, cut_like, is_global, whole_of
from redist.text.progress import phase

Values = NDArray[Any]
UNIT = 10.0 ** np.finfo(np.float64).precision
"""scikit-learn rounds distances to whole parts of one of so many."""
Graph = tuple[Values, Values, Values, Values]
"""The order of rows, core distances, reachability, and from which row each was reached."""


class OPTICS(OverRanks, sklearn.cluster.OPTICS):  # type: ignore[misc]
    """Rows in order of density, over all ranks: ``sklearn.cluster.OPTICS`` for global arrays.

    In an SPMD program::

        model = OPTICS(min_samples=10).fit(x)       # x: a global array
        model.labels_, model.reachability_          # global, cut as x

    The ordering grows over the rows of all ranks, as the tree of ``HDBSCAN`` does. The ordering, core
    distances, reachability and predecessors, at most 56 bytes a row, are on every rank while scikit-learn's
    own functions extract clusters from them. Boolean metrics, distance matrices and sparse matrices are
    passed to scikit-learn's own ``fit``, whole on every rank; ``memory`` is not used. Rows on GPUs stay
    there with the default metric, ``minkowski`` with ``p=2``, and ``min_samples`` of at most 64.
    """

    _per_row = ("ordering_", "core_distances_", "reachability_", "predecessor_", "labels_")

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None, *, progress: bool | None = None) -> OPTICS:
        """**Collective over** the communicator of ``X``. Order its rows, and extract clusters from the order.

        With ``progress=True`` the first rank reports its progress on stderr. By default there is a bar on a
        terminal, and elsewhere a line if the fit takes more than 5 s; with False, nothing.
        """
        if issparse(X) or self.metric == "precomputed" or self.metric in BOOLEAN_METRICS:
            return self._fit_whole(X)
        rows = take_rows(self, X, on_gpu=self._stays(X), dtype=float, accept_sparse="csr")
        rows.need("fit OPTICS to", 24 * rows.d + 64, 56 * rows.n)
        graph = optics_graph(
            rows, self.min_samples, self.max_eps, self.metric, self.p, self.metric_params,
            self.algorithm, self.leaf_size,
        )  # fmt: skip
        self.ordering_, self.core_distances_, self.reachability_, self.predecessor_ = graph
        self.labels_ = self._labels(graph)
        return self._cut_like(X) if is_global(X) else self

    def _stays(self, X: Any) -> bool:
        """Whether rows on GPUs can stay there, and distances have SciPy's bits."""
        is_plain = self.metric == "minkowski" and self.p == 2 and not self.metric_params
        if not (can_stay(X) and is_plain) or is_fused_by_scipy() is None:
            return False
        least = self.min_samples * (X.shape[0] if self.min_samples <= 1 else 1)
        return bool(least <= MOST_NEAREST)

    def _labels(self, graph: Graph) -> Values:
        """**Local.** The clusters, from the order of all rows."""
        ordering, core, reach, predecessor = graph
        if self.cluster_method == "xi":
            labels, self.cluster_hierarchy_ = sklearn.cluster.cluster_optics_xi(
                reachability=reach,
                predecessor=predecessor,
                ordering=ordering,
                min_samples=self.min_samples,
                min_cluster_size=self.min_cluster_size,
                xi=self.xi,
                predecessor_correction=self.predecessor_correction,
            )
            return np.asarray(labels)
        eps = self.max_eps if self.eps is None else self.eps
        if eps > self.max_eps:
            raise ValueError(f"Specify an epsilon smaller than {self.max_eps}. Got {eps}.")
        return np.asarray(
            sklearn.cluster.cluster_optics_dbscan(
                reachability=reach, core_distances=core, ordering=ordering, eps=eps
            )
        )


def compute_optics_graph(
    X: Any, *, min_samples: float, max_eps: float, metric: Any, p: float, metric_params: Any,
    algorithm: str, leaf_size: int, n_jobs: int | None,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """**Collective.** Order, core distances, reachability and predecessors of rows, as in :class:`OPTICS`."""
    model = OPTICS(
        min_samples=min_samples, max_eps=max_eps, metric=metric, p=p, metric_params=metric_params,
        algorithm=algorithm, leaf_size=leaf_size, n_jobs=n_jobs, cluster_method="dbscan",
    ).fit(X)  # fmt: skip
    return model.ordering_, model.core_distances_, model.reachability_, model.predecessor_


def cluster_optics_dbscan(
    *, reachability: Any, core_distances: Any, ordering: Any, eps: float
) -> Any:
    """**Collective.** Clusters like DBSCAN's from an ordering of rows; global if the ordering is."""
    given = {"reachability": reachability, "core_distances": core_distances, "ordering": ordering}
    labels = sklearn.cluster.cluster_optics_dbscan(**_whole(given), eps=eps)
    return cut_like(reachability, labels) if is_global(reachability) else labels


def cluster_optics_xi(
    *, reachability: Any, predecessor: Any, ordering: Any, min_samples: float,
    min_cluster_size: float | None = None, xi: float = 0.05, predecessor_correction: bool = True,
) -> tuple[Any, Values]:  # fmt: skip
    """**Collective.** Clusters by steep slopes in an ordering of rows; the labels are global if it is."""
    given = {"reachability": reachability, "predecessor": predecessor, "ordering": ordering}
    labels, hierarchy = sklearn.cluster.cluster_optics_xi(
        **_whole(given),
        min_samples=min_samples,
        min_cluster_size=min_cluster_size,
        xi=xi,
        predecessor_correction=predecessor_correction,
    )
    return (cut_like(reachability, labels) if is_global(reachability) else labels), hierarchy


def _whole(given: dict[str, Any]) -> dict[str, Any]:
    return {name: whole_of(one) for name, one in given.items()}


def optics_graph(
    rows: Rows, min_samples: float, max_eps: float, metric: Any, p: float, metric_params: Any,
    algorithm: str, leaf_size: int,
) -> Graph:  # fmt: skip
    """**Collective.** The order in which rows are reached, how far and from which row, on every rank."""
    check_optics_size(min_samples, rows.n, "min_samples")
    least = max(2, int(min_samples * rows.n)) if min_samples <= 1 else int(min_samples)
    search = Search.of(
        rows.n, rows.d, n_neighbors=least, algorithm=algorithm, leaf_size=leaf_size,
        metric=metric, metric_params=metric_params, p=p,
    )  # fmt: skip
    core = distances_to_nearest(rows, least, search, phase("neighbours", 1, 3))[:, -1]
    core[core > max_eps] = np.inf
    core = np.rint(core * UNIT) / UNIT
    options = dict(metric_params or {})
    if metric == "minkowski":
        options.setdefault("p", p)
    start = np.array([np.inf, 0, -1, rows.holding(core).fetch([0])[0]])
    is_fused = is_fused_by_scipy() if metric == "minkowski" and options == {"p": 2} else None
    apart = Apart(most=max_eps, unit=UNIT, both=False, fused=bool(is_fused))
    said = phase("order", 2, 3)
    if rows.on_gpu:
        found = grow_on_gpu(rows, core, apart, start, said)
    else:
        outside = OutsideTree(rows.local, core, rows.first)
        step = None if is_fused is not None else partial(_step, outside, apart, metric, options)
        found = grow(rows, outside, apart, start, step, said)
    phase("clusters", 3, 3)
    ordering = found[:, 1].astype(np.int64)
    reach, predecessor = np.empty(rows.n), np.empty(rows.n, np.int64)
    reach[ordering], predecessor[ordering] = found[:, 0], found[:, 2]
    core = rows.gather(core)
    if np.isinf(reach).all():
        warnings.warn(
            "All reachability values are inf. Set a larger max_eps or all data will be considered "
            "outliers.",
            UserWarning,
            stacklevel=3,
        )
    return ordering, core, reach, predecessor


def _step(
    outside: OutsideTree, apart: Apart, metric: Any, options: Any, added: Values, offer: Values
) -> None:
    """**Local.** A step of a tree whose distances are worked out as scikit-learn does."""
    outside.take(int(added[1]))
    far = np.full(outside.m, np.inf)
    if np.isfinite(added[3]) and outside.m:
        others = outside.points
        if metric == "minkowski":
            far = cdist(added[None, 4:], others, "minkowski", **options)[0]
        else:
            far = np.asarray(pairwise_distances(added[None, 4:], others, metric, **options))[0]
    outside.offer(approach(outside, far, apart, added), offer)
