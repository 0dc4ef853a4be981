"""Make sure on all ranks that an operation has room for what it needs beside its result."""

from __future__ import annotations

import gc

from redist.errors import MemoryLimitError
from redist.pgas.memory import SHARED_FROM
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.elements import by_position
from redist.runtime.ranks.collectives import least_available
from redist.text.units import format_bytes

ON_GPU_ELEMS = 2**25
"""Elements that pass between GPUs by position in one round: there a round costs more than memory."""


def round_elems(x: Tiled) -> int:
    """**Local.** How many elements of an array pass by position in one round, where memory allows it."""
    return ON_GPU_ELEMS if x.memory.on_device else by_position.ROUND_ELEMS


def require_room(x: Tiled, what: str, n_bytes: int) -> None:
    """**Collective** under a limit. Raise on all ranks if one has no room for ``n_bytes``."""
    memory = x.memory
    if memory.is_ghost:
        memory.check_room(n_bytes)
    if memory.limit_bytes is None:
        return
    left = _least_left(x, memory.limit_bytes, n_bytes)
    if left < 0:
        raise MemoryLimitError(
            f"cannot {what} {x.type}: it needs {format_bytes(n_bytes)} on a rank that has "
            f"{format_bytes(max(0, left + n_bytes))} left of its limit; free arrays, cut them into smaller "
            "tiles, or raise the limit"
        )


def staging_room(x: Tiled, most_bytes: int, n_bytes: int = 0) -> int:
    """**Collective** under a memory limit. Agree on what staging may take, up to ``most_bytes``.

    ``n_bytes`` is what this rank takes before that; an error on all ranks if one has no room for
    it. Less than :data:`SHARED_FROM` does not count: so much is there always.
    """
    memory = x.memory
    if memory.granted_bytes is not None:
        return min(most_bytes, max(memory.granted_bytes - n_bytes, SHARED_FROM))
    if memory.limit_bytes is None:
        return most_bytes
    left = _least_left(x, memory.limit_bytes, n_bytes)
    if left < 0 and x.type.tile_bytes >= SHARED_FROM:
        raise MemoryLimitError(
            f"cannot pass elements of {x.type} on: a rank lacks {format_bytes(-left)} below its "
            "limit; free arrays, cut them into smaller tiles, or raise the limit"
        )
    return min(most_bytes, max(left, SHARED_FROM))


def _least_left(x: Tiled, limit_bytes: int, n_bytes: int) -> int:
    """**Collective.** What the fullest rank has left after ``n_bytes`` more; garbage goes first."""
    x.memory.make_room(n_bytes)
    left = least_available(x.comm, limit_bytes - x.memory.live_bytes - n_bytes)
    if left < 0:
        gc.collect()
        left = least_available(x.comm, limit_bytes - x.memory.live_bytes - n_bytes)
    return left
