"""The most flow from nodes that supply to nodes that demand, over edges without limit: Dinic's algorithm.

It may start from a flow that is known. Integers of any size, no other library.
"""

from __future__ import annotations

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
        """An edge; ``flow`` of what its start supplies goes to what its end demands, if there is so much."""
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
