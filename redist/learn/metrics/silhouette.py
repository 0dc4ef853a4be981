"""How well rows fit their labels: silhouettes by visits, and the spread and separation of clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn.metrics
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.metrics.pairwise import pairwise_distances

from redist.learn.given import one_random_state
from redist.learn.kernels.steps import try_candidates
from redist.learn.metrics.labelled import (
    LabelCodes,
    check_number_of_labels,
    comm_of,
    take_labelled,
)
from redist.learn.working import working
from redist.spmd import (
    ExactGrid,
    Rows,
    Visits,
    cut_like,
    is_global,
    largest,
    same_error,
    total_of,
    whole_of,
)
from redist.text.progress import phase

Values = NDArray[Any]
OWN_PART, VISITED_PART = 256, 8192
"""Distances of this many own rows to this many others are there at a time: 16 MiB."""


@working
def silhouette_samples(
    X: Any, labels: Any, *, metric: Any = "euclidean", progress: bool | None = None, **kwds: Any
) -> Any:
    """**Collective.** The silhouette of every row, from -1 (in a wrong cluster) to 1.

    In an SPMD program::

        silhouette_samples(x, KMeans(8).fit(x).labels_)      # global, cut as x is

    Every rank visits the tiles of all ranks. It holds two copies of its rows, a block of distances, and two
    numbers for each of its rows and each cluster. NumPy input gives NumPy output. With ``progress=True`` the
    first rank reports its progress on stderr: the time grows with the square of the number of rows.
    """
    if issparse(X) or _asks_all_rows(metric, kwds):
        whole = whole_of(X), whole_of(labels)
        found = sklearn.metrics.silhouette_samples(*whole, metric=metric, **kwds)
        return cut_like(X, found) if is_global(X) else found
    rows, codes = take_labelled(X, labels)
    return rows.answer(_silhouettes(rows, codes, _Distances(metric, kwds)))


@working
def silhouette_score(
    X: Any, labels: Any, *, metric: Any = "euclidean", sample_size: int | None = None,
    random_state: Any = None, progress: bool | None = None, **kwds: Any,
) -> float:  # fmt: skip
    """**Collective.** The mean silhouette of all rows, or of ``sample_size`` rows, which is far quicker.

    ``progress`` works as in :func:`silhouette_samples`.

    >>> round(silhouette_score([[0.0], [1.0], [10.0], [11.0]], [0, 0, 1, 1]), 4)
    0.8997
    """
    if issparse(X) or _asks_all_rows(metric, kwds):
        state = one_random_state(comm_of(X, labels), random_state) if sample_size else None
        given = {"metric": metric, "sample_size": sample_size, "random_state": state, **kwds}
        return float(sklearn.metrics.silhouette_score(whole_of(X), whole_of(labels), **given))
    rows, codes = take_labelled(X, labels)
    if sample_size is not None:
        rows, codes = _sampled(rows, codes, sample_size, random_state, metric == "precomputed")
    values = _silhouettes(rows, codes, _Distances(metric, kwds))
    parts = ExactGrid.for_sum(1.0, rows.n).sum_rows(values)
    return float(total_of(rows.comm, parts).sum() / rows.n)


def _asks_all_rows(metric: Any, options: dict[str, Any]) -> bool:
    """Whether a metric takes something from all rows first: then every rank gathers them."""
    return metric in ("seuclidean", "mahalanobis") and not {"V", "VI"} & set(options)


@dataclass(frozen=True, slots=True)
class _Distances:
    """How far rows are from each other."""

    metric: Any
    options: dict[str, Any]

    @property
    def is_euclidean(self) -> bool:
        return self.metric in ("euclidean", "l2") and not self.options

    def __call__(self, own: Values, others: Values) -> Values:
        """**Local.** Distances, the same for a pair of rows however rows are cut."""
        if not self.is_euclidean:
            return np.asarray(pairwise_distances(own, others, metric=self.metric, **self.options))
        norms = (own * own).sum(axis=1), (others * others).sum(axis=1)
        n = len(others)
        given = others, norms[1], np.zeros(n), own, norms[0], np.full(n, np.inf)
        squared, _ = try_candidates(*given, ExactGrid.for_sum(1.0, 1))
        return np.sqrt(squared, out=squared)


def _silhouettes(rows: Rows, codes: LabelCodes, distances: _Distances) -> Values:
    """**Collective.** Those of the own rows."""
    check_number_of_labels(codes)
    sums = _sums_by_label(rows, codes, distances)
    own = np.arange(len(rows.local)), codes.own
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = sums[own] / (codes.counts - 1)[codes.own]
        sums[own] = np.inf
        outside = (sums / codes.counts).min(axis=1, initial=np.inf)
        found: Values = (outside - inside) / np.maximum(inside, outside)
    return np.nan_to_num(found)


def _sums_by_label(rows: Rows, codes: LabelCodes, distances: _Distances) -> Values:
    """**Collective.** Distances of the own rows to all rows, added up by label, exactly."""
    precomputed = distances.metric == "precomputed"
    if precomputed:
        _must_be_distances(rows)
        labelled = iter([(0, rows.local[:0], rows.gather(codes.own))])
        bound = largest(rows.comm, rows.local)
    else:
        both = rows.holding(np.column_stack([rows.local, codes.own.astype(float)]))
        visits = Visits(both)
        labelled = ((first, tile[:, :-1], tile[:, -1]) for first, tile in visits)
        bound = _bound(rows, distances, visits)
    grid = ExactGrid.for_sum(bound, rows.n)
    sums = np.zeros((2, len(rows.local), codes.k))
    phases = 1 if precomputed or distances.is_euclidean else 2  # the first is that of the bound
    said, done = phase("distances", phases, phases), 0
    for first, tile, labels in labelled:
        order = np.argsort(labels, kind="stable")
        for lo in range(0, len(order), VISITED_PART):
            chosen = order[lo : lo + VISITED_PART]
            present, starts = np.unique(labels[chosen].astype(np.int64), return_index=True)
            others = None if precomputed else np.ascontiguousarray(tile[chosen])
            for at in range(0, len(rows.local), OWN_PART):
                mine = rows.local[at : at + OWN_PART]
                if others is None:
                    far = mine[:, chosen + first]
                else:
                    far = distances(np.ascontiguousarray(mine), others)
                    far[_itself(rows.first + at, len(mine), first + chosen)] = 0
                for part, total in zip(grid.split(far), sums, strict=True):
                    total[at : at + OWN_PART, present] += np.add.reduceat(part, starts, axis=1)
                done += len(mine) * len(chosen)
                said(done // len(rows.local), rows.n)
    out: Values = sums.sum(axis=0)
    return out


def _itself(first: int, n: int, numbers: Values) -> tuple[Values, Values]:
    """Where rows ``first`` and following meet themselves among rows of these numbers."""
    there = np.flatnonzero((numbers >= first) & (numbers < first + n))
    return numbers[there] - first, there


def _bound(rows: Rows, distances: _Distances, visits: Visits) -> float:
    """**Collective.** A number that no distance exceeds, the same for every number of ranks."""
    if distances.is_euclidean:
        norms = np.sqrt((rows.local * rows.local).sum(axis=1))
        return 2.0 * largest(rows.comm, norms) * (1 + 1e-6)
    most = 0.0
    said, done = phase("largest distance", 1, 2), 0
    for _, tile in visits:
        for lo in range(0, len(tile), VISITED_PART):
            others = np.ascontiguousarray(tile[lo : lo + VISITED_PART, :-1])
            for at in range(0, len(rows.local), OWN_PART):
                far = distances(np.ascontiguousarray(rows.local[at : at + OWN_PART]), others)
                most = max(most, float(np.abs(far).max(initial=0.0)))
                done += far.size
                said(done // len(rows.local), rows.n)
    return largest(rows.comm, np.array([most]))


def _must_be_distances(rows: Rows) -> None:
    """**Collective.** Raise, in scikit-learn's words, unless rows are of a square matrix of distances."""
    if rows.d != rows.n:
        sklearn.metrics.pairwise_distances(np.zeros((rows.n, rows.d)), metric="precomputed")
    places = np.arange(len(rows.local))
    with same_error(rows.comm):
        diagonal = rows.local[places, places + rows.first]
        if (np.abs(diagonal) > np.finfo(np.float64).eps * 100).any():
            raise ValueError(
                "The precomputed distance matrix contains non-zero elements on the diagonal. Use "
                "np.fill_diagonal(X, 0)."
            )


def _sampled(
    rows: Rows, codes: LabelCodes, size: int, random_state: Any, square: bool
) -> tuple[Rows, LabelCodes]:
    """**Collective.** The rows that scikit-learn draws, shared evenly, with their labels."""
    numbers = np.sort(one_random_state(rows.comm, random_state).permutation(rows.n)[:size])
    here = numbers[rows.holds(numbers)] - rows.first
    first = int(np.searchsorted(numbers, rows.first))
    local = rows.local[here][:, numbers] if square else rows.local[here]
    both = np.column_stack([local, codes.own[here].astype(float)])
    chosen = Rows(both, first, len(numbers), rows.comm, None, is_even=False).even_out()
    values = np.ascontiguousarray(chosen.local[:, :-1])
    own = chosen.local[:, -1].astype(np.int64)
    return chosen.holding(values), LabelCodes.counted(own, codes.k, rows.comm)


def calinski_harabasz_score(X: Any, labels: Any) -> float:
    """**Collective.** The ratio of how far apart clusters are to how far they spread; higher is better.

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
    """**Collective.** How much each cluster overlaps with the one most similar to it; lower is better.

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
