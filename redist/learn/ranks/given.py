"""What users give, as the rows that each rank works on.

A global array stays where it is if its rows are cut over all ranks, else it is moved; labels come back as
global arrays, cut as it was. NumPy arrays, lists and frames are the same on all ranks: each works on its
share of the rows, and answers are NumPy arrays, whole on every rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from redist.layout.array_type import ArrayType
from redist.layout.tiles import same_layout
from redist.learn.borrowed import check_sample_weight
from redist.learn.ranks.rows import FLOATS, Rows, cut_by_rows, own_range
from redist.learn.ranks.totals import all_rows, same_error
from redist.pgas.conversion import asarray
from redist.pgas.global_array import Array
from redist.pgas.tiles.devices import kind_of
from redist.pgas.tiles.layouts import dtype_of
from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.seam import CopiedRows, traffic
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_host
from redist.runtime.cuda.loops import functions_for
from redist.runtime.ranks.world import comm_or_world
from redist.text.call_site import calling_line

Values = NDArray[Any]


def is_global(x: Any) -> bool:
    """**Local.** Whether something is a global array."""
    return isinstance(x, Tiled)


def lies_on_gpu(x: Any) -> bool:
    """**Local.** Whether something is a global array of real numbers on GPUs."""
    return is_global(x) and x._memory.on_device and x.dtype.kind in "fiu"


def whole_of(x: Any) -> Any:
    """**Collective.** A global array as one of NumPy, whole on every rank; anything else as it is."""
    return _in_memory(x).gather() if is_global(x) else x


def cut_like(x: Array, values: Values) -> Array:
    """**Local.** Values of all rows of a global array, the same on every rank, as an array cut as it is."""
    dims = (x.type.dims[0], *((),) * (values.ndim - 1))
    t = ArrayType(x.mesh, dtype_of(values.dtype), values.shape, dims)
    return asarray(values, type=t, comm=x.comm, device=kind_of(x))


def take_rows(
    estimator: Any, x: Any, *, reset: bool = True, on_gpu: bool = False, **checks: Any
) -> Rows:
    """**Collective.** The rows of this rank, checked as scikit-learn checks; its errors come on all ranks.

    ``checks`` are options of its ``validate_data``, which also notes the features on the estimator. With
    ``on_gpu`` rows on a GPU stay there.
    """
    checks = {"dtype": list(FLOATS), "order": "C", **checks}
    if not is_global(x):
        found = validate_data(estimator, x, reset=reset, **checks)
        comm = comm_or_world(None)
        lo, hi = own_range(comm, len(found))
        return Rows(found[lo:hi], lo, len(found), comm, None)
    comm = x.comm
    least = checks.pop("ensure_min_samples", 1)
    check_dims(x)
    if (
        x.ndim != 2 or x.shape[0] < least or not x.shape[1]
    ):  # scikit-learn says why not, the same everywhere
        stand_in = np.zeros(x.shape, x.dtype)
        check_array(stand_in, ensure_min_samples=least, estimator=estimator)
    tile = to_rows(x, on_gpu)
    with same_error(comm):
        check = _check_on_gpu if is_device(tile) else validate_data
        local = check(estimator, tile, reset=reset, ensure_min_samples=0, **checks)
    return Rows(local, own_range(comm, x.shape[0])[0], x.shape[0], comm, x)


def check_dims(x: Array) -> None:
    """**Local.** Raise, in scikit-learn's words, if a global array has one dim; others it refuses itself."""
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


def to_rows(x: Array, on_gpu: bool = False) -> Values:
    """**Collective.** The rows of this rank of a global array of any layout, in memory or where they lie."""
    t = cut_by_rows(x.comm.size, x.dtype, x.shape)
    here = x.settled() if on_gpu else _in_memory(x.settled())
    tile = here.tile if same_layout(here.type, t) else here.to(t).tile
    assert tile is not None
    return tile


def _in_memory(x: Array) -> Array:
    """**Local.** An array with its tiles in memory; a trace shows the bytes that leave a GPU for it."""
    if x._memory.on_device and x.tile is not None:
        traffic().note(calling_line(), CopiedRows(1, x.tile.nbytes))
    return x.to_device("cpu")


def take_weights(rows: Rows, sample_weight: Any, **checks: Any) -> Values:
    """**Collective.** The weights of the own rows, ones where none are given; scikit-learn's errors."""
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
    tile = to_rows(sample_weight)
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
