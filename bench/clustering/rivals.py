"""``python -m bench clustering rivals``: ten Lloyd rounds by redist, Heat and dask-ml from the same start.

Each runs in an environment of its own; turns alternate, so that all meet the same noise.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.report.figures import met, timed
from bench.report.jobs import ROOT, found_by
from bench.report.report import Row, Table, Tables, Value
from redist.launch.launcher import find_launcher

AIMS = {"heat": 4.0, "dask-ml": 1.5}
ROUNDS, REPEAT, LIMIT_S = 10, 5, 600.0
SIZES = {
    "100k x 8, k=8": (100_000, 8, 8),
    "100k x 32, k=64": (100_000, 32, 64),
    "1M x 8, k=8": (1_000_000, 8, 8),
}
"""Rows, dims and centres."""


def run(heat: str = "", dask: str = "", turns: int = 3, ranks: int = 2, only: str = "") -> Tables:
    """Time fits in turn.

    heat, dask: a Python that has Heat, one that has dask-ml; ranks: also workers or chunks; only: sizes
    whose name has this.
    """
    pythons = {"redist": sys.executable, "heat": heat, "dask-ml": dask}
    times: dict[str, list[dict[str, float]]] = {name: [] for name, word in pythons.items() if word}
    centers: dict[str, Any] = {}
    for _ in range(turns):
        for name in times:
            start, asked = _start(name, pythons[name], ranks), {"ranks": ranks, "only": only}
            found = found_by(start, "bench.clustering.rivals", library=name, **asked)
            times[name].append(found["seconds"])
            centers[name] = found["centers"]
    want = centers["redist"]
    wrong = [
        name
        for name, one in centers.items()
        if not all(np.allclose(one[size], want[size], rtol=1e-6, atol=1e-8) for size in want)
    ]
    return (table(times, ranks, wrong),)


def _start(name: str, python: str, ranks: int) -> Callable[[list[str]], object]:
    def start(words: list[str]) -> object:
        line = [python, *words]
        if name != "dask-ml":
            started = find_launcher().command(ranks, words)
            line = [python if word == sys.executable else word for word in started]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            line, env=env, check=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL
        ).returncode

    return start


def table(times: dict[str, list[dict[str, float]]], ranks: int, wrong: list[str]) -> Table:
    """Medians, and how many times as fast redist was."""
    rows: list[Row] = []
    least = dict.fromkeys(AIMS, np.inf)
    for size in times["redist"][0]:
        ours = np.array([turn[size] for turn in times["redist"]])
        row: dict[str, Value] = {"rows": size, "redist s": float(np.median(ours))}
        for name in AIMS:
            theirs = np.array([turn[size] for turn in times.get(name, ())])
            gain = float(np.median(theirs / ours)) if name in times else None
            row[f"{name} s"] = None if gain is None else float(np.median(theirs))
            row[f"times as fast as {name}"] = gain
            least[name] = least[name] if gain is None else min(least[name], gain)
        rows.append(row)
    notes = [
        f"{name}: at least {least[name]:.1f} times as fast, aim {aim:g}: {met(least[name] >= aim)}"
        for name, aim in AIMS.items()
        if name in times
    ]
    notes += [f"other centres: {', '.join(wrong)}"] if wrong else ["centres agree but for rounding"]
    title = f"Ten Lloyd rounds from the same centres on {ranks} ranks, workers or chunks"
    return Table.of("rivals", title, rows, *notes, is_wrong=bool(wrong))


def measure(library: str, ranks: int, only: str) -> dict[str, Any]:
    """Fits of all sizes by one library, and the centres it found. **Collective over all ranks.**"""
    comm, make = None, fit_kmeans
    if library != "redist":
        adapter = "bench.peers." + library.partition("-")[0]
        make = importlib.import_module(adapter).fit_kmeans
    if library != "dask-ml":
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    seconds, centers = {}, {}
    for name, (n, d, k) in SIZES.items():
        if only not in name:
            continue
        # Points anywhere in a cube: no cluster is ever empty, which the libraries treat in different ways,
        # and none of them is done before the last round.
        x = np.random.default_rng(0).random((n, d))
        fit, centers_of = make(x, x[:k].copy(), ROUNDS, ranks)
        model, turns = fit(), []
        for _ in range(REPEAT):
            if comm is not None:
                comm.Barrier()
            taken, model = timed(fit)
            turns.append(taken)
        seconds[name] = float(np.median(turns))
        centers[name] = np.asarray(centers_of(model)).tolist()
    return {"seconds": seconds, "centers": centers}


def fit_kmeans(x: Any, start: Any, rounds: int, ranks: int) -> tuple[Callable[[], Any], Any]:
    """A fit of redist, and its centres."""
    from redist import pgas
    from redist.learn.cluster import KMeans

    there = pgas.asarray(x, type="{x}, {}")

    def fit() -> Any:
        model = KMeans(len(start), init=start, n_init=1, max_iter=rounds, tol=0).fit(there)
        assert model.n_iter_ == rounds
        return model

    return fit, lambda model: model.cluster_centers_
