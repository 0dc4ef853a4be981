"""Estimators under mpirun, against scikit-learn and its own estimator checks: one item for every check."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.programs.checks import Job, Run, items, must_hold

if find_spec("sklearn") is None:
    pytest.skip(
        "needs scikit-learn: make learn has an environment with it", allow_module_level=True
    )

SEVERAL = "on more numbers of ranks; 1 and 3 are the sample"
FAMILIES = (
    ("KMeans", "MiniBatchKMeans", "BisectingKMeans"), ("DBSCAN",), ("HDBSCAN",), ("OPTICS",),
    ("MeanShift",), ("AffinityPropagation",), ("AgglomerativeClustering",), ("Birch",),
    ("FeatureAgglomeration",), ("SpectralClustering",),
    ("SpectralCoclustering", "SpectralBiclustering"),
)  # fmt: skip
"""Estimators whose parity is one program each."""


def everything(slow: str = "") -> tuple[Run, ...]:
    """What runs on any number of ranks."""
    parity = (Run("learn.parity", names, slow) for names in FAMILIES)
    names = ("frame", "primitives", "trees", "datasets", "scores", "traffic", "linear")
    shared = (Run(f"learn.{name}", (), slow) for name in names)
    return (*shared, *parity)


def estimator_checks() -> tuple[Run, ...]:
    """scikit-learn's own checks."""
    names = *FAMILIES, ("LogisticRegression",)
    return tuple(Run("learn.estimator_checks", some) for some in names)


ON_GPUS = ("learn.on_gpus", "learn.square_on_gpus", "learn.stay_on_gpus")
JOBS = [
    Job(1, (*everything(), *estimator_checks())),
    Job(2, (Run("learn.mistakes"), *estimator_checks(), *everything(SEVERAL))),
    Job(3, everything()),
    Job(4, everything(SEVERAL)),
    Job(7, everything(SEVERAL)),
    Job(3, (Run("learn.frame"), Run("learn.trees")), variables=("REDIST_PURE",)),
    Job(3, (Run("learn.array_api"),), variables=("SCIPY_ARRAY_API",)),
    Job(1, (Run("learn.gpu_lloyd"), Run("learn.gpu_loops"))),
    *(Job(ranks, (*map(Run, ON_GPUS), Run("learn.linear", ("on_gpus",)))) for ranks in (1, 2, 3)),
]


@pytest.mark.parametrize(("job", "run", "check"), [*items(JOBS)])
def test_check(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)
