"""Allocate the arrays of a transfer itself: its own source and target, and tiles between steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.runtime.schedule.stages import Key, TransferStages
from redist.runtime.shm.segments import shared_empty

AnyArray = NDArray[Any]


class OwnTiles:
    """Allocates in shared memory, so that neighbours read in place, and counts.

    ``keep`` says that tiles on the way stay allocated between calls, if the certified bound leaves
    room for them beside both ends.
    """

    def __init__(self, schedule: TransferStages, donate: bool, keep: bool = True) -> None:
        self.schedule = schedule
        self.keep = keep
        self.placed_tiles = schedule.placed_tiles()
        """Tiles between steps that lie in the memory of the target: where they start in it."""
        held = sum(
            t.tile_bytes
            for item, plan in enumerate(schedule.plans)
            for buffer, t in enumerate(plan.types)
            if (item, buffer) not in self.placed_tiles
        )
        staging = max(schedule.staging_bytes(k) for k in range(len(schedule.stages)))
        self._room = not donate and held + staging <= schedule.peak_bytes()
        self.kept: dict[Key, AnyArray] = {}
        """Tiles between two steps that stay allocated."""
        self._ends: dict[Key, AnyArray] = {}

    def end(self, item: int, buffer: int) -> AnyArray | None:
        """The transfer's own source (buffer 0) or target tile."""
        return self._find(self._ends, (item, buffer))

    def middle(self, item: int, buffer: int, target: AnyArray | None) -> AnyArray | None:
        """A tile between two steps; in the memory of its target where it can be."""
        start = self.placed_tiles.get((item, buffer))
        if start is None or target is None or not target.flags.c_contiguous:
            return self._find(self.kept if self.keeps else {}, (item, buffer))
        t = self.schedule.type_of(item, buffer)
        memory = target.reshape(-1).view(np.uint8)[start : start + t.tile_bytes]
        return memory.view(target.dtype).reshape(self.schedule.shape_of(item, buffer))

    @property
    def keeps(self) -> bool:
        """Whether tiles on the way stay allocated; the same on every rank."""
        return self.keep and self._room

    def clear(self) -> None:
        """Forget all; arrays that were handed out stay valid."""
        self.kept.clear()
        self._ends.clear()

    def _find(self, known: dict[Key, AnyArray], key: Key) -> AnyArray | None:
        if key in known:
            return known[key]
        shape = self.schedule.shape_of(*key)
        if shape is None:
            return None
        array = shared_empty(shape, self.schedule.plans[key[0]].source.dtype.to_numpy())
        known[key] = array
        return array
