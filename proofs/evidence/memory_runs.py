"""Run a memory graph in any order, on numbers in place of tiles: bytes are counted, contents compared.

It knows what vertices do and nothing of credits, so it shows where an order goes wrong.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from redist.program.memory_graph import MemoryGraph, Vertex
from redist.program.tasks import TaskList

Operands = dict[int, tuple[int, ...]]
"""The numbers that each task finds."""


class WrongRunError(Exception):
    """An order in which a limit is exceeded, or a tile is not what it must be."""


def run_as_listed(tasks: TaskList) -> tuple[Operands, dict[int, int]]:
    """What every task finds, and the tiles at the end, if tasks run as listed and nothing leaves memory."""
    tiles = {number: -1 - number for number, tile in enumerate(tasks.tiles) if tile.begins}
    found: Operands = {}
    for number, task in enumerate(tasks.tasks):
        found[number] = tuple(tiles[tile] for tile in (*task.reads, *task.updates))
        for tile in (*task.updates, *task.makes):
            tiles[tile] = _result(number, tile, found[number])
    return found, tiles


def run_in_some_order(graph: MemoryGraph, rng: random.Random, at_once: int = 3) -> tuple[int, ...]:
    """Run vertices in a random order, up to ``at_once`` at the same time; the most bytes of each place.

    Raises :class:`WrongRunError` if a place exceeds its limit, a task finds other operands than in the listed
    order, a copy that is written is in use, or a result is not where it must be.
    """
    run = _Run(graph)
    waits = [len(vertex.before) for vertex in graph.vertices]
    after: list[list[int]] = [[] for _ in graph.vertices]
    for number, vertex in enumerate(graph.vertices):
        for one in vertex.before:
            after[one].append(number)
    ready = [number for number, n in enumerate(waits) if n == 0]
    running: list[int] = []
    while ready or running:
        if ready and (not running or (len(running) < at_once and rng.random() < 0.6)):
            number = ready.pop(rng.randrange(len(ready)))
            run.begin(number)
            running.append(number)
            continue
        number = running.pop(rng.randrange(len(running)))
        run.finish(number)
        for one in after[number]:
            waits[one] -= 1
            if waits[one] == 0:
                ready.append(one)
    run.check_results()
    return tuple(run.most)


def _result(task: int, tile: int, operands: tuple[int, ...]) -> int:
    return hash((task, tile, operands))


@dataclass(slots=True)
class _Run:
    """What lies where at one moment of a run."""

    graph: MemoryGraph
    held: dict[int, int] = field(default_factory=dict)
    live: list[int] = field(default_factory=list)
    most: list[int] = field(default_factory=list)
    seen: dict[int, tuple[int, ...]] = field(default_factory=dict)
    wanted: tuple[Operands, dict[int, int]] = ({}, {})

    def __post_init__(self) -> None:
        self.wanted = run_as_listed(self.graph.tasks)
        self.live = [0] * len(self.graph.places)
        self.most = [0] * len(self.graph.places)
        for one in range(self.graph.n_given):
            self.held[one] = -1 - self.graph.residencies[one].tile
            self._count(one, 1)

    def begin(self, number: int) -> None:
        """Bytes are taken, operands are looked at."""
        vertex = self.graph.vertices[number]
        for one in (*vertex.reads, *vertex.updates, *vertex.ends):
            if one not in self.held:
                raise WrongRunError(f"vertex {number}: residency {one} is not there")
        self.seen[number] = self._operands(vertex)
        if vertex.task is not None:
            task = self.graph.tasks.tasks[vertex.task]
            if self.seen[number] != self.wanted[0][vertex.task]:
                raise WrongRunError(f"vertex {number}: task {vertex.task} finds other operands")
            self._add(0, task.staging_bytes)
        if vertex.kind == "drop" and self.held[vertex.ends[0]] != self.seen[number][0]:
            raise WrongRunError(f"vertex {number}: what is dropped has no other copy")
        for one in vertex.makes:
            self._count(one, 1)

    def finish(self, number: int) -> None:
        """Contents are written, bytes given back."""
        vertex = self.graph.vertices[number]
        if any(one not in self.held for one in (*vertex.reads, *vertex.updates, *vertex.ends)):
            raise WrongRunError(f"vertex {number}: an operand ended while it was in use")
        if self._operands(vertex) != self.seen[number]:
            raise WrongRunError(f"vertex {number}: an operand changed while it was in use")
        for one in (*vertex.updates, *vertex.makes):
            if vertex.task is None:
                self.held[one] = self.seen[number][0]
            else:
                tile = self.graph.residencies[one].tile
                self.held[one] = _result(vertex.task, tile, self.seen[number])
        for one in vertex.ends:
            del self.held[one]
            self._count(one, -1)
        if vertex.task is not None:
            self._add(0, -self.graph.tasks.tasks[vertex.task].staging_bytes)

    def check_results(self) -> None:
        """Results are where they must be, as in the listed order."""
        there = {
            (self.graph.residencies[one].tile, self.graph.residencies[one].place, content)
            for one, content in self.held.items()
        }
        for number, tile in enumerate(self.graph.tasks.tiles):
            for place in tile.ends:
                if (number, place, self.wanted[1][number]) not in there:
                    raise WrongRunError(f"tile {number} is not in place {place} at the end")

    def _operands(self, vertex: Vertex) -> tuple[int, ...]:
        own = () if vertex.task is None else vertex.updates
        return tuple(self.held[one] for one in (*vertex.reads, *own))

    def _count(self, residency: int, sign: int) -> None:
        self._add(self.graph.residencies[residency].place, sign * self.graph.bytes_of(residency))

    def _add(self, place: int, n_bytes: int) -> None:
        self.live[place] += n_bytes
        self.most[place] = max(self.most[place], self.live[place])
        limit = self.graph.places[place].limit_bytes
        if limit is not None and self.live[place] > limit:
            name = self.graph.places[place].name
            raise WrongRunError(f"{self.live[place]} bytes of {name}, limit {limit}")
