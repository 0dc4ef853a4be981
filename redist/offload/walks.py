"""Walks through tasks in several orders: the one with the least to load and store is taken."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from redist.offload.orders import excess_bytes, orders_of
from redist.offload.room import (
    NEVER,
    NEW,
    NONE,
    OLD,
    MemoryEvent,
    NoRoomError,
    TileRoom,
    TooMuchMovedError,
)
from redist.program.memory_graph import MemoryPlace
from redist.program.tasks import TaskList

# Walk through tasks in one order: what must be loaded, and what leaves memory to make room.
#
# What nobody needs again is freed at once; what lives on in a store goes there after its last use.


@dataclass(frozen=True, slots=True)
class EventList:
    """What happens in one order of the tasks, and what its loads and stores cost."""

    name: str
    events: tuple[MemoryEvent, ...]
    moved_fs: int
    moved_bytes: int

    @property
    def cost(self) -> tuple[int, int]:
        """By what event lists are compared: time of loads and stores, then their bytes."""
        return self.moved_fs, self.moved_bytes


def walk_tasks(
    listed: TaskList,
    places: Sequence[MemoryPlace],
    order: Sequence[int],
    name: str = "as given",
    ahead_bytes: int = 0,
    too_much: tuple[float, float] = (math.inf, math.inf),
) -> EventList:
    """The events of tasks in an order, if ``ahead_bytes`` of place 0 are left unused.

    Raises :class:`TooMuchMovedError` where its cost reaches ``too_much``.

    >>> from redist.program.tasks import MemoryTask, MemoryTile
    >>> tiles = (MemoryTile(6, begins=(1,), ends=(1,)), MemoryTile(3), MemoryTile(3, ends=(0,)))
    >>> tasks = TaskList(tiles, (MemoryTask("a", (0,), (1,)), MemoryTask("b", (1,), (2,))))
    >>> walk = walk_tasks(tasks, (MemoryPlace("memory", 9), MemoryPlace("store")), (0, 1))
    >>> [event[:2] for event in walk.events], walk.moved_bytes
    ([('load', 0), ('run', 0), ('drop', 0), ('run', 1), ('free', 1)], 6)
    """
    walk = _Walk(listed, TileRoom(listed, places, ahead_bytes, too_much), order)
    walk.begin()
    for at, number in enumerate(order):
        walk.run(at, number)
    walk.finish()
    room = walk.room
    return EventList(name, tuple(room.events), room.moved_fs, room.moved_bytes)


class _Walk:
    """When tiles are used, while tasks are walked through."""

    def __init__(self, listed: TaskList, room: TileRoom, order: Sequence[int]) -> None:
        self.listed, self.tiles, self.room = listed, listed.tiles, room
        self.places = range(len(room.state))
        self.n_steps = len(order)
        self.uses: list[list[int]] = [[] for _ in listed.tiles]  # latest first
        self.used = [task.tiles for task in listed.tasks]
        uses = self.uses
        for at in range(len(order) - 1, -1, -1):
            for tile in self.used[order[at]]:
                uses[tile].append(at)
        self.end = [len(order) if 0 in tile.ends else NEVER for tile in listed.tiles]
        room.next[:] = [uses[-1] if uses else self.end[n] for n, uses in enumerate(self.uses)]

    def begin(self) -> None:
        """What is there at the beginning; what nobody uses leaves."""
        for number, tile in enumerate(self.tiles):
            for place in tile.begins:
                self.room.arrive(number, place)
                self.room.is_given[place][number] = True
        for place, room in enumerate(self.room.room):
            if room < 0:
                raise NoRoomError(place)
        for number, tile in enumerate(self.tiles):
            if tile.begins and self.room.next[number] == NEVER:
                self._retire(number, -1)

    def run(self, at: int, number: int) -> None:
        """A task: its operands come, its results get room; then what was used last leaves."""
        task, room = self.listed.tasks[number], self.room
        here = room.state[0]
        for tile in (*task.reads, *task.updates):
            if here[tile] != NEW:
                room.fetch(tile, 0, at)
        made = sum([room.sizes[tile] for tile in task.makes])
        if room.room[0] < made + task.staging_bytes:
            room.make_room(0, made + task.staging_bytes, at)
        room.events.append(("run", number, 0, 0))
        room.take(0, made)
        for tile in task.makes:
            here[tile] = NEW
        for tile in task.updates:
            for state in room.state[1:]:
                if state[tile] == NEW:
                    state[tile] = OLD
        self._advance(self.used[number], at)

    def _advance(self, tiles: Sequence[int], at: int) -> None:
        """The next uses of tiles are others; those that have none retire."""
        room, uses = self.room, self.uses
        places = [*zip(room.state, room.heaps, strict=True)]
        for tile in tiles:
            left = uses[tile]
            left.pop()
            later = room.next[tile] = left[-1] if left else self.end[tile]
            if later == NEVER:
                self._retire(tile, at)
                continue
            for state, heap in places:
                if state[tile]:
                    heapq.heappush(heap, (-later, tile))

    def finish(self) -> None:
        """Results come to where they must be at the end, and stay."""
        results = [number for number, tile in enumerate(self.tiles) if tile.ends]
        self.room.is_over = True
        for number in results:
            self.room.next[number] = self.n_steps
        for number in results:
            if 0 in self.tiles[number].ends and self.room.state[0][number] != NEW:
                self.room.fetch(number, 0, self.n_steps)
            self._spread(number, self.n_steps)

    def _retire(self, tile: int, now: int) -> None:
        """A tile after its last use: to the stores where it lives on, and out of all other places."""
        room, ends = self.room, self.tiles[tile].ends
        if ends:
            self._spread(tile, now)
        for place in self.places:
            state = room.state[place][tile]
            if state == NONE or (place in ends and state == NEW):
                continue
            if place and room.is_given[place][tile] and not room.has_limit[place]:
                continue
            room.leave(tile, place)

    def _spread(self, tile: int, now: int) -> None:
        """Copies of a tile come to all places that must have one at the end."""
        ends, room = self.tiles[tile].ends, self.room
        for place in range(max(ends)):
            is_wanted = any(room.state[p][tile] != NEW for p in ends if p > place)
            is_next = room.state[place][tile] == NEW and room.state[place + 1][tile] != NEW
            if is_wanted and is_next:
                room.store(tile, place, now, place in ends)
        for place in sorted(ends):
            if place and room.state[place][tile] != NEW:
                room.fetch(tile, place, now)


WORTH_IT = 16
"""Running ahead may cost one of this many parts more of loads and stores."""
LARGE = 5_000
"""Of more tasks, fewer orders are tried, because each takes time."""
AHEAD = 8
"""Of more tasks, one of this many parts of the memory that a task leaves is for running ahead, untried."""


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
    if found.moved_bytes == 0 or not slack_bytes:
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
