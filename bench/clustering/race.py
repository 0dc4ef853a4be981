"""``python -m bench clustering``: fits of every estimator beside scikit-learn's, on 1 and 2 ranks."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import sklearn
import sklearn.cluster
import sklearn.metrics
from mpi4py import MPI
from numpy.typing import NDArray
from sklearn.datasets import make_blobs
from threadpoolctl import threadpool_limits

from bench.report.figures import geomean, met, timed
from bench.report.job import say
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Row, Table, Tables
from redist import pgas
from redist.learn import cluster
from redist.measure.pages import give_back, private_bytes, private_peak_bytes, reset_peak
from redist.measure.timing import meet
from redist.runtime.shm.segments import allocated_bytes

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


def chosen(words: str, cases: Sequence[Case] = CASES) -> list[Case]:
    """The cases whose names contain one of some words, separated by commas; all if there are none."""
    wanted = [word for word in words.split(",") if word]
    return [one for one in cases if not wanted or any(word in one.name for word in wanted)]


GEOMEAN_AIM = 0.85
"""Of scikit-learn with two threads, over the sizes of KMeans on two ranks."""
MEMORY_FACTOR, MEMORY_MORE = 1.2, 16 * 2**20
"""A rank may take so much of scikit-learn's bytes, divided by ranks, and so much more."""
PARALLEL = {"DBSCAN", "HDBSCAN", "MeanShift", "SpectralClustering"}
"""Estimators of scikit-learn that are told how many jobs to use; OPTICS is ten times slower with two."""
FEW = 512
"""Rows of a fit before memory is measured."""


def run(
    cases: str = "", ranks: tuple[int, ...] = (1, 2), repeat: int = 3, memory: bool = False
) -> Tables:
    """Measure fits of both libraries in turn.

    cases: words in their names, by commas, all if none; memory: bytes beyond the rows instead of seconds.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.pop(name, None)  # scikit-learn may use as many threads as there are ranks
    asked = {"cases": cases, "repeat": repeat, "memory": memory}
    data = [
        found_by(on_ranks(n, one_thread=False), "bench.clustering.race", **asked) for n in ranks
    ]
    return tuple(memory_table(one) if memory else table(one) for one in data)


def _about(ranks: int) -> tuple[str, str]:
    """Ranks in words; the machine and the version beside which it was measured."""
    beside = f"scikit-learn {sklearn.__version__}, {platform.machine()}, {os.cpu_count()} cores"
    return f"{ranks} rank{'s' * (ranks > 1)}", beside


def table(data: dict[str, Any]) -> Table:
    """Medians of the ratios of turns, their spread, and the aims."""
    ranks, by_name = data["ranks"], {one.name: one for one in CASES}
    rows: list[Row] = []
    lloyd: list[float] = []
    for row in data["rows"]:
        case, ours, theirs = by_name[row["case"]], np.array(row["ours"]), np.array(row["theirs"])
        ratios = ours / theirs
        ratio = float(np.median(ratios))
        lloyd += [ratio] if case.given_seeds else []
        aim = case.aims[ranks - 1] if ranks < 3 else None
        rows.append(
            {
                "fit": case.name, "s": float(np.median(ours)), "scikit-learn s": float(np.median(theirs)),
                "ratio": ratio, "spread": f"{ratios.min():.2f}-{ratios.max():.2f}", "aim": aim,
                "met": "-" if aim is None else met(ratio <= aim), "adjusted Rand": row["alike"],
            }
        )  # fmt: skip
    notes = []
    if len(lloyd) > 1 and (middle := geomean(lloyd)):
        aimed = f", aim {GEOMEAN_AIM}: {met(middle <= GEOMEAN_AIM)}" if ranks == 2 else ""
        notes.append(f"KMeans: geomean {middle:.2f}{aimed}")
    on, beside = _about(ranks)
    title = f"Clustering on {on} beside {beside}, as many threads as ranks"
    return Table.of(f"ranks-{ranks}", title, rows, *notes)


def memory_table(data: dict[str, Any]) -> Table:
    """Bytes beyond the rows on the rank that takes most, beside scikit-learn's."""
    ranks, mib = data["ranks"], 2**20
    rows: list[Row] = []
    for row in data["rows"]:
        ours, theirs = float(np.median(row["ours"])), float(np.median(row["theirs"]))
        allowed = MEMORY_FACTOR * theirs / ranks + MEMORY_MORE
        sizes = {"a rank": ours / mib, "scikit-learn": theirs / mib, "allowed": allowed / mib}
        rows.append({"fit": row["case"], **sizes, "met": met(ours <= allowed)})
    on, beside = _about(ranks)
    note = f"allowed: {MEMORY_FACTOR} of scikit-learn's divided by ranks, and 16 MiB more"
    title = f"Memory beyond the rows on {on}, MiB, beside {beside}"
    return Table.of(f"memory-{ranks}", title, rows, note)


