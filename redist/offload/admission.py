"""Admission: grant memory to a vertex if all that have not begun can still be done after it, as listed.

A credit says who gives a vertex its bytes, although any bytes would do: a load may wait for one tile to leave
while there is room that another tile left. Whoever runs a graph and counts bytes can do without credits::

    vertices as listed       a  b  c  d  e  f  g     a, b and e have begun; f asks
    room that each leaves    -  -  4  3  -  1  5     if those under way have ended, in the order of the list
                                   ^  ^              f overtakes c and d: it may keep 3 bytes at most

A vertex that is ready may begin if (1) its bytes fit beside all that are live now, those of vertices under
way included, and (2) once it has begun, all vertices that have not begun can be done one after another in the
order of the list, those under way ended. For vertices behind it in the list (2) changes nothing: what it
takes and gives it would have taken and given before them in any case. For those in front of it there is less
room, by what it takes and does not give back. So (2) is one minimum over the vertices that it overtakes.

Nobody waits for ever: when nothing is under way, (2) of the vertex that began last says that the first of the
list that has not begun has room, and all that it needs is before it in the list.
``proofs/theorems/admission.py`` proves both for all graphs; ``redist/check/admission.py`` judges runs without
this module.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import RequestError
from redist.program.memory_graph import MemoryGraph, MemoryPlace
from redist.text.units import format_bytes

NOBODY = -1
"""Who wrote what is given."""


def content_edges(graph: MemoryGraph) -> list[tuple[int, ...]]:
    """What must be before each vertex wherever its bytes come from: operands, and moves in their order.

    >>> from redist.offload.compile import compile_memory
    >>> from redist.program.tasks import MemoryTask, MemoryTile, TaskList
    >>> made = (MemoryTask("a", makes=(0,)), MemoryTask("b", makes=(1,)))
    >>> graph = compile_memory(TaskList((MemoryTile(8), MemoryTile(8)), made), (MemoryPlace("memory", 8),))
    >>> [one.before for one in graph.vertices], content_edges(graph)
    ([(), (0,), (1,), (2,)], [(), (0,), (), (2,)])
    """
    writer = [NOBODY] * len(graph.residencies)
    readers: list[list[int]] = [[] for _ in writer]
    last_move = NOBODY
    out: list[tuple[int, ...]] = []
    for number, vertex in enumerate(graph.vertices):
        before = {writer[one] for one in (*vertex.reads, *vertex.updates, *vertex.ends)}
        for one in (*vertex.updates, *vertex.ends):
            before.update(readers[one])
        if graph.lane_of(number) == "moves":
            before.add(last_move)
            last_move = number
        for one in vertex.reads:
            readers[one].append(number)
        for one in (*vertex.updates, *vertex.makes):
            writer[one], readers[one] = number, []
        out.append(tuple(sorted(before - {NOBODY})))
    return out


BEGUN = 2**62
"""The room of a vertex that has begun: it needs none any more."""


class _PlaceRoom:
    """One place with a limit: what each vertex takes and keeps, and the room that each will find.

    ``slack[v]`` are the bytes that nobody holds when ``v`` has begun, if those under way have ended and those
    in front of it in the list, which have not begun, have run in its order.
    """

    __slots__ = ("ahead", "early", "keeps", "limit", "link", "live", "returns", "slack", "takes")

    def __init__(self, place: MemoryPlace, given: int, takes: Any, returns: Any, link: Any) -> None:
        assert place.limit_bytes is not None
        keeps = takes - returns
        self.limit, self.live = place.limit_bytes, given
        self.takes, self.returns, self.keeps = takes.tolist(), returns.tolist(), keeps.tolist()
        self.slack: NDArray[np.int64] = self.limit - given - (np.cumsum(keeps) - keeps) - takes
        links = sorted({one for one in link if one})
        self.link = link if len(links) > 1 else None
        """By vertex the link that brings its bytes, if several links bring some to this place."""
        self.ahead = dict.fromkeys(links, 0)
        """By link, the bytes of vertices that have overtaken others of the list."""
        self.early: list[tuple[int, str]] = []
        if len(self.slack) and self.slack.min() < 0:
            most = self.limit - int(self.slack.min())
            raise RequestError(
                f"cannot admit vertices of a graph: as listed they hold {format_bytes(most)} of "
                f"{place.name}, limit {format_bytes(self.limit)}"
            )

    def copy(self) -> _PlaceRoom:
        """The same, at the beginning of another run."""
        new: _PlaceRoom = object.__new__(_PlaceRoom)
        for name in self.__slots__:
            setattr(new, name, getattr(self, name))
        new.slack, new.ahead, new.early = self.slack.copy(), dict(self.ahead), []
        return new

    def fits(self, vertex: int, first: int) -> bool:
        """Whether a vertex has room now, and leaves enough to those that it overtakes."""
        takes = self.takes[vertex]
        if not takes:
            return True
        if self.live + takes > self.limit:
            return False
        keeps = self.keeps[vertex]
        if keeps <= 0 or first >= vertex:
            return True
        left = int(self.slack[first:vertex].min())
        return left >= keeps and self._is_fair(vertex, keeps, left)

    def _is_fair(self, vertex: int, keeps: int, left: int) -> bool:
        """Whether a link leaves half of the room for running ahead to the others.

        A quick link would fill a place with what is needed late, and then wait for the slow one.
        """
        link = None if self.link is None else self.link[vertex]
        if link is None or not self.ahead[link]:
            return True
        return 2 * (self.ahead[link] + keeps) <= sum(self.ahead.values()) + left

    def begin(self, vertex: int, first: int) -> None:
        """A vertex takes its bytes."""
        self.live += self.takes[vertex]
        keeps = self.keeps[vertex]
        if keeps and first < vertex:
            self.slack[first:vertex] -= keeps
            if keeps > 0 and self.link is not None and self.link[vertex] is not None:
                self.ahead[self.link[vertex]] += keeps
                heapq.heappush(self.early, (vertex, self.link[vertex]))
        self.slack[vertex] = BEGUN

    def pass_on(self, first: int) -> None:
        """The list has come to a vertex: nothing in front of it is early any more."""
        while self.early and self.early[0][0] < first:
            vertex, link = heapq.heappop(self.early)
            self.ahead[link] -= self.keeps[vertex]


class Admission:
    """Which vertices may begin, at one moment of one run of a graph.

    >>> from redist.offload.compile import compile_memory
    >>> from redist.program.tasks import MemoryTask, MemoryTile, TaskList
    >>> weight, value = MemoryTile(8, begins=(1,), ends=(1,)), MemoryTile(4)
    >>> tiles = (weight, weight, value, MemoryTile(4, ends=(0,)))
    >>> tasks = TaskList(tiles, (MemoryTask("a", (0,), (2,)), MemoryTask("b", (1, 2), (3,))))
    >>> graph = compile_memory(tasks, (MemoryPlace("memory", 18), MemoryPlace("disk")))
    >>> [one.kind for one in graph.vertices]
    ['load', 'run', 'drop', 'load', 'run', 'drop', 'free']
    >>> now = Admission(graph)
    >>> now.may_begin(3)                          # the first task would find no room for what it makes
    False
    >>> for vertex in (0, 1, 2): now.begin(vertex); now.end(vertex)
    >>> now.may_begin(3), now.first
    (True, 3)
    """

    def __init__(self, graph: MemoryGraph) -> None:
        """Raises :class:`~redist.errors.RequestError` if the list itself exceeds a limit."""
        n = len(graph.vertices)
        self._begun = bytearray(n)
        self.first = 0
        """The first vertex of the list that has not begun: it may always begin if nothing is under way."""
        self._rooms: list[_PlaceRoom] = []
        taken = [graph.taken_bytes(number) for number in range(n)]
        returned = [graph.returned_bytes(number) for number in range(n)]
        given = graph.given_bytes
        for number, place in enumerate(graph.places):
            if place.limit_bytes is None:
                continue
            takes, returns = (
                np.array([one.get(number, 0) for one in several], np.int64)
                for several in (taken, returned)
            )
            link = [
                vertex.kind if vertex.kind in ("load", "store") and taken[v].get(number) else None
                for v, vertex in enumerate(graph.vertices)
            ]
            self._rooms.append(_PlaceRoom(place, given[number], takes, returns, link))

    def again(self) -> Admission:
        """**Local.** The beginning of another run of the same graph; call it before this one begins."""
        new: Admission = object.__new__(Admission)
        new._begun, new.first = bytearray(len(self._begun)), 0
        new._rooms = [one.copy() for one in self._rooms]
        return new

    def may_begin(self, vertex: int) -> bool:
        """**Local.** Whether a vertex whose operands are there may begin now."""
        for room in self._rooms:  # noqa: SIM110 - asked for every vertex, often
            if not room.fits(vertex, self.first):
                return False
        return True

    def begin(self, vertex: int) -> None:
        """**Local.** A vertex begins."""
        first, begun = self.first, self._begun
        begun[vertex] = 1
        for room in self._rooms:
            room.begin(vertex, first)
        if vertex != first:
            return
        while first < len(begun) and begun[first]:
            first += 1
        self.first = first
        for room in self._rooms:
            if room.early:
                room.pass_on(first)

    def end(self, vertex: int) -> None:
        """**Local.** A vertex is done."""
        for room in self._rooms:
            room.live -= room.returns[vertex]
