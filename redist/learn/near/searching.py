"""Which search for neighbours scikit-learn would take, so that distances are alike; slabs to search.

A slab is an interval of the widest column, one for each rank. What is within a reach of a slab's rows is
in the slab or within that reach of its ends, in every metric in which two points are at least as far
apart as along one column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from redist.spmd import Passing, Rows, all_rows, total_of

Values = NDArray[Any]
Numbers = NDArray[np.int64]
SAMPLE = 256
"""Values that each rank tells of its rows, to find where slabs end."""
METRICS = frozenset(
    ("euclidean", "l2", "minkowski", "p", "manhattan", "cityblock", "l1", "chebyshev", "infinity")
)
"""Metrics for which slabs hold, where a power is at least 1."""
CHUNK = 256
BY_TREE, BY_HAND = CHUNK, 16 * CHUNK
"""Rows that are searched for at a time: in a tree, and in all rows."""
OWN_ROWS = "rows of rank 0"
"""What the rank that speaks, the first of all, tells of if each searches for its own rows."""
ENOUGH = 64
"""This many rows are a set that is not small to scikit-learn."""


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


def is_euclidean(metric: Any, p: Any, metric_params: Any) -> bool:
    """**Local.** Whether options of a search mean the plain distance.

    >>> is_euclidean("minkowski", 2, None), is_euclidean("l2", None, {}), is_euclidean("l1", 2, None)
    (True, True, False)
    """
    is_plain = metric in ("euclidean", "l2") or (metric == "minkowski" and p == 2)
    return bool(is_plain and not metric_params)


@dataclass(frozen=True, slots=True)
class Search:
    """Options of ``NearestNeighbors`` with its algorithm settled: ``kd_tree``, ``ball_tree`` or ``brute``."""

    options: dict[str, Any]
    by_slabs: bool
    """Whether two points are at least as far apart as along one column, and a tree is searched."""

    @staticmethod
    def of(n: int, d: int, **options: Any) -> Search:
        """**Local.** What scikit-learn would do with ``n`` rows of ``d`` columns; its errors."""
        probe = NearestNeighbors(**options)
        probe.fit(np.zeros((min(n, max(ENOUGH, 2 * probe.n_neighbors + 2)), d)))
        settled = str(probe._fit_method)
        metric, extra = probe.effective_metric_, probe.effective_metric_params_
        even = not extra or (set(extra) <= {"p", "w"} and extra.get("w") is None)
        holds = metric in METRICS and even and extra.get("p", 2) >= 1
        return Search(
            {**options, "algorithm": settled}, holds and settled in ("kd_tree", "ball_tree")
        )

    def over(self, rows: Values) -> NearestNeighbors:
        """**Local.** A search over some rows, at least one."""
        return NearestNeighbors(**self.options).fit(rows)


def parts_of(model: NearestNeighbors, n: int) -> Iterator[slice]:
    """**Local.** Rows to search for at a time, which take a moment: Python sees Ctrl-C between them.

    scikit-learn looks for rows one by one in a tree, for ``CHUNK`` together without one: what it finds,
    to the bit, does not depend on the parts.
    """
    part = BY_TREE if getattr(model, "_tree", None) is not None else BY_HAND
    for lo in range(0, n, part):
        yield slice(lo, min(n, lo + part))


def rows_within(
    model: NearestNeighbors | None, rows: Values, reach: Values | None
) -> NDArray[np.int64]:
    """**Local.** Which rows have one of a search within their reach; all of them where that is not known."""
    tree = getattr(model, "_tree", None)
    if reach is None or tree is None or not len(rows):
        return np.arange(len(rows))
    assert model is not None
    far = reach * (1 + 1e-9)
    parts = parts_of(model, len(rows))
    counts = [tree.query_radius(rows[part], far[part], count_only=True) for part in parts]
    return np.flatnonzero(np.concatenate(counts))
