"""``python -m bench clustering linear``: logistic regression beside scikit-learn's, and dask-ml's.

Rows are made in blocks from their numbers, so that every library, on any number of ranks, gets the same.
scikit-learn's turns follow redist's in one job; dask-ml runs in an environment of its own.
"""

from __future__ import annotations

import os
import platform
import warnings
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.report.figures import met, timed
from bench.report.job import say
from bench.report.jobs import found_by, in_one_process, on_ranks
from bench.report.report import Row, Table, Tables, Value

Values = NDArray[Any]
BLOCK = 100_000
SOLVERS = ("newton-cholesky", "lbfgs")
NEAR = 1e-6
"""Coefficients may differ by so much: solvers stop where slopes are below 1e-8."""
TIGHT: dict[str, Any] = {"tol": 1e-8, "max_iter": 200}
LIMIT_S = 3600.0


def rows_of(first: int, last: int, d: int) -> tuple[Values, Values]:
    """Rows by their numbers, the same for everyone, and their labels."""
    x, y = np.empty((last - first, d)), np.empty(last - first, np.int64)
    plane = np.random.default_rng(7).normal(size=d)
    for block in range(first // BLOCK, -(-last // BLOCK)):
        rng = np.random.default_rng((11, block))
        made = rng.normal(size=(BLOCK, d))
        sides = made @ plane + rng.logistic(size=BLOCK) * 3.0 > 0
        low, high = max(first, block * BLOCK), min(last, (block + 1) * BLOCK)
        part = slice(low - block * BLOCK, high - block * BLOCK)
        x[low - first : high - first], y[low - first : high - first] = made[part], sides[part]
    return x, y


def run(
    n: int = 10_000_000,
    d: int = 32,
    ranks: tuple[int, ...] = (1, 2),
    repeat: int = 3,
    dask: str = "",
) -> Tables:
    """Measure fits of all libraries.

    n, d: rows and columns; dask: a Python that has dask-ml, which gets as many chunks as ranks.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.pop(name, None)  # scikit-learn may use as many threads as there are ranks
    found: list[Row] = []
    wrong = False
    version = ""
    for count in ranks:
        start = on_ranks(count, one_thread=False)
        data = found_by(start, "bench.clustering.linear", n=n, d=d, repeat=repeat)
        version = data["version"]
        chunked = None
        if dask:
            asked = {"n": n, "d": d, "repeat": repeat, "chunks": count}
            chunked = found_by(in_one_process(dask, LIMIT_S), "bench.clustering.linear", **asked)
        for one in data["rows"]:
            ours, theirs = np.array(one["ours"]), np.array(one["theirs"])
            wrong |= one["far"] > NEAR
            row: dict[str, Value] = {
                "solver": one["solver"], "ranks": count, "s": float(np.median(ours)),
                "iterations": one["n_iter"], "scikit-learn s": float(np.median(theirs)),
                "ratio": float(np.median(ours / theirs)),
                "spread": f"{(ours / theirs).min():.2f}-{(ours / theirs).max():.2f}",
                "coefficients differ": one["far"], "met": met(one["far"] <= NEAR),
            }  # fmt: skip
            if chunked is not None:
                beside = np.array(chunked["seconds"])
                row["dask-ml s"] = float(np.median(beside))
                row["dask-ml differs"] = float(
                    np.abs(np.array(chunked["coef"]) - np.array(one["coef"])).max()
                )
            found.append(row)
    beside_what = f"scikit-learn {version}, {platform.machine()}, {os.cpu_count()} cores"
    title = f"Logistic regression, {n} x {d} rows, beside {beside_what}, as many threads as ranks"
    note = f"tol {TIGHT['tol']:g}; met: coefficients within {NEAR:g} of scikit-learn's"
    return (Table.of("linear", title, found, note, is_wrong=bool(wrong)),)


def measure(n: int, d: int, repeat: int, chunks: int = 0) -> dict[str, Any]:
    """Times of fits, of dask-ml if chunks are asked for. **Collective over the ranks of this job.**"""
    warnings.simplefilter("ignore")  # L-BFGS says that its last steps change nothing
    return measure_dask(n, d, repeat, chunks) if chunks else measure_both(n, d, repeat)


def measure_both(n: int, d: int, repeat: int) -> dict[str, Any]:
    """**Collective.** redist's fits and scikit-learn's, in turn."""
    import sklearn
    import sklearn.linear_model
    from mpi4py import MPI
    from threadpoolctl import threadpool_limits

    from redist import pgas
    from redist.learn.linear_model import LogisticRegression
    from redist.measure.timing import meet
    from redist.spmd import own_range

    comm, found = MPI.COMM_WORLD, []
    own_x, own_y = rows_of(*own_range(comm, n), d)
    x = pgas.from_local(own_x, type=f"f64[{n}{{x}}, {d}]")
    y = pgas.from_local(own_y, type=f"i64[{n}{{x}}]")
    whole = rows_of(0, n, d) if comm.rank == 0 and comm.size > 1 else (own_x, own_y)
    with threadpool_limits(1):
        for solver in SOLVERS:
            ours: list[float] = []
            theirs: list[float] = []
            options = {"solver": solver, **TIGHT}
            far, model = 0.0, LogisticRegression(**options)
            for turn in range(repeat + 1):
                comm.Barrier()
                own, model = timed(partial(LogisticRegression(**options).fit, x, y))
                own = float(comm.allreduce(own, MPI.MAX))
                other = 0.0
                if comm.rank == 0:
                    with threadpool_limits(comm.size):
                        fit = sklearn.linear_model.LogisticRegression(**options).fit
                        other, known = timed(partial(fit, *whole))
                    far = float(np.abs(model.coef_ - known.coef_).max())
                meet(comm)
                if turn:  # the first makes plans and pools
                    ours.append(own)
                    theirs.append(other)
            found.append(
                {
                    "solver": solver, "ours": ours, "theirs": theirs, "far": far,
                    "n_iter": int(model.n_iter_[0]), "coef": model.coef_[0].tolist(),
                }
            )  # fmt: skip
            say(f"linear: {found[-1]}")
    return {"version": sklearn.__version__, "rows": found}


def measure_dask(n: int, d: int, repeat: int, chunks: int) -> dict[str, Any]:
    """**Local.** dask-ml's fits by L-BFGS, in as many threads as chunks."""
    import dask.array
    from dask_ml.linear_model import LogisticRegression

    rows = -(-n // chunks)
    x, y = (
        dask.array.from_array(one, chunks=(rows, *one.shape[1:])).persist()
        for one in rows_of(0, n, d)
    )
    seconds: list[float] = []
    model: Any = None
    for _ in range(repeat + 1):
        taken, model = timed(lambda: LogisticRegression(solver="lbfgs", **TIGHT).fit(x, y))
        seconds.append(taken)
    return {"seconds": seconds[1:], "coef": np.asarray(model.coef_).reshape(-1).tolist()}
