"""A spanning tree that grows on a GPU: the points outside it stay there, and so does what steps tell."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.learn.kernels.cuda.sources import source_of
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for, n_processors, run_loop

THREADS = 256
"""Of a block."""
BLOCKS = 4
"""Blocks for each processor, at most."""
STAGE = 4096
"""Steps after which fewer blocks may do."""
SHARED_BYTES = 8 * (3 * THREADS + 1)
"""What a block takes of a processor's memory, as prim.cu lays it out."""


class OutsideOnGpu:
    """As :class:`redist.learn.kernels.outside_tree.OutsideTree`, on a GPU."""

    __slots__ = ("_found", "_parts", "_told", "state")

    def __init__(self, rows: Any, core: Any, first: int) -> None:
        xp, (n, d) = functions_for(rows), rows.shape
        self._parts = (
            xp.ascontiguousarray(rows.T, dtype=np.float64), xp.full(n, np.inf), xp.zeros(n, np.int64),
            xp.array(core, dtype=np.float64), xp.arange(first, first + n, dtype=np.int64), n, d,
        )  # fmt: skip
        self.state = xp.zeros(4, np.int64)
        """Places in use, the place offered last or -1, blocks that have arrived, steps that are done."""
        self.state[:2] = to_device(np.array([n, -1]))
        self._found = xp.zeros(BLOCKS * n_processors(), np.int64)
        self._told = xp.zeros((2, d + 4))

    def grow(self, alpha: float, added: Any, offer: Any) -> None:
        """**Local.** Let the tree have a point more, and offer the nearest of those outside; in memory."""
        self._told[0] = to_device(added)
        self._run(self._told, 0, alpha, self._parts[-2], 1)
        offer[:] = to_host(self._told[1])

    def grow_alone(self, added: Any, found: Any, alpha: float) -> None:
        """**Local.** Take all points, nearest first, into the rows of ``found``; nobody waits in between."""
        steps = len(found) - 1
        told = functions_for(self.state).zeros((steps + 1, len(added)))
        told[0] = to_device(added)
        for done in range(0, steps, STAGE):
            self._run(told, len(added), alpha, steps - done, min(STAGE, steps - done))
        found[:] = to_host(told[:, :3])

    def _run(self, told: Any, advance: int, alpha: float, n: int, times: int) -> None:
        """**Local.** Start steps for at most ``n`` points outside."""
        blocks = min(-(-n // THREADS), BLOCKS * n_processors())
        run_loop(
            source_of("prim"), "grow", blocks, THREADS, *self._parts, self.state, told, advance,
            float(alpha), np.inf, self._found, options=(f"-DTHREADS={THREADS}",),
            shared_bytes=SHARED_BYTES, times=times,
        )  # fmt: skip
