"""Tasks of one rank and the tiles that they read, make and update: what a memory graph is compiled from.

All ranks have the same list: sizes are the largest over ranks.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Any

from redist.errors import PlanFormatError, RequestError

FORMAT = "redist tasks 1"
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
    >>> TaskList.from_json(tasks.to_json()) == tasks
    True
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

    def to_json(self) -> str:
        """The tasks as JSON; :meth:`from_json` reads it."""
        tiles, tasks = (list(map(row_of, part)) for part in (self.tiles, self.tasks))
        return json.dumps({"format": FORMAT, "tiles": tiles, "tasks": tasks})

    @staticmethod
    def from_json(text: str) -> TaskList:
        """Read what :meth:`to_json` wrote."""
        data = read_format(text, FORMAT)
        try:
            tiles = tuple(MemoryTile(**with_tuples(row)) for row in data["tiles"])
            tasks = tuple(MemoryTask(**with_tuples(row)) for row in data["tasks"])
        except (KeyError, TypeError, AttributeError) as problem:
            raise PlanFormatError(f"cannot read tasks: {problem}") from None
        return TaskList(tiles, tasks)

    @property
    def digest(self) -> str:
        """A short text that differs for different lists: what ranks compare."""
        return digest_of(self.to_json())


def row_of(value: Any) -> dict[str, Any]:
    """The fields of a flat value by name, without those that have their default.

    >>> row_of(MemoryTile(8, begins=(0,)))
    {'size_bytes': 8, 'begins': (0,)}
    """
    known = {one.name: one.default for one in fields(value)}
    row = {name: getattr(value, name) for name in known}
    return {name: one for name, one in row.items() if one != known[name]}


def with_tuples(row: dict[str, Any]) -> dict[str, Any]:
    """A row of JSON with tuples for its lists.

    >>> with_tuples({"name": "a", "reads": [1, 2]})
    {'name': 'a', 'reads': (1, 2)}
    """
    return {name: tuple(one) if isinstance(one, list) else one for name, one in row.items()}


def read_format(text: str, expected: str) -> dict[str, Any]:
    """A JSON object that names its format.

    >>> read_format('{"format": "redist tasks 1", "tiles": []}', "redist tasks 1")
    {'tiles': []}
    """
    data = json.loads(text)
    if not isinstance(data, dict) or data.pop("format", None) != expected:
        raise PlanFormatError(f"cannot read a program: expected the format {expected!r}")
    return data


def digest_of(text: str) -> str:
    """Sixteen hexadecimal digits of SHA-256.

    >>> digest_of("")
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(text.encode()).hexdigest()[:16]
