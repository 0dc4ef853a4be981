"""A minimum spanning tree of all rows by Prim's algorithm, one point a step, the same on every rank.

A rank holds how far each of its rows outside the tree is from the tree. A step lets the tree have one point
more, and all ranks find the nearest of all: one exchange of ``d + 4`` numbers a rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import DistanceMetric

from redist.learn.borrowed import EDGE
from redist.learn.kernels import twins
from redist.learn.kernels.cuda.prim import OutsideOnGpu
from redist.learn.kernels.outside_tree import OutsideTree
from redist.learn.kernels.steps import grow_alone, grow_tree
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
    for i in range(len(found)):
        if metric is None:
            grow_tree(outside, added, growth.offer, alpha)
        else:
            _grow(outside, added, growth.offer, alpha, metric)
        added = found[i] = growth.nearest_of_all()
    return _edges(found)


def _edges(found: Values) -> Values:
    """Points in the order in which they were reached, as edges."""
    edges = np.empty(len(found), EDGE)
    edges["current_node"], edges["next_node"] = found[:, 2], found[:, 1]
    edges["distance"] = found[:, 0]
    return edges


class Growth:
    """Finds the nearest of all ranks' points outside a tree; each rank writes its own to :attr:`offer`."""

    __slots__ = ("_alone", "_tell", "offer")

    def __init__(self, rows: Rows) -> None:
        self.offer = np.empty(rows.d + 4)
        self._tell, self._alone = RowsOfAll(rows.comm, rows.d + 4), rows.comm.size == 1

    def nearest_of_all(self) -> Values:
        """**Collective.** The nearest point that a rank offers, of several the one with the lowest number."""
        if self._alone:
            return self.offer.copy()
        every = self._tell(self.offer)
        near = every[every[:, 0] == every[:, 0].min()]
        best: Values = near[near[:, 1].argmin()]
        return best


def _grow(
    outside: OutsideTree, added: Values, offer: Values, alpha: float, metric: DistanceMetric
) -> None:
    """**Local.** As :func:`grow_tree`, in another metric."""
    outside.take(int(added[1]))
    others = np.ascontiguousarray(outside.columns[:, : outside.m].T)
    far = metric.pairwise(added[None, 4:], others)[0] / alpha if outside.m else np.empty(0)
    outside.offer(twins.approach(outside, far, float(added[3]), int(added[1])), offer)
