"""Compile tasks into a memory graph: the order with the least to load and store, within the limits."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from redist.errors import NoPlanError, RequestError
from redist.offload.orders import best_walk, walks_of
from redist.offload.room import MemoryEvent
from redist.program.memory_graph import Credit, MemoryGraph, MemoryPlace, Residency, Vertex
from redist.program.tasks import MemoryTask, MemoryTile, TaskList

# The least limit for which there is a memory graph, and the error that names it.


def least_memory(listed: TaskList) -> tuple[int, str]:
    """The least limit of the first place for which there is a graph, if the next has no limit, and why.

    All else can leave while a task runs: so it is the largest task, or what lies there at the beginning or
    at the end.
    """
    return MemoryNeeds(listed).least()


class MemoryNeeds:
    """What :func:`least_memory` says of tasks whose tiles change one by one.

    >>> listed = TaskList((MemoryTile(8, (0,), (0,)), MemoryTile(2)), (MemoryTask("a", (), (1,)),))
    >>> needs = MemoryNeeds(listed)
    >>> before = needs.least()[0]
    >>> needs.change(0, MemoryTile(8, (1,), (1,)))
    >>> before, needs.least()[0]
    (8, 2)
    """

    def __init__(self, listed: TaskList) -> None:
        self._tasks, self._tiles = listed.tasks, list(listed.tiles)
        self._held = self._begin = self._end = 0
        self._own = np.array([task.staging_bytes for task in listed.tasks], np.int64)
        """By task: what it stages, and its tiles that are not fixed."""
        self._users: list[list[int]] = [[] for _ in listed.tiles]
        for number, task in enumerate(listed.tasks):
            for tile in task.tiles:
                self._users[tile].append(number)
        for number in range(len(self._tiles)):
            self._count(number, 1)

    def change(self, number: int, tile: MemoryTile) -> None:
        """Put another tile in the place of one."""
        self._count(number, -1)
        self._tiles[number] = tile
        self._count(number, 1)

    def _count(self, number: int, sign: int) -> None:
        tile = self._tiles[number]
        n_bytes = sign * tile.size_bytes
        if tile.is_fixed:
            self._held += n_bytes
        else:
            self._own[self._users[number]] += n_bytes
        self._begin += n_bytes if 0 in tile.begins else 0
        self._end += n_bytes if 0 in tile.ends else 0

    def least(self) -> tuple[int, str]:
        """The least limit, and why."""
        number = int(self._own.argmax()) if len(self._own) else 0
        most = self._held + int(self._own[number]) if len(self._own) else 0
        if self._begin >= max(most, self._end):
            return self._begin, f"arguments take {self._begin} bytes"
        if self._end >= most:
            return self._end, f"results take {self._end} bytes"
        return most, f"task {number} ({self._tasks[number].name!r}) works on {most} bytes"


def no_plan(listed: TaskList, places: Sequence[MemoryPlace]) -> NoPlanError:
    """The error that names the least limit of a store that is too small.

    Bytes are halved between what fails and what does not, so the limit named does and one less does not.
    """
    for at in range(len(places) - 1, -1, -1):
        limit = places[at].limit_bytes
        if limit is None or not _has_walk(listed, _with_limit(places, at, None)):
            continue
        low, high = limit, 2 * limit + 1
        while not _has_walk(listed, _with_limit(places, at, high)):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if _has_walk(listed, _with_limit(places, at, middle)):
                high = middle
            else:
                low = middle
        return NoPlanError(
            f"cannot keep {len(listed.tasks)} tasks within {limit} bytes of {places[at].name}: what leaves "
            f"{places[0].name} finds no room; give {high} bytes",
            high,
        )
    names = ", ".join(place.name for place in places)
    return NoPlanError(f"cannot keep {len(listed.tasks)} tasks within the limits of {names}", 0)


def _has_walk(listed: TaskList, places: Sequence[MemoryPlace]) -> bool:
    return next(walks_of(listed, places), None) is not None


def _with_limit(
    places: Sequence[MemoryPlace], at: int, limit_bytes: int | None
) -> tuple[MemoryPlace, ...]:
    changed = replace(places[at], limit_bytes=limit_bytes)
    return (*places[:at], changed, *places[at + 1 :])


# Turn events into a graph: what must be before what, and from whom each vertex has its bytes.
#
# Bytes come from the vertices that gave some back longest ago, so that a load may begin long before it is
# needed. Only staging takes the newest: it is given back at once, and would make old credits young.


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


def compile_memory(
    listed: TaskList, places: Sequence[MemoryPlace], *, runs_ahead: bool = True
) -> MemoryGraph:
    """**Local.** The memory graph of tasks that keeps the limit of every place in every order of it.

    Tasks work in the first place; others are stores, each behind the one before. If it ``runs_ahead``, some
    memory is left unused where that makes little more to load and store. Raises
    :class:`~redist.errors.NoPlanError` if a limit is too small; its ``least_bytes`` would do.

    >>> from redist.program.tasks import MemoryTask, MemoryTile
    >>> tiles = (*(MemoryTile(8, begins=(1,), ends=(1,)) for _ in range(3)), MemoryTile(8, ends=(0,)))
    >>> added = (MemoryTask(f"add {n}", (n,), updates=(3,)) for n in (1, 2))
    >>> tasks = TaskList(tiles, (MemoryTask("copy", (0,), (3,)), *added))
    >>> print(compile_memory(tasks, (MemoryPlace("memory", 24), MemoryPlace("disk"))))
    3 tasks, 3 loads (24 B), 0 stores (0 B), 3 frees; memory 24 B, disk unlimited
    >>> compile_memory(tasks, (MemoryPlace("memory", 15), MemoryPlace("disk")))
    Traceback (most recent call last):
    redist.errors.NoPlanError: cannot keep 3 tasks within 15 bytes of memory: task 0 ('copy') works on
    16 bytes at once; give 16 bytes, or cut the task into smaller ones
    """
    _refuse_places(listed, places)
    limit = places[0].limit_bytes
    least, why = least_memory(listed)
    if limit is not None and limit < least:
        if len(places) == 1:  # nothing can leave, so more is needed
            raise no_plan(listed, places)
        raise NoPlanError(
            f"cannot keep {len(listed.tasks)} tasks within {limit} bytes of {places[0].name}: {why} "
            f"at once; give {least} bytes, or cut the task into smaller ones",
            least,
        )
    slack = 0 if limit is None else limit - least
    with _uncollected():
        found = best_walk(listed, places, slack if runs_ahead else 0)
        if found is None:
            raise no_plan(listed, places)
        return give_credits(listed, places, found.events)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no circles of garbage meanwhile: there are none, and many objects to look at."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _refuse_places(listed: TaskList, places: Sequence[MemoryPlace]) -> None:
    if not places:
        raise RequestError("cannot compile tasks: there is no place for tiles")
    for number, tile in enumerate(listed.tiles):
        if max((*tile.begins, *tile.ends), default=0) >= len(places):
            raise RequestError(
                f"cannot compile tasks: tile {number} lies in place {max((*tile.begins, *tile.ends))}; "
                f"there are {len(places)}"
            )
