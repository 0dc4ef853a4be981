"""Shortest paths where exact costs are dear and lower bounds are cheap and come in bulk."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from redist.layout.tiles import Ints

Bulk = Callable[[int], tuple[Ints, Ints]]
"""Node -> (neighbours, lower bounds of the costs of the edges to them)."""


def shortest_path(
    start: int,
    goal: int,
    to_goal: Ints,
    edges: Bulk,
    exact: Callable[[int, int], int],
    below: int,
) -> tuple[int, list[int]] | None:
    """Cost and nodes of the cheapest path from start to goal, None if none costs less than ``below``.

    A* with lazy edges: an edge waits in the queue under a lower bound of its cost and is priced only
    when it comes up. ``to_goal`` never exceeds the cost still to come and obeys the triangle
    inequality; ties go to the lower node number, so the answer is the same on every machine.
    """
    settled: dict[int, tuple[int, int]] = {}
    priced: dict[int, int] = {}
    queue: list[tuple[int, int, int, int, bool]] = [(0, 0, start, -1, True)]
    while queue:
        _, cost, node, parent, known = heapq.heappop(queue)
        if node in settled:
            continue
        if not known:
            real = settled[parent][0] + exact(parent, node)
            if real + int(to_goal[node]) < below and real < priced.get(node, below):
                priced[node] = real
                heapq.heappush(queue, (real + int(to_goal[node]), real, node, parent, True))
            continue
        settled[node] = (cost, parent)
        if node == goal:
            path = [node]
            while path[-1] != start:
                path.append(settled[path[-1]][1])
            return cost, path[::-1]
        ids, low = edges(node)
        hope = cost + low + to_goal[ids]
        for i in np.flatnonzero(hope < below):
            other = int(ids[i])
            if other not in settled and cost + int(low[i]) < priced.get(other, below):
                heapq.heappush(queue, (int(hope[i]), cost + int(low[i]), other, node, False))
    return None
