"""The points that a growing spanning tree has not reached yet, as one rank holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
PART = 64
"""Points that C looks at together, as in native/prim.c."""


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

    ``reach`` says how far each is from the tree, ``nearest`` from which of its points. Points are told to
    others as rows of ``reach, number, nearest, core, point``.
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
        self.nearest = np.zeros(room, np.int64)
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
