"""Tasks of one rank and the tiles that they read, make and update: what a memory graph is compiled from.

All ranks have the same list: sizes are the largest over ranks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from redist.errors import RequestError

LANES = ("compute", "moves")


@dataclass(frozen=True, slots=True)
class MemoryTile:
    """A tile: its bytes, the places that hold it at the beginning, and those that must hold it at the end.

    Place 0 is the memory that tasks work in; places 1, 2, ... are stores, each behind the one before: host
    memory, a disk. A tile that a task makes begins nowhere; one that nobody needs afterwards ends nowhere.
    One ``is_fixed`` is the caller's: it lies in place 0 from beginning to end and never leaves it.

    >>> weight, result = MemoryTile(4096, begins=(1,), ends=(1,)), MemoryTile(64, ends=(0,))
    """

    size_bytes: int
    begins: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    is_fixed: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        if self.size_bytes < 0 or min((*self.begins, *self.ends), default=0) < 0:
            raise RequestError(f"cannot make {self}: bytes and places are not negative")
        if self.is_fixed and not (0 in self.begins and 0 in self.ends):
            raise RequestError(f"cannot make {self}: fixed, it begins and ends in place 0")


@dataclass(frozen=True, slots=True)
class MemoryTask:
    """A task: tiles that it reads, makes and updates in place, staging while it runs, its lane and time.

    Tasks of the lane ``moves`` meet other ranks: all ranks run them in one total order, that of the list.
    A tile that is updated is not named among those that are read.
    """

    name: str
    reads: tuple[int, ...] = ()
    makes: tuple[int, ...] = ()
    updates: tuple[int, ...] = ()
    staging_bytes: int = 0
    lane: str = "compute"
    time_ps: int = 0

    def __post_init__(self) -> None:
        if self.lane not in LANES:
            raise RequestError(f"cannot make task {self.name!r}: no lane {self.lane!r} in {LANES}")
        if self.staging_bytes < 0 or self.time_ps < 0:
            raise RequestError(f"cannot make task {self.name!r}: negative staging or time")
        if len(set(self.tiles)) != len(self.tiles):
            raise RequestError(f"cannot make task {self.name!r}: it names a tile twice")

    @property
    def tiles(self) -> tuple[int, ...]:
        """All tiles that lie in memory while it runs."""
        return (*self.reads, *self.updates, *self.makes)


@dataclass(frozen=True, slots=True)
class TaskList:
    """Tasks in an order that is right, and their tiles.

    >>> tiles = (MemoryTile(8, begins=(0,)), MemoryTile(8), MemoryTile(8, ends=(0,)))
    >>> tasks = TaskList(tiles, (MemoryTask("double", (0,), (1,)), MemoryTask("sum", (0, 1), (2,))))
    >>> [task.name for task in tasks.tasks]
    ['double', 'sum']
    """

    tiles: tuple[MemoryTile, ...]
    tasks: tuple[MemoryTask, ...]

    def __post_init__(self) -> None:
        there = {number for number, tile in enumerate(self.tiles) if tile.begins}
        for number, task in enumerate(self.tasks):
            where = f"cannot list task {number} ({task.name!r})"
            for tile in (*task.reads, *task.updates):
                if tile not in there:
                    raise RequestError(f"{where}: nothing has made tile {tile} before it")
            for tile in task.makes:
                if tile in there or not 0 <= tile < len(self.tiles):
                    raise RequestError(f"{where}: tile {tile} cannot be made here")
                there.add(tile)
        missing = [n for n, tile in enumerate(self.tiles) if tile.ends and n not in there]
        if missing:
            raise RequestError(f"cannot list tasks: none makes tile {missing[0]}, a result")


def digest_of(text: str) -> str:
    """Sixteen hexadecimal digits of SHA-256.

    >>> digest_of("")
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(text.encode()).hexdigest()[:16]
