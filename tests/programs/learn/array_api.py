"""What of scikit-learn runs on global arrays unchanged, through the array API, against NumPy's results.

As in ``SCIPY_ARRAY_API=1 mpirun -n 3 python -m tests.programs.learn.array_api``. The names are those of the
table in ``docs/how-to/clustering.md``.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import sklearn
import sklearn.cluster
from mpi4py import MPI
from sklearn import decomposition, linear_model, metrics, preprocessing
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics import pairwise
from sklearn.mixture import GaussianMixture
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

import redist
from redist import pgas
from redist.learn import gathered
from redist.learn.cluster import KMeans
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
Place = Callable[[Any], Any]
RNG = np.random.RandomState(0)
X = RNG.normal(size=(60, 5)) + 1
OTHER = np.abs(RNG.normal(size=(21, 5)))
TARGETS, GUESSES = RNG.rand(60) + 0.1, RNG.rand(60) + 0.1
CLASSES = (RNG.rand(60) < 0.5).astype(np.int64)
GUESSED = np.where(RNG.rand(60) < 0.2, 1 - CLASSES, CLASSES)

TRANSFORMERS: dict[str, Callable[[], Any]] = {
    "StandardScaler": preprocessing.StandardScaler,
    "MinMaxScaler": preprocessing.MinMaxScaler,
    "MaxAbsScaler": preprocessing.MaxAbsScaler,
    "Normalizer": preprocessing.Normalizer,
    "Binarizer": preprocessing.Binarizer,
    "PolynomialFeatures": preprocessing.PolynomialFeatures,
    "Nystroem": partial(Nystroem, n_components=10, random_state=0),
    "PCA full": partial(decomposition.PCA, 3, svd_solver="full"),
    "PCA covariance_eigh": partial(decomposition.PCA, 3, svd_solver="covariance_eigh"),
    "PCA randomized": partial(decomposition.PCA, 3, svd_solver="randomized", random_state=0),
}
PREDICTORS: dict[str, tuple[Callable[[], Any], Any]] = {
    "Ridge": (partial(linear_model.Ridge, solver="svd"), TARGETS),
    "RidgeCV": (linear_model.RidgeCV, TARGETS),
    "LinearDiscriminantAnalysis": (LinearDiscriminantAnalysis, CLASSES),
    "GaussianNB": (GaussianNB, CLASSES),
    "GaussianMixture diag": (
        partial(
            GaussianMixture,
            2,
            covariance_type="diag",
            init_params="random_from_data",
            random_state=0,
        ),
        None,
    ),
}
OF_CLASSES = (
    "accuracy_score", "zero_one_loss", "hamming_loss", "f1_score", "precision_score", "recall_score",
    "jaccard_score",
)  # fmt: skip
OF_CHANCES = ("average_precision_score", "brier_score_loss", "precision_recall_curve", "det_curve")
OF_TARGETS = (
    "r2_score", "mean_squared_error", "root_mean_squared_error", "mean_absolute_error",
    "mean_absolute_percentage_error", "explained_variance_score", "max_error", "mean_pinball_loss",
    "d2_tweedie_score", "d2_absolute_error_score", "mean_tweedie_deviance", "mean_squared_log_error",
    "root_mean_squared_log_error", "mean_gamma_deviance", "mean_poisson_deviance",
)  # fmt: skip
OF_PAIRS = (
    "euclidean_distances", "cosine_similarity", "cosine_distances", "linear_kernel", "rbf_kernel",
    "laplacian_kernel", "polynomial_kernel", "sigmoid_kernel", "manhattan_distances", "chi2_kernel",
    "additive_chi2_kernel", "pairwise_distances", "pairwise_kernels",
)  # fmt: skip
PAIRED = ("paired_cosine_distances", "paired_euclidean_distances", "paired_manhattan_distances")
REFUSED = (
    "confusion_matrix", "balanced_accuracy_score", "cohen_kappa_score",
)  # fmt: skip
"""What asks for the whole array: refused where a rank has a tile of it."""


def cut(values: Any) -> pgas.Array:
    return pgas.asarray(values, type="{x}, {}" if values.ndim == 2 else "{x}")


def itself(values: Any) -> Any:
    return values


def transformed(make: Callable[[], Any], place: Place) -> list[Any]:
    model = make().fit(place(X))
    found = model.transform(place(X))
    back = [model.inverse_transform(found)] if hasattr(model, "inverse_transform") else []
    return [found, *back]


def predicted(make: Callable[[], Any], y: Any, place: Place) -> list[Any]:
    given = (place(X),) if y is None else (place(X), place(y))
    model = make().fit(*given)
    return [model.predict(place(X)), getattr(model, "coef_", None)]


def kernel_centred(place: Place) -> list[Any]:
    return [preprocessing.KernelCenterer().fit_transform(place(X @ X.T))]


def encoded(place: Place) -> list[Any]:
    model = preprocessing.LabelEncoder().fit(place(CLASSES * 5 - 3))
    codes = model.transform(place(CLASSES * 5 - 3))
    return [codes, model.inverse_transform(codes)]


def scored(name: str, given: tuple[Any, ...], place: Place) -> list[Any]:
    function = getattr(metrics, name, None) or getattr(pairwise, name)
    found = function(*map(place, given))
    return list(found) if isinstance(found, tuple) else [found]


def works() -> dict[str, Callable[[Place], list[Any]]]:
    """What is done with global arrays and with NumPy's, by name."""
    found: dict[str, Callable[[Place], list[Any]]] = {
        name: partial(transformed, make) for name, make in TRANSFORMERS.items()
    }
    found |= {name: partial(predicted, *both) for name, both in PREDICTORS.items()}
    found |= {"KernelCenterer": kernel_centred, "LabelEncoder": encoded}
    kinds: list[tuple[tuple[str, ...], tuple[Any, ...]]] = [
        (OF_CLASSES, (CLASSES, GUESSED)),
        (OF_CHANCES, (CLASSES, np.clip(GUESSES, 0, 1))),
        (OF_TARGETS, (TARGETS, GUESSES)),
        (OF_PAIRS, (np.abs(X), OTHER)),
        (PAIRED, (X[:21], OTHER)),
    ]
    for names, given in kinds:
        found |= {name: partial(scored, name, given) for name in names}
    return found


