"""Matrices of all pairs on GPUs: loops of affinity propagation have the host's bits, affinities its labels.

As in ``mpirun -n 2 python -m tests.programs.learn.square_on_gpus``; NumPy stands for CuPy without a GPU.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from mpi4py import MPI
from sklearn.datasets import make_blobs

import redist
from redist import pgas
from redist.learn.cluster import (
    AffinityPropagation,
    SpectralBiclustering,
    SpectralClustering,
    SpectralCoclustering,
)
from redist.learn.cluster.affinity import similarities
from redist.learn.kernels import messages as on_gpu
from redist.learn.kernels.messages import Messages
from redist.learn.vectors.eigenvectors import inner, times
from redist.runtime.cuda.arrays import to_device, to_host
from redist.spmd import ExactGrid, Rows, median_of_all, own_range
from tests.fakes import numpy_cupy as standin
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD


def there(x: Any) -> Any:
    return pgas.asarray(x, type="{x}, {}").to_device("cuda")


def here(x: Any) -> Any:
    return x.to_device("cpu").gather()


def messages_have_the_same_bits() -> str | None:
    """Whatever a block's memory holds of a row, whatever rows there are, and where sums tie."""
    rng = np.random.default_rng(3)
    for m, n, first in ((70, 130, 40), (1, 2, 1), (0, 5, 5), (3, 1500, 700), (9, 5000, 11)):
        similar = -rng.uniform(size=(m, n))
        similar[:, ::3] = -0.5
        threads, most = on_gpu.block_of(n)[0], None
        for holds in (2, 1, 0):
            block = threads, holds, 32 * threads + 8 * holds * n
            one, other = (
                Messages.of(similar, first, 0.6),
                Messages.of(to_device(similar), first, 0.6),
            )
            for _ in range(3):
                with mock.patch.object(on_gpu, "block_of", lambda n, block=block: block):
                    bounds = one.respond(), other.respond()
                grid = ExactGrid.for_sum(bounds[0], n)
                sums = one.support(grid), other.support(grid)
                for each in (one, other):
                    each.make_available(sums[0].sum(axis=0))
                if bounds[0] != bounds[1] or not np.array_equal(*sums):
                    return f"{m}, {n}, {holds}: other sums"
                if not np.array_equal(one.responsible, to_host(other.responsible)):
                    return f"{m}, {n}, {holds}: other responsibilities"
                if not np.array_equal(one.chosen(), other.chosen()):
                    return f"{m}, {n}, {holds}: other exemplars"
            for each in (one, other):
                each.respond()  # renews availabilities first
            if not np.array_equal(one.available, to_host(other.available)):
                return f"{m}, {n}, {holds}: other availabilities"
            most = most or bounds[0]
            if most != bounds[0]:
                return f"{m}, {n}: it matters what is held"
    return None


def similarities_are_the_hosts() -> str | None:
    """Integers to the bit, others to the rounding of norms."""
    rng = np.random.default_rng(COMM.size)
    for n, d, dtype in (
        (50, 3, np.float64),
        (7, 40, np.float32),
        (300, 2, np.float32),
        (3, 1, np.int64),
    ):
        x = rng.integers(-9, 9, (n, d)).astype(dtype)
        lo, hi = own_range(COMM, n)
        rows = Rows(np.ascontiguousarray(x[lo:hi]), lo, n, COMM, None)
        want, found = similarities(rows), similarities(rows.holding(to_device(rows.local)))
        if found.dtype != want.dtype or not np.array_equal(to_host(found), want):
            return f"{n}, {d}, {dtype}: other similarities"
        if median_of_all(COMM, found) != median_of_all(COMM, want):
            return f"{n}, {d}, {dtype}: another median"
    return None


def stays(model: Any, x: Any, same: Callable[[Any], Any]) -> str | None:
    """What is wrong with a fit on the GPU that ``same`` makes in memory."""
    with redist.trace() as t:
        found = model.fit(there(x))
    want = same(x)
    if t.copied:
        return f"rows left the GPU:\n{t}"
    if not found.affinity_matrix_.device.startswith("cuda"):
        return "the matrix is in memory"
    if not np.allclose(here(found.affinity_matrix_), want.affinity_matrix_, 1e-6, 1e-12):
        return "another matrix"
    if not np.array_equal(here(found.labels_), want.labels_):
        return "other labels"
    return None


def affinity_propagation_stays() -> str | None:
    sets: tuple[tuple[int, int, Any, dict[str, Any]], ...] = (
        (45, 2, np.float64, {"damping": 0.8}), (30, 30, np.float32, {}), (2, 2, np.float64, {}),
        (33, 3, np.int64, {"preference": -30.0}), (30, 3, np.float64, {"preference": -np.arange(30.0)}),
    )  # fmt: skip
    for n, d, dtype, given in sets:
        x = (2 * make_blobs(n, d, centers=4, random_state=1)[0]).astype(dtype)
        options = {"random_state": 0, **given}
        wrong = stays(AffinityPropagation(**options), x, AffinityPropagation(**options).fit)
        if wrong:
            return f"{n}, {d}, {dtype}, {options}: {wrong}"
        model = AffinityPropagation(**options).fit(there(x))
        want = AffinityPropagation(**options).fit(x).predict(x)
        if not np.array_equal(here(model.predict(there(x))), want):
            return f"{n}, {d}, {dtype}, {options}: other labels predicted"
        if np.dtype(dtype).kind == "f":
            square = -((x[:, None] - x) ** 2).sum(axis=2)
            options = {**options, "affinity": "precomputed"}
            wrong = stays(
                AffinityPropagation(**options), square, AffinityPropagation(**options).fit
            )
            if wrong:
                return f"{n}, {d}, {dtype}, precomputed: {wrong}"
    return None


