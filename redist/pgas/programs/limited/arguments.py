"""The arguments of a program within a limit: which lie in memory, which in a store, and what else is held."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from redist.pgas.memory import GRAIN, TileMemory, counted_bytes, memory_for
from redist.pgas.programs.capture import Capture, ends_in
from redist.pgas.programs.limited.places import FarPlaces
from redist.pgas.spill.memory_limit import can_leave
from redist.pgas.spill.spill_store import StoredTile, TileLayout
from redist.pgas.tiles.tiled import Tiled, held_by
from redist.program.tasks import MemoryTile


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


def argument_tiles(
    arrays: Sequence[Tiled], captured: Capture, far: FarPlaces
) -> list[ArgumentTile]:
    """**Local.** The tiles that this rank has of the arguments."""
    out, on_device = [], captured.on_device
    for number, (array, memory) in enumerate(zip(arrays, captured.inputs, strict=True)):
        if memory is None:
            continue
        held = held_by(array)
        worst = counted_bytes(max(held.nbytes, array.type.tile_bytes), on_device)
        if isinstance(held, StoredTile):
            place, outer = far.place_of(held), _outer_dim(held.layout)
            out.append(ArgumentTile(number, memory, worst, 0, place, True, outer))
        else:
            counted = memory_for(on_device).counted_for(held)
            size = max(held.nbytes, counted)
            size = counted_bytes(size, True) if on_device else size
            outer = _outer_dim(TileLayout.of(held))
            del held
            out.append(ArgumentTile(number, memory, size, counted, 0, can_leave(array), outer))
    return out


def _outer_dim(layout: TileLayout | None) -> int | None:
    """The dim of a tile in memory that is the outermost in memory."""
    if layout is None or layout.on_device:
        return None
    return next((dim for dim in layout.order if layout.shape[dim] > 1), None)


def held_elsewhere(arguments: Sequence[ArgumentTile], memory: TileMemory) -> int:
    """**Local.** What global arrays hold in a memory that are no arguments, in whole grains.

    What is less than a grain does not count, so that a number that is kept of every call needs no new plan.
    """
    held = memory.live_bytes - sum(one.counted_bytes for one in arguments)
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


def state_of(arguments: Sequence[ArgumentTile]) -> tuple[tuple[int, int], ...]:
    """**Local.** Of every argument, where it lies and what its memory takes."""
    return tuple((one.place, one.size_bytes) for one in arguments)


def largest_first(arguments: Collection[ArgumentTile]) -> list[ArgumentTile]:
    """Those in memory that may be put away, the largest first."""
    found = [one for one in arguments if one.may_leave and not one.place]
    return sorted(found, key=lambda one: (-one.size_bytes, one.number))
