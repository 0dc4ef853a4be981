"""What every estimator keeps to: global in, global out, cut alike; errors on all ranks; good manners.

As in ``mpirun -n 3 python -m tests.programs.learn.frame``.
"""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import sklearn.cluster
import sklearn.metrics
from mpi4py import MPI
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import redist
from redist import pgas
from redist.learn.cluster import (
    DBSCAN,
    HDBSCAN,
    AffinityPropagation,
    KMeans,
    MiniBatchKMeans,
    kmeans_plusplus,
)
from redist.pgas.memory import BUFFERS
from redist.spmd import Rows, all_rows, own_range
from redist.text import progress
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
X = make_blobs(203, 4, centers=5, random_state=0)[0]


def layouts() -> list[redist.ArrayType]:
    """Types of the data on several meshes; some leave ranks without a tile."""
    n, out = COMM.size, []
    line = redist.Mesh(x=n)
    for cut in ("{x}, 4", "203, 4{x}", "203, 4"):
        head = f"203{cut[:3]}" if cut.startswith("{") else "203"
        out.append(redist.ArrayType.parse(f"f64[{head}, {cut.split(', ')[1]}]", line))
    out.append(
        redist.ArrayType.parse("f64[203{x}, 4]", redist.Mesh({"x": n}, ranks=range(n)[::-1]))
    )
    if n > 1:
        few = redist.Mesh({"y": n - 1}, ranks=list(range(1, n)))
        out.append(redist.ArrayType.parse("f64[203{y}, 4]", few))
    if n == 4:
        square = redist.Mesh(x=2, y=2)
        out += [
            redist.ArrayType.parse(text, square)
            for text in ("f64[203{x}, 4{y}]", "f64[203{y,x}, 4]", "f64[203{y}, 4]")
        ]
    return out


def labels_are_cut_as_the_rows() -> str | None:
    want = KMeans(5, random_state=0).fit(X)
    for t in layouts():
        box = redist.box_of(t, COMM.rank)
        tile = None if box is None else X[tuple(slice(*one) for one in box)].copy()
        x = pgas.from_local(tile, t)
        model = KMeans(5, random_state=0).fit(x)
        if model.labels_.type.dims != (t.dims[0],) or model.labels_.mesh != t.mesh:
            return f"{t}: labels are {model.labels_.type} on {model.labels_.mesh}"
        for found, wanted in (
            (model.labels_, want.labels_),
            (model.predict(x), want.labels_),
            (model.transform(x), want.transform(X)),
        ):
            if not np.allclose(found.gather(), wanted, rtol=1e-12):
                return f"{t}: other values"
        if not np.array_equal(x.gather(), X):
            return f"{t}: the data was changed"
    return None


def numpy_in_numpy_out() -> str | None:
    model = KMeans(3, random_state=0).fit(X.tolist())
    kinds = {type(model.labels_), type(model.predict(X)), type(model.transform(X))}
    kinds.add(type(model.cluster_centers_))
    return None if kinds == {np.ndarray} else f"{kinds}"


def refused(work: Callable[[], Any]) -> str:
    try:
        work()
    except ValueError as problem:
        return f"{type(problem).__name__}: {problem}"
    return "nothing"


def errors_come_on_all_ranks() -> str | None:
    bad = X.copy()
    bad[-1, 2] = np.nan  # on the last rank alone
    sets = {"nan": bad, "rows": X[:3], "dims": X[:, 0], "none": X[:0]}
    for name, data in sets.items():
        x = pgas.asarray(data, type="{x}, {}" if data.ndim == 2 else "{x}")
        ours = refused(partial(KMeans(5).fit, x))
        theirs = refused(partial(sklearn.cluster.KMeans(5).fit, data))
        if ours.split("\n")[0] != theirs.split("\n")[0] or ours == "nothing":
            return f"{name}: {ours!r}, scikit-learn {theirs!r}"
    weights = pgas.asarray(np.where(np.arange(203) == 202, np.inf, 1.0))
    x = pgas.asarray(X, type="{x}, {}")
    if "sample_weight" not in refused(lambda: KMeans(5).fit(x, sample_weight=weights)):
        return "infinite weights are taken"
    if refused(lambda: KMeans(5).fit(x, sample_weight=pgas.ones((7,)))) == "nothing":
        return "too few weights are taken"
    return None if refused(lambda: KMeans(0).fit(x)) != "nothing" else "no clusters are taken"


