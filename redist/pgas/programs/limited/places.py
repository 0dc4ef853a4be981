"""The places behind the memory that a program works in: pinned memory of the host, a file, or both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from redist.errors import NoPlanError
from redist.pgas.spill.spill_store import HOST, StoredTile, store_for
from redist.plan.rates import FILE_BYTE_FS, HOST_BYTE_FS
from redist.program.memory_graph import MemoryPlace
from redist.runtime.lanes.stores import TileStore
from redist.text.progress import Work
from redist.text.units import format_beside, format_bytes

# The limit that a program keeps on every rank, and what its layouts were planned for.


PLANNING_LINE_S = 5.0
"""With ``progress`` a line says so often that planning goes on."""


@dataclass(frozen=True, slots=True)
class RunLimit:
    """What a program may hold on a rank, and the folder to spill to: None if nothing may be put away."""

    limit_bytes: int
    spill: str | None = None
    is_own: bool = False
    """Whether the program says where to spill to, not ``redist.memory_limit``."""

    def planning(self, name: str, speaks: bool, progress: bool = False) -> Work:
        """What says, while a program is planned, that it still is; of all ranks, one ``speaks``."""
        label = f"the planner of {name} within {format_bytes(self.limit_bytes)} a rank"
        return Work(label, True if progress else None, speaks, line_s=PLANNING_LINE_S)

    def refusal(self, name: str, needed_bytes: int, why: str) -> NoPlanError:
        """The error of a program that needs more; ``why`` names what does."""
        folder = "" if self.spill else ", a folder to spill to (spill=)"
        limit, needed = self.limit_bytes, needed_bytes
        size = f" ({format_bytes(needed, round_up=True)})"
        return NoPlanError(
            f"cannot run {name} within {format_beside(limit, needed)} a rank: {why}; "
            f"give limit={needed}{size}{folder}, or more ranks",
            needed,
        )


class LayoutsFor(Enum):
    """What the layouts of a program were planned for: its limit, speed alone, or nothing, as written."""

    LIMIT = "limit"
    SPEED = "speed"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class FarPlaces:
    """Where tiles of a program may lie beside the memory that it works in.

    In front of a file, tiles of a GPU lie in pinned memory, of which a rank may take as much as of the GPU,
    beside what lies there already.

    >>> [place.name for place in FarPlaces(True, "/scratch", 2**30).places({2: 0})]
    ['host', 'file']
    """

    on_device: bool
    spill: str | None
    limit_bytes: int

    @property
    def leave_to(self) -> int:
        """The number of the place that arguments are put away to; 0 if they may not be."""
        if self.spill is None:
            return 0
        return self._file if self.spill != HOST else 1

    @property
    def _file(self) -> int:
        return 2 if self.on_device else 1

    def place_of(self, stored: StoredTile) -> int:
        """The number of the place where a tile is that was put away."""
        return 1 if stored.space.store.starts else self._file

    def places(self, used: Mapping[int, int]) -> tuple[MemoryPlace, ...]:
        """The places behind the first, where arguments lie in those that are used, with this many bytes."""
        last = max({self.leave_to, *used})
        if not self.on_device:
            return (MemoryPlace("file", None, FILE_BYTE_FS),)[:last]
        limit = self.limit_bytes + used.get(1, 0) if last == self._file else None
        return (
            MemoryPlace("host", limit, HOST_BYTE_FS),
            MemoryPlace("file", None, FILE_BYTE_FS),
        )[:last]

    def open(self, n_places: int, stored: Sequence[StoredTile]) -> list[TileStore]:
        """**Local.** The stores of this many places; those where something lies are taken as they are."""
        stores: list[TileStore] = []
        for number in range(1, n_places + 1):
            known = [one.space.store for one in stored if self.place_of(one) == number]
            if number == self.leave_to and self.spill is not None:
                stores.append(store_for(self.spill))
            elif known:
                stores.append(known[0])
            else:
                stores.append(store_for(HOST))
        return stores
