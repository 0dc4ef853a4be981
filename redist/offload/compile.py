"""Compile tasks into a memory graph: the order with the least to load and store, within the limits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from redist.errors import NoPlanError, RequestError
from redist.offload.credits import give_credits
from redist.offload.evictions import EventList, walk_tasks
from redist.offload.orders import orders_of
from redist.offload.room import NoRoomError, TooMuchMovedError
from redist.program.memory_graph import MemoryGraph, MemoryPlace
from redist.program.tasks import TaskList

WORTH_IT = 16
"""Running ahead may cost one of so many parts more of loads and stores."""
LARGE = 5_000
"""Of more tasks, fewer orders are tried: each takes time."""


def compile_memory(listed: TaskList, places: Sequence[MemoryPlace]) -> MemoryGraph:
    """**Local.** The memory graph of tasks that keeps the limit of every place in every order of it.

    Tasks work in the first place; others are stores, each behind the one before. Raises
    :class:`~redist.errors.NoPlanError` if a limit is too small; its ``least_bytes`` would do.

    >>> from redist.program.tasks import MemoryTask, MemoryTile
    >>> tiles = (*(MemoryTile(8, begins=(1,), ends=(1,)) for _ in range(3)), MemoryTile(8, ends=(0,)))
    >>> first, *others = (MemoryTask(f"add {n}", (n,), updates=(3,)) for n in range(3))
    >>> tasks = TaskList(tiles, (MemoryTask("copy", (0,), (3,)), *others))
    >>> print(compile_memory(tasks, (MemoryPlace("memory", 24), MemoryPlace("disk"))))
    3 tasks, 3 loads (24 B), 0 stores (0 B), 3 frees; memory 24 B, disk unlimited
    >>> compile_memory(tasks, (MemoryPlace("memory", 15), MemoryPlace("disk")))
    Traceback (most recent call last):
    redist.errors.NoPlanError: cannot keep 3 tasks within 15 bytes of memory: task 0 ('copy') works on
    16 bytes at once; give 16 bytes, or cut its tiles into chunks
    """
    _refuse_places(listed, places)
    limit = places[0].limit_bytes
    least, why = least_memory(listed)
    if limit is not None and limit < least:
        raise NoPlanError(
            f"cannot keep {len(listed.tasks)} tasks within {limit} bytes of {places[0].name}: {why} "
            f"at once; give {least} bytes, or cut its tiles into chunks",
            least,
        )
    try:
        *_, found = walks_of(listed, places)
    except ValueError:
        raise _no_plan(listed, places) from None
    if limit is not None:
        found = _run_ahead(listed, places, found, limit - least)
    return give_credits(listed, places, found.events)


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


def walks_of(listed: TaskList, places: Sequence[MemoryPlace]) -> Iterator[EventList]:
    """What happens in orders that find room, each better than those before it.

    None is tried after one that moves the least possible; of very many tasks, twice that is enough.
    """
    is_large = len(listed.tasks) > LARGE
    enough = must_move_bytes(listed) * (2 if is_large else 1)
    best: tuple[float, float] = (math.inf, math.inf)
    for name, order in islice(orders_of(listed), 2 if is_large else None):
        try:
            walk = walk_tasks(listed, places, order, name, too_much=best)
        except (NoRoomError, TooMuchMovedError):
            continue
        yield walk
        if walk.moved_bytes <= enough:
            return
        best = walk.cost


def must_move_bytes(listed: TaskList) -> int:
    """What any order loads and stores at least.

    A tile that is needed in memory and does not begin there is loaded; one that ends in a store and is
    written, or does not begin there, is stored.
    """
    used = {tile for task in listed.tasks for tile in (*task.reads, *task.updates)}
    written = {tile for task in listed.tasks for tile in (*task.updates, *task.makes)}
    total = 0
    for number, tile in enumerate(listed.tiles):
        if tile.begins and 0 not in tile.begins and (number in used or 0 in tile.ends):
            total += tile.size_bytes
        if any(place and (number in written or place not in tile.begins) for place in tile.ends):
            total += tile.size_bytes
    return total


def _run_ahead(
    listed: TaskList, places: Sequence[MemoryPlace], found: EventList, slack_bytes: int
) -> EventList:
    """Leave bytes unused if that costs little: the credits of a load are then so much older.

    Every byte that is taken was given back so many bytes ago, so loads and stores need not wait for what
    runs now.
    """
    if found.moved_bytes == 0:
        return found
    order = [what for kind, what, _, _ in found.events if kind == "run"]
    dear = math.nextafter(1 + 1 / WORTH_IT, 2)
    too_much = (found.moved_fs * dear, found.moved_bytes * dear)
    shares = (4,) if len(listed.tasks) > LARGE else (2, 4)
    for ahead_bytes in [slack_bytes // share for share in shares]:
        try:
            return walk_tasks(listed, places, order, found.name, ahead_bytes, too_much)
        except (NoRoomError, TooMuchMovedError):
            continue
    return found


def _refuse_places(listed: TaskList, places: Sequence[MemoryPlace]) -> None:
    if not places:
        raise RequestError("cannot compile tasks: there is no place for tiles")
    for number, tile in enumerate(listed.tiles):
        if max((*tile.begins, *tile.ends), default=0) >= len(places):
            raise RequestError(
                f"cannot compile tasks: tile {number} lies in place {max(*tile.begins, *tile.ends)}; "
                f"there are {len(places)}"
            )


def _no_plan(listed: TaskList, places: Sequence[MemoryPlace]) -> NoPlanError:
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
