"""Certify a memory graph: judge it, and find out the most bytes that any order reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from redist.check.admission import check_admission
from redist.check.memory_graphs import check_memory_graph
from redist.errors import MemoryCheckError
from redist.program.memory_graph import MemoryCertificate, MemoryGraph, Vertex

# The most flow from nodes that supply to nodes that demand, over edges without limit: Dinic's algorithm.
#
# It may start from a flow that is known. Integers of any size, no other library.


NO_END = 1 << 200
"""The room of an edge without a limit."""


class FlowNetwork:
    """Nodes that supply or demand, and edges; :meth:`most_flow` uses it up.

    >>> net = FlowNetwork()
    >>> well, pipe, tap = net.add(5, 0), net.add(0, 0), net.add(0, 3)
    >>> net.join(well, pipe); net.join(pipe, tap)
    >>> net.most_flow()
    3
    """

    def __init__(self) -> None:
        self.supply = 0
        self._supply: list[int] = []
        self._demand: list[int] = []
        self._edges: list[list[int]] = []
        self._to: list[int] = []
        self._room: list[int] = []
        self._flow = 0

    def add(self, supply: int, demand: int) -> int:
        """A node; its number."""
        self.supply += supply
        self._supply.append(supply)
        self._demand.append(demand)
        self._edges.append([])
        return len(self._edges) - 1

    def join(self, start: int, end: int, flow: int = 0) -> None:
        """An edge; ``flow`` of what its start supplies goes to what its end demands, if there is that."""
        flow = min(flow, self._supply[start], self._demand[end])
        self._supply[start] -= flow
        self._demand[end] -= flow
        self._flow += flow
        self._edges[start].append(len(self._to))
        self._edges[end].append(len(self._to) + 1)
        self._to += (end, start)
        self._room += (NO_END, flow)

    def most_flow(self) -> int:
        """All that can flow, what flowed from the start included."""
        while True:
            levels = self._levels()
            if levels is None:
                return self._flow
            self._fill(levels)

    def _levels(self) -> list[int] | None:
        """How far each node is from supply, up to the nearest demand; None if no demand is reached."""
        levels = [-1] * len(self._edges)
        now = [node for node, n in enumerate(self._supply) if n]
        for node in now:
            levels[node] = 0
        depth, to, room = 0, self._to, self._room
        while now:
            if any(self._demand[node] for node in now):
                return levels
            depth += 1
            later = []
            for node in now:
                for edge in self._edges[node]:
                    other = to[edge]
                    if levels[other] < 0 and room[edge]:
                        levels[other] = depth
                        later.append(other)
            now = later
        return None

    def _fill(self, levels: list[int]) -> None:
        """Send flow along edges that lead one level on, until there is no such way."""
        tried = [0] * len(self._edges)
        for start in [node for node, n in enumerate(self._supply) if n]:
            while self._supply[start]:
                path = self._path(start, levels, tried)
                if path is None:
                    break
                end = self._to[path[-1]] if path else start
                least = min(self._supply[start], self._demand[end])
                for edge in path:
                    least = min(least, self._room[edge])
                for edge in path:
                    self._room[edge] -= least
                    self._room[edge ^ 1] += least
                self._supply[start] -= least
                self._demand[end] -= least
                self._flow += least

    def _path(self, start: int, levels: list[int], tried: list[int]) -> list[int] | None:
        """Edges from a node to demand; ``tried`` has how many edges of each node lead nowhere."""
        to, room = self._to, self._room
        path: list[int] = []
        node = start
        while not self._demand[node]:
            edges = self._edges[node]
            while tried[node] < len(edges):
                edge = edges[tried[node]]
                if room[edge] and levels[to[edge]] == levels[node] + 1:
                    path.append(edge)
                    node = to[edge]
                    break
                tried[node] += 1
            else:
                if not path:
                    return None
                node = to[path.pop() ^ 1]
                tried[node] += 1
        return path


# The most bytes that any order of a memory graph reaches in a place: one minimum cut, exactly.
#
# Whatever is done at some moment, all that is before it is done: it is a closed set. Live bytes are what the
# set took less what it gave back, so the worst moment is a closed set of largest weight, a minimum cut.
# A vertex that takes and gives stands twice, begun and done: so vertices that run at once are covered.
#
# The credits are a flow of that network. It starts from them, and what is left is little.


def worst_bytes(graph: MemoryGraph, place: int) -> int:
    """**Local.** The most bytes of a place that are live at any moment of any order, or of vertices at once.

    >>> from redist.program.memory_graph import MemoryPlace, Residency, Vertex
    >>> from redist.program.tasks import MemoryTask, MemoryTile, TaskList
    >>> made = (MemoryTask("a", makes=(0,)), MemoryTask("b", makes=(1,)))
    >>> tasks = TaskList((MemoryTile(8), MemoryTile(5)), made)
    >>> stays = (Residency(0, 0), Residency(1, 0))
    >>> runs = (Vertex("run", 0, makes=(0,)), Vertex("run", 1, makes=(1,)))
    >>> loose = (*runs, Vertex("free", ends=(0,), before=(0,)))
    >>> worst_bytes(MemoryGraph(tasks, (MemoryPlace("memory"),), stays, 0, loose), 0)
    13
    """
    given = sum(
        graph.bytes_of(one) for one in range(graph.n_given) if graph.residencies[one].place == place
    )
    net = FlowNetwork()
    begun, done = [], []
    for vertex in graph.vertices:
        takes, gives = _weights(graph, vertex, place)
        begun.append(net.add(takes, 0 if takes else gives))
        if takes and gives:
            done.append(net.add(0, gives))
            net.join(done[-1], begun[-1], 0)
        else:
            done.append(begun[-1])
    for number, vertex in enumerate(graph.vertices):
        credits: dict[int, int] = {}
        for credit in vertex.credits:
            if credit.place == place and credit.giver is not None:
                credits[credit.giver] = credits.get(credit.giver, 0) + credit.n_bytes
        for one in vertex.before:
            net.join(begun[number], done[one], credits.get(one, 0))
    return given + net.supply - net.most_flow()


def _weights(graph: MemoryGraph, vertex: Vertex, place: int) -> tuple[int, int]:
    """The bytes of a place that a vertex takes, and those that it gives back."""
    takes = sum([graph.bytes_of(r) for r in vertex.makes if graph.residencies[r].place == place])
    gives = sum([graph.bytes_of(r) for r in vertex.ends if graph.residencies[r].place == place])
    staging = 0
    if place == 0 and vertex.task is not None:
        staging = graph.tasks.tasks[vertex.task].staging_bytes
    return takes + staging, gives + staging


def certify_memory(
    graph: MemoryGraph, *, exact: bool = True, admitted: Sequence[tuple[int, ...]] | None = None
) -> MemoryCertificate:
    """**Local.** What was shown: that no order of a memory graph exceeds a limit, and how near orders come.

    With ``exact`` the worst order is found by a minimum cut; without, the credits prove the limit alone, in
    linear time. With the edges that are ``admitted``, it may also be run by admission within the same bounds.
    A graph that the checker rejects is ``refuted``, with the reason.

    >>> from redist.program.memory_graph import Credit, MemoryPlace, Residency, Vertex
    >>> from redist.program.tasks import MemoryTask, MemoryTile, TaskList
    >>> tasks = TaskList((MemoryTile(8, ends=(0,)),), (MemoryTask("make", makes=(0,)),))
    >>> run = Vertex("run", 0, makes=(0,), credits=(Credit(None, 0, 8),))
    >>> graph = MemoryGraph(tasks, (MemoryPlace("memory", 10),), (Residency(0, 0),), 0, (run,))
    >>> print(certify_memory(graph))
    proved for every order: 8 B of 10 B (credits and minimum cut)
    >>> print(certify_memory(graph, exact=False))
    proved for every order: at most 10 B of 10 B (credits)
    """
    limits = tuple(place.limit_bytes for place in graph.places)
    method = "credits and minimum cut" if exact else "credits"
    try:
        check_memory_graph(graph)
    except MemoryCheckError as error:
        nothing = (None,) * len(limits)
        return MemoryCertificate("refuted", nothing, limits, False, "credits", str(error))
    bounds = limits
    if exact:
        bounds = tuple(
            None if limit is None else worst_bytes(graph, place)
            for place, limit in enumerate(limits)
        )
        for bound, limit in zip(bounds, limits, strict=True):
            assert bound is None or limit is None or bound <= limit, "credits prove more than is so"
    if admitted is not None:
        method = "credits, minimum cut and admission" if exact else "credits and admission"
        try:
            check_admission(within_bounds(graph, bounds), admitted)
        except MemoryCheckError as error:
            nothing = (None,) * len(limits)
            return MemoryCertificate("refuted", nothing, limits, False, method, str(error))
    return MemoryCertificate("proved", bounds, limits, exact, method)


def within_bounds(graph: MemoryGraph, bounds: Sequence[int | None]) -> MemoryGraph:
    """The graph with limits that are what was certified: who grants bytes may grant no more than these."""
    pairs = zip(graph.places, bounds, strict=True)
    return replace(graph, places=tuple(replace(one, limit_bytes=bound) for one, bound in pairs))
