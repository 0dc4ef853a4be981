"""Order statistics and draws over all ranks: the k-th smallest value, the median, and rows drawn by weight.

Weights are added up exactly (:class:`redist.spmd.ExactGrid`), so draws do not depend on the number of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import RequestError
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for
from redist.runtime.ranks.world import Comm
from redist.spmd.rows import Rows
from redist.spmd.totals import ExactGrid, all_parts, all_rows, largest, total_of

Values = NDArray[Any]
Numbers = NDArray[np.int64]
FEW = 2**14
"""This many candidates for the k-th smallest are told to all ranks and sorted there."""
SAMPLE = 512
"""Candidates that each rank tells to find pivots."""


def median_of_all(comm: Comm, values: Values) -> float:
    """**Collective over** ``comm``. The median of all ranks' values, as NumPy computes it.

    >>> from mpi4py import MPI
    >>> median_of_all(MPI.COMM_SELF, np.array([5.0, 1.0, 2.0, 9.0]))
    3.5
    """
    n = int(all_rows(comm, np.int64(values.size)).sum())
    low = kth_of_all(comm, values, (n - 1) // 2)
    return low if n % 2 else float(np.mean([low, kth_of_all(comm, values, n // 2)]))


def kth_of_all(comm: Comm, values: Values, k: int) -> float:
    """**Collective over** ``comm``. The value at position ``k``, from 0, of all ranks' values in order.

    >>> from mpi4py import MPI
    >>> kth_of_all(MPI.COMM_SELF, np.array([5.0, 1.0, 2.0, 9.0]), 1)
    2.0

    The candidates are narrowed down exactly; values on GPUs stay there until few are left.
    """
    own = np.array([values.size, int(np.count_nonzero(values != values))], np.int64)
    n, missing = total_of(comm, own).tolist()
    if not 0 <= k < n or missing:
        fact = f"{missing} of them are NaN" if missing else "counting starts at 0"
        raise RequestError(f"cannot find value {k} of {n} in order: {fact}")
    left = values.reshape(-1)
    while True:
        n = int(all_rows(comm, np.int64(left.size)).sum())
        if n <= FEW:
            return float(np.sort(all_parts(comm, to_host(left))[0])[k])
        low, high = _pivots(comm, left, k / n)
        below, at_most = left < low, left <= high
        said = np.array([int(np.count_nonzero(below)), int(np.count_nonzero(at_most))], np.int64)
        n_below, n_at_most = total_of(comm, said).tolist()
        if k < n_below:
            left = left[below]
        elif k >= n_at_most:
            left, k = left[~at_most], k - n_at_most
        elif low == high:
            return low
        elif n_at_most - n_below < n:
            left, k = left[~below & at_most], k - n_below
        else:  # the pivots are the least and the largest: look between them
            middle = _pivots(comm, left, k / n, width=0.0)[0]
            counts = np.count_nonzero(left < middle), np.count_nonzero(left <= middle)
            said = np.array([int(one) for one in counts], np.int64)
            n_below, n_at_most = total_of(comm, said).tolist()
            if n_below <= k < n_at_most:
                return middle
            left, k = (
                (left[left < middle], k) if k < n_below else (left[left > middle], k - n_at_most)
            )


def _pivots(comm: Comm, left: Values, share: float, width: float = 0.05) -> tuple[float, float]:
    """**Collective.** Two candidates, probably one below and one above a share of all of them."""
    told = np.full(SAMPLE, np.nan)
    if left.size:
        places = (np.arange(SAMPLE) * left.size) // SAMPLE
        told = to_host(left[to_device(places) if is_device(left) else places]).astype(np.float64)
    every = all_rows(comm, told).reshape(-1)
    every = np.sort(every[~np.isnan(every)])
    near = np.clip([(share - width) * len(every), (share + width) * len(every)], 0, len(every) - 1)
    low, high = every[near.astype(np.int64)].tolist()
    return low, high


@dataclass(frozen=True, slots=True)
class RunningSums:
    """The running sums of all weights, up to each of this rank's rows; ``total`` is the sum of all weights.

    >>> sums = RunningSums.of(Rows.share([0, 0, 0]), np.array([1.0, 2.0, 1.0]), bound=2.0)
    >>> sums.total, sums.find_shares(np.array([0.1, 0.5, 0.9])).tolist()
    (4.0, [0, 1, 2])
    """

    rows: Rows
    sums: Values
    total: float

    @staticmethod
    def of(rows: Rows, weights: Values, bound: float) -> RunningSums:
        """**Collective.** Add up weights, none of which is larger than ``bound``."""
        parts = ExactGrid.for_sum(bound, rows.n).split(weights)
        sums = [part.cumsum() for part in parts]
        ends = np.array([float(one[-1]) if weights.size else 0.0 for one in sums])
        every = all_rows(rows.comm, ends)
        for one, before in zip(sums, every[: rows.comm.rank].sum(axis=0), strict=True):
            one += before
        total = every.sum(axis=0)
        return RunningSums(rows, sums[0] + sums[1], float(total[0] + total[1]))

    def find(self, values: Values, side: str = "left") -> Numbers:
        """**Collective.** For each value, the number of rows whose sums are below it.

        This is a row number. With ``side="right"``, sums equal to the value count too.
        """
        return self._below(self.sums, values, side)

    def find_shares(self, shares: Values) -> Numbers:
        """**Collective.** The rows at given shares of the total, from 0 to 1, as ``choice`` finds them."""
        return self._below(self.sums / self.total, shares, "right")

    def _below(self, sums: Values, values: Values, side: str) -> Numbers:
        below = to_host(functions_for(sums).searchsorted(sums, self.rows.beside(values), side))
        return total_of(self.rows.comm, below.astype(np.int64))


def draw(rows: Rows, weights: Values, random_state: np.random.RandomState, size: int) -> Numbers:
    """**Collective.** Draw ``size`` rows, as ``random_state.choice(n, size, p=weights / sum)`` does.

    Every rank passes the weights of its own rows and the same random state; all get the same row numbers.

    >>> draw(Rows.share([0, 0, 0]), np.array([0.0, 1.0, 0.0]), np.random.RandomState(0), 4).tolist()
    [1, 1, 1, 1]
    """
    _must_be_shares(rows, weights)
    sums = RunningSums.of(rows, weights.astype(np.float64), largest(rows.comm, weights))
    return sums.find_shares(random_state.random_sample(size))


def draw_distinct(
    rows: Rows, weights: Values, random_state: np.random.RandomState, size: int
) -> Numbers:
    """**Collective.** Draw ``size`` different rows by weight, as ``choice`` does with ``replace=False``."""
    if _must_be_shares(rows, weights) < size:
        raise ValueError("Fewer non-zero entries in p than size")
    left, bound = weights.astype(np.float64), largest(rows.comm, weights)
    found = np.empty(0, np.int64)
    while len(found) < size:
        shares = random_state.rand(size - len(found))
        here = found[rows.holds(found)] - rows.first
        left[rows.beside(here)] = 0
        new = RunningSums.of(rows, left, bound).find_shares(shares)
        _, first = np.unique(new, return_index=True)
        found = np.append(found, new[np.sort(first)])
    return found


def _must_be_shares(rows: Rows, weights: Values) -> int:
    """**Collective.** Raise, with NumPy's words, unless weights can be shares; how many are not 0."""
    said = np.array([int((weights < 0).sum()), int((weights != 0).sum())], np.int64)
    negative, some = total_of(rows.comm, said).tolist()
    if negative:
        raise ValueError("probabilities are not non-negative")
    if not some:
        raise ValueError("probabilities contain NaN")
    return int(some)
