"""Judge a memory graph: in every order, bytes stay within the limits and tasks find what they need.

It walks through the vertices and looks at direct edges only, so it takes linear time. What holds for the
vertices as listed and has its edges holds in every order that the edges allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from redist.errors import MemoryCheckError
from redist.program.memory_graph import KINDS, MemoryGraph, Vertex
from redist.program.tasks import MemoryTile, TaskList

# Judge the bytes of a memory graph: what is taken was given back before, and no byte is given twice.
#
# So in every order live bytes are within the limits: each byte of a limit is handed on along edges.


def must(good: bool, vertex: int | None, reason: str) -> None:
    """Reject a vertex for a reason, unless all is good."""
    if not good:
        raise MemoryCheckError(vertex, reason)


def check_credits(graph: MemoryGraph) -> None:
    """What is taken is covered by credits; they come from vertices before, and from none twice."""
    left = [place.limit_bytes for place in graph.places]
    for one in range(graph.n_given):
        place = graph.residencies[one].place
        limit = left[place]
        if limit is not None:
            left[place] = limit - graph.bytes_of(one)
    for where, limit in zip(graph.places, left, strict=True):
        must(limit is None or limit >= 0, None, f"more is given than the limit of {where.name}")
    gives: list[dict[int, int]] = []
    for number, vertex in enumerate(graph.vertices):
        takes = _sums(graph, vertex.makes)
        staging = 0 if vertex.task is None else graph.tasks.tasks[vertex.task].staging_bytes
        if staging:
            takes[0] = takes.get(0, 0) + staging
        for credit in vertex.credits:
            where = graph.places[credit.place]
            must(credit.n_bytes > 0, number, "a credit of no bytes")
            if credit.giver is None:
                limit = left[credit.place]
                if limit is not None:
                    limit -= credit.n_bytes
                    left[credit.place] = limit
                    must(limit >= 0, number, f"the limit of {where.name} gives more than it has")
            else:
                must(credit.giver in vertex.before, number, "a credit without its edge")
                has = gives[credit.giver]
                has[credit.place] = has.get(credit.place, 0) - credit.n_bytes
                enough = has[credit.place] >= 0
                must(enough, number, f"vertex {credit.giver} gives more than it had")
            takes[credit.place] = takes.get(credit.place, 0) - credit.n_bytes
        for at, n_bytes in takes.items():
            covered = n_bytes <= 0 or graph.places[at].limit_bytes is None
            must(covered, number, f"{n_bytes} bytes without credits")
        gives.append(_sums(graph, vertex.ends))
        if staging:
            gives[-1][0] = gives[-1].get(0, 0) + staging


def _sums(graph: MemoryGraph, residencies: Sequence[int]) -> dict[int, int]:
    """Bytes of residencies by place."""
    out: dict[int, int] = {}
    for one in residencies:
        place = graph.residencies[one].place
        out[place] = out.get(place, 0) + graph.bytes_of(one)
    return out


# Judge the contents of a memory graph: whoever reads a residency finds the version that the tasks say.
#
# Who reads is after who wrote last; who writes or ends is after all who use it. These edges are direct, so a
# residency has one content for each reader, in every order.


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


def check_memory_graph(graph: MemoryGraph) -> None:
    """**Local.** Raise :class:`~redist.errors.MemoryCheckError` unless every order keeps limits and contents.

    >>> from redist.program.memory_graph import Credit, MemoryPlace, Residency, Vertex
    >>> from redist.program.tasks import MemoryTask, MemoryTile, TaskList
    >>> tasks = TaskList((MemoryTile(8, ends=(0,)),), (MemoryTask("make", makes=(0,)),))
    >>> run = Vertex("run", 0, makes=(0,), credits=(Credit(None, 0, 8),))
    >>> check_memory_graph(MemoryGraph(tasks, (MemoryPlace("memory", 8),), (Residency(0, 0),), 0, (run,)))
    >>> check_memory_graph(MemoryGraph(tasks, (MemoryPlace("memory", 7),), (Residency(0, 0),), 0, (run,)))
    Traceback (most recent call last):
    redist.errors.MemoryCheckError: vertex 0 of the memory graph is rejected: the limit of memory gives more
    than it has
    """
    check_numbers(graph)
    check_credits(graph)
    contents = ContentCheck(graph)
    for number, vertex in enumerate(graph.vertices):
        contents.check(number, vertex)
    contents.check_end()
    check_moves(graph)


def check_numbers(graph: MemoryGraph) -> None:
    """Numbers name what there is, and edges point back, so that there is no circle."""
    n, n_places, n_tiles = len(graph.residencies), len(graph.places), len(graph.tasks.tiles)
    must(0 <= graph.n_given <= n, None, "more is given than there is")
    for one in graph.residencies:
        must(0 <= one.tile < n_tiles, None, f"there is no tile {one.tile}")
        must(0 <= one.place < n_places, None, f"there is no place {one.place}")
    given = [(one.tile, one.place) for one in graph.residencies[: graph.n_given]]
    begins = [(t, p) for t, tile in enumerate(graph.tasks.tiles) for p in tile.begins]
    must(sorted(given) == sorted(begins), None, "other tiles are given than begin somewhere")
    for number, vertex in enumerate(graph.vertices):
        must(vertex.kind in KINDS, number, f"there is no kind {vertex.kind!r}")
        if vertex.kind == "run":
            known = vertex.task is not None and 0 <= vertex.task < len(graph.tasks.tasks)
            must(known, number, f"there is no task {vertex.task}")
        else:
            must(vertex.task is None, number, "only a run has a task")
        if vertex.before:
            least, most = min(vertex.before), max(vertex.before)
            must(least >= 0 and most < number, number, f"vertex {most} is not before it")
        used = (*vertex.reads, *vertex.updates, *vertex.makes, *vertex.ends)
        if used:
            must(min(used) >= 0 and max(used) < n, number, f"there is no residency {max(used)}")
        for credit in vertex.credits:
            must(0 <= credit.place < n_places, number, f"there is no place {credit.place}")


def check_moves(graph: MemoryGraph) -> None:
    """Every move has the one before it in the list among its edges."""
    tasks = graph.tasks.tasks
    at = {vertex.task: number for number, vertex in enumerate(graph.vertices)}
    moves = [at[number] for number, task in enumerate(tasks) if task.lane == "moves"]
    for one, other in pairwise(moves):
        must(one in graph.vertices[other].before, other, "a move may overtake the one before it")