def spectral_clustering_stays() -> str | None:
    sets: tuple[tuple[int, int, Any, dict[str, Any]], ...] = (
        (45, 2, np.float64, {}), (30, 30, np.float32, {"gamma": 0.01}),
        (280, 3, np.float64, {"gamma": 0.05, "assign_labels": "cluster_qr"}),
        (40, 2, np.float64, {"gamma": 0.5}),
    )  # fmt: skip
    for n, d, dtype, given in sets:
        x = make_blobs(n, d, centers=3, random_state=1)[0].astype(dtype)
        options = {"n_clusters": 3, "random_state": 0, **given}
        wrong = stays(SpectralClustering(**options), x, SpectralClustering(**options).fit)
        if wrong:
            return f"{n}, {d}, {dtype}, {options}: {wrong}"
    square = np.exp(-0.1 * ((x[:, None] - x) ** 2).sum(axis=2))
    for matrix in (square, square + np.triu(np.full(square.shape, 1e-3))):
        options = {"n_clusters": 3, "random_state": 0, "affinity": "precomputed"}
        wrong = stays(SpectralClustering(**options), matrix, SpectralClustering(**options).fit)
        if wrong:
            return f"precomputed: {wrong}"
    return None


def biclusters_stay() -> str | None:
    """Rows, labels and vectors of both estimators, by products with random vectors and by exact ones."""
    rng = np.random.default_rng(7)
    for n, d, dtype in ((400, 170, np.float64), (150, 450, np.float32), (30, 9, np.int64)):
        place = np.add.outer(np.arange(n) * 4 // n, np.arange(d) * 3 // d) % 4
        x = (20 * rng.uniform(size=(n, d)) + 30 * place + 1).astype(dtype)
        x = x[rng.permutation(n)]
        few = {"n_components": 2, "n_best": 1}
        kinds: tuple[tuple[Any, dict[str, Any]], ...] = (
            (SpectralCoclustering, {}), (SpectralCoclustering, {"svd_method": "arpack"}),
            (SpectralBiclustering, few), (SpectralBiclustering, {"method": "log", **few}),
        )  # fmt: skip
        for kind, given in kinds:
            options = {"n_clusters": 4, "random_state": 0, "n_init": 1, **given}
            with redist.trace() as t:
                found = kind(**options).fit(there(x))
            want = kind(**options).fit(x)
            if t.copied or not found.row_labels_.device.startswith("cuda"):
                return f"{n}, {d}, {kind.__name__}, {options}: rows left the GPU:\n{t}"
            if not np.array_equal(here(found.row_labels_), want.row_labels_):
                return f"{n}, {d}, {kind.__name__}, {options}: other labels of rows"
            if not np.array_equal(found.columns_, want.columns_):
                return f"{n}, {d}, {kind.__name__}, {options}: other labels of columns"
    return None


def products_have_the_same_bits() -> str | None:
    """Of blocks, and inner ones."""
    rng = np.random.default_rng(2)
    for n, d, k in ((70, 300, 5), (1, 1, 1), (0, 3, 2), (33, 9, 16)):
        rows, small = rng.normal(size=(n, d)), rng.normal(size=(d, k))
        tall, lies = rng.normal(size=(n, k)), to_device(rows)
        if not np.array_equal(times(lies, small), times(rows, small)):
            return f"{n}, {d}, {k}: other products"
        if not np.array_equal(inner(COMM, n, lies, tall), inner(COMM, n, rows, tall)):
            return f"{n}, {d}, {k}: other inner products"
    return None


def other_affinities_are_copied() -> str | None:
    x = make_blobs(40, 3, centers=3, random_state=0)[0]
    options = {"n_clusters": 3, "random_state": 0, "affinity": "nearest_neighbors"}
    with redist.trace() as t:
        found = SpectralClustering(**options).fit(there(x))
    ((line, copied),) = t.copied.items()
    if (line.file, copied.times, copied.copied_bytes) != (
        __file__,
        1,
        found.labels_.tile.size * 24,
    ):
        return f"{line}: {copied}"
    same = np.array_equal(here(found.labels_), SpectralClustering(**options).fit(x).labels_)
    return None if same else "other labels"


CHECKED = (
    messages_have_the_same_bits, similarities_are_the_hosts, affinity_propagation_stays,
    spectral_clustering_stays, biclusters_stay, products_have_the_same_bits, other_affinities_are_copied,
)  # fmt: skip
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--with-gpu", action="store_true")
    if not parser.parse_args().with_gpu:
        standin.install()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
