"""Scores of clusters over ranks, against scikit-learn's, and the same bits for every number of ranks.

As in ``mpirun -n 3 python -m tests.programs.learn.scores``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import sklearn.metrics
import sklearn.metrics.cluster
from mpi4py import MPI
from sklearn.datasets import make_blobs

import redist
from redist import pgas
from redist.learn import metrics
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
COMPARED = (
    "rand_score", "adjusted_rand_score", "fowlkes_mallows_score", "mutual_info_score",
    "normalized_mutual_info_score", "adjusted_mutual_info_score", "homogeneity_score",
    "completeness_score", "v_measure_score", "homogeneity_completeness_v_measure",
)  # fmt: skip
TABLES = ("contingency_matrix", "pair_confusion_matrix")
SPREAD = (
    "silhouette_score",
    "silhouette_samples",
    "calinski_harabasz_score",
    "davies_bouldin_score",
)


def theirs(name: str) -> Any:
    return getattr(sklearn.metrics, name, None) or getattr(sklearn.metrics.cluster, name)


def pairs() -> Iterator[tuple[str, Any, Any]]:
    """Labellings of all kinds."""
    rng = np.random.RandomState(0)
    one = rng.randint(0, 5, 333)
    yield "random", one, rng.randint(0, 7, 333)
    yield "the same", one, 10 - one
    yield "near", one, np.where(rng.rand(333) < 0.1, 4, one)
    yield "negative", one - 3, rng.randint(-1, 2, 333)
    yield "one class", np.zeros(50, int), rng.randint(0, 3, 50)
    yield "one each", np.zeros(50, int), np.ones(50, int)
    yield "all distinct", np.arange(40), np.arange(40)[::-1]
    yield "few", np.array([1, 0]), np.array([5, 5])
    yield "none", np.array([], int), np.array([], int)


def sets() -> Iterator[tuple[str, Any, Any]]:
    """Rows with labels."""
    x, y = make_blobs(203, 4, centers=5, random_state=0)
    yield "blobs", x, y
    yield "shuffled labels", x, np.random.RandomState(1).permutation(y)
    yield "single rows", x, np.where(np.arange(203) % 50 == 0, 100 + np.arange(203), y)
    yield "float32", x.astype(np.float32), y
    yield "far away", x + 1e4, y
    yield "duplicates", np.repeat(x[:20], 4, axis=0), np.repeat(y[:20], 4)
    yield "few", x[:3], np.array([0, 1, 1])
    grid = np.array([(i, j) for i in range(12) for j in range(11)])
    yield "grid", grid, grid[:, 0] // 4


def labellings_are_compared_as_by_scikit_learn() -> str | None:
    for kind, one, other in pairs():
        given = [(one, other), (pgas.asarray(one, type="{x}"), pgas.asarray(other, type="{x}"))]
        given.append((one.tolist(), pgas.asarray(other, type="{}")))
        for name in COMPARED:
            if name == "mutual_info_score" and not len(one):
                continue  # scikit-learn has no answer
            want = np.array(theirs(name)(one, other))
            found = [np.array(getattr(metrics, name)(*both)) for both in given]
            if not all(np.array_equal(each, found[0]) for each in found):
                return f"{name} of {kind}: {found} by form"
            if not np.allclose(found[0], want, rtol=1e-12, atol=1e-13):
                return f"{name} of {kind}: {found[0]} and not {want}"
        for name in TABLES if len(one) else ():
            if not np.array_equal(getattr(metrics, name)(*given[1]), theirs(name)(one, other)):
                return f"{name} of {kind}"
    return None


def options_are_scikit_learns() -> str | None:
    one, other = next(iter(pairs()))[1:]
    for method in ("min", "max", "geometric", "arithmetic"):
        for name in ("adjusted_mutual_info_score", "normalized_mutual_info_score"):
            ours = getattr(metrics, name)(one, other, average_method=method)
            if not np.isclose(ours, theirs(name)(one, other, average_method=method), atol=1e-13):
                return f"{name} {method}"
    beta = metrics.v_measure_score(one, other, beta=2.0)
    if not np.isclose(beta, sklearn.metrics.v_measure_score(one, other, beta=2.0)):
        return "beta"
    table = metrics.contingency_matrix(one, other, sparse=True)
    found = metrics.mutual_info_score(None, None, contingency=table)
    if not np.isclose(found, sklearn.metrics.mutual_info_score(one, other)):
        return "contingency"
    words = np.array(["a", "b", "c", "d", "e"])[one]
    return None if metrics.rand_score(words, one) == 1 else "words"


def clusters_are_scored_as_by_scikit_learn() -> str | None:
    for kind, x, y in sets():
        given = [(x, y), (pgas.asarray(x, type="{x}, {}"), pgas.asarray(y, type="{x}"))]
        given += [(pgas.asarray(x, type="{}, {x}"), y)]
        # scikit-learn takes distances by products: a row and its own centre are 1e-8 apart there
        loose = {
            "float32": 3e-5,
            "far away": 1e-7,
            "duplicates": 1e-6,
            "single rows": 1e-7,
            "few": 1e-7,
        }.get(kind, 1e-12)
        for name in SPREAD:
            want = theirs(name)(x, y)
            found = [_whole(getattr(metrics, name)(*both)) for both in given]
            if not all(np.array_equal(each, found[0]) for each in found):
                return f"{name} of {kind}: other bits by form"
            if not np.allclose(found[0], want, rtol=loose, atol=loose):
                return f"{name} of {kind}: off by {np.abs(found[0] - want).max()}"
    answer = metrics.silhouette_samples(pgas.asarray(x * 1.0, type="{x}, {}"), y)
    return None if str(answer.type).startswith("f64[132{x}") or COMM.size == 1 else f"{answer.type}"


def _whole(value: Any) -> Any:
    return np.asarray(value.gather() if isinstance(value, pgas.Array) else value)


def scores_are_those_of_one_rank() -> str | None:
    """The whole by every rank for itself has the same bits."""
    for kind, x, y in sets():
        far = np.sqrt(((x[:, None] - x[None]) ** 2.0).sum(axis=2))
        for name in SPREAD:
            shared = getattr(metrics, name)(pgas.asarray(x * 1.0), pgas.asarray(y))
            alone = pgas.asarray(x * 1.0, comm=MPI.COMM_SELF)
            own = getattr(metrics, name)(alone, pgas.asarray(y, comm=MPI.COMM_SELF))
            if not np.array_equal(_whole(shared), _whole(own)):
                return f"{name} of {kind}"
        for metric, data in (("manhattan", x), ("canberra", x), ("precomputed", far)):
            shared = metrics.silhouette_samples(pgas.asarray(data * 1.0), y, metric=metric)
            alone = pgas.asarray(data * 1.0, comm=MPI.COMM_SELF)
            labels = pgas.asarray(y, comm=MPI.COMM_SELF)
            own = metrics.silhouette_samples(alone, labels, metric=metric)
            if not np.array_equal(_whole(shared), _whole(own)):
                return f"{metric} of {kind}"
            want = sklearn.metrics.silhouette_samples(data, y, metric=metric)
            if not np.allclose(_whole(shared), want, atol=3e-5):
                return f"{metric} of {kind} is not scikit-learn's"
    return None


def samples_and_metrics_are_scikit_learns() -> str | None:
    x, y = make_blobs(150, 3, centers=4, random_state=2)
    given: list[dict[str, Any]] = [
        {"sample_size": 60, "random_state": 3}, {"metric": "cosine"}, {"metric": "seuclidean"},
        {"metric": "minkowski", "p": 3}, {"metric": "l1"}, {"sample_size": 50, "random_state": 0},
    ]  # fmt: skip
    for options in given:
        want = sklearn.metrics.silhouette_score(x, y, **options)
        for form in (x, pgas.asarray(x, type="{x}, {}")):
            found = metrics.silhouette_score(form, y, **options)
            if not np.isclose(found, want, rtol=1e-10):
                return f"{options}: {found} and not {want}"
    far = sklearn.metrics.pairwise_distances(x)
    square: dict[str, Any] = {"metric": "precomputed", "sample_size": 70, "random_state": 1}
    want = sklearn.metrics.silhouette_score(far, y, **square)
    found = metrics.silhouette_score(pgas.asarray(far, type="{x}, {}"), y, **square)
    return None if np.isclose(found, want) else f"precomputed: {found} and not {want}"


def refused(work: Callable[..., Any], *given: Any, **options: Any) -> str:
    try:
        work(*given, **options)
    except (ValueError, TypeError) as problem:
        return f"{type(problem).__name__}: {problem}".split("\n")[0]
    return "nothing"


def errors_come_on_all_ranks() -> str | None:
    x, y = make_blobs(50, 3, centers=4, random_state=2)
    bad = x.copy()
    bad[-1, 2] = np.nan  # on the last rank alone
    cases = {"one label": (x, 0 * y), "a label each": (x, np.arange(50)), "fewer": (x, y[:7])}
    cases |= {"nan": (bad, y), "one dim": (x[:, 0], y), "no row": (x[:0], y[:0])}
    for kind, (points, labels) in cases.items():
        cut = "{x}, {}" if points.ndim == 2 else "{x}"
        both = pgas.asarray(points, type=cut), pgas.asarray(labels, type="{x}")
        for name in SPREAD:
            want = refused(theirs(name), points, labels)
            for form in ((points, labels), both):
                found = refused(getattr(metrics, name), *form)
                if found != want or want == "nothing":
                    return f"{name} of {kind}: {found!r}, scikit-learn {want!r}"
    for labels in ((y, y[:7]), (y[:, None], y)):
        want = refused(sklearn.metrics.rand_score, *labels)
        found = refused(metrics.rand_score, *map(pgas.asarray, labels))
        if not found.startswith(want):  # and what to write instead
            return f"{found!r}, scikit-learn {want!r}"
    loops = pgas.asarray(np.ones((50, 50)), type="{x}, {}")
    if "diagonal" not in refused(metrics.silhouette_score, loops, y, metric="precomputed"):
        return "a diagonal of ones is taken"
    return None


def silhouettes_come_by_visits() -> str | None:
    """Nothing is gathered: what moves are labels' counts, a bound and a sum."""
    x, y = make_blobs(600, 40, centers=4, random_state=2)
    points, labels = pgas.asarray(x, type="{x}, {}"), pgas.asarray(y, type="{x}")
    with redist.trace() as t:
        metrics.silhouette_score(points, labels)
    if t.received_bytes > 100 * COMM.size:
        return f"{t.received_bytes} bytes came\n{t}"
    return None


CHECKED = (
    labellings_are_compared_as_by_scikit_learn, options_are_scikit_learns,
    clusters_are_scored_as_by_scikit_learn, scores_are_those_of_one_rank,
    samples_and_metrics_are_scikit_learns, errors_come_on_all_ranks, silhouettes_come_by_visits,
)  # fmt: skip
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
