"""Collectives on data that no type describes: rows for all, parts for each, and what all have room for."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.errors import RequestError
from redist.runtime.ranks.meeting import Met
from redist.runtime.ranks.tokens import Token
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import world_of

Values = NDArray[Any]
Counts = NDArray[np.int64]


def tell_all(comm: MPI.Comm, row: Values, timeout_s: float | None = TIMEOUT_S) -> Values:
    """**Collective.** The rows of all ranks, stacked; every rank gives one of the same shape."""
    row = np.asarray(row, order="C")
    out = np.empty((comm.size, *row.shape), row.dtype)
    if row.nbytes == 0:
        return out
    world = world_of(comm, timeout_s=timeout_s)
    with world.operation(timeout_s):
        send, got = [_bytes(row), MPI.BYTE], [_bytes(out), MPI.BYTE]
        world.wait([world.comm.Iallgather(send, got)])
    return out


def exchange(
    comm: MPI.Comm,
    data: Values,
    sent: tuple[Counts, Counts],
    out: Values,
    received: tuple[Counts, Counts],
    timeout_s: float | None = TIMEOUT_S,
) -> int:
    """**Collective.** An all-to-all: parts of ``data`` to every rank, what comes into ``out``.

    ``sent`` and ``received`` say for each rank how many elements, and where they start. Both arrays
    are contiguous and of one dtype. Gives the bytes that came from other ranks.
    """
    world = world_of(comm, timeout_s=timeout_s)
    with world.operation(timeout_s):
        element = MPI.BYTE.Create_contiguous(max(1, data.dtype.itemsize)).Commit()
        try:
            there = [_bytes(data), tuple(part.tolist() for part in sent), element]
            here = [_bytes(out), tuple(part.tolist() for part in received), element]
            world.wait([world.comm.Ialltoallv(there, here)])
        finally:
            element.Free()
    return int(received[0].sum() - received[0][world.rank]) * data.dtype.itemsize


def _bytes(values: Values) -> NDArray[np.uint8]:
    return values.reshape(-1).view(np.uint8) if values.size else np.empty(0, np.uint8)


def all_fit(comm: MPI.Comm, fits: bool, timeout_s: float | None = TIMEOUT_S) -> bool:
    """**Collective.** Whether it fits on every rank; ranks of one node need no message for it."""
    world = world_of(comm, timeout_s=timeout_s)
    with world.operation(timeout_s):
        met = world.meet(Token.COMPARE_ROOM, int(fits))
        if met is Met.DISAGREE:
            raise RequestError("cannot compare room: ranks are in different operations")
    return fits and met is Met.SAME


def least_available(comm: MPI.Comm, n_bytes: int, timeout_s: float | None = TIMEOUT_S) -> int:
    """**Collective.** The smallest number of bytes that any rank has."""
    have = np.array([-n_bytes], dtype=np.int64)
    world = world_of(comm, timeout_s=timeout_s)
    with world.operation(timeout_s):
        world.all_max(have)
    return -int(have[0])
