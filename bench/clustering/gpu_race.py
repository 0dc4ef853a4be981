"""``python -m bench clustering gpu``: Lloyd steps beside those by hand, all fourteen beside scikit-learn.

scikit-learn runs on this machine's processors, with all of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.clustering.race import CASES, Case, chosen, labels_of
from bench.report.figures import in_turn, met, timed
from bench.report.report import Row, Table, Tables, Value
from redist.learn.kernels.steps import lloyd_step
from redist.spmd import ExactGrid

STEPS: tuple[tuple[int, int, int, Any], ...] = (
    (2**24, 16, 64, np.float32),
    (2**22, 16, 64, np.float64),
    (2**22, 8, 8, np.float32),
    (2**20, 128, 64, np.float32),
    (2**22, 2, 512, np.float32),
)
TURNS, ENOUGH_S = 4, 1.0
"""A fit is repeated until it took so long in all."""
ONE_EACH = ",".join(
    (
        "KMeans 1M", "MiniBatch", "Bisecting", "DBSCAN 100k x 2, eps .2", "HDBSCAN 20k", "OPTICS 5k",
        "MeanShift 20k", "AffinityPropagation 4000", "spectral rbf 4000", "ward 10000",
        "FeatureAgglomeration", "Birch", "SpectralCoclustering", "SpectralBiclustering",
    )
)  # fmt: skip
MANY_ROWS = (
    Case(
        "BisectingKMeans 2M x 8, k=16", "BisectingKMeans", 2 * 10**6, 8,
        {"n_clusters": 16, "random_state": 0}, 16, (None, None),
    ),
)  # fmt: skip
"""Where the case in memory has too few rows to keep a GPU busy."""
Step = Callable[[], Any]
"""Does a step and returns labels and new centres once they are there."""


def by_redist(x: Any, centers: Any) -> Step:
    """The step of KMeans: labels by rows, exact sums."""
    import cupy

    n = len(x)
    weights, labels = cupy.ones(n, x.dtype), cupy.full(n, -1, np.int32)
    most = float(abs(x).max())
    grids = ExactGrid.for_sum(most, n), ExactGrid.for_sum(1.0, n)

    def step() -> Any:
        norms = (centers * centers).sum(axis=1)
        _, sums = lloyd_step(x, weights, centers, norms, labels, grids)
        assert sums is not None
        total = sums.sum(axis=1)
        return labels, total[:, :-1] / total[:, -1:]

    return step


def by_cupy(x: Any, centers: Any) -> Step:
    """Distances by a product, labels, sums by a product with what labels say."""
    import cupy

    places, k = cupy.asarray(centers), len(centers)
    rows = 2**21

    def step() -> Any:
        norms, sums = (places * places).sum(axis=1), cupy.zeros_like(places)
        counts, labels = cupy.zeros(k, np.float32), cupy.empty(len(x), np.int32)
        for lo in range(0, len(x), rows):
            part = x[lo : lo + rows]
            found = (norms - 2 * (part @ places.T)).argmin(axis=1)
            labels[lo : lo + rows] = found
            one = (found[:, None] == cupy.arange(k)).astype(x.dtype)
            sums += one.T @ part
            counts += one.sum(axis=0)
        return labels, cupy.asnumpy(sums / counts[:, None])

    return step


def by_torch(x: Any, centers: Any, compiled: bool) -> Step:
    """The same in PyTorch, sums by ``index_add_``; compiled by its compiler if asked."""
    import torch

    rows, places = torch.from_dlpack(x), torch.tensor(centers, device="cuda")

    def plain(rows: Any, places: Any) -> Any:
        far = (places * places).sum(1) - 2 * (rows @ places.T)
        labels = far.argmin(1)
        sums = torch.zeros_like(places).index_add_(0, labels, rows)
        counts = torch.bincount(labels, minlength=len(places))
        return labels, sums / counts[:, None]

    run = torch.compile(plain) if compiled else plain

    def step() -> Any:
        labels, new = run(rows, places)
        return labels, new.cpu().numpy()

    return step


def by_jax(x: Any, centers: Any) -> Step:
    """The same in JAX, compiled, sums by segments."""
    import jax
    import jax.numpy as jnp

    rows, places = jnp.from_dlpack(x), jnp.asarray(centers)

    def plain(rows: Any, places: Any) -> Any:
        far = (places * places).sum(1) - 2 * jnp.dot(rows, places.T, precision="highest")
        labels = far.argmin(1)
        sums = jax.ops.segment_sum(rows, labels, len(centers))
        counts = jax.ops.segment_sum(jnp.ones(len(rows), rows.dtype), labels, len(centers))
        return labels, sums / counts[:, None]

    run = jax.jit(plain)

    def step() -> Any:
        labels, new = run(rows, places)
        return labels, np.asarray(new)

    return step


def ways_of(x: Any, centers: Any) -> dict[str, Step]:
    """All that can be run here, by name."""
    made: dict[str, Step] = {}
    several: dict[str, Callable[[], Step]] = {
        "redist": lambda: by_redist(x, centers),
        "CuPy": lambda: by_cupy(x, centers),
        "PyTorch": lambda: by_torch(x, centers, False),
        "PyTorch, compiled": lambda: by_torch(x, centers, True),
        "JAX": lambda: by_jax(x, centers),
    }
    for name, make in several.items():
        try:
            made[name] = make()
            made[name]()
        except Exception as problem:
            print(f"  {name} cannot: {type(problem).__name__}: {str(problem)[:120]}")
            made.pop(name, None)
    return made


def measure(n: int, d: int, k: int, dtype: Any, repeat: int) -> dict[str, Any]:
    """Milliseconds of each way, turn by turn, and how far their centres are from redist's."""
    import cupy

    rng = np.random.default_rng(0)
    places = rng.uniform(-10, 10, (k, d)).astype(dtype)
    chosen = cupy.asarray(rng.integers(0, k, n))
    noise = cupy.random.default_rng(1).standard_normal((n, d), dtype=dtype)
    x = cupy.asarray(places)[chosen] + noise
    centers = cupy.asnumpy(x[:k])
    ways = ways_of(x, centers)
    want = ways["redist"]()[1]
    apart = {name: float(np.abs(way()[1] - want).max()) for name, way in ways.items()}
    flat, copied = x.reshape(-1), cupy.empty_like(x).reshape(-1)
    wait = cupy.cuda.get_current_stream().synchronize

    def copy() -> None:
        copied[...] = flat
        wait()

    def ms_of(work: Step) -> float:
        wait()
        return 1e3 * timed(work)[0]

    return {
        "n": n, "d": d, "k": k, "dtype": np.dtype(dtype).name, "apart": apart,
        "ms": in_turn(ways, repeat, ms_of), "copy_ms": in_turn({"copy": copy}, repeat, ms_of)["copy"],
    }  # fmt: skip


