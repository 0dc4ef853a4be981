"""``python -m bench clustering gpu``: Lloyd steps beside those by hand, all fourteen beside scikit-learn.

scikit-learn runs on this machine's processors, with all of them.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.clustering.cases import CASES, Case, chosen
from bench.clustering.gpu_lloyd import measure
from bench.clustering.job import labels_of
from bench.report.figures import met
from bench.report.report import Report, Table, Value, save_json

LAST = Path(__file__).parents[1] / "results" / "last" / "clustering-gpu.json"
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


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 if labels differ."""
    parser = argparse.ArgumentParser(prog="python -m bench clustering gpu", description=__doc__)
    parser.add_argument("--repeat", type=int, default=11)
    parser.add_argument("--fits", default=ONE_EACH, help="words in names of cases; '-' for none")
    parser.add_argument("--steps", type=int, default=len(STEPS), help="how many Lloyd steps")
    parser.add_argument("--json", type=Path, default=LAST)
    args = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    tables = []
    if args.steps:
        rows = [measure(*one, args.repeat) for one in STEPS[: args.steps]]
        tables.append(steps_table(rows))
        print(tables[-1], end="\n\n", flush=True)
    cases = [] if args.fits == "-" else [one for one in CASES if one in chosen(args.fits)]
    if cases:
        tables.append(fits_table([fit_both(case) for case in cases]))
        print(tables[-1], end="\n\n", flush=True)
    report = Report("clustering", tuple(tables))
    save_json(args.json, [report], {name: str(value) for name, value in vars(args).items()})
    return 0


def steps_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Medians of every way, and the best of others beside redist's."""
    names = list(dict.fromkeys(name for row in rows for name in row["ms"]))
    lines: list[tuple[Value, ...]] = []
    for row in rows:
        middle = {name: float(np.median(one)) for name, one in row["ms"].items()}
        best = min(value for name, value in middle.items() if name != "redist")
        ours = np.array(row["ms"]["redist"])
        lines.append(
            (
                f"{row['n']} x {row['d']}, k={row['k']}, {row['dtype']}",
                *(middle.get(name) for name in names), float(np.median(row["copy_ms"])),
                best / middle["redist"], f"{ours.min():.2f}-{ours.max():.2f}",
                met(middle["redist"] <= best), max(row["apart"].values()),
            )
        )  # fmt: skip
    columns = ("rows", *(f"{name} ms" for name in names), "copy ms", "times as fast as the best",
               "redist's spread", "met", "centres apart")  # fmt: skip
    notes = ("a step: labels of all rows and new centres, in memory; copy: of the rows on the GPU",)
    return Table("A Lloyd step on a GPU", columns, tuple(lines), notes, "gpu-steps")


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
    import os

    import sklearn

    lines = tuple(
        (
            row["case"], row["gpu"], row["host"], row["sklearn"], row["sklearn"] / row["gpu"],
            "yes" if row["same"] else "no", row["alike"],
        )
        for row in rows
    )  # fmt: skip
    title = f"Fits of arrays on a GPU beside scikit-learn {sklearn.__version__} on {os.cpu_count()} cores"
    columns = ("fit", "s", "redist in memory s", "scikit-learn s", "times as fast",
               "labels as in memory", "adjusted Rand")  # fmt: skip
    notes = (f"best of {TURNS} runs, of fewer where they take long; 1 rank",)
    return Table(title, columns, lines, notes, "gpu-fits")
