"""What all ranks have room for: one answer that they agree on."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from redist.errors import RequestError
from redist.runtime.ranks.tokens import Token
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import DISAGREE, SAME, world_of


def all_fit(comm: MPI.Comm, fits: bool, timeout_s: float | None = TIMEOUT_S) -> bool:
    """**Collective.** Whether it fits on every rank; on one node a meeting without a message."""
    world = world_of(comm, timeout_s=timeout_s)
    world.check_usable()
    world.finish()
    with world.failing_together():
        met = world.meet(Token.COMPARE_ROOM, int(fits), timeout_s)
        if met == DISAGREE:
            raise RequestError("cannot compare room: ranks are in different operations")
    return fits and met == SAME


def least_available(comm: MPI.Comm, n_bytes: int, timeout_s: float | None = TIMEOUT_S) -> int:
    """**Collective.** The least that any rank has."""
    have = np.array([-n_bytes], dtype=np.int64)
    world_of(comm, timeout_s=timeout_s).all_max(have, timeout_s)
    return -int(have[0])
