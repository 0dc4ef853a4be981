"""Rows on GPUs stay there, and answers are the host's to the bit; NumPy stands for CuPy where there is none.

As in ``mpirun -n 2 python -m tests.programs.learn.stay_on_gpus``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import sklearn.cluster
from mpi4py import MPI
from sklearn.datasets import make_blobs

from redist import pgas
from redist.learn.cluster import (
    DBSCAN,
    HDBSCAN,
    OPTICS,
    AgglomerativeClustering,
    Birch,
    BisectingKMeans,
    FeatureAgglomeration,
    MeanShift,
    MiniBatchKMeans,
)
from redist.learn.cluster import birch as birch_module
from redist.runtime.cuda import loops
from tests.fakes import numpy_cupy as standin
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
Case = tuple[str, Any, dict[str, Any], dict[str, Any]]
"""A name, rows, options of the estimator, and of its ``fit``."""
OBJECTS = ("n_features_in_", "root_", "dummy_leaf_")
"""Attributes that are no arrays, or are known."""


def sets() -> dict[str, Any]:
    """Rows of several shapes, the same on every rank."""
    random = np.random.default_rng(3)
    blobs = make_blobs(90, 2, centers=3, cluster_std=0.6, random_state=0)[0]
    twice = np.concatenate([blobs, blobs[::3], blobs[:5]])
    noisy = np.concatenate([blobs, random.uniform(-12, 12, (40, 2))])
    grid = np.stack(np.meshgrid(np.arange(9), np.arange(8)), axis=-1).reshape(-1, 2)
    return {
        "duplicates": twice, "noise": noisy, "float32": noisy.astype(np.float32),
        "grid": grid[random.permutation(len(grid))] * 1.0, "integers": grid, "few": blobs[:2],
        "large": make_blobs(2300, 2, centers=9, random_state=2)[0],
        "wide": make_blobs(60, 40, centers=3, random_state=1)[0],
    }  # fmt: skip


def dense() -> Iterator[Case]:
    """Cases of DBSCAN."""
    for name, x in sets().items():
        for eps in (1.0, 8.0) if name == "wide" else (0.4, 1.0, 2.0**0.5):
            yield f"{name} eps={eps}", x, {"eps": eps}, {}
    x = sets()["noise"]
    weights = np.random.default_rng(5).uniform(-0.5, 3, len(x))
    yield "weights", x, {"eps": 0.5, "min_samples": 4}, {"sample_weight": weights}
    x = x.astype(np.float32)
    yield "weights, float32", x, {"eps": 0.5, "min_samples": 4}, {"sample_weight": weights}
    yield "minkowski", x, {"eps": 0.5, "metric": "minkowski", "p": 2, "algorithm": "brute"}, {}
    yield "all noise", x, {"eps": 0.5, "min_samples": 500}, {}


def hierarchies() -> Iterator[Case]:
    """Cases of HDBSCAN."""
    for name, x in sets().items():
        least = 2 if name == "few" else 5
        yield name, x, {"min_cluster_size": least, "copy": True}, {}
    x = sets()["noise"]
    yield "alpha", x, {"alpha": 1.3, "min_samples": 2, "copy": True}, {}
    yield "many", x, {"min_samples": 64, "copy": True}, {}
    yield "leaves", x, {"cluster_selection_method": "leaf", "copy": True}, {}
    yield "centers", x, {"store_centers": "both", "copy": True}, {}


def orders() -> Iterator[Case]:
    """Cases of OPTICS."""
    for name, x in sets().items():
        if name not in ("wide", "large"):  # beyond 15 columns scikit-learn has other digits
            yield name, x, {"min_samples": 2 if name == "few" else 5}, {}
    x = sets()["noise"]
    yield "some are far", x, {"max_eps": 0.4, "min_samples": 4}, {}
    yield "all are far", x, {"max_eps": 1e-9, "min_samples": 4}, {}
    yield "a share", x, {"min_samples": 0.1, "cluster_method": "dbscan", "eps": 1.0}, {}


def trees() -> Iterator[Case]:
    """Cases of Birch; with few rows its subclusters are merged as if they were many."""
    for name, x in sets().items():
        k = {"few": 2, "grid": 1}.get(name, 4)  # distances of a grid tie
        yield name, x, {"threshold": 1.5 if name == "large" else 0.3, "n_clusters": k}, {}
    x = sets()["noise"]
    yield "subclusters", x, {"threshold": 0.6, "n_clusters": None, "branching_factor": 5}, {}
    yield "too few", x, {"threshold": 9.0, "n_clusters": 70}, {}


def merges() -> str | None:
    """Cases of AgglomerativeClustering, of rows alone and as many ranks as there are."""
    chosen = {"duplicates", "noise", "float32", "few", "wide", "grid"}
    each = [("ward", "chain_step"), ("average", "chain_step"), ("complete", "chain_step")]
    for linkage, loop in (*each, ("single", "grow")):
        for name, x in sets().items():
            if name in chosen:
                options = {"linkage": linkage, "n_clusters": 2, "compute_distances": True}
                alone = loop if COMM.size == 1 or linkage == "single" else "all_squares"
                wrong = compare(AgglomerativeClustering, (name, x, options, {}), alone)
                if wrong:
                    return f"{linkage}: {wrong}"
    return None


def birch() -> str | None:
    """Labels, distances, and rows that come later."""
    with mock.patch.object(birch_module, "ALONE", 10):
        wrong = all_of(Birch, trees, "nearest")
        x = sets()["noise"]
        there = pgas.asarray(x, type="{x}, {}").to_device("cuda")
        model, want = (Birch(threshold=0.5).fit(one).partial_fit(one) for one in (there, x))
    known = sklearn.cluster.Birch(threshold=0.5).fit(x).partial_fit(x).labels_
    far = model.transform(there)
    same = np.allclose(hosted(far), want.transform(x), atol=1e-6) and far.device != "cpu"
    same = same and all(np.array_equal(hosted(one.labels_), known) for one in (model, want))
    return wrong or (None if same else "other distances")


def features() -> str | None:
    """Merges of columns, their means, and columns again, of some shapes and with ties."""
    random = np.random.default_rng(4)
    for n, d, dtype in (
        (70, 5, np.float64),
        (9, 131, np.float32),
        (1100, 66, np.int64),
        (2, 2, float),
    ):
        x = (9 * random.normal(size=(n, d))).astype(dtype)
        there = pgas.asarray(x, type="{x}, {}").to_device("cuda")
        for options in ({"compute_distances": True}, {"metric": "l1", "linkage": "average"}):
            model, want = (FeatureAgglomeration(**options).fit(one) for one in (there, x))
            made, known = model.transform(there), want.transform(x)
            back = model.inverse_transform(made)
            for name, one, other in (
                ("merges", model.children_, want.children_),
                ("labels", model.labels_, want.labels_),
                ("distances", getattr(model, "distances_", 0), getattr(want, "distances_", 0)),
                ("means", hosted(made), known),
                ("columns", hosted(back), want.inverse_transform(known)),
            ):
                if not np.array_equal(one, other) or "cpu" in (made.device, back.device):
                    return f"{n}, {d}, {options}: other {name}"
        model = FeatureAgglomeration(pooling_func=np.max).fit(there)
        want = FeatureAgglomeration(pooling_func=np.max).fit(x)
        if not np.array_equal(hosted(model.transform(there)), want.transform(x)):
            return f"{n}, {d}: other maxima"
    return None


def shifts() -> Iterator[Case]:
    """Cases of MeanShift."""
    for name, x in sets().items():
        options = {"bandwidth": 9.0 if name == "wide" else 1.5, "bin_seeding": name == "large"}
        yield name, x, options, {}
    x = sets()["noise"]
    yield "bins", x, {"bandwidth": 1.2, "bin_seeding": True, "min_bin_freq": 2}, {}
    yield "orphans", x, {"bandwidth": 1.2, "bin_seeding": True, "cluster_all": False}, {}
    yield "seeds", x, {"bandwidth": 2.0, "seeds": x[:7]}, {}
    yield "estimated", x, {"bin_seeding": True}, {}


def bisections() -> Iterator[Case]:
    """Cases of BisectingKMeans."""
    for name, x in sets().items():
        yield name, x, {"n_clusters": 2 if name == "few" else 6, "random_state": 1}, {}
    x, random = sets()["noise"], np.random.default_rng(5)
    yield "largest", x, {"bisecting_strategy": "largest_cluster", "random_state": 0}, {}
    yield "at random", x, {"init": "random", "n_init": 3, "random_state": 0}, {}
    options = {"n_clusters": 5, "random_state": 0}
    yield "weights", x, options, {"sample_weight": random.uniform(0.1, 3, len(x))}


def batches() -> Iterator[Case]:
    """Cases of MiniBatchKMeans."""
    for name, x in sets().items():
        given = {"n_clusters": 2 if name == "few" else 9, "batch_size": 32, "random_state": 1}
        yield name, x, given, {}
    x, random = sets()["noise"], np.random.default_rng(5)
    options: dict[str, Any] = {"n_clusters": 40, "batch_size": 20, "random_state": 0, "tol": 1e-3}
    yield "few rows each", x, {**options, "reassignment_ratio": 0.6}, {}
    yield "weights", x, options, {"sample_weight": random.uniform(0.1, 3, len(x))}
    yield "to the end", x, {**options, "init": "random", "max_no_improvement": None}, {}


def elsewhere() -> str | None:
    """What has no loops for GPUs works in memory."""
    x = sets()["noise"]
    gone = x.copy()
    gone[3, 1], gone[50, 0] = np.nan, np.inf
    for kind, case in (
        (DBSCAN, ("manhattan", x, {"eps": 0.7, "metric": "manhattan"}, {})),
        (HDBSCAN, ("many", x, {"min_samples": 65, "copy": True}, {})),
        (OPTICS, ("many", x, {"min_samples": 65}, {})),
        (OPTICS, ("euclidean", x, {"metric": "euclidean"}, {})),
        (AgglomerativeClustering, ("l1", x, {"linkage": "average", "metric": "l1"}, {})),
        (HDBSCAN, ("cityblock", x, {"metric": "cityblock", "copy": True}, {})),
        (HDBSCAN, ("not finite", gone, {"copy": True}, {})),
    ):
        wrong = compare(kind, case)
        if wrong:
            return wrong
    return None


@contextmanager
def watched() -> Iterator[set[str]]:
    """The names of loops that are started while a block runs."""
    found: set[str] = set()
    given = loops._compiled

    class Module:
        def __init__(self, module: Any) -> None:
            self._module = module

        def get_function(self, name: str) -> Any:
            found.add(name)
            return self._module.get_function(name)

    vars(loops)["_compiled"] = lambda *args: Module(given(*args))
    try:
        yield found
    finally:
        vars(loops)["_compiled"] = given


def hosted(value: Any) -> Any:
    """An answer as an array of NumPy."""
    return value.to_device("cpu").gather() if isinstance(value, pgas.Array) else np.asarray(value)


def compare(kind: Any, case: Case, loop: str = "") -> str | None:
    """What is wrong with a case: other answers than the host's, or a loop that did not run."""
    name, x, options, more = case
    want = kind(**options).fit(x, **more)
    there = pgas.asarray(x, type="{x}, {}").to_device("cuda")
    with watched() as started:
        model = kind(**options).fit(there, **more)
    if loop and there.tile is not None and len(there.tile) and loop not in started:
        return f"{name}: only {sorted(started)} ran on the GPU"
    if not model.labels_.device.startswith("cuda"):
        return f"{name}: labels are on {model.labels_.device}"
    for what in sorted(vars(want)):
        if what.endswith("_") and not what.startswith("_") and what not in OBJECTS:
            one, other = hosted(getattr(model, what)), hosted(getattr(want, what))
            if one.shape != other.shape or not np.array_equal(one, other, equal_nan=True):
                return f"{name}: other {what}: {one.tolist()}, not {other.tolist()}"
    if hasattr(model, "predict"):
        centers = getattr(model, "cluster_centers_", None)
        if centers is None:
            same = np.array_equal(hosted(model.predict(there)), want.predict(x))
            return None if same else f"{name}: other predictions"
        apart = np.linalg.norm(x[:, None] - centers, axis=2)
        found, known = (
            apart[np.arange(len(x)), hosted(one)] for one in (model.predict(there), want.predict(x))
        )
        if not np.allclose(found, known):
            return f"{name}: wrong predictions"
    return None


def all_of(kind: Any, cases: Callable[[], Iterator[Case]], loop: str) -> str | None:
    """The first thing that is wrong with cases of an estimator."""
    return next(filter(None, [compare(kind, case, loop) for case in cases()]), None)


CHECKS: dict[str, Callable[[], str | None]] = {
    "MiniBatchKMeans": lambda: all_of(MiniBatchKMeans, batches, "move_centers"),
    "BisectingKMeans": lambda: all_of(BisectingKMeans, bisections, "lloyd"),
    "DBSCAN": lambda: all_of(DBSCAN, dense, "weigh"),
    "HDBSCAN": lambda: all_of(HDBSCAN, hierarchies, "grow"),
    "OPTICS": lambda: all_of(OPTICS, orders, "grow"),
    "AgglomerativeClustering": merges,
    "Birch": birch,
    "FeatureAgglomeration": features,
    "MeanShift": lambda: all_of(MeanShift, shifts, "sum_near"),
    "in memory": elsewhere,
}


def program() -> int:
    """0 if nothing is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--with-gpu", action="store_true")
    if not parser.parse_args().with_gpu:
        standin.install()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_named(CHECKS)


if __name__ == "__main__":
    main(program)
