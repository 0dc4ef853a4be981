"""The rows of a matrix that a rank works on, taken from what a user gives, and answers given back alike.

A global array stays where it is if its rows are cut over all ranks, else it is moved; labels come back as
global arrays, cut as it was. NumPy arrays, lists and frames are the same on all ranks: each works on its
share of the rows, and answers are NumPy arrays, whole on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from redist.layout.array_type import ArrayType
from redist.layout.axes import whole
from redist.layout.mesh import Mesh
from redist.layout.tiles import box_of, same_layout
from redist.learn.borrowed import check_sample_weight
from redist.learn.ranks.passing import Passing
from redist.learn.ranks.totals import Totals, all_rows, same_error
from redist.pgas.array import Array
from redist.pgas.conversion import asarray
from redist.pgas.tiles.budget import require_room
from redist.pgas.tiles.devices import kind_of
from redist.pgas.tiles.layouts import dtype_of, line_mesh
from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.call_site import calling_line
from redist.pgas.watch.seam import CopiedRows, traffic
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for
from redist.runtime.ranks.world import Comm, comm_or_world

Values = NDArray[Any]
FLOATS = (np.float64, np.float32)


@dataclass(frozen=True, slots=True)
class Rows:
    """What one rank has of the rows of a matrix: ``local`` are rows ``first`` and following of ``n``.

    ``given`` is the global array that they are of, None if every rank was given the whole.
    """

    local: Values
    first: int
    n: int
    comm: Comm
    given: Array | None
    is_even: bool = True
    """Whether all ranks have the rows that a type would give them; not so where rows were chosen."""

    @property
    def d(self) -> int:
        """Columns."""
        return int(self.local.shape[1])

    @property
    def on_gpu(self) -> bool:
        """Whether they lie on a GPU."""
        return is_device(self.local)

    def beside(self, values: Values) -> Any:
        """**Local.** Values where the rows lie: themselves, or a copy on the GPU."""
        return to_device(values) if self.on_gpu else values

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self.local.dtype

    def need(self, what: str, row_bytes: int, n_bytes: int = 0) -> None:
        """**Collective** under a memory limit. Raise on all ranks if there is no room to work.

        That takes ``row_bytes`` for each row of the rank with most of them, and ``n_bytes`` besides.
        """
        if self.given is not None and not self.given._memory.on_device:
            most = -(-self.n // self.comm.size)
            require_room(self.given, what, most * row_bytes + n_bytes)

    def holding(self, local: Values) -> Rows:
        """**Local.** The same rows with other values."""
        return replace(self, local=local)

    def holds(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """**Local.** Which of some numbers of rows are of this rank."""
        return (numbers >= self.first) & (numbers < self.first + len(self.local))

    def fetch(self, numbers: Any) -> Values:
        """**Collective.** Rows by their numbers, the same on every rank and for every rank."""
        wanted = np.atleast_1d(np.asarray(numbers, dtype=np.int64))
        out = np.zeros((len(wanted), *self.local.shape[1:]), self.dtype)
        here = self.holds(wanted)
        if here.any():
            out[here] = to_host(self.local[self.beside(wanted[here] - self.first)])
        return Totals(self.comm, out.size, dtype=self.dtype)(out).reshape(out.shape)

    def gather(self, values: Values) -> Values:
        """**Collective.** Values of the rows of all ranks, whole on every rank."""
        local = np.ascontiguousarray(to_host(values))
        if not self.is_even:
            out = np.zeros((self.n, *local.shape[1:]), local.dtype)
            out[self.first : self.first + len(local)] = local
            return Totals(self.comm, out.size, dtype=out.dtype)(out).reshape(out.shape)
        t = cut_by_rows(self.comm.size, local.dtype, (self.n, *local.shape[1:]))
        return np.asarray(Array(t, self.comm, local).gather())

    def answer(self, values: Values) -> Any:
        """**Collective.** Values of the own rows as a user gets them: global, cut as was given, or whole."""
        if self.given is None or not self.is_even:
            return self.gather(values)
        made = global_rows(self, values)
        local, shape = values, made.shape
        given = self.given.type
        dims = (given.dims[0], *((),) * (local.ndim - 1))
        target = ArrayType(given.mesh, dtype_of(local.dtype), shape, dims)
        return made.to(target).to_device(kind_of(self.given))


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


def global_rows(rows: Rows, local: Values) -> Array:
    """**Local.** Values of the own rows as a global array, its rows cut over all ranks."""
    values = functions_for(local).ascontiguousarray(local)
    t = cut_by_rows(rows.comm.size, values.dtype, (rows.n, *values.shape[1:]))
    made: Array = Array._kinds[is_device(values)](t, rows.comm, values)  # type: ignore[assignment]
    return made


def own_range(comm: Comm, n: int) -> tuple[int, int]:
    """**Local.** Where the rows of this rank start and end if all ranks share ``n`` of them."""
    box = box_of(cut_by_rows(comm.size, np.dtype(np.int8), (n,)), comm.rank)
    assert box is not None
    return box[0]


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
        traffic().note_copied(calling_line(), CopiedRows(1, x.tile.nbytes))
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


def as_floats(rows: Rows) -> Rows:
    """**Local.** The same rows as loops take them: floats as they are, other numbers in double precision."""
    if rows.dtype in [np.dtype(one) for one in FLOATS]:
        return rows
    return rows.holding(rows.local.astype(np.float64))


def even_out(rows: Rows) -> Rows:
    """**Collective.** The same rows, shared among ranks as a type would cut them."""
    if rows.is_even:
        return rows
    firsts = all_rows(rows.comm, np.int64(own_range(rows.comm, rows.n)[0]))
    numbers = np.arange(rows.first, rows.first + len(rows.local))
    ranks = np.searchsorted(firsts, numbers, side="right") - 1
    # of several ranks that begin at one row all but the last have none
    passing = Passing.of(rows.comm, np.arange(len(numbers)), ranks)
    first = own_range(rows.comm, rows.n)[0]
    return replace(rows, local=passing.there(rows.local), first=first, is_even=True)


def first_rows(rows: Rows) -> NDArray[np.int64]:
    """**Collective.** Where the rows of each rank begin, and at the end how many there are."""
    return np.append(all_rows(rows.comm, np.int64(rows.first)), rows.n)


def _shaped(rows: Rows) -> Values:
    """Something as large as all rows together, without memory."""
    return np.broadcast_to(np.zeros(1, rows.dtype), (rows.n, rows.d))


def cut_by_rows(size: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> ArrayType:
    """**Local.** The type of an array whose rows are cut over all ranks, in order."""
    mesh: Mesh = line_mesh(size)
    dims = ((whole(mesh, "x"),), *((),) * (len(shape) - 1))
    return ArrayType(mesh, dtype_of(dtype), shape, dims)
