"""A minimum spanning tree of all rows by Prim's algorithm, one point a step, the same on every rank.

A rank holds how far each of its rows outside the tree is from the tree. A step lets the tree have one point
more, and all ranks find the nearest of all: each tells ``d + 4`` numbers. Ranks of one node do that in C,
where their processors meet; others by an all-gather a step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import DistanceMetric

from redist.layout.array_type import ArrayType
from redist.learn.borrowed import EDGE
from redist.learn.kernels import twins
from redist.learn.kernels.cuda.prim import OutsideOnGpu
from redist.learn.kernels.growing import Loop, Step, loop_of, step_of
from redist.learn.kernels.outside_tree import Apart, OutsideTree
from redist.pgas.tiles.layouts import line_mesh
from redist.pgas.watch.seam import ElementExchange, traffic
from redist.runtime.cuda.arrays import to_host
from redist.runtime.ranks.world import world_of
from redist.spmd import Rows, RowsOfAll, node_loops
from redist.text.progress import Said, nothing

Values = NDArray[Any]
TURN = 2**27
"""Numbers of points that C may look at before Python has a turn: an interrupt waits no longer."""


def spanning_tree(
    rows: Rows,
    core: Values,
    alpha: float = 1.0,
    metric: DistanceMetric | None = None,
    said: Said = nothing,
) -> Values:
    """**Collective.** The edges of a minimum spanning tree over mutual reachability, in the order of growth.

    Two points are ``max(core of one, core of the other, distance / alpha)`` apart; the tree grows from
    row 0, and of equally near points the one with the lowest number comes first, as in scikit-learn.
    ``metric`` is None for Euclidean distances; rows and cores on a GPU stay there, and know no others. Every
    edge says from where, to where, and how far.
    """
    start = np.zeros(4)
    start[3] = rows.holding(core).fetch([0])[0]
    apart = Apart(alpha)
    if rows.on_gpu:
        found = _grow_on_gpu(rows, core, alpha, start)
    else:
        outside = OutsideTree(rows.local, core, rows.first)
        step = None if metric is None else partial(_step, outside, apart, metric)
        found = grow(rows, outside, apart, start, step, said)
    edges = np.empty(rows.n - 1, EDGE)
    edges["current_node"], edges["next_node"] = found[1:, 2], found[1:, 1]
    edges["distance"] = found[1:, 0]
    return edges


def grow(
    rows: Rows,
    outside: OutsideTree,
    apart: Apart,
    start: Values,
    step: Step | None = None,
    said: Said = nothing,
) -> Values:
    """**Collective.** Let a tree grow from row 0 to all: for each, how far, its number, and from where.

    ``start`` is the same of row 0, and its core distance. A ``step`` that is given does the own part of each
    in Python, or on a GPU.
    """
    added, found = begin(rows, start)
    outside.state[1] = 0 if rows.first == 0 and outside.m else -1
    if step is None:
        loop = loop_of(outside, apart, added, found)
        if loop is not None and grow_on_node(rows, loop, found, said=said):
            return found
        step = step_of(outside, apart)
    grow_by_steps(rows, added, found, step, said)
    return found


def begin(rows: Rows, start: Values) -> tuple[Values, Values]:
    """**Collective.** Row 0 as a point that was added to a tree, and room for what the tree reaches."""
    found = np.empty((rows.n, 3))
    found[0] = start[:3]
    return np.concatenate([start, to_host(rows.fetch([0])[0])]), found


def grow_on_node(
    rows: Rows, loop: Loop, found: Values, turn: int = 0, said: Said = nothing
) -> bool:
    """**Collective.** Let a loop in C find all points; False, on all ranks, if they are on several nodes.

    It is called for ``turn`` points at a time: as many as take a moment if nobody says.
    """
    comm, n, width = rows.comm, rows.n, rows.d + 4
    turn = turn or max(1, TURN // max(1, n * width // comm.size))
    stops = [*range(turn, n - 1, turn), n - 1]
    if comm.size == 1:
        for stop in stops:
            loop(stop, None)
            said(stop, n - 1)
        return True
    if not world_of(comm).one_node:
        return False

    def work() -> tuple[bool, int]:
        with node_loops(comm, (2, width), what="grow a tree") as loops:
            if loops is None:
                return False, 0
            for stop in stops:
                loops.run(partial(loop, stop))
                said(stop, n - 1)
        return True, (comm.size - 1) * (n - 1) * width * 8

    mesh = line_mesh(comm.size)
    cut = ArrayType.parse(f"f64[{comm.size}{{x}}, {width}]", mesh)
    whole = ArrayType.parse(f"f64[{comm.size}, {width}]", mesh)
    return traffic().perform(ElementExchange("grow a tree", cut, whole), work, ())


def _grow_on_gpu(rows: Rows, core: Values, alpha: float, start: Values) -> Values:
    """**Collective.** As :func:`grow`, by GPUs."""
    outside = OutsideOnGpu(rows.local, core, rows.first)
    outside.state[1] = 0 if rows.first == 0 and len(rows.local) else -1
    added, found = begin(rows, start)
    if rows.comm.size == 1:
        outside.grow_alone(added, found, alpha)
    else:
        grow_by_steps(rows, added, found, partial(outside.grow, alpha))
    return found


def grow_by_steps(
    rows: Rows, added: Values, found: Values, step: Step, said: Said = nothing
) -> None:
    """**Collective.** Let a tree grow with an all-gather a step."""
    tell = RowsOfAll(rows.comm, len(added))
    for i in range(1, rows.n):
        step(added, tell.row)
        every = tell()
        near = every[:, :2].tolist()
        added[:] = every[near.index(min(near))]
        found[i] = added[:3]
        said(i, rows.n - 1)


def _step(
    outside: OutsideTree, apart: Apart, metric: DistanceMetric, added: Values, offer: Values
) -> None:
    """**Local.** A step in another metric."""
    outside.take(int(added[1]))
    others = outside.points
    far = metric.pairwise(added[None, 4:], others)[0] / apart.alpha if outside.m else np.empty(0)
    outside.offer(twins.approach(outside, far, apart, added), offer)
