"""What users do wrong with clustering, and what they are told: their own call, in words, on all ranks.

As in ``mpirun -n 2 python -m tests.programs.learn.mistakes``.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV

import redist.learn.cluster
from redist import pgas
from redist.errors import PeerError, RequestError
from redist.learn.cluster import DBSCAN, KMeans
from redist.learn.metrics import adjusted_rand_score, silhouette_score
from redist.runtime.ranks import long_wait
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
RANK = COMM.rank
ROWS = make_blobs(203, 4, centers=5, random_state=0)[0]
X = pgas.asarray(ROWS, type="{x}, {}")
HERE = r"\(mistakes\.py:\d+\)"
OWN = re.escape("if each rank has its own part, use pgas.from_local")


def refusal(call: Callable[[], Any], kinds: Any = RequestError) -> str:
    """What a call is refused with; nothing if it is not."""
    try:
        call()
    except kinds as problem:
        return str(problem)
    return ""


def told(call: Callable[[], Any], words: str, kinds: Any = RequestError) -> str | None:
    """What a call says if it is not as wanted."""
    said = refusal(call, kinds)
    return None if re.search(words, said, re.IGNORECASE | re.DOTALL) else f"{said!r}, not {words}"


def estimators_that_differ_are_named() -> str | None:
    kind = KMeans if RANK else DBSCAN
    state = np.random.RandomState(RANK)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: KMeans(3 + RANK).fit(X),
         rf"rank 0: KMeans\(n_clusters=3\) {HERE}, rank 1: KMeans\(n_clusters=4\) {HERE}; every rank "),
        (lambda: kind().fit(X), rf"rank 0: DBSCAN\(\) {HERE}, rank 1: KMeans\(\) {HERE}"),
        (lambda: KMeans(3, random_state=RANK).fit_predict(X), "random_state=0.*random_state=1"),
        (lambda: KMeans(3, random_state=state).fit(X), "rank 0: .*rank 1: "),
        (lambda: silhouette_score(X, ROWS[:, 0] > 0, sample_size=50 + RANK),
         r"rank 0: silhouette_score\(sample_size=50\).*every rank must make the same call"),
    ]  # fmt: skip
    return next((wrong for call, words in cases if (wrong := told(call, words))), None)


def rows_that_differ_are_refused() -> str | None:
    own = np.random.RandomState(RANK).normal(size=(50, 3))
    order = np.random.RandomState(RANK).permutation(203)
    far = ROWS.copy()
    far[200, 3] += RANK
    large = np.random.RandomState(0).normal(size=(100_000, 3))
    large[77_777, 1] += RANK
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: KMeans(3).fit(own), r"rows differ between ranks: each has float64\[50, 3\]"),
        (lambda: DBSCAN().fit(own.tolist()), "rows differ between ranks"),
        (lambda: KMeans(3).fit(own[: 40 + RANK]), r"rank 0: float64\[40, 3\], rank 1: float64\[41, 3\]"),
        (lambda: DBSCAN().fit_predict(ROWS[order]), "rows differ between ranks"),
        (lambda: KMeans(3).fit(far), "rows differ between ranks"),
        (lambda: KMeans(3).fit(large), "rows differ between ranks"),
        (lambda: KMeans(3).fit(X, sample_weight=order + 1.0), "sample_weight differs between ranks"),
        (lambda: silhouette_score(ROWS, order % 3), "labels differ between ranks"),
    ]  # fmt: skip
    return next((wrong for call, words in cases if (wrong := told(call, f"{words}.*{OWN}"))), None)


def rows_that_lie_otherwise_are_the_same() -> str | None:
    rows = np.asfortranarray(ROWS) if RANK else ROWS
    found, want = KMeans(3, random_state=0).fit(rows), KMeans(3, random_state=0).fit(X)
    return None if np.array_equal(found.labels_, want.labels_.gather()) else "other labels"


def a_wait_names_the_call_and_the_line() -> str | None:
    comm = COMM.Dup()
    x = pgas.asarray(ROWS, type="{x}, {}", comm=comm)
    call = (lambda: x.gather()) if RANK else (lambda: KMeans(3).fit(x))
    return told(call, rf"rank 0: KMeans\.fit\(\) {HERE}; rank 1: a\.gather\(\) {HERE}", PeerError)


def who_waits_for_work_says_so() -> str | None:
    def slowly(x: Any, k: int, random_state: Any) -> Any:
        time.sleep(2.5 * RANK)
        return ROWS[:k]

    said, first_s = io.StringIO(), long_wait.FIRST_WORD_S
    long_wait.FIRST_WORD_S = 0.5
    try:
        with contextlib.redirect_stderr(said):
            KMeans(3, init=slowly, n_init=1).fit(X)
    finally:
        long_wait.FIRST_WORD_S = first_s
    words = (
        rf"rank 0 has finished its part of KMeans\.fit\(\) {HERE} and waited 1? ?.* s for rank 1 "
        "to finish"
    )
    well = RANK > 0 or re.search(words, said.getvalue())
    return None if well and "must make this call" not in said.getvalue() else said.getvalue()


def workers_are_refused() -> str | None:
    grid = GridSearchCV(KMeans(n_init=1), {"n_clusters": [2, 3]}, cv=2, n_jobs=2)
    try:
        grid.fit(ROWS)
    except Exception as problem:
        words = "cannot join this MPI job of 2 ranks; write n_jobs=None, the ranks are the jobs"
        return None if words in f"{problem} {problem.__cause__}" else repr(problem)
    return "workers were sent a model"


def shapes_are_explained_without_values() -> str | None:
    words = r"1D array instead:\nf64\[203\{x\}\]. Write x\[:, None\]"
    wrong = told(lambda: KMeans(2).fit(X[:, 0]), words, ValueError)
    column = X[:, :1] > 0
    return wrong or told(
        lambda: adjusted_rand_score(column, column),
        r"labels_true must be 1D: shape is \(203, 1\); write labels\[:, 0\]",
        ValueError,
    )


def warnings_come_from_the_first_rank() -> str | None:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("always")
        KMeans(4, random_state=0).fit(np.zeros((50, 2)))
    shown = "ConvergenceWarning" in said.getvalue()
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        KMeans(4, random_state=0).fit(np.zeros((50, 2)))
    if shown != (RANK == 0) or not recorded:
        return f"shown: {shown}, recorded: {len(recorded)}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return told(
            lambda: KMeans(4, random_state=0).fit(np.zeros((50, 2))), "distinct clusters", Warning
        )


def every_fit_takes_progress() -> str | None:
    for name in redist.learn.cluster.__all__:
        kind = getattr(redist.learn.cluster, name)
        for method in ("fit", "fit_predict") if isinstance(kind, type) else ():
            taken = getattr(kind, method, None)
            if not callable(taken):
                continue
            options = inspect.signature(taken).parameters
            if "progress" not in options and "kwargs" not in options:
                return f"{name}.{method}{inspect.signature(taken)}"
    labels = KMeans(3, random_state=0).fit_predict(X, progress=True)
    return None if labels.shape == (203,) else f"{labels}"


CHECKED = (
    estimators_that_differ_are_named, rows_that_differ_are_refused,
    rows_that_lie_otherwise_are_the_same, a_wait_names_the_call_and_the_line,
    who_waits_for_work_says_so, workers_are_refused, shapes_are_explained_without_values,
    warnings_come_from_the_first_rank, every_fit_takes_progress,
)  # fmt: skip
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
