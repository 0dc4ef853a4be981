"""The rows that a rank works on, their place in the whole array, and how rows are passed to other ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.axes import whole
from redist.layout.mesh import Mesh
from redist.layout.tiles import box_of, same_layout
from redist.pgas.conversion import asarray
from redist.pgas.global_array import Array
from redist.pgas.memory import memory_for
from redist.pgas.tiles.budget import require_room
from redist.pgas.tiles.devices import kind_of
from redist.pgas.tiles.layouts import dtype_of, line_mesh
from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.seam import CopiedRows, traffic
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.spmd.totals import Totals, all_rows
from redist.text.call_site import calling_line

Values = NDArray[Any]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """One rank's rows of an array: ``local`` has rows ``first``, ``first + 1``, ... of all ``n`` rows.

    >>> rows = Rows.share(np.arange(6.0).reshape(3, 2))
    >>> rows.first, rows.n, rows.fetch([2, 0]).tolist()
    (0, 3, [[4.0, 5.0], [0.0, 1.0]])

    ``given`` is the global array that the rows belong to, or None if every rank was given the whole array.
    """

    local: Values
    first: int
    n: int
    comm: Comm
    given: Array | None
    is_even: bool = True
    """Whether all ranks have the rows that a type would give them; not so where rows were chosen."""

    @staticmethod
    def of(x: Array, on_gpu: bool = False) -> Rows:
        """**Collective over** the ranks of ``x``. This rank's rows of a global array of any layout.

        The rows stay where they are if dim 0 is cut over all ranks in order; otherwise they are moved so
        that it is. Rows on a GPU are copied to memory, unless ``on_gpu`` lets them stay there. Do not write
        to the rows.

        >>> from redist import pgas
        >>> Rows.of(pgas.arange(4)).local.tolist()
        [0, 1, 2, 3]
        """
        if not is_global(x):
            raise RequestError(
                f"cannot take the rows of this {type(x).__name__}: it is not a global array; write "
                "Rows.share(x) if every rank has all of it"
            )
        if not x.ndim:
            raise RequestError(f"cannot take the rows of {x.type}: it has no dims")
        t = cut_by_rows(x.comm.size, x.dtype, x.shape)
        here = x.settled() if on_gpu else in_memory(x.settled())
        tile = here.tile if same_layout(here.type, t) else here.to(t).tile
        assert tile is not None
        return Rows(tile, own_range(x.comm, x.shape[0])[0], x.shape[0], x.comm, x)

    @staticmethod
    def share(x: Any, comm: Comm | None = None) -> Rows:
        """**Local.** This rank's share of rows that every rank has in full, with the same values.

        >>> Rows.share([3, 4, 5]).local.tolist()
        [3, 4, 5]
        """
        values, comm = np.asarray(x), comm_or_world(comm)
        if not values.ndim:
            raise RequestError(f"cannot share the rows of {values!r}: it has no dims")
        lo, hi = own_range(comm, len(values))
        return Rows(values[lo:hi], lo, len(values), comm, None)

    @property
    def d(self) -> int:
        """The number of columns."""
        return int(self.local.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements."""
        return self.local.dtype

    @property
    def on_gpu(self) -> bool:
        """Whether the rows lie on a GPU."""
        return is_device(self.local)

    def beside(self, values: Values) -> Any:
        """**Local.** Values in the kind of memory that holds the rows: unchanged, or copied to the GPU."""
        return to_device(values) if self.on_gpu else values

    def need(self, what: str, row_bytes: int, n_bytes: int = 0) -> None:
        """**Collective** under a memory limit. Raise on all ranks if there is not enough room to work.

        The work needs ``row_bytes`` for each row of the rank that has the most rows, plus ``n_bytes``.
        """
        if self.given is not None and not self.given.memory.on_device:
            most = -(-self.n // self.comm.size)
            require_room(self.given, what, most * row_bytes + n_bytes)

    def holding(self, local: Values) -> Rows:
        """**Local.** The same rows with other values."""
        return replace(self, local=local)

    def holds(self, numbers: Numbers) -> NDArray[np.bool_]:
        """**Local.** Which of the given row numbers belong to this rank."""
        return (numbers >= self.first) & (numbers < self.first + len(self.local))

    def firsts(self) -> Numbers:
        """**Collective.** The first row number of each rank, followed by the number of rows in the whole."""
        return np.append(all_rows(self.comm, np.int64(self.first)), self.n)

    def fetch(self, numbers: Any) -> Values:
        """**Collective.** The rows with the given numbers, which are the same on all ranks; all get them."""
        wanted = np.atleast_1d(np.asarray(numbers, dtype=np.int64))
        out = np.zeros((len(wanted), *self.local.shape[1:]), self.dtype)
        here = self.holds(wanted)
        if here.any():
            out[here] = to_host(self.local[self.beside(wanted[here] - self.first)])
        return Totals(self.comm, out.size, dtype=self.dtype)(out).reshape(out.shape)

    def gather(self, values: Values) -> Values:
        """**Collective.** The values for the rows of all ranks, whole on every rank."""
        local = np.ascontiguousarray(to_host(values))
        if not self.is_even:
            out = np.zeros((self.n, *local.shape[1:]), local.dtype)
            out[self.first : self.first + len(local)] = local
            return Totals(self.comm, out.size, dtype=out.dtype)(out).reshape(out.shape)
        t = cut_by_rows(self.comm.size, local.dtype, (self.n, *local.shape[1:]))
        return np.asarray(Array(t, self.comm, local).gather())

    def as_global(self, values: Values) -> Array:
        """**Local.** Values of this rank's rows as a global array, with rows cut over all ranks."""
        values = functions_for(values).ascontiguousarray(values)
        t = cut_by_rows(self.comm.size, values.dtype, (self.n, *values.shape[1:]))
        return Array(t, self.comm, values, memory_for(is_device(values)))

    def answer(self, values: Values) -> Any:
        """**Collective.** Values for the rows in the form of the user's input: cut the same way, or whole."""
        if self.given is None or not self.is_even:
            return self.gather(values)
        made = self.as_global(values)
        given = self.given.type
        dims = (given.dims[0], *((),) * (values.ndim - 1))
        target = ArrayType(given.mesh, dtype_of(values.dtype), made.shape, dims)
        return made.to(target).to_device(kind_of(self.given))

    def even_out(self) -> Rows:
        """**Collective.** The same rows, shared among the ranks as a type would cut them."""
        if self.is_even:
            return self
        first = own_range(self.comm, self.n)[0]
        firsts = all_rows(self.comm, np.int64(first))
        numbers = np.arange(self.first, self.first + len(self.local))
        ranks = np.searchsorted(firsts, numbers, side="right") - 1
        # of several ranks that begin at one row all but the last have none
        passing = Passing.of(self.comm, np.arange(len(numbers)), ranks)
        return replace(self, local=passing.there(self.local), first=first, is_even=True)


@dataclass(frozen=True, slots=True)
class Passing:
    """Rows passed on to other ranks: their destinations are settled once, then values travel there and back.

    In an SPMD program that sends every row to the rank that a key names::

        passing = Passing.of(comm, np.arange(len(local)), key % comm.size)
        got = passing.there(local)                  # rows, in order of the ranks that gave them
        answers = passing.back(work_on(got))        # one for each of passing.rows

    Where values travel only once each way, as tokens do to their experts, the sizes travel with the values::

        passing, tokens = Passing.with_values(comm, hidden, expert_of // experts_per_rank)
        mixed = passing.back(mlp(tokens))           # in the order of passing.rows

    ``rows`` are the rows that this rank gives away, in order of the receiving ranks; ``given`` and ``got``
    are the numbers of rows that go to each rank and come from each rank.
    """

    comm: Comm
    rows: Numbers
    given: Numbers
    got: Numbers

    @staticmethod
    def of(comm: Comm, rows: Numbers, ranks: Numbers) -> Passing:
        """**Collective over** ``comm``. Give ``rows[i]`` to ``ranks[i]``; a row may go to several ranks.

        >>> from mpi4py import MPI
        >>> passing = Passing.of(MPI.COMM_SELF, np.array([2, 0]), np.array([0, 0]))
        >>> passing.there(np.array([10, 11, 12])).tolist()
        [12, 10]
        """
        given = _numbers_for(comm, len(rows), ranks)
        every = all_rows(comm, np.full(comm.size, -1) if given is None else given)
        if given is None or (every < 0).any():
            raise _no_rank(comm, int((every < 0).any(axis=1).argmax()))
        return Passing(
            comm, rows[np.argsort(ranks, kind="stable")], given, every[:, comm.rank].copy()
        )

    @staticmethod
    def with_values(comm: Comm, values: Values, ranks: Numbers) -> tuple[Passing, Values]:
        """**Collective over** ``comm``. Give row i of ``values`` to ``ranks[i]``.

        Returns the passing and the rows that arrived.

        The ranks exchange no sizes beforehand: one message for each pair of ranks carries the rows and says
        how many there are.

        >>> from mpi4py import MPI
        >>> passing, got = Passing.with_values(MPI.COMM_SELF, np.array([[1.5], [2.5]]), np.array([0, 0]))
        >>> got.ravel().tolist(), passing.got.tolist()
        ([1.5, 2.5], [2])
        """
        data = np.ascontiguousarray(values)
        if data.ndim == 0 or data.dtype.itemsize * math.prod(data.shape[1:]) == 0:
            passing = Passing.of(comm, np.arange(len(ranks)), ranks)
            return passing, passing.there(data)
        given = _numbers_for(comm, len(data), ranks)
        rows = np.argsort(ranks, kind="stable")
        out, got = traffic().pass_rows(comm, data[:0] if given is None else data[rows], given)
        if out is None or given is None:
            raise _no_rank(comm, int((got < 0).argmax()))
        return Passing(comm, rows, given, got), out

    @property
    def from_ranks(self) -> Numbers:
        """The rank that gave each of the rows that this rank gets."""
        return np.repeat(np.arange(self.comm.size), self.got)

    def there(self, values: Values) -> Values:
        """**Collective.** Pass values of rows on; those that arrive are in order of who gave them."""
        return _exchange(self.comm, values[self.rows], self.given, self.got)

    def back(self, values: Values) -> Values:
        """**Collective.** Pass values of the received rows back, into the order of :attr:`rows`."""
        return _exchange(self.comm, values, self.got, self.given)


def _numbers_for(comm: Comm, n: int, ranks: Numbers) -> Numbers | None:
    """How many rows go to each rank; None unless each of ``n`` rows has a rank that is there."""
    right = n == len(ranks) and (not n or (ranks.min() >= 0 and ranks.max() < comm.size))
    return np.bincount(ranks, minlength=comm.size).astype(np.int64) if right else None


def _no_rank(comm: Comm, bad: int) -> RequestError:
    return RequestError(
        f"cannot pass rows on: rank {bad} does not name one of {comm.size} ranks for each of its "
        f"rows; give a number from 0 to {comm.size - 1} for each"
    )


def _exchange(comm: Comm, values: Values, given: Numbers, got: Numbers) -> Values:
    data = np.ascontiguousarray(values)
    if comm.size == 1:
        return data.copy()
    out = np.empty((int(got.sum()), *data.shape[1:]), data.dtype)
    width = int(np.prod(data.shape[1:], dtype=np.int64))
    sent, received = ((n * width, (np.cumsum(n) - n) * width) for n in (given, got))
    traffic().exchange(comm, data.reshape(-1), sent, out.reshape(-1), received)
    return out


def is_global(x: Any) -> bool:
    """**Local.** Whether something is a global array.

    >>> is_global(np.zeros(3))
    False
    """
    return isinstance(x, Tiled)


def lies_on_gpu(x: Any) -> bool:
    """**Local.** Whether something is a global array of real numbers on GPUs."""
    return is_global(x) and x.memory.on_device and x.dtype.kind in "fiu"


def whole_of(x: Any) -> Any:
    """**Collective.** A global array as a NumPy array, whole on every rank; anything else unchanged.

    >>> whole_of([1, 2])
    [1, 2]
    """
    return in_memory(x).gather() if is_global(x) else x


def cut_like(x: Array, values: Values) -> Array:
    """**Local.** Values for all rows of ``x``, the same on every rank, as a global array cut as ``x`` is.

    >>> from redist import pgas
    >>> cut_like(pgas.ones((3, 2)), np.array([1.0, 2.0, 4.0])).shape
    (3,)
    """
    dims = (x.type.dims[0], *((),) * (values.ndim - 1))
    t = ArrayType(x.mesh, dtype_of(values.dtype), values.shape, dims)
    return asarray(values, type=t, comm=x.comm, device=kind_of(x))


def in_memory(x: Array) -> Array:
    """**Local.** The array with its tiles in memory; a trace shows the bytes copied from a GPU for this."""
    if x.memory.on_device and x.tile is not None:
        traffic().note(calling_line(), CopiedRows(1, x.tile.nbytes))
    return x.to_device("cpu")


def own_range(comm: Comm, n: int) -> tuple[int, int]:
    """**Local.** Where this rank's rows start and end if all ranks share ``n`` rows.

    >>> from mpi4py import MPI
    >>> own_range(MPI.COMM_SELF, 7)
    (0, 7)
    """
    box = box_of(cut_by_rows(comm.size, np.dtype(np.int8), (n,)), comm.rank)
    assert box is not None
    return box[0]


def cut_by_rows(size: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> ArrayType:
    """**Local.** The type of an array whose rows are cut over all ranks, in order."""
    mesh: Mesh = line_mesh(size)
    dims = ((whole(mesh, "x"),), *((),) * (len(shape) - 1))
    return ArrayType(mesh, dtype_of(dtype), shape, dims)
