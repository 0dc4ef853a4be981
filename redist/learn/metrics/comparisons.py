"""How well two labellings agree: scikit-learn's scores from the table of both, the same on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn.metrics
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.metrics.cluster import expected_mutual_information

from redist.learn.metrics.labelled import LabelCodes, check_labels, check_same_length, comm_of
from redist.spmd import all_parts

Values = NDArray[Any]


def contingency_of(labels_true: Any, labels_pred: Any) -> csr_array:
    """**Collective.** The contingency table of two labellings: sparse, of integers, the same on every rank.

    A rank sends the others only the pairs of labels that occur in its rows.
    """
    labels_true = check_labels(labels_true, "labels_true")
    labels_pred = check_labels(labels_pred, "labels_pred")
    check_same_length(labels_true, labels_pred)
    comm = comm_of(labels_true, labels_pred)
    one, other = LabelCodes.of(labels_true, comm), LabelCodes.of(labels_pred, comm)
    pairs, counts = np.unique(one.own * max(1, other.k) + other.own, return_counts=True)
    told, _ = all_parts(comm, np.stack([pairs, counts], axis=1).astype(np.int64))
    places, which = np.unique(told[:, 0], return_inverse=True)
    total = np.zeros(len(places), np.int64)
    np.add.at(total, which.reshape(-1), told[:, 1])
    shape = one.k, other.k
    return csr_array((total, np.divmod(places, max(1, other.k))), shape=shape, dtype=np.int64)


def contingency_matrix(
    labels_true: Any,
    labels_pred: Any,
    *,
    eps: float | None = None,
    sparse: bool = False,
    dtype: Any = np.int64,
) -> Any:
    """**Collective.** How many rows have each pair of labels: true labels down, the others across.

    >>> contingency_matrix([0, 0, 1, 1, 2, 2], [1, 0, 2, 1, 0, 2]).tolist()
    [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    """
    if eps is not None and sparse:
        raise ValueError("Cannot set 'eps' when sparse=True")
    found = contingency_of(labels_true, labels_pred).astype(dtype)
    if sparse:
        return found
    return found.toarray() if eps is None else found.toarray() + eps


def pair_confusion_matrix(labels_true: Any, labels_pred: Any) -> Values:
    """**Collective.** Counts of row pairs by whether each labelling puts both in one cluster: 2 x 2 integers.

    >>> pair_confusion_matrix([0, 0, 1, 2], [0, 0, 1, 1]).tolist()
    [[8, 2], [0, 2]]
    """
    return pairs_of(contingency_of(labels_true, labels_pred))


def pairs_of(table: csr_array) -> Values:
    """**Local.** The pair confusion matrix of a contingency table."""
    n = int(table.sum())
    square, rows, columns = (
        int((one.astype(np.int64) ** 2).sum())
        for one in (table.data, table.sum(axis=1), table.sum(axis=0))
    )
    apart, together = columns - square, rows - square
    return np.array([[n * n - apart - together - square, apart], [together, square - n]])


def rand_score(labels_true: Any, labels_pred: Any) -> float:
    """**Collective.** The share of row pairs that both labellings treat alike.

    >>> rand_score([0, 0, 1, 2], [0, 0, 1, 1])
    0.8333333333333334
    """
    (tn, fp), (fn, tp) = pairs_of(contingency_of(labels_true, labels_pred)).tolist()
    every = tn + fp + fn + tp
    return 1.0 if tn + tp == every or every == 0 else (tn + tp) / every


def adjusted_rand_score(labels_true: Any, labels_pred: Any) -> float:
    """**Collective.** The Rand score adjusted for chance: 0 for random labels, 1 for identical clusters.

    >>> adjusted_rand_score([0, 0, 1, 1], [1, 1, 0, 0]), adjusted_rand_score([0, 0, 1, 2], [0, 0, 1, 1])
    (1.0, 0.5714285714285714)
    """
    (tn, fp), (fn, tp) = pairs_of(contingency_of(labels_true, labels_pred)).tolist()
    if fn == 0 and fp == 0:
        return 1.0
    return 2.0 * (tp * tn - fn * fp) / ((tp + fn) * (fn + tn) + (tp + fp) * (fp + tn))


def fowlkes_mallows_score(labels_true: Any, labels_pred: Any) -> float:
    """**Collective.** The geometric mean of precision and recall over pairs of rows.

    >>> fowlkes_mallows_score([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    (_, fp), (fn, tp) = pairs_of(contingency_of(labels_true, labels_pred)).tolist()
    return float(np.sqrt(tp / (tp + fn)) * np.sqrt(tp / (tp + fp))) if tp else 0.0


def mutual_info_score(labels_true: Any, labels_pred: Any, *, contingency: Any = None) -> float:
    """**Collective.** How much one labelling tells about the other, in nats.

    >>> round(mutual_info_score([0, 1, 1, 0, 1, 0], [0, 1, 0, 0, 1, 1]), 4)
    0.0566
    """
    table = contingency_of(labels_true, labels_pred) if contingency is None else contingency
    return _information(table)


def normalized_mutual_info_score(
    labels_true: Any, labels_pred: Any, *, average_method: str = "arithmetic"
) -> float:
    """**Collective.** The mutual information divided by a mean of both entropies, from 0 to 1.

    >>> normalized_mutual_info_score([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    table = contingency_of(labels_true, labels_pred)
    if table.shape in ((1, 1), (0, 0)):
        return 1.0
    found = _information(table)
    return float(found / _mean(*_entropies(table), average_method)) if found else 0.0


def adjusted_mutual_info_score(
    labels_true: Any, labels_pred: Any, *, average_method: str = "arithmetic"
) -> float:
    """**Collective.** The mutual information, adjusted: 0 for random labels, 1 for identical clusters.

    >>> adjusted_mutual_info_score([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    table = contingency_of(labels_true, labels_pred)
    if table.shape in ((1, 1), (0, 0)):
        return 1.0
    if 1 in table.shape:
        return 0.0
    by_chance = expected_mutual_information(table, int(table.sum()))
    most = _mean(*_entropies(table), average_method)
    return float(_not_zero(_information(table) - by_chance) / _not_zero(most - by_chance))


def homogeneity_completeness_v_measure(
    labels_true: Any, labels_pred: Any, *, beta: float = 1.0
) -> tuple[float, float, float]:
    """**Collective.** The homogeneity and completeness of clusters, and the V-measure of both.

    >>> homogeneity_completeness_v_measure([0, 0, 1, 1], [0, 0, 0, 0])
    (0.0, 1.0, 0.0)
    """
    table = contingency_of(labels_true, labels_pred)
    if not table.sum():
        return 1.0, 1.0, 1.0
    found = _information(table)
    pure, complete = (found / one if one else 1.0 for one in _entropies(table))
    both = pure + complete and (1 + beta) * pure * complete / (beta * pure + complete)
    return float(pure), float(complete), float(both)


def homogeneity_score(labels_true: Any, labels_pred: Any) -> float:
    """**Collective.** Whether each cluster has rows of one class only, from 0 to 1."""
    return homogeneity_completeness_v_measure(labels_true, labels_pred)[0]


def completeness_score(labels_true: Any, labels_pred: Any) -> float:
    """**Collective.** Whether all rows of a class are in one cluster, from 0 to 1."""
    return homogeneity_completeness_v_measure(labels_true, labels_pred)[1]


def v_measure_score(labels_true: Any, labels_pred: Any, *, beta: float = 1.0) -> float:
    """**Collective.** The harmonic mean of homogeneity and completeness."""
    return homogeneity_completeness_v_measure(labels_true, labels_pred, beta=beta)[2]


def _information(table: csr_array) -> float:
    if not table.sum():
        return 0.0  # where scikit-learn has no answer
    return float(sklearn.metrics.mutual_info_score(None, None, contingency=table))


def _entropies(table: csr_array) -> tuple[float, float]:
    """Those of the rows' and of the columns' labels."""
    found = []
    for dim in (1, 0):
        counts = np.ravel(table.sum(axis=dim)).astype(np.float64)
        n = counts.sum()
        shares = -(counts / n) * (np.log(counts) - np.log(n))
        found.append(float(shares.sum()) if len(counts) > 1 else 0.0)
    return found[0], found[1]


def _mean(one: float, other: float, method: str) -> float:
    means = {
        "min": min(one, other),
        "max": max(one, other),
        "geometric": float(np.sqrt(one * other)),
        "arithmetic": (one + other) / 2,
    }
    if method not in means:
        raise ValueError("'average_method' must be 'min', 'geometric', 'arithmetic', or 'max'")
    return means[method]


def _not_zero(value: float) -> float:
    """A value at least the least step of doubles from 0, its sign kept: 0 over 0 is 1."""
    least = float(np.finfo(np.float64).eps)
    return min(value, -least) if value < 0 else max(value, least)
