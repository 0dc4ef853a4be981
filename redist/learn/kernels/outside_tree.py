"""The points that a growing spanning tree has not reached yet, as one rank holds them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]


class OutsideTree:
    """The points of one rank that are not in a growing spanning tree; the first ``m`` places are in use.

    ``reach`` says how far each is from the tree, ``nearest`` from which of its points. Points are told to
    others as rows of ``reach, number, nearest, core, point``.
    """

    __slots__ = ("addresses", "columns", "core", "nearest", "number", "reach", "state")

    def __init__(self, rows: Values, core: Values, first: int) -> None:
        n = len(rows)
        self.columns = np.ascontiguousarray(rows.T, dtype=np.float64)
        self.core = np.array(core, dtype=np.float64)
        self.reach = np.full(n, np.inf)
        self.nearest = np.zeros(n, np.int64)
        self.number = np.arange(first, first + n, dtype=np.int64)
        self.state = np.array([n, -1])
        """How many places are in use, and the place that was offered last, -1 for none."""
        self.addresses: Any = None
        """Where all this lies, once a kernel has asked."""

    @property
    def m(self) -> int:
        """How many points there are."""
        return int(self.state[0])

    def offer(self, at: int, row: Values) -> None:
        """**Local.** Write the point at a place into a row; infinitely far if the place is -1."""
        self.state[1] = at
        row[:2] = np.inf
        if at >= 0:
            row[0], row[1], row[2] = self.reach[at], self.number[at], self.nearest[at]
            row[3], row[4:] = self.core[at], self.columns[:, at]

    def take(self, number: int) -> None:
        """**Local.** Take out the point offered last if it has this number; the last takes its place."""
        at = int(self.state[1])
        if at < 0 or int(self.number[at]) != number:
            return
        last = self.m - 1
        for one in (self.reach, self.nearest, self.core, self.number):
            one[at] = one[last]
        self.columns[:, at] = self.columns[:, last]
        self.state[:] = last, -1
