"""Allocate the arrays of a transfer itself: its own source and target, and tiles between steps."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from redist.runtime.schedule.stages import TransferStages
from redist.runtime.shm.segments import shared_empty

AnyArray = NDArray[Any]
Key = tuple[int, int]
"""An array of the transfer, and which of its buffers."""


class OwnTiles:
    """Allocates in shared memory, so that neighbours read in place, and counts.

    ``keep`` says that tiles on the way stay allocated between calls, if the certified bound leaves
    room for them beside both ends.
    """

    def __init__(self, schedule: TransferStages, donate: bool, keep: bool = True) -> None:
        self.schedule = schedule
        self.keep = keep
        held = sum(t.tile_bytes for plan in schedule.plans for t in plan.types)
        staging = max(schedule.staging_bytes(k) for k in range(len(schedule.stages)))
        self._room = not donate and held + staging <= schedule.peak_bytes()
        self.kept: dict[Key, AnyArray] = {}
        """Tiles between two steps that stay allocated."""
        self._ends: dict[Key, AnyArray] = {}

    def end(self, item: int, buffer: int) -> AnyArray | None:
        """The transfer's own source (buffer 0) or target tile."""
        return self._find(self._ends, (item, buffer))

    def middle(self, item: int, buffer: int) -> AnyArray | None:
        """A tile between two steps."""
        return self._find(self.kept if self.keeps else {}, (item, buffer))

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
