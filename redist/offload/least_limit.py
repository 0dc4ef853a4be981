"""The least limit for which there is a memory graph, and the error that names it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from redist.errors import NoPlanError
from redist.offload.walks import walks_of
from redist.program.memory_graph import MemoryPlace
from redist.program.tasks import TaskList


def least_memory(listed: TaskList) -> tuple[int, str]:
    """The least limit of the first place for which there is a graph, if the next has no limit, and why.

    All else can leave while a task runs: so it is the largest task, or what lies there at the beginning or
    at the end.
    """
    fixed = {number for number, tile in enumerate(listed.tiles) if tile.is_fixed}
    sizes = [tile.size_bytes for tile in listed.tiles]
    held = sum(sizes[number] for number in fixed)
    begin = sum(tile.size_bytes for tile in listed.tiles if 0 in tile.begins)
    end = sum(tile.size_bytes for tile in listed.tiles if 0 in tile.ends)
    needs = [
        held + task.staging_bytes + sum([sizes[n] for n in task.tiles if n not in fixed])
        for task in listed.tasks
    ]
    most = max(needs, default=0)
    if begin >= max(most, end):
        return begin, f"arguments take {begin} bytes"
    if end >= most:
        return end, f"results take {end} bytes"
    number = needs.index(most)
    return most, f"task {number} ({listed.tasks[number].name!r}) works on {most} bytes"


def no_plan(listed: TaskList, places: Sequence[MemoryPlace]) -> NoPlanError:
    """The error that names the least limit of a store that is too small.

    Bytes are halved between what fails and what does not, so the limit named does and one less does not.
    """
    for at in range(len(places) - 1, -1, -1):
        limit = places[at].limit_bytes
        if limit is None or not _has_walk(listed, _with_limit(places, at, None)):
            continue
        low, high = limit, 2 * limit + 1
        while not _has_walk(listed, _with_limit(places, at, high)):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if _has_walk(listed, _with_limit(places, at, middle)):
                high = middle
            else:
                low = middle
        return NoPlanError(
            f"cannot keep {len(listed.tasks)} tasks within {limit} bytes of {places[at].name}: what leaves "
            f"{places[0].name} finds no room; give {high} bytes",
            high,
        )
    names = ", ".join(place.name for place in places)
    return NoPlanError(f"cannot keep {len(listed.tasks)} tasks within the limits of {names}", 0)


def _has_walk(listed: TaskList, places: Sequence[MemoryPlace]) -> bool:
    return next(walks_of(listed, places), None) is not None


def _with_limit(
    places: Sequence[MemoryPlace], at: int, limit_bytes: int | None
) -> tuple[MemoryPlace, ...]:
    changed = replace(places[at], limit_bytes=limit_bytes)
    return (*places[:at], changed, *places[at + 1 :])
