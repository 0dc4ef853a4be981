"""Fits by redist and by scikit-learn in turn, on the ranks of one job that ``race`` starts."""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.cluster
import sklearn.metrics
from mpi4py import MPI
from threadpoolctl import threadpool_limits

from bench.clustering.cases import Case, chosen
from redist import pgas
from redist.learn import cluster
from redist.measure.pages import give_back, private_bytes, private_peak_bytes, reset_peak
from redist.runtime.shm.segments import allocated_bytes

PARALLEL = {"DBSCAN", "HDBSCAN", "MeanShift", "SpectralClustering"}
"""Estimators of scikit-learn that are told how many jobs to use; OPTICS is ten times slower with two."""
NAP_S = 0.002
FEW = 512
"""Rows of a fit before memory is measured."""


def main() -> int:
    """Measure every case; the first rank writes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", default="")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="high-water marks instead of times")
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    warnings.simplefilter("ignore")
    found = []
    with threadpool_limits(1):
        for case in chosen(args.cases):
            row = measure(comm, case, args.repeat, args.memory)
            found.append(row)
            if comm.rank == 0:
                print(f"  {case.name}: {row['ours']} {row['theirs']}", file=sys.stderr, flush=True)
    if comm.rank == 0:
        args.json.write_text(json.dumps({"ranks": comm.size, "rows": found}), encoding="utf-8")
    return 0


def measure(comm: MPI.Intracomm, case: Case, repeat: int, memory: bool) -> dict[str, Any]:
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
    for turn in range(repeat + (not memory)):
        run = bytes_beyond if memory else seconds_of
        mine, model = together(
            comm, run, lambda: getattr(cluster, case.estimator)(**options).fit(there)
        )
        labels = labels_of(model)
        del model
        other = 0.0
        if comm.rank == 0:
            with threadpool_limits(comm.size):
                own = getattr(sklearn.cluster, case.estimator)(**options)
                if case.estimator in PARALLEL and comm.size > 1:
                    own.set_params(n_jobs=comm.size)
                other, fitted = run(partial(own.fit, beside))
            reference = labels_of(fitted)
            del fitted
        wait(comm)
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


def together(
    comm: MPI.Intracomm,
    run: Callable[[Callable[[], Any]], tuple[float, Any]],
    work: Callable[[], Any],
) -> tuple[float, Any]:
    """**Collective.** The figure of the rank that has the largest, and what was made."""
    comm.Barrier()
    mine, made = run(work)
    return float(comm.allreduce(mine, MPI.MAX)), made


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    """**Local.** How long some work took."""
    start = time.perf_counter()
    made = work()
    return time.perf_counter() - start, made


def bytes_beyond(work: Callable[[], Any]) -> tuple[float, Any]:
    """**Local.** The most private memory while some work ran beyond what there was, and new segments."""
    give_back()
    before = private_bytes() + allocated_bytes()
    reset_peak()
    made = work()
    return float(private_peak_bytes() + allocated_bytes() - before), made


def wait(comm: MPI.Intracomm) -> None:
    """**Collective.** Wait for all without taking a core from those who work."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(NAP_S)


if __name__ == "__main__":
    sys.exit(main())
