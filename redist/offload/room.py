"""Copies of tiles in places of limited room: one comes, others leave, what is needed latest first.

A tile of which another place has a copy as new is dropped, not written; one that is written goes over an
older copy of it, if there is one.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Literal

from redist.program.memory_graph import MemoryPlace
from redist.program.tasks import TaskList

NEVER = 2**62
"""A position after every use, and the room of a place without a limit."""
NONE, OLD, NEW = 0, 1, 2
"""What a place has of a tile: nothing, a copy that was overtaken by an update, or one as new as any."""


MemoryEvent = tuple[Literal["run", "load", "store", "keep", "drop", "free"], int, int, int]
"""What happens, the task or tile, its place, and another place: that which a load comes from, a store goes
to (``keep``: its source stays), or that has another copy of what is dropped."""


def unlimited_bytes(tasks: TaskList) -> int:
    """The most that place 0 holds without a limit, one task after another: what is made goes when unused.

    >>> from redist.program.tasks import MemoryTask, MemoryTile
    >>> tiles = MemoryTile(8, begins=(0,)), MemoryTile(4), MemoryTile(2, ends=(0,))
    >>> unlimited_bytes(TaskList(tiles, (MemoryTask("a", (0,), (1,)), MemoryTask("b", (1,), (2,)))))
    14
    """
    used = [{*task.reads, *task.makes, *task.updates} for task in tasks.tasks]
    last = {tile: n for n, several in enumerate(used) for tile in several}
    live = most = sum(tile.size_bytes for tile in tasks.tiles if tile.begins)
    for n, task in enumerate(tasks.tasks):
        live += sum(tasks.tiles[tile].size_bytes for tile in task.makes)
        most = max(most, live + task.staging_bytes)
        ended = (tasks.tiles[tile] for tile in used[n] if last[tile] == n)
        live -= sum(tile.size_bytes for tile in ended if not tile.begins and not tile.ends)
    return most


class NoRoomError(Exception):
    """A place, by its number, has no room, whatever leaves it."""


class TooMuchMovedError(Exception):
    """Loads and stores cost so much that the rest does not matter."""


class TileRoom:
    """What lies where, how much room is left, and what happened so far.

    ``next`` has the next use of every tile; what is used at ``now`` or before does not leave. Loads and
    stores that take ``too_much`` time and bytes are given up.
    """

    def __init__(
        self,
        listed: TaskList,
        places: Sequence[MemoryPlace],
        ahead_bytes: int,
        too_much: tuple[float, float],
    ) -> None:
        n_tiles = len(listed.tiles)
        self.sizes = [tile.size_bytes for tile in listed.tiles]
        self.is_fixed = [tile.is_fixed for tile in listed.tiles]
        self.ends = [tile.ends for tile in listed.tiles]
        self.next = [NEVER] * n_tiles
        self.is_over = False
        self.last = len(places) - 1
        self.has_limit = [place.limit_bytes is not None for place in places]
        self.room = [NEVER if p.limit_bytes is None else p.limit_bytes for p in places]
        self.room[0] -= ahead_bytes
        self.state = [[NONE] * n_tiles for _ in places]
        self.is_given = [[False] * n_tiles for _ in places]
        self.heaps: list[list[tuple[int, int]]] = [[] for _ in places]
        self.events: list[MemoryEvent] = []
        self.byte_fs = [place.byte_fs for place in places]
        self.moved_fs = self.moved_bytes = 0
        self.too_much = too_much

    def arrive(self, tile: int, place: int) -> None:
        """A copy is there, and takes room."""
        self.state[place][tile] = NEW
        self.is_given[place][tile] = False
        self.take(place, self.sizes[tile])
        heapq.heappush(self.heaps[place], (-self.next[tile], tile))

    def take(self, place: int, n_bytes: int) -> None:
        """Less room; more if negative."""
        if self.has_limit[place]:
            self.room[place] -= n_bytes

    def leave(self, tile: int, place: int) -> None:
        """A copy ends: dropped if another one is as new, freed otherwise."""
        other = self._other_copy(tile, place) if self.state[place][tile] == NEW else None
        if other is None:
            self.events.append(("free", tile, place, place))
        else:
            self.events.append(("drop", tile, place, other))
        self.state[place][tile] = NONE
        self.take(place, -self.sizes[tile])

    def _other_copy(self, tile: int, place: int) -> int | None:
        """A place, behind this one if possible, with a copy that is as new as any."""
        for other in (*range(place + 1, self.last + 1), *range(place)):
            if self.state[other][tile] == NEW:
                return other
        return None

    def fetch(self, tile: int, place: int, now: int) -> None:
        """A tile comes to a place, through all places behind it."""
        if self.state[place][tile] == OLD:
            self.leave(tile, place)
        assert place < self.last, f"tile {tile} is nowhere"
        if self.state[place + 1][tile] != NEW:
            self.fetch(tile, place + 1, now)
        self.make_room(place, self.sizes[tile], now)
        self._move(("load", tile, place, place + 1), place + 1)
        self.arrive(tile, place)

    def store(self, tile: int, place: int, now: int, is_kept: bool) -> None:
        """A tile goes to the place behind, over an older copy if there is one."""
        behind = place + 1
        if behind > self.last:
            raise NoRoomError(place)
        is_there = self.state[behind][tile] == OLD
        if not is_there:
            self.make_room(behind, self.sizes[tile], now)
        kind: Literal["keep", "store"] = "keep" if is_kept else "store"
        self._move((kind, tile, place, behind), behind)
        if is_there:
            self.state[behind][tile] = NEW
        else:
            self.arrive(tile, behind)
        if not is_kept:
            self.state[place][tile] = NONE
            self.take(place, -self.sizes[tile])

    def _move(self, event: MemoryEvent, behind: int) -> None:
        self.events.append(event)
        n_bytes = self.sizes[event[1]]
        self.moved_bytes += n_bytes
        self.moved_fs += n_bytes * self.byte_fs[behind]
        if (self.moved_fs, self.moved_bytes) >= self.too_much:
            raise TooMuchMovedError

    def make_room(self, place: int, n_bytes: int, now: int) -> None:
        """Tiles leave a place until there is room, what is needed latest first."""
        heap, state, aside = self.heaps[place], self.state[place], []
        while self.room[place] < n_bytes:
            if not heap:
                raise NoRoomError(place)
            entry = heapq.heappop(heap)
            tile = entry[1]
            if state[tile] == NONE or -entry[0] != self.next[tile]:
                continue
            if (self.is_fixed[tile] and place == 0) or not self.sizes[tile]:
                continue
            if not (self._may_leave(tile, place, now) and self._evict(tile, place, now)):
                aside.append(entry)
        for entry in aside:
            heapq.heappush(heap, entry)

    def _may_leave(self, tile: int, place: int, now: int) -> bool:
        """Whether a tile is not used now, or has been passed on; at the end results stay."""
        if self.next[tile] > now:
            return True
        is_passed_on = any(state[tile] == NEW for state in self.state[:place])
        return is_passed_on and not (self.is_over and place in self.ends[tile])

    def _evict(self, tile: int, place: int, now: int) -> bool:
        """Make a tile leave a place, if it can."""
        if self.state[place][tile] == OLD or self._other_copy(tile, place) is not None:
            self.leave(tile, place)
            return True
        if place == self.last:
            return False
        self.store(tile, place, now, False)
        return True
