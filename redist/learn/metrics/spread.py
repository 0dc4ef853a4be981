"""How far clusters spread beside how far they are apart: from exact sums by label, whatever the cut."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import pairwise_distances

from redist.learn.metrics.labelled import LabelCodes, check_number_of_labels, take_labelled
from redist.spmd import ExactGrid, Rows, largest, total_of

Values = NDArray[Any]


def calinski_harabasz_score(X: Any, labels: Any) -> float:
    """**Collective.** How far clusters are apart over how far they spread; higher is better.

    >>> calinski_harabasz_score([[0.0], [1.0], [10.0], [11.0]], [0, 0, 1, 1])
    200.0
    """
    rows, codes = take_labelled(X, labels)
    check_number_of_labels(codes)
    total = _sums(rows, codes, rows.local, largest(rows.comm, rows.local))
    centers = total / codes.counts[:, None]
    apart = codes.counts @ ((centers - total.sum(axis=0) / rows.n) ** 2).sum(axis=1)
    squares = ((rows.local - centers[codes.own]) ** 2).sum(axis=1)
    spread = _sums(rows, codes, squares, largest(rows.comm, squares)).sum()
    return float(apart * (rows.n - codes.k) / (spread * (codes.k - 1.0))) if spread else 1.0


def davies_bouldin_score(X: Any, labels: Any) -> float:
    """**Collective.** How much each cluster overlaps with the one it is most alike to; lower is better.

    >>> davies_bouldin_score([[0.0], [1.0], [10.0], [11.0]], [0, 0, 1, 1])
    0.1
    """
    rows, codes = take_labelled(X, labels)
    check_number_of_labels(codes)
    total = _sums(rows, codes, rows.local, largest(rows.comm, rows.local))
    centers = total / codes.counts[:, None]
    far = np.sqrt(((rows.local - centers[codes.own]) ** 2).sum(axis=1))
    spread = _sums(rows, codes, far, largest(rows.comm, far)) / codes.counts
    apart = pairwise_distances(centers)
    if np.allclose(spread, 0) or np.allclose(apart, 0):
        return 0.0
    apart[apart == 0] = np.inf
    return float(((spread[:, None] + spread) / apart).max(axis=1).mean())


def _sums(rows: Rows, codes: LabelCodes, values: Values, bound: float) -> Values:
    """**Collective.** Sums of values of all rows by label, ``k, ...``, exact until they are rounded once."""
    parts = [codes.sums(part) for part in ExactGrid.for_sum(bound, rows.n).split(values)]
    total: Values = total_of(rows.comm, np.stack(parts)).sum(axis=0)
    return total