def run(repeat: int = 11, fits: str = ONE_EACH, steps: int = len(STEPS)) -> Tables:
    """Measure on a GPU.

    repeat: of a step; fits: words in names of cases, '-' for none; steps: how many Lloyd steps.
    """
    tables = []
    if steps:
        tables.append(steps_table([measure(*one, repeat) for one in STEPS[:steps]]))
    if cases := [] if fits == "-" else chosen(fits, (*CASES, *MANY_ROWS)):
        tables.append(fits_table([fit_both(case) for case in cases]))
    return tuple(tables)


def steps_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Medians of every way, and the best of others beside redist's."""
    names = list(dict.fromkeys(name for row in rows for name in row["ms"]))
    lines: list[Row] = []
    for row in rows:
        middle = {name: float(np.median(one)) for name, one in row["ms"].items()}
        best = min(value for name, value in middle.items() if name != "redist")
        ours = np.array(row["ms"]["redist"])
        about: Row = {"rows": f"{row['n']} x {row['d']}, k={row['k']}, {row['dtype']}"}
        ways: dict[str, Value] = {f"{name} ms": middle.get(name) for name in names}
        lines.append(
            {
                **about, **ways, "copy ms": float(np.median(row["copy_ms"])),
                "times as fast as the best": best / middle["redist"],
                "redist's spread": f"{ours.min():.2f}-{ours.max():.2f}",
                "met": met(middle["redist"] <= best), "centres apart": max(row["apart"].values()),
            }
        )  # fmt: skip
    note = "a step: labels of all rows and new centres, in memory; copy: of the rows on the GPU"
    return Table.of("gpu-steps", "A Lloyd step on a GPU", lines, note)


def fit_both(case: Case) -> dict[str, Any]:
    """Seconds of a fit on the GPU, by redist in memory, and by scikit-learn; whether labels agree."""
    import cupy
    import sklearn.cluster

    from redist import pgas
    from redist.learn import cluster

    x = case.rows()
    options = case.model_options(x)
    here = pgas.asarray(x, type="{x}, {}")
    there = here.to_device("cuda")
    kinds: dict[str, Any] = {
        "gpu": lambda: getattr(cluster, case.estimator)(**options).fit(there),
        "host": lambda: getattr(cluster, case.estimator)(**options).fit(here),
        "sklearn": lambda: getattr(sklearn.cluster, case.estimator)(**options).fit(x),
    }
    out: dict[str, Any] = {"case": case.name}
    labels = {}
    for name, fit in kinds.items():
        fit()  # compiles loops, makes plans and pools
        turns: list[float] = []
        while not turns or (len(turns) < TURNS and sum(turns) < ENOUGH_S):
            begin = time.perf_counter()
            model = fit()
            cupy.cuda.get_current_stream().synchronize()
            turns.append(time.perf_counter() - begin)
        out[name] = min(turns)
        labels[name] = labels_of(model)
    out["same"] = np.array_equal(labels["gpu"], labels["host"])
    out["alike"] = float(sklearn.metrics.adjusted_rand_score(labels["sklearn"], labels["gpu"]))
    print(f"  {out}", flush=True)
    return out


def fits_table(rows: Sequence[dict[str, Any]]) -> Table:
    """All fits on the GPU beside those of the processors."""
    import sklearn

    lines = [
        {
            "fit": row["case"], "s": row["gpu"], "redist in memory s": row["host"],
            "scikit-learn s": row["sklearn"], "times as fast": row["sklearn"] / row["gpu"],
            "labels as in memory": "yes" if row["same"] else "no", "adjusted Rand": row["alike"],
        }
        for row in rows
    ]  # fmt: skip
    title = f"Fits of arrays on a GPU beside scikit-learn {sklearn.__version__} on {os.cpu_count()} cores"
    note = f"best of {TURNS} runs, of fewer where they take long; 1 rank"
    return Table.of("gpu-fits", title, lines, note)