def spectral_errors_and_affinities_are_scikit_learns() -> str | None:
    few = np.abs(X[:60])
    far = np.sqrt(((few[:, None] - few) ** 2).sum(axis=2))
    alike, uneven, bad = np.exp(-far), np.exp(-far), few.copy()
    uneven[0, 1], bad[-1, 2] = 5, np.nan
    clustering: dict[str, Any] = {"n_clusters": 2, "random_state": 0}
    given = {**clustering, "affinity": "precomputed"}
    cases: tuple[tuple[str, dict[str, Any], Any], ...] = (
        ("SpectralClustering", clustering, bad),
        ("SpectralClustering", clustering, few[:1]),
        ("SpectralClustering", {"n_clusters": 70}, few),
        ("SpectralClustering", given, few),
        ("SpectralClustering", given, alike),
        ("SpectralClustering", given, uneven),
        ("SpectralClustering", {**clustering, "affinity": "chi2"}, few),
        ("SpectralClustering", {**clustering, "affinity": "chi2"}, X[:60]),
        ("SpectralClustering", {**clustering, "affinity": "linear"}, X[:60]),
        ("SpectralClustering", {"affinity": "nearest_neighbors", "n_neighbors": 90}, few),
        ("SpectralCoclustering", {"n_clusters": 1}, few),
        ("SpectralCoclustering", {"n_clusters": 80}, few),
        ("SpectralCoclustering", {"n_clusters": 2}, np.zeros((9, 4))),
        ("SpectralBiclustering", {"n_clusters": (2, 80)}, few),
        ("SpectralBiclustering", {"n_best": 9}, few),
    )
    for name, options, data in cases:
        found = []
        for kind, x in (
            (getattr(redist.learn.cluster, name), pgas.asarray(data, type="{x}, {}")),
            (getattr(redist.learn.cluster, name), data),
            (getattr(sklearn.cluster, name), data),
        ):
            model = kind(**options)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                said = refused(partial(model.fit, x)).split("\n")[0]
            labels = getattr(model, "labels_", None)
            whole = labels.gather() if isinstance(labels, pgas.Array) else labels
            found.append((said, None if whole is None else whole.tolist()))
        if not found[0] == found[1] == found[2]:
            return f"{name} {options}: {[said for said, _ in found]}"
    return None


def ranks_draw_the_same_seed() -> str | None:
    np.random.seed(COMM.rank)  # which no rank shares with another
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in (KMeans, MiniBatchKMeans):
            centers = all_rows(COMM, kind(4).fit(X).cluster_centers_)
            if not (centers == centers[0]).all():
                return f"{kind.__name__}: ranks have other centres"
    return None


def weights_come_in_any_form() -> str | None:
    weights = np.random.RandomState(0).rand(203)
    x = pgas.asarray(X, type="{x}, {}")
    want = sklearn.cluster.KMeans(4, random_state=0).fit(X, sample_weight=weights)
    for given in (weights, pgas.asarray(weights, type="{x}"), pgas.asarray(weights, type="{}")):
        model = KMeans(4, random_state=0).fit(x, sample_weight=given)
        if not np.array_equal(model.labels_.gather(), want.labels_):
            return f"{type(given).__name__}"
        if not np.isclose(model.score(x, sample_weight=given), want.score(X, None, weights)):
            return "score"
    points, halves = np.arange(12).reshape(-1, 1), np.full(12, 0.9)
    model = DBSCAN(eps=1, min_samples=2).fit(pgas.asarray(points), None, pgas.asarray(halves))
    return None if (model.labels_.gather() == 0).all() else "weights of whole numbers are cut off"


def manners_are_scikit_learns() -> str | None:
    model = KMeans(4, random_state=3)
    twin = clone(model)
    if twin.get_params() != model.get_params() or repr(twin) != repr(model):
        return f"{twin} of {model}"
    x = pgas.asarray(X, type="{x}, {}")
    pipe = make_pipeline(FunctionTransformer(lambda a: a * 2), KMeans(4, random_state=3))
    if not np.array_equal(pipe.fit(x)[-1].labels_.gather(), model.fit(X).labels_):
        return "a pipeline has other labels"
    again = pickle.loads(pickle.dumps(pipe[-1]))
    return None if np.array_equal(again.labels_.gather(), model.labels_) else "pickled"


def pickles_hold_no_half() -> str | None:
    """A model that another rank pickled predicts; its labels, one rank's tile, are refused."""
    model = KMeans(4, random_state=3).fit(pgas.asarray(X, type="{x}, {}"))
    again = pickle.loads(COMM.bcast(pickle.dumps(model), COMM.size - 1))
    if not np.array_equal(again.predict(X), model.predict(X)):
        return "predicts otherwise"
    twin = copy.deepcopy(model)
    if not np.array_equal(twin.labels_.local, model.labels_.local):
        return "a deep copy has other labels"
    if COMM.rank == COMM.size - 1:
        return None if np.array_equal(again.labels_.local, model.labels_.local) else "other labels"
    try:
        return f"labels {again.labels_}"
    except AttributeError as problem:
        said = str(problem)
    if "model.labels_ = model.labels_.gather()" not in said:
        return said
    return None if not hasattr(pickle.loads(pickle.dumps(again)), "labels_") else "labels after all"


