"""The k-th smallest of numbers that lie on all ranks, and their median: exact, by narrowing down.

Numbers on GPUs stay there until few are left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.ranks.passing import all_parts
from redist.learn.ranks.totals import all_rows, total_of
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.ranks.world import Comm

Values = NDArray[Any]
FEW = 2**14
"""This many candidates are told to all ranks and sorted there."""
SAMPLE = 512
"""Candidates that each rank tells to find pivots."""


def median_of_all(comm: Comm, values: Values) -> float:
    """**Collective.** The median of all ranks' values, as NumPy has it."""
    n = int(all_rows(comm, np.int64(values.size)).sum())
    low = kth_of_all(comm, values, (n - 1) // 2)
    return low if n % 2 else float(np.mean([low, kth_of_all(comm, values, n // 2)]))


def kth_of_all(comm: Comm, values: Values, k: int) -> float:
    """**Collective.** The value that ``k`` others come before if all ranks' values are sorted."""
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
