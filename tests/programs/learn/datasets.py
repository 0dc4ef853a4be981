"""Sets of rows made over ranks: the same for every cut, and such as scikit-learn makes.

As in ``mpirun -n 3 python -m tests.programs.learn.datasets``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import sklearn.datasets
from mpi4py import MPI

import redist
from redist.learn import datasets
from redist.learn.datasets.making import RowDraws, Shuffled
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
MAKERS: dict[str, Any] = {
    "blobs": partial(datasets.make_blobs, 5001, 3, centers=4, cluster_std=[1, 2, 3, 0.5]),
    "slanted": partial(
        datasets.make_blobs, (300, 200), transformation=[[0.6, -0.6, 1], [-0.4, 0.8, 0]]
    ),
    "moons": partial(datasets.make_moons, 403, noise=0.1),
    "circles": partial(datasets.make_circles, (200, 101), noise=0.1, factor=0.4),
    "roll": partial(datasets.make_swiss_roll, 301, noise=0.2, hole=True),
    "s": partial(datasets.make_s_curve, 302),
    "classes": partial(
        datasets.make_classification, 505, 9, n_informative=4, n_classes=3, n_repeated=1
    ),
    "not at corners": partial(datasets.make_classification, 105, hypercube=False, weights=[0.8]),
    "biclusters": partial(datasets.make_biclusters, (50, 41), 4, noise=0.5),
    "checkerboard": partial(datasets.make_checkerboard, (43, 20), (3, 2), noise=0.5),
    "one row": partial(datasets.make_blobs, 1),
    "none": partial(datasets.make_moons, 0),
}


def the_same_for_every_cut() -> str | None:
    for name, make in MAKERS.items():
        want = [np.asarray(one.local) for one in make(random_state=5, type="{}, {}")]
        other = [one.gather() for one in make(random_state=6)]
        for cut in ("{x}, {}", "{}, {x}", None):
            x, *rest = make(random_state=5, type=cut)
            for found, wanted in zip((x, *rest), want, strict=True):
                if not np.array_equal(found.gather(), wanted):
                    return f"{name} {cut}: other values of {found.type}"
            dims = [one.type.dims[-1] for one in rest]
            if dims != [x.type.dims[0], x.type.dims[1]][: len(dims)]:
                return f"{name} {cut}: labels are cut {dims}, rows are {x.type}"
        if want[0].size > 5 and np.array_equal(want[0], other[0]):
            return f"{name}: the seed does nothing"
    return None


def other_floats_and_meshes() -> str | None:
    mesh = redist.Mesh({"y": 1}, ranks=[COMM.size - 1])
    x, y = datasets.make_blobs(30, random_state=1, dtype=np.float32, mesh=mesh)
    want, labels = datasets.make_blobs(30, random_state=1)
    if x.dtype != np.float32 or x.mesh != mesh or y.mesh != mesh:
        return f"{x.type} on {x.mesh}"
    same = np.array_equal(x.gather(), want.gather().astype(np.float32))
    return None if same and np.array_equal(y.gather(), labels.gather()) else "other values"


def curves_are_scikit_learns() -> str | None:
    for name, options in (("make_moons", {}), ("make_circles", {"factor": 0.3})):
        ours, theirs = getattr(datasets, name), getattr(sklearn.datasets, name)
        for n in (10, 11, (3, 9)):
            x, y = ours(n, shuffle=False, random_state=0, **options)
            want, labels = theirs(n, shuffle=False, **options)
            if not np.allclose(x.gather(), want, atol=1e-14):
                return f"{name} {n}: {x.gather() - want}"
            if not np.array_equal(y.gather(), labels):
                return f"{name} {n}: {y.gather()}"
            mixed, labels = (one.gather() for one in ours(n, random_state=3, **options))
            inner = np.lexsort(mixed.T), np.lexsort(want.T)
            if not np.allclose(mixed[inner[0]], want[inner[1]], atol=1e-14):
                return f"{name} {n}: shuffled rows are others"
    return None


def sizes_and_moments_are_as_asked() -> str | None:
    x, y, centers = datasets.make_blobs(
        9001, 2, centers=[[0, 0], [50, 0], [0, 90]], cluster_std=[1, 2, 4], random_state=0,
        return_centers=True,
    )  # fmt: skip
    rows, labels = x.gather(), y.gather()
    if np.bincount(labels).tolist() != [3001, 3000, 3000]:
        return f"{np.bincount(labels)}"
    for k, std in enumerate((1, 2, 4)):
        own = rows[labels == k]
        far = np.abs(own.mean(axis=0) - centers[k]).max() / std
        if far > 0.1:
            return f"cluster {k}: {own.mean(axis=0)}, {own.std(axis=0)}"
        if np.abs(own.std(axis=0) / std - 1).max() > 0.06:
            return f"cluster {k}: {own.std(axis=0)} and not {std}"
    x, y = datasets.make_classification(4000, 6, flip_y=0, weights=[0.25], random_state=2)
    if np.abs(np.bincount(y.gather()) - [1000, 3000]).max() > 2:
        return f"classes {np.bincount(y.gather())}"
    model = sklearn.datasets.make_swiss_roll(10, random_state=0)[0].shape
    return None if model == (10, 3) == datasets.make_swiss_roll(10)[0].shape else "a roll is flat"


def shuffles_are_permutations() -> str | None:
    for n in (1, 2, 3, 7, 64, 65, 1000, 4097):
        found = Shuffled(n, n)(np.arange(n))
        if sorted(found.tolist()) != list(range(n)):
            return f"{n}: {found}"
        if n >= 64 and np.abs(np.corrcoef(found, np.arange(n))[0, 1]) > 0.3:
            return f"{n}: hardly shuffled"
        if not np.array_equal(Shuffled(n, n)(np.arange(n // 2, n)), found[n // 2 :]):
            return f"{n}: depends on who asks"
    normal = RowDraws(1, 1).normal(0, 20000, 2)
    moments = [normal.mean(), normal.std() - 1, (normal**3).mean(), (normal**4).mean() - 3]
    return None if np.abs(moments).max() < 0.1 else f"moments {moments}"


def ranks_draw_one_seed() -> str | None:
    np.random.seed(COMM.rank)  # which no rank shares with another
    x, _ = datasets.make_blobs(40, type="{}, {}")
    same = COMM.allgather(x.local.tobytes())
    if len(set(same)) > 1:
        return "ranks made other rows"
    options: list[dict[str, Any]] = [
        {"centers": [1, 2]}, {"cluster_std": [1, 2]}, {"transformation": [[1.0]]}, {"dtype": int},
        {"n_samples": (3, 4), "centers": 3},
    ]  # fmt: skip
    for wrong in options:
        try:
            datasets.make_blobs(**{"random_state": 0, **wrong})
        except redist.RedistError:
            continue
        return f"{wrong} is taken"
    options = [{"n_features": 3}, {"n_classes": 4}, {"weights": [1, 2, 3, 4]}]
    for few in options:
        try:
            datasets.make_classification(**few)
        except redist.RedistError:
            continue
        return f"{few} is taken"
    return None


CHECKED = (
    the_same_for_every_cut, other_floats_and_meshes, curves_are_scikit_learns,
    sizes_and_moments_are_as_asked, shuffles_are_permutations, ranks_draw_one_seed,
)  # fmt: skip
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
