"""Orders in which tasks could be done: as given, or taken from those that are ready by a rule.

Moves keep their order in all of them. The best is the one with the least to load and store.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from redist.offload.room import NoRoomError, TooMuchMovedError
from redist.offload.walks import EventList, walk_tasks
from redist.program.memory_graph import MemoryPlace
from redist.program.tasks import TaskList

# Which tasks must stand before which, in any order of a list of tasks.


def tasks_before(listed: TaskList) -> list[tuple[int, ...]]:
    """For every task the tasks that it needs done: makers, updates and earlier readers of its tiles, moves.

    >>> from redist.program.tasks import MemoryTask, MemoryTile
    >>> tasks = (MemoryTask("make", makes=(0,)), MemoryTask("read", (0,)), MemoryTask("add", updates=(0,)))
    >>> tasks_before(TaskList((MemoryTile(8),), tasks))
    [(), (0,), (0, 1)]
    """
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    last_move: int | None = None
    out: list[tuple[int, ...]] = []
    for number, task in enumerate(listed.tasks):
        needs = {writer[tile] for tile in (*task.reads, *task.updates) if tile in writer}
        for tile in task.updates:
            needs.update(readers.pop(tile, ()))
        for tile in task.reads:
            readers.setdefault(tile, []).append(number)
        for tile in (*task.updates, *task.makes):
            writer[tile] = number
        if task.lane == "moves":
            needs |= set() if last_move is None else {last_move}
            last_move = number
        out.append(tuple(sorted(needs)))
    return out


Key = Callable[[int], int]


def orders_of(listed: TaskList) -> Iterator[tuple[str, Sequence[int]]]:
    """Names and orders, that which is given first.

    >>> from redist.program.tasks import MemoryTask, MemoryTile
    >>> tiles = (MemoryTile(8), MemoryTile(8), MemoryTile(1, ends=(0,)), MemoryTile(1, ends=(0,)))
    >>> made = (MemoryTask("a", makes=(0,)), MemoryTask("b", makes=(1,)))
    >>> read = (MemoryTask("c", (0,), (2,)), MemoryTask("d", (1,), (3,)))
    >>> for name, order in orders_of(TaskList(tiles, made + read)): print(name, list(order))
    as given [0, 1, 2, 3]
    least growth [0, 2, 1, 3]
    newest first [0, 2, 1, 3]
    """
    yield "as given", range(len(listed.tasks))
    yield "least growth", least_growth(listed)
    yield "newest first", newest_first(listed)


def least_growth(listed: TaskList) -> list[int]:
    """Of the tasks that are ready, that which makes memory grow least; of equals the first."""
    sizes = [tile.size_bytes for tile in listed.tiles]
    used = [task.tiles for task in listed.tasks]
    n_users, who = [0] * len(sizes), [0] * len(sizes)  # ``who``: the sum of those who still use it
    for number, tiles in enumerate(used):
        for tile in tiles:
            n_users[tile] += 1
            who[tile] += number
    growth = [sum([sizes[tile] for tile in task.makes]) for task in listed.tasks]

    def use_up(tile: int) -> int | None:
        """The task that frees a tile, if only one is left that uses it."""
        if n_users[tile] != 1 or listed.tiles[tile].ends:
            return None
        growth[who[tile]] -= sizes[tile]
        return who[tile]

    for tile in range(len(sizes)):
        use_up(tile)

    def leave(number: int) -> list[int]:
        for tile in used[number]:
            n_users[tile] -= 1
            who[tile] -= number
        freed = [use_up(tile) for tile in used[number]]
        return [one for one in freed if one is not None]

    return _by_key(listed, growth.__getitem__, leave)


def excess_bytes(listed: TaskList, order: Sequence[int], limit_bytes: int) -> int:
    """How much more than a limit an order holds if tiles leave after their last use only, summed over steps.

    >>> from redist.program.tasks import MemoryTask, MemoryTile
    >>> tiles = (MemoryTile(8), MemoryTile(8), MemoryTile(1, ends=(0,)), MemoryTile(1, ends=(0,)))
    >>> made = (MemoryTask("a", makes=(0,)), MemoryTask("b", makes=(1,)))
    >>> tasks = TaskList(tiles, (*made, MemoryTask("c", (0,), (2,)), MemoryTask("d", (1,), (3,))))
    >>> excess_bytes(tasks, (0, 1, 2, 3), 10), excess_bytes(tasks, (0, 2, 1, 3), 10)
    (13, 0)
    """
    last: dict[int, int] = {}
    for at, number in enumerate(order):
        last.update(dict.fromkeys(listed.tasks[number].tiles, at))
    sizes = [tile.size_bytes for tile in listed.tiles]
    there = {n for n, tile in enumerate(listed.tiles) if 0 in tile.begins and n in last}
    live = sum([sizes[tile] for tile in there])
    total = 0
    for at, number in enumerate(order):
        used = listed.tasks[number].tiles
        for tile in used:
            if tile not in there:
                there.add(tile)
                live += sizes[tile]
        total += max(0, live - limit_bytes)
        for tile in used:
            if last[tile] == at and 0 not in listed.tiles[tile].ends:
                live -= sizes[tile]
    return total


def newest_first(listed: TaskList) -> list[int]:
    """Of the tasks that are ready, that which works on what was touched last; of equals the first."""
    touched = [-1] * len(listed.tiles)
    clock = 0

    def age(number: int) -> int:
        return -max([touched[tile] for tile in listed.tasks[number].tiles], default=-1)

    def touch(number: int) -> list[int]:
        nonlocal clock
        for tile in listed.tasks[number].tiles:
            touched[tile] = clock
        clock += 1
        return []

    return _by_key(listed, age, touch)


def _by_key(listed: TaskList, key: Key, leave: Callable[[int], list[int]]) -> list[int]:
    """The order that always takes the ready task with the least key; ``leave`` says whose key has changed."""
    before = tasks_before(listed)
    open_needs = [len(needs) for needs in before]
    after: list[list[int]] = [[] for _ in before]
    for number, needs in enumerate(before):
        for one in needs:
            after[one].append(number)
    heap = [(key(number), number) for number, n in enumerate(open_needs) if n == 0]
    heapq.heapify(heap)
    done = [False] * len(before)
    out: list[int] = []
    while heap:
        _, number = heapq.heappop(heap)
        if done[number]:
            continue
        done[number] = True
        out.append(number)
        for other in leave(number):
            if open_needs[other] == 0 and not done[other]:
                heapq.heappush(heap, (key(other), other))
        for other in after[number]:
            open_needs[other] -= 1
            if open_needs[other] == 0:
                heapq.heappush(heap, (key(other), other))
    return out


# Which order is best


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
