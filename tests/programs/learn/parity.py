"""Clustering over ranks against scikit-learn, and against itself on one rank, on sets of all kinds.

As in ``mpirun -n 3 python -m tests.programs.learn.parity KMeans``. On every set an estimator gives the same
bits as on one rank, for a global array and for a NumPy array, and the labels and numbers of scikit-learn;
what scikit-learn refuses is refused in the same words.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import sklearn.cluster
from mpi4py import MPI
from sklearn.datasets import make_blobs, make_circles, make_moons

from redist import pgas
from tests.programs.together import all_well, main

COMM = MPI.COMM_WORLD


def _skewed() -> Any:
    x, _ = make_blobs(150, centers=3, random_state=170)
    return x @ np.array([[0.6, -0.6], [-0.4, 0.8]])


def _grid() -> Any:
    return np.array([(i, j) for i in range(12) for j in range(11)], dtype=float)


def _duplicates() -> Any:
    few = np.random.RandomState(5).randint(0, 4, (25, 2)).astype(float)
    return few[np.random.RandomState(6).randint(0, 25, 150)]


SETS: dict[str, Callable[[], Any]] = {
    "blobs": lambda: make_blobs(160, 3, centers=5, random_state=1)[0],
    "moons": lambda: make_moons(150, noise=0.06, random_state=2)[0],
    "circles": lambda: make_circles(150, noise=0.05, factor=0.5, random_state=3)[0],
    "skewed": _skewed,
    "varied": lambda: make_blobs(150, cluster_std=[1.0, 2.5, 0.5], random_state=170)[0],
    "duplicates": _duplicates,
    "grid": _grid,
    "uniform": lambda: np.random.RandomState(7).rand(150, 2),
    "one cluster": lambda: make_blobs(100, 2, centers=1, random_state=8)[0],
    "wide": lambda: make_blobs(90, 20, centers=4, random_state=9)[0],
    "five rows": lambda: make_blobs(5, 2, centers=2, random_state=10)[0],
}


@dataclass(frozen=True)
class Case:
    """Parameters of an estimator, what must be as scikit-learn's, and what may differ by rounding."""

    options: dict[str, Any]
    same: tuple[str, ...] = ("labels_",)
    near: tuple[str, ...] = ()
    weighted: bool = False
    ties: tuple[str, ...] = field(default=())
    """Sets where distances or eigenvalues tie, and the way that scikit-learn happens to go decides."""


DENSE = ("labels_", "core_sample_indices_", "components_")
REACHED = ("labels_", "ordering_", "predecessor_")
REACH = ("reachability_", "core_distances_")
SHIFTED = ("labels_", "n_iter_")
EXEMPLARS = ("labels_", "cluster_centers_indices_", "n_iter_")
MERGED = ("labels_", "children_", "n_clusters_", "n_leaves_")
HEIGHTS = ("distances_",)
APART = ("blobs", "wide")
"""Sets of more parts than clusters, so that eigenvalues are equal."""
BICLUSTERS = ("row_labels_", "column_labels_", "rows_", "columns_")
KMEANS: dict[str, Any] = {"same": ("labels_", "n_iter_"), "near": ("cluster_centers_", "inertia_")}
CASES: dict[str, Case] = {
    "KMeans": Case({"n_clusters": 3, "n_init": 2, "random_state": 0}, **KMEANS, weighted=True),
    "KMeans random": Case({"n_clusters": 4, "init": "random", "random_state": 1}, **KMEANS),
    "MiniBatchKMeans": Case(
        {"n_clusters": 3, "batch_size": 64, "random_state": 0, "n_init": 2},
        ("labels_", "n_iter_", "n_steps_"),
        ("cluster_centers_", "inertia_"),
        weighted=True,
    ),
    "BisectingKMeans": Case(
        {"n_clusters": 3, "random_state": 0, "n_init": 2},
        near=("cluster_centers_", "inertia_"),
        weighted=True,
    ),
    "DBSCAN": Case({"eps": 0.3}, DENSE, weighted=True),
    "DBSCAN wide": Case({"eps": 2.5, "min_samples": 4}, DENSE),
    "DBSCAN brute": Case({"eps": 1.0, "algorithm": "brute", "metric": "manhattan"}, DENSE),
    "OPTICS": Case({}, REACHED, REACH),
    "OPTICS near": Case(
        {"max_eps": 1.2, "min_samples": 4, "cluster_method": "dbscan"}, REACHED, REACH
    ),
    "MeanShift": Case({"bandwidth": 1.3}, SHIFTED, ("cluster_centers_",)),
    "MeanShift bins": Case(
        {"bin_seeding": True, "cluster_all": False}, SHIFTED, ("cluster_centers_",)
    ),
    "AffinityPropagation": Case(
        {"random_state": 0}, EXEMPLARS, ("affinity_matrix_",), ties=("duplicates",)
    ),
    "AffinityPropagation few": Case(
        {"random_state": 1, "preference": -50, "damping": 0.8, "convergence_iter": 7},
        EXEMPLARS,
        ties=("duplicates", "grid"),
    ),
    "AgglomerativeClustering": Case({"n_clusters": 3, "compute_distances": True}, MERGED, HEIGHTS),
    "AgglomerativeClustering average": Case(
        {"n_clusters": 4, "compute_distances": True, "linkage": "average", "metric": "l1"},
        MERGED,
        HEIGHTS,
    ),
    "AgglomerativeClustering complete": Case(
        {"n_clusters": None, "distance_threshold": 2.0, "linkage": "complete"}, MERGED, HEIGHTS
    ),
    "AgglomerativeClustering single": Case(
        {"n_clusters": 3, "compute_distances": True, "linkage": "single"}, MERGED, HEIGHTS
    ),
    "Birch": Case({"threshold": 0.4, "branching_factor": 7}, near=("subcluster_centers_",)),
    "FeatureAgglomeration": Case({"compute_distances": True}, MERGED, HEIGHTS),
    "FeatureAgglomeration complete": Case(
        {"compute_distances": True, "linkage": "complete", "metric": "l1"}, MERGED, HEIGHTS
    ),
    "SpectralClustering": Case(
        {"n_clusters": 3, "random_state": 0, "n_init": 3},
        near=("affinity_matrix_",),
        ties=("wide",),  # no two rows are alike: affinities are those of nothing, eigenvalues all 1
    ),
    "SpectralClustering near": Case(
        {
            "n_clusters": 3,
            "n_neighbors": 12,
            "affinity": "nearest_neighbors",
            "random_state": 0,
            "n_init": 3,
        },
        ties=("duplicates", "grid", *APART),
    ),
    "SpectralClustering discretize": Case(
        {"n_clusters": 2, "gamma": 0.3, "assign_labels": "discretize", "random_state": 0},
        ties=("wide",),
    ),
    "SpectralClustering cluster_qr": Case(
        {"n_clusters": 2, "affinity": "laplacian", "gamma": 0.7, "assign_labels": "cluster_qr"},
        ties=("grid", "wide"),
    ),
    "SpectralCoclustering": Case({"n_clusters": 2, "random_state": 0, "n_init": 2}, BICLUSTERS),
    "SpectralCoclustering arpack": Case(
        {"n_clusters": 3, "random_state": 0, "svd_method": "arpack", "n_init": 2}, BICLUSTERS
    ),
    "SpectralBiclustering": Case({"n_clusters": 2, "random_state": 0, "n_init": 1}, BICLUSTERS),
    "SpectralBiclustering log": Case(
        {"n_clusters": (3, 2), "method": "log", "random_state": 0, "n_init": 1, "mini_batch": True},
        BICLUSTERS,
    ),
    "HDBSCAN": Case({"copy": True}, near=("probabilities_",)),
    "HDBSCAN few": Case({"min_samples": 2, "copy": True}, near=("probabilities_",)),
    "HDBSCAN other": Case(
        {"metric": "canberra", "min_cluster_size": 4, "copy": True}, near=("probabilities_",)
    ),
}


