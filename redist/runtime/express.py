"""The short way for a small array that is moved again and again: a few checks and one call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.runtime.moves import address_of
from redist.runtime.stage import Quick, Stage
from redist.runtime.world import SAME, SLICE_NS

Array = NDArray[Any]


class Express:
    """A call with arrays like those of a call before: same dtype, shape and strides."""

    def __init__(self, stage: Stage, quick: Quick, source: Array, target: Array, word: int) -> None:
        self.world = stage.world
        assert self.world.kernels is not None
        self.stage = stage
        self.quick = quick
        self.said = 2 * word
        self.like = (source.dtype, source.shape, source.strides)
        self.out_like = (target.dtype, target.shape, target.strides)
        self.rows = (*quick.stage.pointer, *quick.fetch.pointer)
        self.bases = tuple(address_of(table) for table in quick.tables)
        self.source_at = stage.bases.source(0)
        self.target_at = stage.bases.target(0)
        self.boards = (self.world.table, len(self.world.node), self.world.place)
        self.round = self.world.kernels.round
        self.meet = self.world.kernels.meet

    def fits(self, local: Any, out: Any) -> bool:
        """Whether a call can go this way."""
        return (
            type(local) is np.ndarray
            and type(out) is np.ndarray
            and (local.dtype, local.shape, local.strides) == self.like
            and (out.dtype, out.shape, out.strides) == self.out_like
            and out.flags.writeable
            and not np.may_share_memory(local, out)
            and self.world.version == self.quick.version
        )

    def run(self, local: Array, out: Array, timeout_s: float | None) -> bool:
        """Move; whether anyone reads a neighbour's array in place."""
        world = self.world
        world.seq += 1
        parity = world.seq & 1
        table = self.quick.tables[parity]
        table[self.source_at] = address_of(local)
        table[self.target_at] = address_of(out)
        meeting = (*self.boards, world.seq, self.said, SLICE_NS)
        if self.round(*self.rows, self.bases[parity], *meeting) == 0:
            return False
        answer = world.patiently(lambda: int(self.meet(*meeting)), timeout_s)
        met = world.judge(answer, self.said)
        if met == SAME:
            self.quick.fetch.run(table)
            return False
        self.stage.take_over(table)
        return self.stage.go_on(met, 0, self.quick.strides, timeout_s)
