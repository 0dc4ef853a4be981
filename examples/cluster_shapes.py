"""Draw the clusters of every estimator: ``mpirun -n 4 python examples/cluster_shapes.py --svg clusters.svg``.

Rows are made, scaled, clustered and scored on all ranks; only the picture is drawn from the whole. The
number in a corner is the adjusted Rand score against the groups that rows were made of. Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import pgas
from redist.learn import cluster
from redist.learn.datasets import make_blobs, make_circles, make_moons
from redist.learn.metrics import adjusted_rand_score
from redist.text.svg import Figure, column, document, rect, row, text

COLOURS = ("#377eb8", "#ff7f00", "#4daf4a", "#f781bf", "#a65628", "#984ea3", "#999999", "#e41a1c")
SIDE, LEFT = 92, 8
"""Width of a panel, and where the text of a row starts."""


def sets(n: int) -> dict[str, tuple[pgas.Array, Any, int]]:
    """Rows, their groups, and how many clusters to look for."""
    blobs: dict[str, Any] = {"centers": [[0, 0], [6, 6], [9, -3]], "random_state": 4}
    slanted = [[0.6, -0.6], [-0.4, 0.8]]
    return {
        "circles": (*make_circles(n, factor=0.5, noise=0.05, random_state=1), 2),
        "moons": (*make_moons(n, noise=0.05, random_state=1), 2),
        "varied": (*make_blobs(n, cluster_std=[1.0, 2.5, 0.5], **blobs), 3),
        "slanted": (*make_blobs(n, transformation=slanted, **blobs), 3),
        "blobs": (*make_blobs(n, **blobs), 3),
        "no groups": (pgas.random.generator(1).uniform((n, 2)), None, 3),
    }


def models(k: int) -> dict[str, Any]:
    """Every estimator of rows that is there, made for ``k`` clusters where it must be told."""
    options: dict[str, dict[str, Any]] = {
        "MiniBatchKMeans": {"n_clusters": k, "random_state": 0},
        "KMeans": {"n_clusters": k, "random_state": 0},
        "BisectingKMeans": {"n_clusters": k, "random_state": 0},
        "AffinityPropagation": {"damping": 0.9, "preference": -50, "random_state": 0},
        "MeanShift": {"bandwidth": 0.7, "bin_seeding": True},
        "SpectralClustering": {
            "n_clusters": k,
            "affinity": "nearest_neighbors",
            "random_state": 0,
        },
        "AgglomerativeClustering": {"n_clusters": k, "linkage": "single"},
        "DBSCAN": {"eps": 0.3},
        "HDBSCAN": {"min_samples": 3, "min_cluster_size": 15, "copy": True},
        "OPTICS": {"min_samples": 7, "xi": 0.05, "min_cluster_size": 0.1},
        "Birch": {"n_clusters": k},
    }
    return {
        name: getattr(cluster, name)(**options[name]) for name in options if hasattr(cluster, name)
    }


def panel(rows: Any, labels: Any, score: float | None) -> Figure:
    """Rows as dots in the colours of their clusters; what is in none is grey."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    places = 5 + (rows - low) / (high - low).max() * (SIDE - 10)
    places += (SIDE - 10 - (high - low) / (high - low).max() * (SIDE - 10)) / 2
    body = rect(0.5, 0.5, SIDE - 1, SIDE - 1, "card")
    for label in np.unique(labels):
        colour = "#b8b8b4" if label < 0 else COLOURS[label % len(COLOURS)]
        dots = "".join(f"M{x:.0f} {SIDE - y:.0f}h0" for x, y in places[labels == label])
        body += f'<path d="{dots}" stroke="{colour}" stroke-width="2.6" stroke-linecap="round"/>'
    if score is not None:
        body += text(SIDE - 4, SIDE - 4, f"{score:.2f}", 9, "ink", "end")
    return Figure(SIDE, SIDE, body)


def main() -> None:
    """Cluster, score and draw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # of rounds that were not enough: the picture shows it
    lines, scores = [], dict[tuple[str, str], float]()
    for of, (x, y, k) in sets(args.rows).items():
        x = ((x - pgas.mean(x, axis=0)) / pgas.std(x, axis=0)).to("{x}, {}")
        rows = x.gather()
        panels = []
        for name, model in models(k).items():
            labels = model.fit(x).labels_
            score = None if y is None else adjusted_rand_score(y, labels)
            if score is not None:
                scores[name, of] = score
            panels.append(panel(rows, labels.gather(), score))
        lines.append(row(panels, 6))
    names = [
        Figure(SIDE, 16, text(SIDE / 2, 12, name.replace("Clustering", ""), 9, "ink", "middle"))
        for name in models(2)
    ]
    for of in ("circles", "moons", "slanted", "blobs"):
        best = max(score for (_, other), score in scores.items() if other == of)
        assert best > 0.9, (of, best)
    if MPI.COMM_WORLD.rank == 0:
        inner = column([row(names, 6), *lines], 6)
        whole = Figure(inner.width + 2 * LEFT, inner.height + 2 * LEFT, inner.at(LEFT, LEFT))
        if args.svg is not None:
            args.svg.write_text(document(whole, "clusters of each estimator"), encoding="utf-8")
        print(f"cluster shapes: {len(names)} estimators on {len(lines)} sets of {args.rows} rows")


if __name__ == "__main__":
    main()
