"""Which search for neighbours scikit-learn would take, so that distances are worked out alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from redist.learn.near.slabs import METRICS
from redist.text.progress import Said, nothing

Values = NDArray[Any]
CHUNK = 256
BY_TREE, BY_HAND = CHUNK, 16 * CHUNK
"""Rows that are searched for at a time: in a tree, and in all rows."""
OWN_ROWS = "rows of rank 0"
"""What the rank that speaks, the first of all, tells of if each searches for its own rows."""
ENOUGH = 64
"""This many rows are a set that is not small to scikit-learn."""


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


def nearest_distances(
    model: NearestNeighbors | None,
    rows: Values,
    k: int,
    reach: Values | None = None,
    said: Said = nothing,
) -> Values:
    """**Local.** Distances of rows to the ``k`` nearest of a search; infinite where there are fewer.

    Also where nothing is within a row's ``reach``, if that is given: nobody looks for its nearest then.
    """
    out = np.full((len(rows), k), np.inf)
    which = rows_within(model, rows, reach)
    if model is not None and len(which):
        n = min(k, model.n_samples_fit_)
        for part in parts_of(model, len(which)):
            out[which[part], :n] = model.kneighbors(rows[which[part]], n)[0]
            said(part.stop, len(which), OWN_ROWS)
    return out


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
