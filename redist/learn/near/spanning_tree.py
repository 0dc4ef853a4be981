"""A minimum spanning tree of all rows by Prim's algorithm, one point a step, the same on every rank.

A rank holds how far each of its rows outside the tree is from the tree. A step lets the tree have one
point more, and all ranks find the nearest of all: each tells ``d + 4`` numbers. Ranks of one node do that
in C, where their processors meet; others by an all-gather a step.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics import DistanceMetric

from redist.layout.array_type import ArrayType
from redist.learn.borrowed import EDGE
from redist.learn.kernels.cuda.near import OutsideOnGpu
from redist.learn.kernels.library import library
from redist.pgas.tiles.layouts import line_mesh
from redist.pgas.watch.seam import ElementExchange, traffic
from redist.runtime.cuda.arrays import to_host
from redist.runtime.ranks.world import world_of
from redist.spmd import Rows, RowsOfAll, node_loops
from redist.text.progress import Said, nothing

Values = NDArray[Any]
PART = 64
"""Points that C looks at together, as in native/prim.c."""
TURN = 2**27
"""Numbers of points that C may look at before Python has a turn: an interrupt waits no longer."""


@dataclass(frozen=True, slots=True)
class Apart:
    """How far points are from one that a tree has: their distance over ``alpha``, infinite above ``most``.

    It is at least the core distance of the point of the tree, and with ``both`` of the other too; with a
    ``unit`` it is rounded to whole parts of one. Squares are added dim by dim, and may be ``fused`` with
    the additions.
    """

    alpha: float = 1.0
    most: float = np.inf
    unit: float = 0.0
    both: bool = True
    fused: bool = False


class OutsideTree:
    """The points of one rank that are not in a growing spanning tree; the first ``m`` places are in use.

    ``reach`` says how far each is from the tree, ``nearest`` from which of its points, -1 before the
    first. Points are told to others as rows of ``reach, number, nearest, core, point``.
    """

    __slots__ = ("columns", "core", "least", "limit", "nearest", "number", "reach", "state")

    def __init__(self, rows: Values, core: Values, first: int) -> None:
        n, d = rows.shape
        room = -(-n // PART) * PART
        self.columns = np.zeros((room // PART, d, PART))
        """The points: columns of each part, one part after another."""
        whole = n // PART
        self.columns[:whole] = rows[: whole * PART].reshape(whole, PART, d).transpose(0, 2, 1)
        if room > n:
            self.columns[-1, :, : n % PART] = rows[whole * PART :].T
        self.core = np.zeros(room)
        self.core[:n] = core
        self.reach = np.full(room, np.inf)
        self.nearest = np.full(room, -1)
        self.number = np.arange(first, first + room, dtype=np.int64)
        self.limit, self.least = np.full(room, np.inf), np.full(room // PART, np.inf)
        """For C: squared distances from which on nothing matters to a point; the least reach of parts."""
        self.limit[n:] = -1
        self.state = np.array([n, -1, 0, 0])
        """Places in use, the place that was offered last or -1, steps done, whether others are waited for."""

    @property
    def m(self) -> int:
        """How many points there are."""
        return int(self.state[0])

    @property
    def points(self) -> Values:
        """The points, a row each."""
        rows = self.columns.transpose(0, 2, 1).reshape(-1, self.columns.shape[1])
        return np.ascontiguousarray(rows[: self.m])

    def offer(self, at: int, row: Values) -> None:
        """**Local.** Write the point at a place into a row; infinitely far if the place is -1."""
        self.state[1] = at
        row[:2] = np.inf
        if at >= 0:
            row[0], row[1], row[2] = self.reach[at], self.number[at], self.nearest[at]
            row[3], row[4:] = self.core[at], self.columns[at // PART, :, at % PART]

    def take(self, number: int) -> None:
        """**Local.** Take out the point offered last if it has this number; the last takes its place."""
        at = int(self.state[1])
        if at < 0 or int(self.number[at]) != number:
            return
        last = self.m - 1
        for one in (self.reach, self.nearest, self.core, self.number):
            one[at] = one[last]
        there = self.columns[last // PART, :, last % PART]
        self.columns[at // PART, :, at % PART] = there
        self.state[:2] = last, -1


Loop = Callable[[int, Any], int]
"""Lets a tree have this many points more than its first; with ranks that meet at every step, or with None."""

Step = Callable[[Values, Values], None]
"""Lets a tree have a point, and writes the nearest of the own points that are outside then."""


class _Outside(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("columns", "reach", "nearest", "core", "number")),
        ("limit", ctypes.c_void_p),
        ("least", ctypes.c_void_p),
        ("d", ctypes.c_int64),
        ("state", ctypes.c_void_p),
    )


class _Apart(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_double) for name in ("alpha", "most", "unit")),
        *((name, ctypes.c_int64) for name in ("both", "fused")),
    )


def loop_of(outside: OutsideTree, apart: Apart, added: Values, found: Values) -> Loop | None:
    """**Local.** What lets a tree grow into the rows of ``found``, after its first; None without C.

    Every step takes the point in ``added`` out of those outside, and writes the nearest of them there: of
    several, the one with the lowest number. Rows of ``found`` are ``distance to the tree, number, nearest
    point of the tree``; ``added`` has the core distance and the point besides. The loop answers 0 when it has
    ended, else it is called again. Arrays stay where they are.
    """
    c = library()
    if c is None:
        return None
    arrays = (outside.columns, outside.reach, outside.nearest, outside.core, outside.number)
    places = [one.ctypes.data for one in (*arrays, outside.limit, outside.least)]
    points = _Outside(*places, outside.columns.shape[1], outside.state.ctypes.data)
    how = _Apart(apart.alpha, apart.most, apart.unit, apart.both, apart.fused)
    ends = ctypes.c_void_p(added.ctypes.data), ctypes.c_void_p(found.ctypes.data)

    def grow(steps: int, ranks: Any) -> int:
        _ = outside, added, found  # are written to: they must live as long
        given = ctypes.byref(points), ctypes.byref(how), *ends, ctypes.c_int64(steps), ranks
        return int(c.redist_grow(*given))

    return grow


def step_of(outside: OutsideTree, apart: Apart) -> Step:
    """**Local.** A single step of such a loop, in C or in NumPy."""
    told = np.zeros(outside.columns.shape[1] + 4)
    loop = loop_of(outside, apart, told, np.zeros((2, 3)))
    if loop is None:
        return partial(grow_tree, outside, apart)

    def step(added: Values, offer: Values) -> None:
        outside.state[2] = 0
        told[:] = added
        loop(1, None)
        offer[:] = told

    return step


@lru_cache(maxsize=1)
def is_fused_by_scipy() -> bool | None:
    """**Local.** Whether SciPy's distances are squares fused with additions, as built for this processor.

    None if neither way, nor C, has its bits.
    """
    rng = np.random.RandomState(0)
    sets = [rng.rand(129, d) for d in (1, 2, 3, 8, 21)]
    for fused in (False, True):
        if all(_far_as_scipy(x, fused) for x in sets):
            return fused
    return None


def _far_as_scipy(x: Values, fused: bool) -> bool:
    if library() is None:
        return False
    outside = OutsideTree(x, np.zeros(len(x)), 0)
    added = np.array([0.0, -1.0, 0.0, 0.0, *x[0]])
    step_of(outside, Apart(fused=fused))(added, np.empty_like(added))
    return bool((outside.reach[: len(x)] == cdist(x[:1], x, "minkowski", p=2)[0]).all())


def grow_tree(outside: OutsideTree, apart: Apart, added: Values, offer: Values) -> None:
    """**Local.** As a step of :func:`loop_of`; products are rounded."""
    outside.take(int(added[1]))
    far = np.zeros(outside.m)
    for value, column in zip(added[4:], outside.points.T, strict=True):
        far += (value - column) ** 2
    outside.offer(approach(outside, np.sqrt(far) / apart.alpha, apart, added), offer)


def approach(outside: OutsideTree, far: Values, apart: Apart, added: Values) -> int:
    """**Local.** Let a point of the tree be so far from the points outside; where the nearest of them is."""
    m, core, number = outside.m, float(added[3]), int(added[1])
    if m == 0:
        return -1
    far = np.maximum(np.where(far > apart.most, np.inf, far), core)
    if apart.both:
        far = np.maximum(far, outside.core[:m])
    if apart.unit:
        far = np.rint(far * apart.unit) / apart.unit
    nearer = far < outside.reach[:m]
    outside.reach[:m][nearer] = far[nearer]
    outside.nearest[:m][nearer] = number
    least = np.flatnonzero(outside.reach[:m] == outside.reach[:m].min())
    return int(least[outside.number[least].argmin()])


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
        found = grow_on_gpu(rows, core, apart, start, said)
    else:
        outside = OutsideTree(rows.local, core, rows.first)
        step = None if metric is None else partial(_step, outside, apart, metric)
        found = grow(rows, outside, apart, start, step, said)
    edges = np.empty(rows.n - 1, EDGE)
    edges["current_node"], edges["next_node"] = found[1:, 2], found[1:, 1]
    edges["distance"] = found[1:, 0]
    return edges


def grow(
    rows: Rows, outside: OutsideTree, apart: Apart, start: Values, step: Step | None = None,
    said: Said = nothing,
) -> Values:  # fmt: skip
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


def grow_on_gpu(
    rows: Rows, core: Values, apart: Apart, start: Values, said: Said = nothing
) -> Values:
    """**Collective.** As :func:`grow`, by GPUs."""
    outside = OutsideOnGpu(rows.local, core, rows.first, apart)
    outside.state[1] = 0 if rows.first == 0 and len(rows.local) else -1
    added, found = begin(rows, start)
    if rows.comm.size == 1:
        outside.grow_alone(added, found)
    else:
        grow_by_steps(rows, added, found, outside.grow, said)
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
    outside.offer(approach(outside, far, apart, added), offer)
