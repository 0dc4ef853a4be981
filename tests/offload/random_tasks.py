"""Random lists of tasks, of all kinds: updates, moves, staging, arguments, weights in a store, results."""

from __future__ import annotations

import random

from redist.offload.compile import least_memory
from redist.program.memory_graph import MemoryPlace
from redist.program.tasks import MemoryTask, MemoryTile, TaskList


def random_tasks(rng: random.Random, most: int = 30, n_places: int = 2) -> TaskList:
    """Tasks that read some of the last tiles, make one or two, and update some."""
    store = n_places - 1
    tiles = [_begin_tile(rng, store) for _ in range(rng.randint(1, 5))]
    tasks: list[MemoryTask] = []
    for number in range(rng.randint(1, most)):
        near = range(max(0, len(tiles) - 10), len(tiles))
        used = rng.sample(near, min(len(near), rng.randint(0, 3)))
        n_updated = rng.choice((0, 0, 0, 1)) if used else 0
        made = tuple(range(len(tiles), len(tiles) + rng.choice((0, 1, 1, 1, 2))))
        tiles += [_made_tile(rng, store) for _ in made]
        tasks.append(
            MemoryTask(
                f"task {number}",
                tuple(used[n_updated:]),
                made,
                tuple(used[:n_updated]),
                rng.choice((0, 0, 0, 1, 3)),
                rng.choice(("compute", "compute", "moves")),
                rng.randint(0, 9),
            )
        )
    return TaskList(tuple(tiles), tuple(tasks))


def random_places(
    rng: random.Random, tasks: TaskList, n_places: int = 2
) -> tuple[MemoryPlace, ...]:
    """A limit that just does, or a bit more; of three places the middle one has a limit too."""
    least, _ = least_memory(tasks)
    memory = MemoryPlace("memory", least + rng.choice((0, 0, 1, 3, 10)))
    if n_places == 2:
        return memory, MemoryPlace("store", None, 1)
    begins = sum(tile.size_bytes for tile in tasks.tiles if 1 in tile.begins or 1 in tile.ends)
    return memory, MemoryPlace("host", begins + rng.randint(6, 14), 1), MemoryPlace("disk", None, 4)


def _begin_tile(rng: random.Random, store: int) -> MemoryTile:
    size = rng.randint(1, 6)
    match rng.randrange(6):
        case 0:
            return MemoryTile(size, (0,), (0,), True)
        case 1:
            return MemoryTile(size, (0,))
        case 2:
            return MemoryTile(size, (0,), (0,))
        case 3:
            return MemoryTile(size, (store,), (store,))
        case 4:
            return MemoryTile(size, (0, store), rng.choice(((), (0,), (store,))))
        case _:
            return MemoryTile(size, (rng.randint(0, store),), (rng.randint(0, store),))


def _made_tile(rng: random.Random, store: int) -> MemoryTile:
    ends = rng.choice(((),) * 9 + ((0,), (store,), (0, store)))
    return MemoryTile(rng.choice((0, 1, 2, 3, 4, 5, 6)), (), ends)
