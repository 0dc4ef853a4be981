"""Where tiles of a program within a limit lie: in memory, or behind it in pinned memory or a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from redist.errors import NoPlanError
from redist.pgas.memory import GRAIN, TileMemory, counted_bytes, memory_for
from redist.pgas.programs.capture import Capture, ends_in
from redist.pgas.spill.memory_limit import can_leave
from redist.pgas.spill.spill_store import HOST, StoredTile, TileLayout, store_for
from redist.pgas.tiles.tiled import Tiled, held_by
from redist.plan.rates import FILE_BYTE_FS, HOST_BYTE_FS
from redist.program.memory_graph import MemoryPlace
from redist.program.tasks import MemoryTile
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


# Which arguments lie in memory, which in a store, and what else is held.


@dataclass(frozen=True, slots=True)
class ArgumentTile:
    """The tile of an argument: its memory by number, the place where it lies, whether it may be put away."""

    number: int
    memory: int
    size_bytes: int
    counted_bytes: int
    place: int
    may_leave: bool
    outer_dim: int | None = None
    """The dim along which blocks of it lie in one piece; None if there is none."""
    is_new: bool = False
    """Whether it is in memory although it was put away for an earlier call: calls bring another array."""


ArgumentState = tuple[tuple[int, int], ...]
"""Of every argument with a tile, where it lies and what its memory takes."""


def argument_tiles(
    arrays: Sequence[Tiled], captured: Capture, far: FarPlaces
) -> list[ArgumentTile]:
    """**Local.** The tiles that this rank has of the arguments."""
    out = []
    for number, (array, memory) in enumerate(zip(arrays, captured.inputs, strict=True)):
        if memory is None:
            continue
        held = held_by(array)
        place, size, counted = _taken(held, array, captured.on_device, far)
        is_away = isinstance(held, StoredTile)
        outer = _outer_dim(held.layout if is_away else TileLayout.of(held))
        del held  # it must not count as somebody's
        may_leave = is_away or can_leave(array)
        out.append(ArgumentTile(number, memory, size, counted, place, may_leave, outer))
    return out


def state_of(
    arrays: Sequence[Tiled], captured: Capture, far: FarPlaces
) -> tuple[ArgumentState, int]:
    """**Local.** Where the arguments lie and what they take, and how much of it counts as held in memory."""
    pairs = zip(arrays, captured.inputs, strict=True)
    tiled = [array for array, memory in pairs if memory is not None]
    found = [_taken(held_by(array), array, captured.on_device, far) for array in tiled]
    return tuple(one[:2] for one in found), sum(one[2] for one in found)


def _taken(held: Any, array: Tiled, on_device: bool, far: FarPlaces) -> tuple[int, int, int]:
    """The place of an argument's tile, what it takes there, and what counts as held in memory."""
    if isinstance(held, StoredTile):
        worst = counted_bytes(max(held.nbytes, array.type.tile_bytes), on_device)
        return far.place_of(held), worst, 0
    counted = memory_for(on_device).counted_for(held)
    size = max(held.nbytes, counted)
    return 0, counted_bytes(size, True) if on_device else size, counted


def _outer_dim(layout: TileLayout | None) -> int | None:
    """The dim of a tile in memory that is the outermost in memory."""
    if layout is None or layout.on_device:
        return None
    return next((dim for dim in layout.order if layout.shape[dim] > 1), None)


def beside(counted_bytes: int, memory: TileMemory) -> int:
    """**Local.** What global arrays hold in a memory beside arguments with so many bytes, in whole grains.

    What is less than a grain does not count, so that a number that is kept of every call needs no new plan.
    """
    held = memory.live_bytes - counted_bytes
    return held - held % GRAIN


def as_memory_tile(
    one: ArgumentTile, size_bytes: int, far: int, ends_in_memory: bool
) -> MemoryTile:
    """An argument as a tile of a graph: the caller's, or one that comes from a ``far`` place."""
    if not far:
        return MemoryTile(
            max(size_bytes, one.size_bytes), (0,), (0,), True, f"argument {one.number}"
        )
    ends = (0,) if ends_in_memory else (far,)
    return MemoryTile(size_bytes, (far,), ends, False, f"argument {one.number}")


def needed_in_memory(captured: Capture, bases: Any) -> set[int]:
    """The memories that must be there at the end: of results, and of arguments that have become others."""
    ends = [*ends_in(captured.result)]
    ends = [one for one in ends if one.argument is None]
    own = zip(captured.ends, captured.inputs, strict=True)
    ends += [end for end, number in own if end.tile != number]
    return {bases[end.tile] for end in ends if end.tile is not None}


SMALL = 64
"""What takes less than one of this many parts of the largest hardly makes room."""


def leaving_order(
    arguments: Collection[ArgumentTile], first_use: Mapping[int, int]
) -> tuple[list[ArgumentTile], list[ArgumentTile]]:
    """Those in memory that may be put away: those that are worth it, and those that leave if they must.

    First leaves what is needed last, because it has longest to come back. What the first task needs would be
    waited for, what is small makes no room, and what is another array in every call would have to be put away
    in every call: these leave when all others have, the largest of them first. ``first_use`` has for every
    memory the first task that needs it.

    >>> sizes = (640, 640, 1, 640, 640)
    >>> tiles = [ArgumentTile(n, n, size, size, 0, True, None, n == 4) for n, size in enumerate(sizes)]
    >>> [[one.number for one in some] for some in leaving_order(tiles, {0: 3, 1: 8, 2: 9, 3: 0, 4: 2})]
    [[1, 0], [3, 4, 2]]
    """
    found = [one for one in arguments if one.may_leave and not one.place]
    most = max((one.size_bytes for one in found), default=0)
    never = max(first_use.values(), default=0) + 1

    def use(one: ArgumentTile) -> int:
        return first_use.get(one.memory, never)

    def is_worth_it(one: ArgumentTile) -> bool:
        return not one.is_new and use(one) > 0 and one.size_bytes * SMALL >= most

    worth = [one for one in found if is_worth_it(one)]
    others = [one for one in found if not is_worth_it(one)]
    return (
        sorted(worth, key=lambda one: (-use(one), one.number)),
        sorted(others, key=lambda one: (-one.size_bytes, one.number)),
    )
