"""Rows brought together by where they are in space: each rank gets a slab.

A slab is an interval of the widest column. What is within a reach of a slab's rows is in the slab or within
that reach of its ends, in every metric in which two points are at least as far apart as along one column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.spmd import Passing, Rows, all_rows, total_of

Values = NDArray[Any]
Numbers = NDArray[np.int64]
SAMPLE = 256
"""Values that each rank tells of its rows, to find where slabs end."""
METRICS = frozenset(
    ("euclidean", "l2", "minkowski", "p", "manhattan", "cityblock", "l1", "chebyshev", "infinity")
)
"""Metrics for which slabs hold, where a power is at least 1."""


@dataclass(frozen=True, slots=True)
class Slabs:
    """The rows of this rank's slab, their numbers in the whole, and where all slabs end along the column."""

    came: Passing
    rows: Values
    numbers: Numbers
    column: int
    edges: Values

    @staticmethod
    def of(rows: Rows) -> Slabs:
        """**Collective.** Bring rows to slabs that hold about the same number each."""
        comm, local = rows.comm, np.ascontiguousarray(rows.local, dtype=np.float64)
        lows, highs = local.min(axis=0, initial=np.inf), local.max(axis=0, initial=-np.inf)
        least, most = total_of(comm, lows, "min"), total_of(comm, highs, "max")
        column = int((most - least).argmax())
        edges = _edges(rows, np.sort(local[:, column]))
        ranks = np.searchsorted(edges, local[:, column], side="right")
        came = Passing.of(comm, np.arange(len(local)), ranks)
        numbers = came.there(np.arange(rows.first, rows.first + len(local)))
        return Slabs(came, came.there(local), numbers, column, edges)

    def bring(self, values: Values) -> Values:
        """**Collective.** Values of the ranks' own rows, to where the rows are now."""
        return self.came.there(values)

    def take_back(self, values: Values) -> Values:
        """**Collective.** Values of the slab's rows, to the ranks that the rows came from, in their order."""
        came = self.came.back(values)
        out = np.empty_like(came)
        out[self.came.rows] = came
        return out

    def met(self, rows: Values, reach: Values) -> tuple[Numbers, Numbers]:
        """**Local.** Which rows are within their reach of other ranks' slabs: rows, and ranks."""
        at, rank = rows[:, self.column], self.came.comm.rank
        wide = reach * (1 + 1e-9) + 4 * np.spacing(np.abs(at).max(initial=0.0))
        first = np.searchsorted(self.edges, at - wide, side="right")
        last = np.searchsorted(self.edges, at + wide, side="right")
        found = [
            (np.flatnonzero((first <= other) & (other <= last)), other)
            for other in range(self.came.comm.size)
            if other != rank
        ]
        which = [rows_of for rows_of, _ in found]
        ranks = [np.full(len(rows_of), other) for rows_of, other in found]
        nothing = np.empty(0, np.int64)
        return np.concatenate([nothing, *which]), np.concatenate([nothing, *ranks])


def _edges(rows: Rows, along: Values) -> Values:
    """**Collective.** Where slabs end: quantiles of what ranks tell of their rows, in order."""
    told = np.full(SAMPLE, np.nan)
    if len(along):
        told = along[(np.arange(SAMPLE) * len(along)) // SAMPLE]
    every = all_rows(rows.comm, told).reshape(-1)
    every = np.sort(every[~np.isnan(every)])
    size = rows.comm.size
    return every[[len(every) * i // size for i in range(1, size)]]
