"""What a search knows of a graph: bounds of edges are cheap, prices come in bulk, exact costs are dear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from redist.layout.tiles import Ints
from redist.synth.chains import Bools

BATCH = 128
"""This many edges out of a node are priced together, the most hopeful first."""


class Graph(Protocol):
    """Edges out of nodes: bounds of all of them at once, prices of some, the exact cost of one."""

    @property
    def to_goal(self) -> Ints:
        """What no way from each node to the goal costs less than, if it is part of a path that may do.

        It may be raised where it is looked at, and obeys the triangle inequality along such paths.
        """

    def bounds(self, u: int, room: Ints, left: int) -> tuple[Ints, Ints]:
        """Neighbours of u and what the edges to them cost at least.

        Those may be left out that do not cost less than there is ``room`` for, or from which the way to
        the goal does not cost less than what is ``left``.
        """

    def look_at(self, ids: Ints) -> Ints:
        """The best lower bounds to the goal from some nodes."""

    def prices(self, u: int, ids: Ints) -> tuple[Ints, Bools]:
        """Lower bounds of the costs of edges u -> ids, and which of these are the costs."""

    def exact(self, u: int, v: int) -> int:
        """The cost of an edge."""


@dataclass(slots=True)
class Budget:
    """Work that a search may still do; counted, so that it ends at the same point on every machine."""

    left: int

    def spend(self, work: int) -> None:
        """Count some work."""
        self.left -= work


def order_edges(
    graph: Graph, node: int, cost: int, below: int, weight: int, under: Ints
) -> tuple[Ints, Ints, Ints]:
    """Neighbours, lower bounds of the edges to them and hopes, the most hopeful first."""
    ids, floors = graph.bounds(node, under - cost, below - cost)
    under[ids] = np.minimum(under[ids], below - graph.to_goal[ids])
    hopes = cost + floors + weight * graph.to_goal[ids]
    order = np.lexsort((ids, hopes))
    return ids[order], floors[order], hopes[order]


def price_edges(
    graph: Graph, node: int, cost: int, ids: Ints, below: int, under: Ints
) -> tuple[Ints, Ints, Bools]:
    """Those of some neighbours that there is a way to that may do, its cost or a bound, and which."""
    under[ids] = np.minimum(under[ids], below - graph.look_at(ids))
    ids = ids[cost < under[ids]]
    if not len(ids):
        return ids, ids, ids > 0
    low, known = graph.prices(node, ids)
    keep = np.flatnonzero(cost + low < under[ids])
    return ids[keep], cost + low[keep], known[keep]


def path_to(settled: dict[int, tuple[int, int]], node: int) -> tuple[int, ...]:
    """The nodes on the way to a node, from who came before whom."""
    path = [node]
    while settled[path[-1]][1] >= 0:
        path.append(settled[path[-1]][1])
    return tuple(path[::-1])
