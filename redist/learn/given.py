"""User input as the rows that each rank works on.

A global array stays where it is if its rows are cut over all ranks in order; otherwise it is moved. Labels
come back as global arrays, cut as the input was. NumPy arrays, lists and frames must be the same on all
ranks: each rank works on its share of the rows, and results are NumPy arrays, whole on every rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import validate_data

from redist.learn.borrowed import check_sample_weight
from redist.pgas.global_array import Array
from redist.runtime.cuda.arrays import to_host
from redist.runtime.cuda.loops import functions_for
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.spmd import Rows, all_rows, is_global, same_error

Values = NDArray[Any]
FLOATS = (np.float64, np.float32)


def take_rows(
    estimator: Any, x: Any, *, reset: bool = True, on_gpu: bool = False, **checks: Any
) -> Rows:
    """**Collective.** This rank's rows, checked by scikit-learn's rules; its errors come on all ranks.

    ``checks`` are options of scikit-learn's ``validate_data``, which also notes the features on the
    estimator. With ``on_gpu``, rows on a GPU stay there.
    """
    checks = {"dtype": list(FLOATS), "order": "C", **checks}
    if not is_global(x):
        return Rows.share(validate_data(estimator, x, reset=reset, **checks))
    least = checks.pop("ensure_min_samples", 1)
    check_dims(x)
    if (
        x.ndim != 2 or x.shape[0] < least or not x.shape[1]
    ):  # scikit-learn says why not, the same everywhere
        stand_in = np.zeros(x.shape, x.dtype)
        check_array(stand_in, ensure_min_samples=least, estimator=estimator)
    rows = Rows.of(x, on_gpu)
    with same_error(x.comm):
        check = _check_on_gpu if rows.on_gpu else validate_data
        local = check(estimator, rows.local, reset=reset, ensure_min_samples=0, **checks)
    return rows.holding(local)


def check_dims(x: Array) -> None:
    """**Local.** Raise scikit-learn's error for a global array of one dim; it refuses others itself."""
    if x.ndim == 1:
        raise ValueError(
            f"Expected 2D array, got 1D array instead:\n{x.type}. Write x[:, None] for rows of one column, "
            "or x[None, :] for one row."
        )


def _check_on_gpu(estimator: Any, tile: Any, *, reset: bool, **checks: Any) -> Any:
    """**Local.** Rows on a GPU, checked alike: scikit-learn sees a stand-in, or all if they are wrong."""
    wanted = checks["dtype"]
    several = wanted if isinstance(wanted, list) else [wanted]
    kept = wanted == "numeric" or tile.dtype in [np.dtype(one) for one in several]
    found = tile if kept else tile.astype(several[0])
    finite = checks.get("ensure_all_finite", True) is not True or found.dtype.kind in "iub"
    is_well = tile.dtype.kind in "fiub" and (
        finite or bool(functions_for(found).isfinite(found).all())
    )
    seen = np.zeros((1, tile.shape[1]), tile.dtype) if is_well else to_host(tile)
    validate_data(estimator, seen, reset=reset, **checks)
    return functions_for(found).ascontiguousarray(found)


def take_weights(rows: Rows, sample_weight: Any, **checks: Any) -> Values:
    """**Collective.** The weights of this rank's rows, ones if none are given; scikit-learn's errors."""
    dtype = checks.pop("dtype", rows.dtype)
    if sample_weight is None:
        ones: Values = functions_for(rows.local).ones(len(rows.local), dtype)
        return ones
    if not is_global(sample_weight):
        found = check_sample_weight(sample_weight, _shaped(rows), dtype=dtype, **checks)
        own = np.ascontiguousarray(found[rows.first : rows.first + len(rows.local)])
        return rows.beside(own)
    if sample_weight.shape != (rows.n,):  # scikit-learn says so, the same everywhere
        check_sample_weight(np.ones(sample_weight.shape), _shaped(rows), **checks)
    tile = Rows.of(sample_weight).local
    with same_error(rows.comm):
        found = check_array(
            tile,
            ensure_2d=False,
            ensure_min_samples=0,
            dtype=dtype,
            order="C",
            input_name="sample_weight",
        )
    if not all_rows(rows.comm, np.count_nonzero(found)).any():
        check_sample_weight(np.zeros(1), np.zeros((1, 1)), **checks)  # not all may be 0
    return rows.beside(np.asarray(found))


def _shaped(rows: Rows) -> Values:
    """Something as large as all rows together, without memory."""
    return np.broadcast_to(np.zeros(1, rows.dtype), (rows.n, rows.d))


def one_random_state(comm: Comm, random_state: Any) -> np.random.RandomState:
    """**Collective.** A generator that is the same on all ranks, by default with the first rank's seed."""
    if comm.size == 1 or random_state is not None:
        return check_random_state(random_state)
    seed = np.random.mtrand._rand.randint(0, 2**31 - 1, dtype=np.int64)
    return np.random.RandomState(int(all_rows(comm, seed)[0]))


@contextmanager
def seeded_alike(estimator: Any) -> Iterator[None]:
    """**Collective** at the start. Give an estimator one random state on all ranks while a block runs."""
    given = estimator.random_state
    estimator.random_state = one_random_state(comm_or_world(None), given)
    try:
        yield
    finally:
        estimator.random_state = given
