"""Labelled rows taken from user input: labels are numbered alike on all ranks, and counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from redist.learn.given import check_dims
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.spmd import Rows, all_parts, is_global, own_range, same_error, total_of

Values = NDArray[Any]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LabelCodes:
    """Labels of this rank's rows as numbers from 0; ``counts`` has how many rows of all ranks have each."""

    own: Numbers
    counts: Numbers
    comm: Comm

    @staticmethod
    def of(labels: Any, comm: Comm) -> LabelCodes:
        """**Collective** if labels are a global array. Number the labels in their order."""
        if is_global(labels):
            tile = Rows.of(labels).local
            classes = np.unique(all_parts(comm, np.unique(tile))[0])
            return LabelCodes.counted(np.searchsorted(classes, tile), len(classes), comm)
        classes, codes = np.unique(labels, return_inverse=True)
        lo, hi = own_range(comm, len(codes))
        counts = np.bincount(codes, minlength=len(classes))
        return LabelCodes(codes[lo:hi].astype(np.int64), counts, comm)

    @staticmethod
    def counted(codes: Numbers, k: int, comm: Comm) -> LabelCodes:
        """**Collective.** Count labels numbered below ``k``; numbers without rows are closed up."""
        counts = total_of(comm, np.bincount(codes, minlength=k).astype(np.int64))
        there = counts > 0
        return LabelCodes((np.cumsum(there) - 1)[codes].astype(np.int64), counts[there], comm)

    @property
    def k(self) -> int:
        """The number of labels."""
        return len(self.counts)

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.counts.sum())

    def sums(self, values: Values) -> Values:
        """**Local.** Sums of values of this rank's rows by label, ``k, ...``; exact if values add exactly."""
        out = np.zeros((self.k, *values.shape[1:]))
        order = np.argsort(self.own, kind="stable")
        codes, starts = np.unique(self.own[order], return_index=True)
        if len(codes):
            out[codes] = np.add.reduceat(values[order], starts, axis=0)
        return out


def comm_of(*given: Any) -> Comm:
    """**Local.** The communicator of the first global array; without one, the default communicator."""
    return next((one.comm for one in given if is_global(one)), comm_or_world(None))


def check_labels(labels: Any, name: str) -> Any:
    """**Local.** Labels of one dim, or scikit-learn's error; of a global array only the shape is checked."""
    if not is_global(labels):
        labels = check_array(labels, ensure_2d=False, ensure_min_samples=0, dtype=None)
    if labels.ndim != 1:
        is_column = labels.ndim == 2 and labels.shape[1] == 1
        remedy = "; write labels[:, 0] for the labels of one column" if is_column else ""
        raise ValueError(f"{name} must be 1D: shape is {labels.shape!r}{remedy}")
    return labels


def check_same_length(*given: Any) -> None:
    """**Local.** Raise scikit-learn's error unless all have the same number of rows."""
    check_consistent_length(*(np.broadcast_to(0, (one.shape[0],)) for one in given))


def take_labelled(x: Any, labels: Any) -> tuple[Rows, LabelCodes]:
    """**Collective.** This rank's rows as doubles, with labels; scikit-learn's errors come on all ranks."""
    comm = comm_of(x, labels)
    if not is_global(labels):
        labels = column_or_1d(labels)
    if not is_global(x):
        whole = check_array(x, dtype=np.float64, order="C", input_name="X")
        check_same_length(whole, labels)
        rows = Rows.share(whole, comm)
    else:
        check_dims(x)
        if x.ndim != 2 or 0 in x.shape:  # scikit-learn says why not, the same everywhere
            check_array(np.zeros(x.shape, x.dtype), input_name="X")
        check_same_length(x, labels)
        rows = Rows.of(x)
        with same_error(comm):
            local = check_array(
                rows.local, dtype=np.float64, order="C", ensure_min_samples=0, input_name="X"
            )
        rows = rows.holding(local)
    return rows, LabelCodes.of(labels, comm)


def check_number_of_labels(codes: LabelCodes) -> None:
    """**Local.** Raise scikit-learn's error unless there are from 2 to n - 1 labels."""
    if not 1 < codes.k < codes.n:
        raise ValueError(
            f"Number of labels is {codes.k}. Valid values are 2 to n_samples - 1 (inclusive)"
        )
