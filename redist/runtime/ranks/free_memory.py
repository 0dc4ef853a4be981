"""Agree on what all ranks have room for."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from redist.errors import RequestError
from redist.runtime.ranks.meeting import Met
from redist.runtime.ranks.tokens import Token
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import world_of


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
