"""A minimum spanning tree of all rows by Prim's algorithm, one point a step, the same on every rank.

A rank holds how far each of its rows outside the tree is from the tree. A step lets the tree have one point
more, and all ranks find the nearest of all: one exchange of ``d + 4`` numbers a rank.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import DistanceMetric

from redist.learn.borrowed import EDGE
from redist.learn.kernels import twins
from redist.learn.kernels.cuda.prim import OutsideOnGpu
from redist.learn.kernels.outside_tree import OutsideTree
from redist.learn.kernels.steps import grow_alone, tree_step
from redist.learn.ranks.rows import Rows
from redist.learn.ranks.totals import RowsOfAll

Values = NDArray[Any]


def spanning_tree(
    rows: Rows, core: Values, alpha: float = 1.0, metric: DistanceMetric | None = None
) -> Values:
    """**Collective.** The edges of a minimum spanning tree over mutual reachability, in the order of growth.

    Two points are ``max(core of one, core of the other, distance / alpha)`` apart; the tree grows from
    row 0, and of equally near points the one with the lowest number comes first, as in scikit-learn.
    ``metric`` is None for Euclidean distances; rows and cores on a GPU stay there, and know no others. Every
    edge says from where, to where, and how far.
    """
    kind: Any = OutsideOnGpu if rows.on_gpu else OutsideTree
    outside = kind(rows.local, core, rows.first)
    outside.state[1] = 0 if rows.first == 0 and len(rows.local) else -1
    start = np.concatenate([rows.fetch([0])[0], rows.holding(core).fetch([0])])
    added = np.concatenate([[0.0, 0.0, 0.0, start[-1]], start[:-1]])
    found = np.empty((max(0, rows.n - 1), len(added)))
    if metric is None and rows.comm.size == 1 and grow_alone(outside, added, alpha, found):
        return _edges(found)
    growth = Growth(rows)
    growth.added[:] = added
    ends = outside, growth.added, growth.offer, alpha
    grow = tree_step(*ends) if metric is None else partial(_grow, *ends, metric)
    for i in range(len(found)):
        grow()
        found[i] = growth.find_nearest()
    return _edges(found)


def _edges(found: Values) -> Values:
    """Points in the order in which they were reached, as edges."""
    edges = np.empty(len(found), EDGE)
    edges["current_node"], edges["next_node"] = found[:, 2], found[:, 1]
    edges["distance"] = found[:, 0]
    return edges


class Growth:
    """Finds the nearest of all ranks' points outside a tree; each rank writes its own to :attr:`offer`."""

    __slots__ = ("_tell", "added", "offer")

    def __init__(self, rows: Rows) -> None:
        self._tell, self.added = RowsOfAll(rows.comm, rows.d + 4), np.empty(rows.d + 4)
        self.offer = self._tell.row

    def find_nearest(self) -> Values:
        """**Collective.** The nearest point that a rank offers, of several the one with the lowest number.

        It is :attr:`added`, until the next call.
        """
        every = self._tell()
        near = every[:, :2].tolist()
        self.added[:] = every[near.index(min(near))]
        return self.added


def _grow(
    outside: OutsideTree, added: Values, offer: Values, alpha: float, metric: DistanceMetric
) -> None:
    """**Local.** As a step of :func:`tree_step`, in another metric."""
    outside.take(int(added[1]))
    others = np.ascontiguousarray(outside.columns[:, : outside.m].T)
    far = metric.pairwise(added[None, 4:], others)[0] / alpha if outside.m else np.empty(0)
    outside.offer(twins.approach(outside, far, float(added[3]), int(added[1])), offer)
