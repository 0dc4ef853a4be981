"""Global arrays on GPUs go in, labels on GPUs come out; NumPy stands for CuPy where there is none.

As in ``mpirun -n 2 python -m tests.programs.learn.on_gpus``.
"""

from __future__ import annotations

import argparse
import warnings
from importlib import import_module
from typing import Any

import numpy as np
from mpi4py import MPI
from sklearn.datasets import make_blobs

import redist
from redist import pgas
from tests.fakes import numpy_cupy as standin
from tests.programs.together import all_well, main

COMM = MPI.COMM_WORLD
OPTIONS: dict[str, dict[str, Any]] = {
    "KMeans": {"n_clusters": 3, "random_state": 0},
    "MiniBatchKMeans": {"n_clusters": 3, "random_state": 0, "batch_size": 20},
    "BisectingKMeans": {"n_clusters": 3, "random_state": 0},
    "DBSCAN": {"eps": 1.5},
    "HDBSCAN": {"copy": True},
    "OPTICS": {},
    "MeanShift": {"bandwidth": 3.0},
    "AffinityPropagation": {"random_state": 0},
    "AgglomerativeClustering": {"n_clusters": 3},
    "Birch": {"n_clusters": 3},
    "FeatureAgglomeration": {"n_clusters": 2},
    "SpectralClustering": {"n_clusters": 3, "random_state": 0},
    "SpectralCoclustering": {"n_clusters": 2, "random_state": 0, "n_init": 2},
    "SpectralBiclustering": {"n_clusters": 2, "random_state": 0, "n_init": 2, "n_components": 3},
}
SHAPES: tuple[tuple[int, int, Any], ...] = (
    (61, 3, np.float64),
    (90, 2, np.float32),
    (40, 17, np.float64),
)
"""Rows, columns and dtypes of sets."""
CHECKS = tuple(OPTIONS)


def check(name: str) -> str | None:
    """What is wrong with an estimator."""
    found = ((shape, check_set(name, *shape)) for shape in SHAPES)
    return next((f"{shape}: {wrong}" for shape, wrong in found if wrong), None)


def check_set(name: str, n: int, d: int, dtype: Any) -> str | None:
    """What is wrong with an estimator on a set."""
    kind = getattr(import_module("redist.learn.cluster"), name)
    x = make_blobs(n, d, centers=3, random_state=0)[0].astype(dtype)
    attribute = "row_labels_" if hasattr(kind, "biclusters_") else "labels_"
    want = getattr(kind(**OPTIONS[name]).fit(x), attribute)
    there = pgas.asarray(x, type="{x}, {}").to_device("cuda")
    with redist.trace() as t:
        model = kind(**OPTIONS[name]).fit(there)
    if t.copied:
        return f"rows left the GPU:\n{t}"
    labels = getattr(model, attribute)
    if name == "FeatureAgglomeration":  # of columns: NumPy
        return None if np.array_equal(labels, want) else "other labels"
    if not labels.device.startswith("cuda"):
        return f"labels are on {labels.device}"
    if not np.array_equal(labels.to_device("cpu").gather(), want):
        return "other labels"
    if hasattr(model, "predict"):
        found = model.predict(there)
        if not found.device.startswith("cuda"):
            return f"predicted labels are on {found.device}"
    return None


def program() -> int:
    """0 if nothing is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--with-gpu", action="store_true")
    if not parser.parse_args().with_gpu:
        standin.install()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return int(not all([all_well(COMM, name, check(name)) for name in CHECKS]))


if __name__ == "__main__":
    main(program)
