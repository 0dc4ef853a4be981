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
}
CHECKS = tuple(OPTIONS)


def check(name: str) -> str | None:
    """What is wrong with an estimator."""
    kind = getattr(import_module("redist.learn.cluster"), name)
    x = make_blobs(61, 3, centers=3, random_state=0)[0]
    want = kind(**OPTIONS[name]).fit(x).labels_
    there = pgas.asarray(x, type="{x}, {}").to_device("cuda")
    model = kind(**OPTIONS[name]).fit(there)
    if not model.labels_.device.startswith("cuda"):
        return f"labels are on {model.labels_.device}"
    if not np.array_equal(model.labels_.to_device("cpu").gather(), want):
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
