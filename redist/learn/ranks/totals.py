"""Numbers of all ranks brought together: sums and extremes of rows, all rows, one random state, one error.

Whatever decides how a program goes on comes from here, so that all ranks go the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from redist.layout.array_type import ArrayType
from redist.pgas.memory import BUFFERS
from redist.pgas.tiles.layouts import dtype_of, line_mesh
from redist.pgas.watch.seam import TileMove, traffic
from redist.runtime.cuda.arrays import to_host
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.runtime.transfer import Transfer

Values = NDArray[Any]


@lru_cache(maxsize=256)
def _ends(size: int, n: int, op: str, dtype: np.dtype[Any]) -> tuple[ArrayType, ArrayType]:
    head = f"{dtype_of(dtype)}[{n}]"
    mesh = line_mesh(size)
    return ArrayType.parse(f"{head} {op}{{x}}", mesh), ArrayType.parse(head, mesh)


class Totals:
    """Combines rows of ``n`` numbers of all ranks, by ``sum``, ``max`` or ``min``; every rank gets them.

    It is one all-reduce, planned and prepared at the first call, and a trace shows it::

        totals = Totals(comm, 12)
        everywhere = totals(row)
    """

    __slots__ = ("_comm", "_ends", "_prepared", "_shape")

    def __init__(self, comm: Comm, n: int, op: str = "sum", dtype: Any = np.float64) -> None:
        self._comm, self._shape = comm, (n,)
        self._ends = _ends(comm.size, n, op, np.dtype(dtype))
        self._prepared: Transfer | None = None

    def __call__(self, row: Values) -> Values:
        """**Collective.** The combined rows of all ranks, a new array of one dim."""
        source, target = self._ends
        flat = np.ascontiguousarray(row, dtype=source.dtype.to_numpy()).reshape(-1)
        if self._comm.size == 1 or not flat.size:
            return flat.copy()
        move = TileMove(flat, source, target, self._shape, BUFFERS, self._prepared)
        total, self._prepared = traffic().redistribute(move, self._comm, None)
        assert total is not None
        return total


class RowsOfAll:
    """Brings rows of ``n`` numbers of all ranks to every rank, stacked; prepared as :class:`Totals` is.

    This rank's is written to :attr:`row`. What a call gives is overwritten by the next: it is made for
    methods of many small steps.
    """

    __slots__ = ("_comm", "_move", "row")

    def __init__(self, comm: Comm, n: int) -> None:
        mesh, shape = line_mesh(comm.size), (comm.size, n)
        self._comm, self.row = comm, np.zeros(n)
        cut = ArrayType.parse(f"f64[{comm.size}{{x}}, {n}]", mesh)
        whole = ArrayType.parse(f"f64[{comm.size}, {n}]", mesh)
        self._move = TileMove(self.row[None], cut, whole, shape, BUFFERS, None, np.empty(shape))

    def __call__(self) -> Values:
        """**Collective.** The rows of all ranks, until the next call."""
        if self._comm.size == 1:
            return self.row[None]
        every, transfer = traffic().redistribute(self._move, self._comm, None)
        if self._move.prepared is None:
            self._move = self._move._replace(prepared=transfer)
        assert every is not None
        return every


def total_of(comm: Comm, row: Any, op: str = "sum") -> Values:
    """**Collective.** Numbers of any shape combined over all ranks, once."""
    values = to_host(row)
    return Totals(comm, values.size, op, values.dtype)(values).reshape(values.shape)


def all_rows(comm: Comm, row: Any) -> Values:
    """**Collective.** The rows of all ranks, stacked; every rank gives one of the same shape."""
    values = np.asarray(row)
    return values[None].copy() if comm.size == 1 else traffic().tell_all(comm, values)


def one_random_state(comm: Comm, random_state: Any) -> np.random.RandomState:
    """**Collective.** A generator that all ranks have alike: where none is given, the first rank's seed."""
    if comm.size == 1 or random_state is not None:
        return check_random_state(random_state)
    seed = np.random.mtrand._rand.randint(0, 2**31 - 1, dtype=np.int64)
    return np.random.RandomState(int(all_rows(comm, seed)[0]))


@contextmanager
def seeded_alike(estimator: Any) -> Iterator[None]:
    """**Collective** at the start. Let an estimator have one random state on all ranks while a block runs."""
    given = estimator.random_state
    estimator.random_state = one_random_state(comm_or_world(None), given)
    try:
        yield
    finally:
        estimator.random_state = given


@contextmanager
def same_error(comm: Comm) -> Iterator[None]:
    """**Collective** at the end. An error of the block on any rank is raised on all: that of the first."""
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
