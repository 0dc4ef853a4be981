"""How often each label of one labelling meets each of another, over all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from redist.learn.metrics.labelled import LabelCodes, check_labels, check_same_length, comm_of
from redist.spmd import all_parts

Values = NDArray[Any]


def contingency_of(labels_true: Any, labels_pred: Any) -> csr_array:
    """**Collective.** The table of both labellings, sparse and the same on every rank, as integers.

    A rank tells the others only the pairs that its rows have.
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
    """**Collective.** How many rows have each pair of labels: one row a true label, one column another.

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
    """**Collective.** Pairs of rows by whether both labellings keep them together: 2 x 2 integers.

    >>> pair_confusion_matrix([0, 0, 1, 2], [0, 0, 1, 1]).tolist()
    [[8, 2], [0, 2]]
    """
    return pairs_of(contingency_of(labels_true, labels_pred))


def pairs_of(table: csr_array) -> Values:
    """**Local.** The same of a table."""
    n = int(table.sum())
    square, rows, columns = (
        int((one.astype(np.int64) ** 2).sum())
        for one in (table.data, table.sum(axis=1), table.sum(axis=0))
    )
    apart, together = columns - square, rows - square
    return np.array([[n * n - apart - together - square, apart], [together, square - n]])
