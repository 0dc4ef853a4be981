"""Numbers of all ranks brought together: totals, exact sums, rows of all ranks, and a common error.

Whatever decides how a program continues comes from here, so that all ranks take the same path.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.pgas.memory import BUFFERS
from redist.pgas.tiles.layouts import dtype_of, line_mesh
from redist.pgas.watch.seam import TileMove, traffic
from redist.runtime.cuda.arrays import to_host
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm
from redist.runtime.transfer import Transfer

Values = NDArray[Any]
LEAST = -1074
"""Every double is a multiple of 2 to this power."""


@lru_cache(maxsize=256)
def _ends(size: int, n: int, op: str, dtype: np.dtype[Any]) -> tuple[ArrayType, ArrayType]:
    head = f"{dtype_of(dtype)}[{n}]"
    mesh = line_mesh(size)
    return ArrayType.parse(f"{head} {op}{{x}}", mesh), ArrayType.parse(head, mesh)


class Totals:
    """Combines the ranks' rows of ``n`` numbers by ``sum``, ``max`` or ``min``; every rank gets the result.

    >>> from mpi4py import MPI
    >>> add_up = Totals(MPI.COMM_SELF, 2)
    >>> add_up(np.array([1.0, 2.5])).tolist()
    [1.0, 2.5]

    This is one all-reduce, planned and prepared at the first call and shown in a trace. Use ``Totals`` for
    rows that a loop combines again and again, and :func:`total_of` for values that are combined once.
    """

    __slots__ = ("_comm", "_ends", "_prepared", "_shape")

    def __init__(self, comm: Comm, n: int, op: str = "sum", dtype: Any = np.float64) -> None:
        self._comm, self._shape = comm, (n,)
        self._ends = _ends(comm.size, n, op, np.dtype(dtype))
        self._prepared: Transfer | None = None

    def __call__(self, row: Values) -> Values:
        """**Collective.** The combined row of all ranks, as a new array of one dim."""
        source, target = self._ends
        flat = np.ascontiguousarray(row, dtype=source.dtype.to_numpy()).reshape(-1)
        if self._comm.size == 1 or not flat.size:
            return flat.copy()
        move = TileMove(flat, source, target, self._shape, BUFFERS, self._prepared)
        total, self._prepared = traffic().redistribute(move, self._comm, None)
        assert total is not None
        return total


class RowsOfAll:
    """Brings the ranks' rows of ``n`` numbers to every rank, stacked; prepared like :class:`Totals`.

    >>> from mpi4py import MPI
    >>> tell = RowsOfAll(MPI.COMM_SELF, 3)
    >>> tell.row[:] = 7, 8, 9
    >>> tell().tolist()
    [[7.0, 8.0, 9.0]]

    Write this rank's row to :attr:`row`. The result of a call is overwritten by the next call: the class is
    made for methods with many small steps.
    """

    __slots__ = ("_comm", "_move", "row")

    def __init__(self, comm: Comm, n: int) -> None:
        mesh, shape = line_mesh(comm.size), (comm.size, n)
        self._comm, self.row = comm, np.zeros(n)
        cut = ArrayType.parse(f"f64[{comm.size}{{x}}, {n}]", mesh)
        whole = ArrayType.parse(f"f64[{comm.size}, {n}]", mesh)
        self._move = TileMove(self.row[None], cut, whole, shape, BUFFERS, None, np.empty(shape))

    def __call__(self) -> Values:
        """**Collective.** The rows of all ranks; valid until the next call."""
        if self._comm.size == 1:
            return self.row[None]
        every, transfer = traffic().redistribute(self._move, self._comm, None)
        if self._move.prepared is None:
            self._move = self._move._replace(prepared=transfer)
        assert every is not None
        return every


def total_of(comm: Comm, row: Any, op: str = "sum") -> Values:
    """**Collective over** ``comm``. Numbers of any shape, combined over all ranks once.

    >>> from mpi4py import MPI
    >>> total_of(MPI.COMM_SELF, [[1, 2], [3, 4]], "max").tolist()
    [[1, 2], [3, 4]]
    """
    values = np.asarray(to_host(row))
    return Totals(comm, values.size, op, values.dtype)(values).reshape(values.shape)


def all_rows(comm: Comm, row: Any) -> Values:
    """**Collective over** ``comm``. The rows of all ranks, stacked; all must have the same shape.

    >>> from mpi4py import MPI
    >>> all_rows(MPI.COMM_SELF, [3, 4]).tolist()
    [[3, 4]]
    """
    values = np.asarray(row)
    return values[None].copy() if comm.size == 1 else traffic().tell_all(comm, values)


def all_parts(comm: Comm, values: Values) -> tuple[Values, NDArray[np.int64]]:
    """**Collective over** ``comm``. The values of all ranks, joined in rank order; each may pass any number.

    Also returns where the values of each rank begin, followed by the total number of values.

    >>> from mpi4py import MPI
    >>> joined, begins = all_parts(MPI.COMM_SELF, np.array([5, 6, 7]))
    >>> joined.tolist(), begins.tolist()
    ([5, 6, 7], [0, 3])
    """
    counts = all_rows(comm, np.int64(len(values)))
    padded = np.zeros((int(counts.max()), *values.shape[1:]), values.dtype)
    padded[: len(values)] = values
    every = all_rows(comm, padded)
    joined = np.concatenate([part[:n] for part, n in zip(every, counts.tolist(), strict=True)])
    return joined, np.append(0, np.cumsum(counts))


def largest(comm: Comm, values: Values) -> float:
    """**Collective over** ``comm``. The largest magnitude among all ranks' values; 0 if there are none.

    >>> from mpi4py import MPI
    >>> largest(MPI.COMM_SELF, np.array([1.0, -7.5]))
    7.5
    """
    own = max(float(values.max()), -float(values.min()), 0.0) if values.size else 0.0
    return float(total_of(comm, np.array([own], np.float64), "max")[0])


def exact_total(comm: Comm, values: Values, bound: float | None = None) -> Values:
    """**Collective over** ``comm``. The sum along dim 0 of all ranks' values, rounded once.

    The result has the same bits for every number of ranks, however the rows are cut. ``bound`` is a number
    that no value exceeds in magnitude, if one is known; all ranks pass the same one.

    >>> from mpi4py import MPI
    >>> exact_total(MPI.COMM_SELF, np.array([[1e16, 1.0], [1.0, 2.0], [-1e16, 3.0]])).tolist()
    [1.0, 6.0]
    """
    count = int(all_rows(comm, np.int64(len(values))).sum())
    most = largest(comm, values) if bound is None else bound
    total: Values = total_of(comm, ExactGrid.for_sum(most, count).sum_rows(values)).sum(axis=0)
    return total


@dataclass(frozen=True, slots=True)
class ExactGrid:
    """Splits values into two parts that add without rounding, so that sums have the same bits in any order.

    >>> grid = ExactGrid.for_sum(bound=1.0, count=3)
    >>> coarse, fine = grid.split(np.array([0.1, 0.7, -0.3]))
    >>> bool(coarse.sum() + fine.sum() == coarse[::-1].sum() + fine[::-1].sum())
    True

    The result does not depend on how rows are cut over ranks, on the number of ranks, or on the order in
    which their sums are combined. The coarse part of a value is the nearest multiple of a unit so large that
    the sum of all coarse parts is less than 2**53 units; the fine part does the same for the remainder. What
    is lost after that is at most ``count ** 2 * 2 ** -104`` of ``count * bound``: less than an ordinary sum
    loses.
    """

    steps: tuple[float, float]
    """Adding and taking away the first leaves a coarse part, the second a fine one."""

    @staticmethod
    def for_sum(bound: float, count: int) -> ExactGrid:
        """The grid for a sum of ``count`` values, none larger in magnitude than ``bound``."""
        coarse = _unit(bound, count)
        return ExactGrid((1.5 * 2.0**52 * coarse, 1.5 * 2.0**52 * _unit(coarse / 2, count)))

    def split(self, values: Values) -> tuple[Values, Values]:
        """**Local.** The coarse and fine parts of values, which add without rounding."""
        coarse_step, fine_step = self.steps
        coarse = (values + coarse_step) - coarse_step
        fine = values - coarse
        fine += fine_step
        fine -= fine_step
        return coarse, fine

    def sum_rows(self, values: Values) -> Values:
        """**Local.** The coarse and fine sums along dim 0, stacked along a new first dim."""
        coarse, fine = self.split(values.astype(np.float64, copy=False))
        return np.stack([coarse.sum(axis=0), fine.sum(axis=0)])


def _unit(bound: float, count: int) -> float:
    """A power of two such that ``count`` multiples of it up to ``bound`` add exactly."""
    room = bound * max(count, 4)
    if not math.isfinite(room):
        return math.inf
    return math.ldexp(1.0, max(math.frexp(room)[1] - 51, LEAST)) if room else 2.0**LEAST


@contextmanager
def same_error(comm: Comm) -> Iterator[None]:
    """**Collective over** ``comm`` at the end. An error in the block on any rank is raised on all ranks.

    All ranks raise the error of the first rank that has one, before any other data moves.

    >>> from mpi4py import MPI
    >>> with same_error(MPI.COMM_SELF):
    ...     int("seven")
    Traceback (most recent call last):
    ValueError: invalid literal for int() with base 10: 'seven'
    """
    error: Exception | None = None
    try:
        yield
    except Exception as problem:
        error = problem
    if comm.size == 1:
        found = [] if error is None else [error]
    elif not all_rows(comm, np.array([error is not None])).any():
        found = []
    else:
        said = gather(comm, None if error is None else (type(error), str(error)), TIMEOUT_S)
        kind, text = next(one for one in said if one is not None)
        found = [error if error is not None and str(error) == text else kind(text)]
    if found:
        raise found[0] from (None if found[0] is error else error)
