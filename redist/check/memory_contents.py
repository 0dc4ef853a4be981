"""Judge the contents of a memory graph: whoever reads a residency finds the version that the tasks say.

Who reads is after who wrote last; who writes or ends is after all who use it. These edges are direct, so a
residency has one content for each reader, in every order.
"""

from __future__ import annotations

from redist.check.memory_credits import must
from redist.program.memory_graph import MemoryGraph, Vertex
from redist.program.tasks import MemoryTile, TaskList


class ContentCheck:
    """The version of every residency, who wrote it and who reads it, vertex by vertex."""

    def __init__(self, graph: MemoryGraph) -> None:
        n = len(graph.residencies)
        self.graph = graph
        self.wanted, self.last = _versions_of(graph.tasks)
        self.version: list[int | None] = [0 if r < graph.n_given else None for r in range(n)]
        self.writer: list[int | None] = [None] * n
        self.readers: list[list[int]] = [[] for _ in range(n)]
        self.is_ended = [False] * n
        self.has_run: set[int] = set()

    def check(self, number: int, vertex: Vertex) -> None:
        """What a vertex reads, writes, makes and ends."""
        before = set(vertex.before)
        for one in (*vertex.reads, *vertex.updates, *vertex.ends):
            must(self.version[one] is not None, number, f"residency {one} is not there yet")
            must(not self.is_ended[one], number, f"residency {one} has ended")
            writer = self.writer[one]
            seen = writer is None or writer in before
            must(seen, number, f"residency {one} may not be written before it")
        for one in (*vertex.updates, *vertex.ends):
            late = [reader for reader in self.readers[one] if reader not in before]
            must(not late, number, f"residency {one} may still be read, by vertex {late[:1]}")
        for one in vertex.makes:
            new = self.version[one] is None
            must(new, number, f"residency {one} is made twice")
        match vertex.kind:
            case "run":
                self._check_run(number, vertex)
            case "load" | "store":
                self._check_copy(number, vertex)
            case _:
                self._check_end_of(number, vertex)
        for one in vertex.reads:
            self.readers[one].append(number)
        for one in (*vertex.updates, *vertex.makes):
            self.writer[one], self.readers[one] = number, []
        for one in vertex.ends:
            self.is_ended[one] = True
            is_fixed = self._tile(one).is_fixed and self.graph.residencies[one].place == 0
            must(not is_fixed, number, "a fixed tile leaves memory")

    def _tile(self, residency: int) -> MemoryTile:
        return self.graph.tasks.tiles[self.graph.residencies[residency].tile]

    def _check_run(self, number: int, vertex: Vertex) -> None:
        """A task, once, on its own tiles in memory, of the versions that it must find."""
        which = vertex.task
        assert which is not None
        must(which not in self.has_run, number, f"task {which} runs twice")
        self.has_run.add(which)
        task, places = self.graph.tasks.tasks[which], self.graph.residencies
        for part in ("reads", "updates", "makes"):
            found = [(places[one].tile, places[one].place) for one in getattr(vertex, part)]
            named = [(tile, 0) for tile in getattr(task, part)]
            must(found == named, number, f"it {part} other tiles than task {which}")
        must(not vertex.ends, number, "a task ends no residency")
        for one in (*vertex.reads, *vertex.updates):
            version = self.wanted[which][places[one].tile]
            right = self.version[one] == version
            must(right, number, f"version {self.version[one]} of a tile, not {version}")
        for one in vertex.updates:
            self.version[one] = self.wanted[which][places[one].tile] + 1
        for one in vertex.makes:
            self.version[one] = 0

    def _check_copy(self, number: int, vertex: Vertex) -> None:
        """A load or store copies one residency of a tile to the next place."""
        written = (*vertex.updates, *vertex.makes)
        one_each = len(vertex.reads) == 1 and len(written) == 1
        must(one_each, number, "it copies not one residency to one")
        (source,), (target,) = vertex.reads, written
        one, other = self.graph.residencies[source], self.graph.residencies[target]
        must(one.tile == other.tile, number, "it copies one tile to another")
        step = -1 if vertex.kind == "load" else 1
        must(other.place == one.place + step, number, "it copies to another place than the next")
        must(not (vertex.kind == "load" and vertex.updates), number, "a load makes a residency")
        ends = ((), (source,)) if vertex.kind == "store" else ((),)
        must(vertex.ends in ends, number, "it ends another residency")
        self.version[target] = self.version[source]

    def _check_end_of(self, number: int, vertex: Vertex) -> None:
        """A copy is dropped if another is as new; what is freed, nobody reads again."""
        alone = not (vertex.updates or vertex.makes) and len(vertex.ends) == 1
        must(alone, number, "it does more than to end one residency")
        if vertex.kind == "free":
            must(not vertex.reads, number, "to free reads nothing")
            return
        must(len(vertex.reads) == 1, number, "there is no other copy")
        (other,), (ended,) = vertex.reads, vertex.ends
        same = self.graph.residencies[other].tile == self.graph.residencies[ended].tile
        must(same and other != ended, number, "there is no other copy")
        clean = self.version[other] == self.version[ended]
        must(clean, number, f"the other copy is version {self.version[other]}, this one is newer")

    def check_end(self) -> None:
        """All tasks ran, and results are where they must be."""
        missing = len(self.graph.tasks.tasks) - len(self.has_run)
        must(not missing, None, f"{missing} tasks do not run")
        there = {
            (self.graph.residencies[one].tile, self.graph.residencies[one].place)
            for one, version in enumerate(self.version)
            if not self.is_ended[one]
            and version == self.last.get(self.graph.residencies[one].tile, 0)
        }
        for number, tile in enumerate(self.graph.tasks.tiles):
            for place in tile.ends:
                found = (number, place) in there
                must(found, None, f"tile {number} is not in place {place} at the end")


def _versions_of(tasks: TaskList) -> tuple[list[dict[int, int]], dict[int, int]]:
    """Which version of its tiles each task finds, and the last of each: updates in the order of the list."""
    last: dict[int, int] = {}
    wanted = []
    for task in tasks.tasks:
        wanted.append({tile: last.get(tile, 0) for tile in (*task.reads, *task.updates)})
        for tile in task.updates:
            last[tile] = last.get(tile, 0) + 1
    return wanted, last
