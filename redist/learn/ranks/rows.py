"""The rows of a matrix that a rank works on, where they stand in the whole, and answers cut alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.axes import whole
from redist.layout.mesh import Mesh
from redist.layout.tiles import box_of
from redist.learn.ranks.passing import Passing
from redist.learn.ranks.totals import Totals, all_rows
from redist.pgas.global_array import Array
from redist.pgas.tiles.budget import require_room
from redist.pgas.tiles.devices import kind_of
from redist.pgas.tiles.layouts import dtype_of, line_mesh
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for
from redist.runtime.ranks.world import Comm

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


def cut_by_rows(size: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> ArrayType:
    """**Local.** The type of an array whose rows are cut over all ranks, in order."""
    mesh: Mesh = line_mesh(size)
    dims = ((whole(mesh, "x"),), *((),) * (len(shape) - 1))
    return ArrayType(mesh, dtype_of(dtype), shape, dims)
