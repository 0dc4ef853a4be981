"""A tree that grows point by point: in C, alone or with the ranks of a node, else in NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from redist.learn.kernels import twins
from redist.learn.kernels.library import library
from redist.learn.kernels.outside_tree import Apart, OutsideTree

Values = NDArray[Any]
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
        return partial(twins.grow_tree, outside, apart)

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
