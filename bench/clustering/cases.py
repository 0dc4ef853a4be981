"""What is clustered: an estimator, its options, the rows, and the aim beside scikit-learn's time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_blobs

Values = NDArray[Any]
Aims = tuple[float | None, float | None]
SPECTRAL, TREES = "SpectralClustering", "AgglomerativeClustering"


@dataclass(frozen=True, slots=True)
class Case:
    """One fit: ``aims`` are the most of scikit-learn's time that 1 and 2 ranks may take, if there are any."""

    name: str
    estimator: str
    n: int
    d: int
    options: dict[str, Any] = field(default_factory=dict)
    centers: int = 20
    aims: Aims = (None, None)
    given_seeds: bool = False
    """Whether rounds start from the first rows of each blob, so that all do the same work."""

    def rows(self) -> Values:
        """The rows, the same in every process."""
        made = make_blobs(self.n, self.d, centers=self.centers, random_state=0)[0]
        return np.ascontiguousarray(made)

    def model_options(self, x: Values) -> dict[str, Any]:
        """Options of the estimator for its rows."""
        if not self.given_seeds:
            return self.options
        k = self.options["n_clusters"]
        return {**self.options, "init": x[:k].copy(), "n_init": 1}


def _lloyd(n: int, d: int, k: int) -> Case:
    options = {"n_clusters": k, "max_iter": 10, "tol": 0.0}
    words = f"{n // 1000}k" if n < 10**6 else f"{n // 10**6}M"
    return Case(f"KMeans {words} x {d}, k={k}", "KMeans", n, d, options, k, (1.1, 1.0), True)


def _affinity(n: int) -> Case:
    options = {"max_iter": 30, "convergence_iter": 100, "damping": 0.7, "random_state": 0}
    aims = (0.6, 0.4) if n > 1000 else (None, None)
    return Case(f"AffinityPropagation {n}", "AffinityPropagation", n, 2, options, aims=aims)


def _of(
    name: str,
    estimator: str,
    n: int,
    d: int,
    aims: Aims = (None, None),
    centers: int = 20,
    **options: Any,
) -> Case:
    return Case(name, estimator, n, d, options, centers, aims)


SEEDED: dict[str, Any] = {"random_state": 0}
CASES = (
    *(_lloyd(100_000, d, k) for k in (8, 64) for d in (2, 8, 32)),
    _lloyd(1_000_000, 8, 8),
    _of("MiniBatchKMeans 100k x 32, k=64", "MiniBatchKMeans", 10**5, 32, centers=64, n_clusters=64,
        n_init=1, **SEEDED),
    _of("BisectingKMeans 100k x 8, k=16", "BisectingKMeans", 10**5, 8, centers=16, n_clusters=16, **SEEDED),
    _of("DBSCAN 100k x 2, eps .07", "DBSCAN", 10**5, 2, (1.2, 1.0), eps=0.07),
    _of("DBSCAN 100k x 2, eps .2", "DBSCAN", 10**5, 2, (1.2, 1.0), eps=0.2),
    _of("DBSCAN 50k x 8", "DBSCAN", 50_000, 8, (1.2, 1.0), eps=1.5),
    *(
        _of(f"HDBSCAN {n // 1000}k x {d}", "HDBSCAN", n, d, (0.7, 0.5), copy=True)
        for n, d in ((10_000, 2), (20_000, 2), (10_000, 8), (10_000, 32))
    ),
    _of("OPTICS 2k x 2", "OPTICS", 2_000, 2, (0.1, 0.06)),
    _of("OPTICS 5k x 2", "OPTICS", 5_000, 2, (0.1, 0.06)),
    _of("MeanShift 20k x 2, bins", "MeanShift", 20_000, 2, (0.3, None), bandwidth=1.0, bin_seeding=True),
    _of("MeanShift 2k x 2, all seeds", "MeanShift", 2_000, 2, (0.3, None), bandwidth=1.0),
    *(_affinity(n) for n in (1000, 2000, 4000)),
    _of("spectral rbf 2000", SPECTRAL, 2_000, 2, centers=8, n_clusters=8, **SEEDED),
    _of("spectral rbf 4000", SPECTRAL, 4_000, 2, (0.5, None), 8, n_clusters=8, **SEEDED),
    _of("spectral 10-NN 10k", SPECTRAL, 10_000, 2, centers=8, n_clusters=8, affinity="nearest_neighbors",
        **SEEDED),
    _of("ward 5000", TREES, 5_000, 8, (1.1, None), n_clusters=20),
    _of("ward 10000", TREES, 10_000, 8, (1.1, None), n_clusters=20),
    _of("average 10000", TREES, 10_000, 8, (1.1, None), n_clusters=20, linkage="average"),
    _of("single 10000", TREES, 10_000, 8, n_clusters=20, linkage="single"),
    _of("FeatureAgglomeration 5000 x 1000", "FeatureAgglomeration", 5_000, 1_000, n_clusters=20),
    _of("Birch 20k x 8", "Birch", 20_000, 8, (1.1, None), n_clusters=20),
    _of("SpectralCoclustering 5000 x 2000", "SpectralCoclustering", 5_000, 2_000, n_clusters=5, **SEEDED),
    _of("SpectralBiclustering 2000 x 1000", "SpectralBiclustering", 2_000, 1_000, n_clusters=5, **SEEDED),
)  # fmt: skip
"""Sizes at which scikit-learn takes from tenths of a second to seconds."""


def chosen(words: str) -> list[Case]:
    """The cases whose names contain one of some words, separated by commas; all if there are none."""
    wanted = [word for word in words.split(",") if word]
    return [one for one in CASES if not wanted or any(word in one.name for word in wanted)]
