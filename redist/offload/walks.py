"""Walk through tasks in one order: what must be loaded, and what leaves memory to make room.

What nobody needs again is freed at once; what lives on in a store goes there after its last use.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from redist.offload.room import (
    NEVER,
    NEW,
    NONE,
    OLD,
    MemoryEvent,
    NoRoomError,
    TileRoom,
)
from redist.program.memory_graph import MemoryPlace
from redist.program.tasks import TaskList


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
