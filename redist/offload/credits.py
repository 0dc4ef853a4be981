"""Turn events into a graph: what must be before what, and from whom each vertex has its bytes.

Bytes come from the vertices that gave some back longest ago, so that a load may begin long before it is
needed. Only staging takes the newest: it is given back at once, and would make old credits young.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from redist.offload.room import MemoryEvent
from redist.program.memory_graph import Credit, MemoryGraph, MemoryPlace, Residency, Vertex
from redist.program.tasks import MemoryTask, TaskList

NOBODY = -1
"""Who made what is given, and who gives the bytes of the limit."""


def give_credits(
    listed: TaskList, places: Sequence[MemoryPlace], events: Sequence[MemoryEvent]
) -> MemoryGraph:
    """The memory graph of events that keep the limits of places in the order in which they are listed.

    >>> from redist.program.tasks import MemoryTile
    >>> made = (MemoryTask("a", makes=(0,)), MemoryTask("b", makes=(1,)))
    >>> tasks = TaskList((MemoryTile(8), MemoryTile(8)), made)
    >>> events = [("run", 0, 0, 0), ("free", 0, 0, 0), ("run", 1, 0, 0)]
    >>> for vertex in give_credits(tasks, (MemoryPlace("memory", 8),), events).vertices:
    ...     print(vertex.kind, vertex.before, vertex.credits)
    run () (Credit(giver=None, place=0, n_bytes=8),)
    free (0,) ()
    run (1,) (Credit(giver=1, place=0, n_bytes=8),)
    """
    made = _Making(listed, places)
    for kind, number, place, other in events:
        match kind:
            case "run":
                made.run(number, listed.tasks[number])
            case "free":
                made.free(number, place)
            case "load":
                made.load(number, place, other)
            case "drop":
                made.drop(number, place, other)
            case _:
                made.store(number, place, other, kind == "keep")
    return MemoryGraph(
        listed, tuple(places), tuple(made.residencies), made.n_given, tuple(made.vertices)
    )


class _Making:
    """Vertices so far, who wrote and who reads each residency, and the bytes that may be taken."""

    def __init__(self, listed: TaskList, places: Sequence[MemoryPlace]) -> None:
        self.sizes = [tile.size_bytes for tile in listed.tiles]
        self.vertices: list[Vertex] = []
        self.residencies: list[Residency] = []
        self.writer: list[int] = []
        self.readers: list[list[int]] = []
        self.at = [[NOBODY] * len(self.sizes) for _ in places]
        self.stays = [[0] * len(self.sizes) for _ in places]
        self.last_move = NOBODY
        room = [place.limit_bytes for place in places]
        for number, tile in enumerate(listed.tiles):
            for place in tile.begins:
                self._begin(number, place, NOBODY)
                limit = room[place]
                room[place] = None if limit is None else limit - tile.size_bytes
        self.n_given = len(self.residencies)
        self.pools: list[deque[tuple[int, int]] | None] = [
            None if n_bytes is None else deque([(NOBODY, n_bytes)] if n_bytes else [])
            for n_bytes in room
        ]

    def run(self, number: int, task: MemoryTask) -> None:
        """A task reads, updates and makes; its staging is given back when it is done."""
        here = self.at[0]
        before: set[int] = set()
        reads = tuple([here[tile] for tile in task.reads])
        updates = tuple([here[tile] for tile in task.updates])
        self._read(reads, before)
        if updates:
            self._write(updates, before)
        credits = self._take(0, sum([self.sizes[tile] for tile in task.makes]))
        makes = tuple([self._begin(tile, 0, len(self.vertices)) for tile in task.makes])
        if task.lane == "moves":
            before.add(self.last_move)
            self.last_move = len(self.vertices)
        if task.staging_bytes:
            credits += self._take(0, task.staging_bytes, is_newest=True)
            self._give(0, task.staging_bytes)
        self._add("run", before, credits, number, reads, updates, makes)

    def load(self, tile: int, place: int, behind: int) -> None:
        """A copy comes from the place behind."""
        before: set[int] = set()
        reads = (self.at[behind][tile],)
        self._read(reads, before)
        credits = self._take(place, self.sizes[tile])
        makes = (self._begin(tile, place, len(self.vertices)),)
        self._add("load", before, credits, None, reads, (), makes)

    def store(self, tile: int, place: int, behind: int, is_kept: bool) -> None:
        """A copy goes to the place behind, over an older one if that is there; its source ends or stays."""
        before: set[int] = set()
        source, older = self.at[place][tile], self.at[behind][tile]
        credits: tuple[Credit, ...] = ()
        updates: tuple[int, ...] = ()
        makes: tuple[int, ...] = ()
        self._read((source,), before)
        if older == NOBODY:
            credits = self._take(behind, self.sizes[tile])
            makes = (self._begin(tile, behind, len(self.vertices)),)
        else:
            updates = (older,)
            self._write(updates, before)
        ends = () if is_kept else (self._end(tile, place, before),)
        self._add("store", before, credits, None, (source,), updates, makes, ends)

    def drop(self, tile: int, place: int, other: int) -> None:
        """A copy ends of which there is another."""
        before: set[int] = set()
        reads = (self.at[other][tile],)
        self._read(reads, before)
        ends = (self._end(tile, place, before),)
        self._add("drop", before, (), None, reads, (), (), ends)

    def free(self, tile: int, place: int) -> None:
        """A copy ends that nobody needs."""
        before: set[int] = set()
        ends = (self._end(tile, place, before),)
        self._add("free", before, (), None, (), (), (), ends)

    def _begin(self, tile: int, place: int, maker: int) -> int:
        stays, new = self.stays[place], len(self.residencies)
        self.residencies.append(Residency(tile, place, stays[tile]))
        stays[tile] += 1
        self.at[place][tile] = new
        self.writer.append(maker)
        self.readers.append([])
        return new

    def _read(self, residencies: Sequence[int], before: set[int]) -> None:
        for one in residencies:
            before.add(self.writer[one])
            self.readers[one].append(len(self.vertices))

    def _write(self, residencies: Sequence[int], before: set[int]) -> None:
        for one in residencies:
            before.add(self.writer[one])
            before.update(self.readers[one])
            self.writer[one], self.readers[one] = len(self.vertices), []

    def _end(self, tile: int, place: int, before: set[int]) -> int:
        residency = self.at[place][tile]
        self.at[place][tile] = NOBODY
        before.add(self.writer[residency])
        before.update(self.readers[residency])
        self._give(place, self.sizes[tile])
        return residency

    def _give(self, place: int, n_bytes: int) -> None:
        pool = self.pools[place]
        if pool is not None and n_bytes:
            pool.append((len(self.vertices), n_bytes))

    def _take(self, place: int, n_bytes: int, is_newest: bool = False) -> tuple[Credit, ...]:
        """Credits for bytes, oldest first or newest first."""
        pool = self.pools[place]
        if pool is None or not n_bytes:
            return ()
        giver, has = pool[-1 if is_newest else 0]
        if has > n_bytes:  # mostly one has them all
            pool[-1 if is_newest else 0] = giver, has - n_bytes
            return (Credit(None if giver == NOBODY else giver, place, n_bytes),)
        out = []
        while n_bytes:
            giver, has = pool.pop() if is_newest else pool.popleft()
            taken = min(has, n_bytes)
            out.append(Credit(None if giver == NOBODY else giver, place, taken))
            n_bytes -= taken
            if has > taken:
                rest = (giver, has - taken)
                pool.append(rest) if is_newest else pool.appendleft(rest)
        return tuple(out)

    def _add(
        self,
        kind: str,
        before: set[int],
        credits: tuple[Credit, ...] = (),
        task: int | None = None,
        reads: tuple[int, ...] = (),
        updates: tuple[int, ...] = (),
        makes: tuple[int, ...] = (),
        ends: tuple[int, ...] = (),
    ) -> None:
        """A vertex, after those that it names; what it reads and ends itself is not before it."""
        for one in credits:
            if one.giver is not None:
                before.add(one.giver)
        before -= {NOBODY, len(self.vertices)}
        listed = tuple(sorted(before) if len(before) > 1 else before)
        self.vertices.append(Vertex(kind, task, reads, updates, makes, ends, listed, credits))
