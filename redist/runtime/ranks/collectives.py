"""Collectives on data that no type describes: rows for all, parts for each, and what all have room for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.errors import RequestError
from redist.runtime.ranks.meeting import Met
from redist.runtime.ranks.tokens import Tag, Token
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


def pass_rows(
    comm: MPI.Comm, rows: Values, counts: Counts | None, timeout_s: float | None = TIMEOUT_S
) -> tuple[Values | None, Counts]:
    """**Collective.** Send rows, ordered by rank, ``counts`` of them to each; sizes travel with the rows.

    Each pair of ranks has one message. Its length says how many rows come, so that ranks need not tell
    each other before. What came, in order of the ranks that gave it, and how much from each. A rank
    whose request is wrong gives None for ``counts``; then all ranks get None, and -1 from that rank.
    """
    world = world_of(comm, timeout_s=timeout_s)
    own, others = world.rank, [(world.rank + k) % world.size for k in range(1, world.size)]
    given = np.zeros(world.size, dtype=np.int64) if counts is None else counts
    starts = np.cumsum(given) - given
    tag = Tag.ROWS if counts is not None else Tag.NO_ROWS
    got = np.full(world.size, -1, dtype=np.int64)
    with world.operation(timeout_s):
        row = MPI.BYTE.Create_contiguous(rows.dtype.itemsize * math.prod(rows.shape[1:])).Commit()
        try:
            requests = [
                world.comm.Isend([_rows_at(rows, starts[r], given[r]), int(given[r]), row], r, tag)
                for r in others
            ]
            waiting, coming, status = list(others), {}, MPI.Status()

            def all_said() -> bool:
                for rank in list(waiting):
                    for kind in (Tag.ROWS, Tag.NO_ROWS):
                        message = world.comm.Improbe(rank, kind, status)
                        if message is not None:
                            coming[rank] = message
                            got[rank] = status.Get_count(row) if kind is Tag.ROWS else -1
                            waiting.remove(rank)
                            break
                return not waiting

            world.wait_until(all_said)
            got[own] = given[own] if counts is not None else -1
            room = np.maximum(got, 0)
            out = np.empty((int(room.sum()), *rows.shape[1:]), rows.dtype)
            places = np.cumsum(room) - room
            for rank, message in coming.items():
                there = _rows_at(out, places[rank], room[rank])
                requests.append(message.Irecv([there, int(room[rank]), row]))
            own_rows = slice(int(starts[own]), int(starts[own] + room[own]))
            out[int(places[own]) : int(places[own] + room[own])] = rows[own_rows]
            world.wait_for_messages(requests)
        finally:
            row.Free()
    return (out if (got >= 0).all() else None), got


def _rows_at(rows: Values, start: int, n: int) -> NDArray[np.uint8]:
    return _bytes(rows[int(start) : int(start) + int(n)])


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
