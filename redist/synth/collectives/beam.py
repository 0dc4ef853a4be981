"""Paths that are found soon: a few are followed at a time, each over nodes of another kind."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from redist.layout.tiles import Ints
from redist.synth.collectives.graph import BATCH, Budget, Graph, order_edges, path_to, price_edges


def beam(
    graph: Graph,
    start: int,
    goal: int,
    below: int,
    kinds: Ints,
    width: int,
    weight: int,
    budget: Budget,
    begun: dict[int, tuple[int, int]] | None = None,
) -> tuple[tuple[int, ...] | None, int]:
    """A path that costs less than ``below`` and its cost, if following a few at a time leads to one.

    Of all nodes that one more edge leads to, the most hopeful of each of ``width`` kinds are
    followed, the cost still to come counting ``weight`` times; at first, of those already
    ``begun``.
    """
    best: tuple[int, ...] | None = None
    edge: list[tuple[int, tuple[int, ...]]] = []
    begun = begun or {start: (0, -1)}
    seen = {node: cost for node, (cost, _) in begun.items()}
    order = sorted(begun, key=lambda node: (seen[node] + weight * int(graph.to_goal[node]), node))
    for node in order:
        if len(edge) < width and all(kinds[node] != kinds[path[-1]] for _, path in edge):
            edge.append((seen[node], path_to(begun, node)))
    while edge and budget.left > 0:
        ways: list[tuple[int, int, int, tuple[int, ...], bool]] = []
        for so_far, path in edge:
            if budget.left > 0:
                ways += _ways(graph, goal, so_far, path, below, kinds, 2 * width, weight)
        edge, taken = [], set()
        for _, node, cost, path, known in sorted(ways):
            kind = int(kinds[node])
            if node != goal and (kind in taken or len(edge) == width):
                continue
            if not known:
                cost = seen[path[-1]] + graph.exact(path[-1], node)
            if cost + int(graph.to_goal[node]) >= below or cost >= seen.get(node, below):
                continue
            seen[node] = cost
            if node == goal:
                best, below = (*path, node), cost
            else:
                taken.add(kind)
                edge.append((cost, (*path, node)))
    return best, below


def _ways(
    graph: Graph,
    goal: int,
    cost: int,
    path: tuple[int, ...],
    below: int,
    kinds: Ints,
    most: int,
    weight: int,
) -> Iterator[tuple[int, int, int, tuple[int, ...], bool]]:
    """The most hopeful edges on, to one node of each kind, and that to the goal."""
    under = below - graph.to_goal
    ids, _, hope = order_edges(graph, path[-1], cost, below, weight, under)
    first = ids[:BATCH]
    if goal in ids[BATCH:]:
        first = np.append(first, goal)
    ids, low, known = price_edges(graph, path[-1], cost, first, below, under)
    hope = low + weight * graph.to_goal[ids]
    order = np.lexsort((ids, hope))
    _, first = np.unique(kinds[ids[order]], return_index=True)
    chosen = order[np.sort(first)[:most]].tolist()
    for i in dict.fromkeys((*np.flatnonzero(ids == goal).tolist(), *chosen)):
        yield int(hope[i]), int(ids[i]), int(low[i]), path, bool(known[i])