def the_first_rank_says_what_takes_long() -> str | None:
    """Unasked, after a while; nothing if told so, and nothing elsewhere."""
    x, waited = pgas.asarray(X, type="{x}, {}"), progress.UNASKED_S
    progress.UNASKED_S = 1e-4
    said, silent = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            HDBSCAN(copy=True).fit(x)
        with contextlib.redirect_stderr(silent):
            HDBSCAN(copy=True).fit(x, progress=False)
    finally:
        progress.UNASKED_S = waited
    speaks = said.getvalue().startswith("HDBSCAN has been running for ")
    if silent.getvalue() or speaks != (COMM.rank == 0) or (COMM.rank and said.getvalue()):
        return f"{said.getvalue()!r}, {silent.getvalue()!r}"
    return None


def scikit_learn_is_told_its_own() -> str | None:
    """What of scikit-learn takes a global array for one of NumPy is told where it is taken."""
    x = pgas.asarray(X, type="{x}, {}")
    for call, words in (
        (
            lambda: sklearn.metrics.silhouette_score(x, np.arange(203) % 4),
            "redist.learn.metrics.silhouette_score",
        ),
        (lambda: StandardScaler().fit(x), "array_api_dispatch=True"),
    ):
        try:
            call()
        except TypeError as problem:
            if words not in str(problem):
                return str(problem)
        else:
            return f"no error that names {words}"
    return None


def seeds_are_scikit_learns() -> str | None:
    for k in (1, 7, 30):
        ours = kmeans_plusplus(pgas.asarray(X, type="{x}, {}"), k, random_state=k)
        theirs = sklearn.cluster.kmeans_plusplus(X, k, random_state=k)
        if not all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)):
            return f"{k}: {ours[1]} and not {theirs[1]}"
    return None


def limits_are_kept_before_work_begins() -> str | None:
    x = pgas.asarray(X, type="{x}, {}")
    lo, hi = own_range(COMM, len(X))
    rows = Rows(X[lo:hi], lo, len(X), COMM, x)
    before = BUFFERS.live_bytes
    with redist.memory_limit(before + 5000):
        for n_bytes, fits in ((5000, True), (5001, False)):
            if ("left of its limit" not in limited(partial(rows.need, "fit", 0, n_bytes))) != fits:
                return f"{n_bytes} bytes of 5000"
    with redist.memory_limit(before + 500):
        for kind in (KMeans, AffinityPropagation, HDBSCAN):
            said = limited(partial(kind().fit, x))
            if f"cannot fit {kind.__name__} to f64[203" not in said:
                return said
    return None


def limited(work: Callable[[], Any]) -> str:
    try:
        work()
    except redist.MemoryLimitError as problem:
        return str(problem)
    return "nothing"


def a_round_is_one_all_reduce() -> str | None:
    x = pgas.asarray(X, type="{x}, {}")
    start = X[:5].copy()
    moves = {}
    for rounds in (1, 4):
        model = KMeans(5, init=start, max_iter=rounds, tol=0)
        with redist.trace() as t:
            model.fit(x)
        moves[model.n_iter_] = [m for m in t.moves if m.source == f"f64[{2 * 5 * 5 + 1}] sum{{x}}"]
    if COMM.size == 1:
        return None if not any(moves.values()) else f"{moves}"
    found = {n: len(each) for n, each in moves.items()}
    if found != {1: 1, 4: 4}:
        return f"all-reduces by rounds: {found}"
    ways = {(move.steps, move.target) for each in moves.values() for move in each}
    whole = f"f64[{2 * 5 * 5 + 1}]"
    if COMM.size == 2:  # either rank adds up all of it: nothing is left to gather
        return None if ways <= {("all_reduce", whole), ("reduce_scatter", whole)} else f"{ways}"
    return None if ways == {("all_reduce", whole)} else f"{ways}"


CHECKED = (
    labels_are_cut_as_the_rows, numpy_in_numpy_out, errors_come_on_all_ranks,
    spectral_errors_and_affinities_are_scikit_learns,
    ranks_draw_the_same_seed, weights_come_in_any_form, manners_are_scikit_learns,
    pickles_hold_no_half, the_first_rank_says_what_takes_long, scikit_learn_is_told_its_own,
    seeds_are_scikit_learns,
    a_round_is_one_all_reduce, limits_are_kept_before_work_begins,
)  # fmt: skip
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