def measure(cases: str, repeat: int, memory: bool) -> dict[str, Any]:
    """Every case on the ranks of this job. **Collective over all of them.**"""
    comm, found = MPI.COMM_WORLD, []
    with threadpool_limits(1):
        for case in chosen(cases):
            found.append(measure_case(comm, case, repeat, memory))
            say(f"clustering: {found[-1]}")
    return {"ranks": comm.size, "rows": found}


def measure_case(comm: MPI.Intracomm, case: Case, repeat: int, memory: bool) -> dict[str, Any]:
    """**Collective.** Times, or bytes beyond the rows, of both in turn; their labels compared."""
    x = case.rows()
    options = case.model_options(x)
    there = pgas.asarray(x, type="{x}, {}")
    beside = x if comm.rank == 0 else np.empty(0)
    if memory:  # modules and pools come once, with the first fit of a kind
        few = x[:FEW]
        for fit, rows in ((cluster, pgas.asarray(few, type="{x}, {}")), (sklearn.cluster, few)):
            getattr(fit, case.estimator)(**options).fit(rows)
    del x
    ours: list[float] = []
    theirs: list[float] = []
    labels = reference = None
    taken = bytes_beyond if memory else timed
    for turn in range(repeat + (not memory)):
        comm.Barrier()
        mine, model = taken(lambda: getattr(cluster, case.estimator)(**options).fit(there))
        mine = float(comm.allreduce(mine, MPI.MAX))
        labels = labels_of(model)
        del model
        other = 0.0
        if comm.rank == 0:
            with threadpool_limits(comm.size):
                own = getattr(sklearn.cluster, case.estimator)(**options)
                if case.estimator in PARALLEL and comm.size > 1:
                    own.set_params(n_jobs=comm.size)
                other, fitted = taken(partial(own.fit, beside))
            reference = labels_of(fitted)
            del fitted
        meet(comm)
        if turn or memory:  # the first turn makes plans and pools
            ours.append(mine)
            theirs.append(other)
    same = 0.0
    if comm.rank == 0 and labels is not None and reference is not None:
        same = float(sklearn.metrics.adjusted_rand_score(reference, labels))
    return {"case": case.name, "ours": ours, "theirs": theirs, "alike": same}


def labels_of(model: Any) -> Any:
    """**Collective** for a global array. Labels as one array of NumPy."""
    found = getattr(model, "labels_", None)
    found = model.row_labels_ if found is None else found
    return np.asarray(found.to_device("cpu").gather() if hasattr(found, "gather") else found)


def bytes_beyond(work: Callable[[], Any]) -> tuple[float, Any]:
    """**Local.** The most private memory while some work ran beyond what there was, and new segments."""
    give_back()
    before = private_bytes() + allocated_bytes()
    reset_peak()
    made = work()
    return float(private_peak_bytes() + allocated_bytes() - before), made
