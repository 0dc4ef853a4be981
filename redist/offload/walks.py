"""Walks through tasks in several orders: the one with the least to load and store is taken."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from redist.offload.evictions import EventList, walk_tasks
from redist.offload.orders import excess_bytes, orders_of
from redist.offload.room import NoRoomError, TooMuchMovedError
from redist.program.memory_graph import MemoryPlace
from redist.program.tasks import TaskList

WORTH_IT = 16
"""Running ahead may cost one of so many parts more of loads and stores."""
LARGE = 5_000
"""Of more tasks, fewer orders are tried, because each takes time."""
AHEAD = 8
"""Of more tasks, one of so many parts of the memory that a task leaves is for running ahead, untried."""


def best_walk(
    listed: TaskList, places: Sequence[MemoryPlace], slack_bytes: int
) -> EventList | None:
    """What happens in the best order, with memory left for running ahead; None if there is no room."""
    if len(listed.tasks) > LARGE:
        found = _last(walks_of(listed, places, slack_bytes // AHEAD))
        if found is not None:
            return found
    found = _last(walks_of(listed, places))
    return None if found is None else _run_ahead(listed, places, found, slack_bytes)


def _last(walks: Iterator[EventList]) -> EventList | None:
    found = deque(walks, maxlen=1)
    return found[0] if found else None


def walks_of(
    listed: TaskList, places: Sequence[MemoryPlace], ahead_bytes: int = 0
) -> Iterator[EventList]:
    """What happens in orders that find room, each better than those before it.

    None is tried after one that moves the least possible. Of very many tasks, the first that finds room is
    taken; two are compared by what they would hold without a limit.
    """
    is_large = len(listed.tasks) > LARGE
    enough = math.inf if is_large else must_move_bytes(listed)
    best: tuple[float, float] = (math.inf, math.inf)
    for name, order in likely_orders(listed, places) if is_large else orders_of(listed):
        try:
            walk = walk_tasks(listed, places, order, name, ahead_bytes, best)
        except (NoRoomError, TooMuchMovedError):
            continue
        yield walk
        if walk.moved_bytes <= enough:
            return
        best = walk.cost


def likely_orders(
    listed: TaskList, places: Sequence[MemoryPlace]
) -> list[tuple[str, Sequence[int]]]:
    """Orders that are quickly found, the likely best first; one alone if it fits without evictions."""
    limit = places[0].limit_bytes
    if limit is None:
        return [*islice(orders_of(listed), 1)]
    found: list[tuple[int, str, Sequence[int]]] = []
    for name, order in islice(orders_of(listed), 2):
        found.append((excess_bytes(listed, order, limit), name, order))
        if not found[-1][0]:
            break
    return [(name, order) for _, name, order in sorted(found, key=lambda one: one[0])]


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
    for ahead_bytes in (slack_bytes // 2, slack_bytes // 4):
        try:
            return walk_tasks(listed, places, order, found.name, ahead_bytes, too_much)
        except (NoRoomError, TooMuchMovedError):
            continue
    return found
