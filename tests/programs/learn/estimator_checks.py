"""scikit-learn's own estimator checks, on all ranks at once: only what it expects of itself may fail."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from mpi4py import MPI
from sklearn.utils._test_common.instance_generator import PER_ESTIMATOR_XFAIL_CHECKS
from sklearn.utils.estimator_checks import check_estimator

from tests.programs.together import all_well, main

COMM = MPI.COMM_WORLD

NAMES = (
    "KMeans", "MiniBatchKMeans", "BisectingKMeans", "DBSCAN", "HDBSCAN", "OPTICS", "MeanShift",
    "AffinityPropagation", "AgglomerativeClustering", "Birch", "FeatureAgglomeration",
    "SpectralClustering", "SpectralCoclustering", "SpectralBiclustering", "LogisticRegression",
)  # fmt: skip
PLACES = {"LogisticRegression": "linear_model"}
"""Modules of estimators, where that is not ``cluster``."""
SMALL: dict[str, dict[str, Any]] = {
    "KMeans": {"max_iter": 5, "n_clusters": 2, "n_init": 2},
    "MiniBatchKMeans": {"batch_size": 10, "max_iter": 5, "n_clusters": 2, "n_init": 2},
    "BisectingKMeans": {"n_init": 2, "n_clusters": 2, "max_iter": 5},
    "AffinityPropagation": {"max_iter": 5},
    "AgglomerativeClustering": {"n_clusters": 2},
    "Birch": {"n_clusters": 2},
    "FeatureAgglomeration": {"n_clusters": 2},
    "MeanShift": {"max_iter": 5, "bandwidth": 1.0},
    "HDBSCAN": {"min_samples": 1},
    "SpectralClustering": {"n_init": 2, "n_clusters": 2},
    "SpectralCoclustering": {"n_init": 2, "n_clusters": 2},
    "SpectralBiclustering": {"n_init": 2, "n_best": 1, "n_clusters": 2},
}
"""The parameters with which scikit-learn checks its own."""


def statuses(kind: Any, options: dict[str, Any], expected: dict[str, str]) -> list[Any]:
    """What became of all checks of an estimator."""
    np.random.seed(0)  # some checks shuffle rows: the same on all ranks
    found: list[Any] = check_estimator(
        kind(**options), expected_failed_checks=expected, on_fail=None, on_skip=None
    )
    return found


def check(name: str) -> tuple[dict[str, int], list[str]]:
    """How many checks of an estimator passed, and what is other than with scikit-learn's own."""
    place = PLACES.get(name, "cluster")
    kind, parent = (
        getattr(import_module(f"{package}.{place}"), name)
        for package in ("redist.learn", "sklearn")
    )
    options = SMALL.get(name, {})
    expected = PER_ESTIMATOR_XFAIL_CHECKS.get(parent, {})
    warnings.simplefilter("ignore")
    results = statuses(kind, options, expected)
    counts: dict[str, int] = {}
    for one in results:
        counts[one["status"]] = counts.get(one["status"], 0) + 1
    failed = [
        f"{one['check_name']}: {one['exception']!r}" for one in results if one["status"] == "failed"
    ]
    if counts.get("xfail", 0) != len(expected):  # not all of them fail in a subclass, either
        plain = type(name, (parent,), {"__init__": parent.__init__})
        ours, theirs = (
            {one["check_name"] for one in each if one["status"] == "xfail"}
            for each in (results, statuses(plain, options, expected))
        )
        failed += [f"{one} fails on one side alone" for one in sorted(ours ^ theirs)]
    return counts, failed


def checks_on(ranks: int, args: Sequence[str]) -> Sequence[str]:
    """The estimators that are checked."""
    return args or NAMES


def program() -> int:
    """0 if nothing is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=NAMES)
    wrong = 0
    for name in parser.parse_args().names:
        counts, failed = check(name)
        if COMM.rank == 0:
            print(name, counts, flush=True)
        wrong += not all_well(COMM, name, "; ".join(failed) or None)
    return int(wrong > 0)


if __name__ == "__main__":
    main(program)