def is_cut(found: pgas.Array) -> bool:
    return bool(found.type.dims[0]) or found.comm.size == 1


def is_numpys(work: Callable[[Place], list[Any]]) -> str | None:
    """Why not, if the results on global arrays are others, or are not cut by rows."""
    want = work(itself)
    with redist.trace() as t, sklearn.config_context(array_api_dispatch=True):
        got = work(cut)
    for found, wanted in zip(got, want, strict=True):
        if wanted is None:
            continue
        whole = found.gather() if isinstance(found, pgas.Array) else found
        if not np.allclose(whole, wanted, rtol=1e-9, atol=1e-10):
            return f"off by {np.abs(np.asarray(whole) - wanted).max()}"
        if isinstance(found, pgas.Array) and found.shape[:1] == (60,) and not is_cut(found):
            return f"{found.type}: not cut by rows"
    return None if t.received_bytes < 2**16 else f"{t.received_bytes} bytes came"


def pipelines_end_in_ours() -> str | None:
    """Scaled, projected and clustered without leaving the ranks: scikit-learn's labels."""
    parts = preprocessing.StandardScaler(), decomposition.PCA(3, svd_solver="covariance_eigh")
    want = make_pipeline(*parts, sklearn.cluster.KMeans(4, random_state=0)).fit(X)[-1]
    with sklearn.config_context(array_api_dispatch=True):
        ours = make_pipeline(*parts, KMeans(4, random_state=0)).fit(cut(X))[-1]
    same = np.array_equal(ours.labels_.gather(), want.labels_)
    return None if same and is_cut(ours.labels_) else "other labels"


def pipelines_are_pickled_whole() -> str | None:
    """What one rank pickles loads on every rank, has no global array, and predicts; the model stays."""
    parts = preprocessing.StandardScaler(), preprocessing.MinMaxScaler(), KMeans(4, random_state=0)
    with sklearn.config_context(array_api_dispatch=True):
        model = make_pipeline(*parts).fit(cut(X))
    text = COMM.bcast(pickle.dumps(gathered(model)), COMM.size - 1)
    if b"redist.pgas" in text:
        return "a global array in the pickle"
    again, labels = pickle.loads(text), model[-1].labels_.gather()
    if not np.array_equal(again.predict(X), labels) or not is_cut(model[-1].labels_):
        return "other labels"
    try:
        pickle.loads(COMM.bcast(pickle.dumps(model), COMM.size - 1))
    except redist.RequestError as error:
        return None if "redist.learn.gathered(model)" in str(error) else str(error)
    return None if COMM.rank == COMM.size - 1 else "loaded another rank's tile"


def scalers_do_not_warn() -> str | None:
    """Their 0 / 0, which scikit-learn silences for NumPy alone, is silent under ``np.errstate``."""
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("error")
        with sklearn.config_context(array_api_dispatch=True):
            preprocessing.StandardScaler().fit(cut(X))
    return None


def no_tile_is_taken_for_the_whole() -> str | None:
    """These stop with an error that says what to write instead."""
    for name in REFUSED if COMM.size > 1 else ():
        try:
            with sklearn.config_context(array_api_dispatch=True):
                found = getattr(metrics, name)(cut(CLASSES), cut(GUESSED))
        except redist.RedistError as error:
            if "a.gather()" not in str(error):
                return f"{name}: {error}"
        else:
            return f"{name} gives {found}"
    return None


OTHERS = (
    pipelines_end_in_ours, pipelines_are_pickled_whole, scalers_do_not_warn,
    no_tile_is_taken_for_the_whole,
)  # fmt: skip
CHECKS = (*works(), *(check.__name__ for check in OTHERS))


def program() -> int:
    """0 if all is as with NumPy."""
    warnings.simplefilter("ignore")  # of divisions by 0 on tiles, which are put right afterwards
    checks = {name: partial(is_numpys, work) for name, work in works().items()}
    return run_named({**checks, **{check.__name__: check for check in OTHERS}})


if __name__ == "__main__":
    main(program)