def checks_on(ranks: int, args: Sequence[str]) -> tuple[str, ...]:
    """The names of all checks of some estimators, of all if none are named."""
    return tuple(f"{title} {name}" for title in titles_of(args) for name in SETS)


def titles_of(names: Sequence[str]) -> list[str]:
    """The cases of some estimators."""
    return [title for title in CASES if not names or title.split()[0] in names]


Fitted = tuple[Any, str]


def fit(kind: Any, case: Case, x: Any, weights: Any) -> Fitted:
    """A fitted estimator, or the words in which the data was refused."""
    given = {} if weights is None else {"sample_weight": weights}
    try:
        return kind(**case.options).fit(x, **given), ""
    except ValueError as problem:
        return None, f"{type(problem).__name__}: {problem}"


def whole(value: Any) -> Any:
    """A result as a NumPy array."""
    return np.asarray(value.gather() if isinstance(value, pgas.Array) else value)


def differences(case: Case, set_name: str, x: Any, weights: Any, name: str) -> str | None:
    """**Collective.** What is wrong with an estimator on a set."""
    kind = getattr(import_module("redist.learn.cluster"), name)
    weighing = None if weights is None else pgas.asarray(weights)
    made = {
        "NumPy": fit(kind, case, x, weights),
        "global": fit(kind, case, pgas.asarray(x, type="{x}, {}"), weighing),
        "by columns": fit(kind, case, pgas.asarray(x, type="{}, {x}"), weights),
    }
    alone, words = fit(kind, case, pgas.asarray(x, comm=MPI.COMM_SELF), weights)
    theirs, refused = fit(getattr(sklearn.cluster, name), case, x, weights)
    for how, (ours, said) in made.items():
        if said != words or said != refused:
            return f"{how}: {said!r}; on one rank {words!r}; scikit-learn {refused!r}"
        if ours is None:
            continue
        for key in (*case.same, *case.near):
            if not np.array_equal(whole(getattr(ours, key)), whole(getattr(alone, key))):
                return f"{how}: {key} is not what it is on one rank"
        if set_name in case.ties:
            continue
        for key in case.same:
            mine, other = whole(getattr(ours, key)), np.asarray(getattr(theirs, key))
            if mine.dtype.kind != other.dtype.kind or not np.array_equal(mine, other):
                return f"{how}: {np.count_nonzero(mine != other)} of {key} differ"
        for key in case.near:
            mine, other = whole(getattr(ours, key)), np.asarray(getattr(theirs, key))
            if not np.allclose(mine, other, rtol=1e-11, atol=1e-11):
                return f"{how}: {key} differs by {np.abs(mine - other).max()}"
    return None


def check(title: str, set_name: str) -> str | None:
    """**Collective.** What is wrong, without weights and with them."""
    case, name = CASES[title], title.split()[0]
    x = SETS[set_name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = differences(case, set_name, x, None, name)
        if wrong is None and case.weighted:
            weights = np.random.RandomState(3).randint(1, 5, len(x)).astype(float)
            wrong = differences(case, set_name, x, weights, name)
            return None if wrong is None else f"with weights: {wrong}"
    return wrong


def program() -> int:
    """0 if nothing is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    titles = titles_of(parser.parse_args().names)
    wrong = 0
    for title in titles:
        for set_name in SETS:
            wrong += not all_well(COMM, f"{title} {set_name}", check(title, set_name))
    if COMM.rank == 0:
        print(f"{wrong} wrong of {len(titles) * len(SETS)} ({COMM.size} ranks)", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    main(program)
