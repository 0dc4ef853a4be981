"""Linear models over ranks against scikit-learn: coefficients, chances, labels, refusals.

As in ``mpirun -n 3 python -m tests.programs.learn.linear``; with names of checks behind it those
alone, and ``on_gpus`` too.
"""

from __future__ import annotations

import pickle
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import sklearn.linear_model
from mpi4py import MPI
from scipy.sparse import csr_matrix
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from redist import ArgumentError, pgas
from redist.learn import gathered
from redist.learn.linear_model import LogisticRegression
from tests.programs.together import main, run_named
from tests.tiers import sample

COMM = MPI.COMM_WORLD
NEAR = 1e-8
TIGHT: dict[str, Any] = {"tol": 1e-12, "max_iter": 1000}
SOLVERS = ("newton-cholesky", "lbfgs")


def rows(n_classes: int, n: int = 203, seed: int = 3) -> tuple[Any, Any, Any]:
    """Rows that no plane parts, their labels, and weights."""
    x, y = make_classification(
        n, 8, n_informative=6, n_classes=n_classes, flip_y=0.2, random_state=seed
    )
    return x, y, np.random.default_rng(seed).uniform(0.2, 3, n)


def fit(kind: Any, options: dict[str, Any], *data: Any) -> Any:
    """A fitted model; what solvers say of their last steps does not matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(**options).fit(*data)


def far(ours: Any, theirs: Any) -> float:
    """The largest difference of coefficients."""
    pairs = (ours.coef_, theirs.coef_), (ours.intercept_, theirs.intercept_)
    return max(float(np.abs(one - other).max()) for one, other in pairs)


def coefficients() -> str | None:
    """Those of scikit-learn by the same solver, for many options; all rows of answers, too."""
    rng = np.random.default_rng(0)
    for number in range(sample(8, of=120)):
        n_classes = int(rng.integers(2, 5))
        x, y, w = rows(n_classes, seed=number)
        weights = None if rng.random() < 0.5 else w
        options = {
            "solver": SOLVERS[number % 2],
            "C": float(rng.choice([0.01, 1.0, 30.0])),
            "fit_intercept": bool(rng.integers(2)),
            "class_weight": [None, "balanced", dict.fromkeys(range(n_classes), 2.0) | {0: 0.5}][
                rng.integers(3)
            ],
            **TIGHT,
        }
        if options["solver"] == SOLVERS[0] and rng.random() < 0.3:
            options["C"] = np.inf
        theirs = fit(sklearn.linear_model.LogisticRegression, options, x, y, weights)
        layout = ("{x}, {}", "{}, {x}")[rng.integers(2)]
        given = pgas.asarray(x, type=layout)
        labels = y if rng.random() < 0.3 else pgas.asarray(y)
        there = weights if weights is None or rng.random() < 0.3 else pgas.asarray(weights)
        for model in (
            fit(LogisticRegression, options, given, labels, there),
            fit(LogisticRegression, options, x, y, weights),
        ):
            said = f"{options} of {n_classes} classes in {layout}"
            if (off := far(model, theirs)) > NEAR:
                return f"{said}: {off} off"
            if not np.array_equal(model.classes_, theirs.classes_):
                return f"{said}: {model.classes_}"
            for name in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
                for some, want in ((given, x), (x, x)):
                    found, answer = getattr(model, name)(some), getattr(theirs, name)(want)
                    whole = found.gather() if some is given else found
                    if whole.dtype != answer.dtype or not np.allclose(whole, answer, atol=1e-6):
                        return f"{said}: {name} differs"
            scores = model.score(given, labels, there), model.score(x, y, weights)
            if not np.allclose(scores, theirs.score(x, y, weights), rtol=1e-12):
                return f"{said}: scores {scores}"
    return None


def labels() -> str | None:
    """Labels are text, numbers with a sign, or truth values; answers are as they are."""
    x, y, _ = rows(3)
    given, options = pgas.asarray(x), {"solver": SOLVERS[0]}
    for names in (np.array(["red", "green", "blue"]), np.array([-2, 7, 5]), np.array([0.0, 2, 1])):
        named = names[y]
        theirs = fit(sklearn.linear_model.LogisticRegression, options, x, named)
        there = named if named.dtype.kind == "U" else pgas.asarray(named)
        model = fit(LogisticRegression, options, given, there)
        found = model.predict(given)
        found = found if isinstance(found, np.ndarray) else found.gather()
        if found.dtype != named.dtype or not np.array_equal(found, theirs.predict(x)):
            return f"{names}: {found[:5]}"
        if model.score(given, there) != theirs.score(x, named):
            return f"{names}: score"
    truth = fit(LogisticRegression, options, given, pgas.asarray(y > 0))
    return None if truth.predict(given).dtype == np.bool_ else "no truth values"


def further() -> str | None:
    """Fits go on from the one before; f32 stays f32; models can be pickled; few rows; other solvers."""
    x, y, _ = rows(2)
    given, there = pgas.asarray(x), pgas.asarray(y)
    warm = LogisticRegression(solver=SOLVERS[0], warm_start=True, **TIGHT).fit(given, there)
    first = warm.coef_.copy()
    warm.fit(given, there)
    if warm.n_iter_[0] > 2 or not np.allclose(first, warm.coef_):
        return f"a warm start took {warm.n_iter_[0]} iterations"
    small = LogisticRegression().fit(given.astype("f4"), there)
    kinds = {small.coef_.dtype, small.predict_proba(given.astype("f4")).dtype}
    if kinds != {np.dtype("f4")} or far(small, warm) > 1e-2:
        return f"f32: {kinds}"
    loaded = pickle.loads(pickle.dumps(gathered(small)))
    if not np.array_equal(loaded.predict(x), small.predict(x)):
        return "a pickle predicts otherwise"
    few = pgas.asarray(x[:2]), pgas.asarray(np.array([0, 1]))
    if fit(LogisticRegression, {}, *few).predict(few[0]).tolist() != [0, 1]:
        return "two rows"
    saga: dict[str, Any] = {"solver": "saga", "random_state": 0, "max_iter": 5}
    both = [
        fit(k, saga, x, y) for k in (LogisticRegression, sklearn.linear_model.LogisticRegression)
    ]
    both += [fit(type(one), {}, csr_matrix(x), y) for one in both]
    return None if far(*both[:2]) == far(*both[2:]) == 0 else "scikit-learn's own solvers differ"


def warned() -> str | None:
    """What has not converged is told of; columns that are alike are no error."""
    x, y, _ = rows(2)
    given, there = pgas.asarray(x), pgas.asarray(y)
    twice = pgas.concat([given, given], axis=1)
    cases = [(given, {"solver": solver, "max_iter": 1}) for solver in SOLVERS]
    cases += [(twice, {"solver": SOLVERS[0], "C": np.inf})]
    for some, options in cases:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = LogisticRegression(**options).fit(some, there)
        if not any(issubclass(one.category, ConvergenceWarning) for one in said):
            return f"no warning for {options}"
        if not np.isfinite(model.coef_).all():
            return f"{model.coef_} for {options}"
    return None


def refused() -> str | None:
    """Wrong labels and what only scikit-learn can do are refused on all ranks, in words."""
    x, y, _ = rows(2)
    given, there = pgas.asarray(x), pgas.asarray(y)
    holes = x.copy()
    holes[7, 3] = np.nan
    cases: list[tuple[Any, str, Any]] = [
        (lambda: LogisticRegression(solver="saga").fit(given, there), "over ranks, by", ArgumentError),
        (lambda: LogisticRegression().fit(given, there[1:]), "labels of shape .202,. for 203", ValueError),
        (lambda: LogisticRegression().fit(given, y[1:]), "202 labels for 203 rows", ValueError),
        (lambda: LogisticRegression().fit(given, None), "None labels", ValueError),
        (lambda: LogisticRegression().fit(given, pgas.zeros(203)), "at least 2 classes", ValueError),
        (lambda: LogisticRegression().fit(given, given[:, 0]), "Unknown label type", ValueError),
        (lambda: LogisticRegression().fit(pgas.asarray(holes), there), "contains NaN", ValueError),
        (lambda: LogisticRegression(tol=-1).fit(given, there), "'tol' parameter", ValueError),
        (lambda: LogisticRegression().predict(given), "not fitted", NotFittedError),
        (lambda: LogisticRegression().fit(given, there).predict(given[:, 1:]), "7 features", ValueError),
    ]  # fmt: skip
    for call, words, kind in cases:
        try:
            call()
        except kind as problem:
            if not re.search(words, str(problem)):
                return f"{problem}, not {words}"
            continue
        return f"no error with {words}"
    return None


def on_gpus() -> str | None:
    """Rows on a GPU, pretended but for ``--cuda``, stay there and give the same."""
    if "--cuda" not in sys.argv:
        from tests.fakes import numpy_cupy

        numpy_cupy.install()
    for n_classes in (2, 3):
        x, y, w = rows(n_classes)
        for solver in SOLVERS:
            options = {"solver": solver, "class_weight": "balanced", **TIGHT}
            here = fit(LogisticRegression, options, pgas.asarray(x), pgas.asarray(y), w)
            there = pgas.asarray(x, device="cuda")
            model = fit(LogisticRegression, options, there, pgas.asarray(y), w)
            if far(model, here) > NEAR or not isinstance(model.coef_, np.ndarray):
                return f"{solver}: {far(model, here)} off"
            for name in ("predict", "predict_proba", "decision_function"):
                found, want = getattr(model, name)(there), getattr(here, name)(pgas.asarray(x))
                if not found.memory.on_device:
                    return f"{name} has left the GPU"
                if not np.allclose(found.to_device("cpu").gather(), want.gather(), atol=1e-6):
                    return f"{name} differs"
            if model.score(there, pgas.asarray(y)) != here.score(pgas.asarray(x), pgas.asarray(y)):
                return "the score differs"
    return None


CHECKS = {one.__name__: one for one in (coefficients, labels, further, warned, refused)}


def checks_on(ranks: int, args: Sequence[str]) -> Sequence[str]:
    """All checks, or those that are named."""
    return args or tuple(CHECKS)


def program() -> int:
    """0 if everything holds."""
    asked = [one for one in sys.argv[1:] if one != "--cuda"]
    every = {**CHECKS, "on_gpus": on_gpus}
    return run_named({name: every[name] for name in asked or CHECKS})


if __name__ == "__main__":
    main(program)
