"""Means of what is near, for rows on GPUs: places go round, rows stay."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.kernels.cuda.near import sums_near
from redist.runtime.cuda.arrays import to_device
from redist.spmd import ExactGrid, Rows, all_parts, all_rows, largest, total_of

Values = NDArray[Any]
PART_BYTES = 2**25
"""Places of all ranks, and their sums, that a rank holds at a time."""


class MeansOnGpu:
    """Means of the rows within a radius of any place; each rank adds up its own rows.

    Rows are doubles. Sums are exact: the same bits for every number of ranks.
    """

    def __init__(self, rows: Rows, radius: float) -> None:
        self._rows, self._limit = rows, float(radius) * float(radius)
        self._grid = ExactGrid.for_sum(largest(rows.comm, rows.local), rows.n)

    def means(self, points: Values) -> tuple[Values, NDArray[np.int64]]:
        """**Collective.** The mean around each place, and of how many rows; places may differ by rank."""
        comm, d = self._rows.comm, self._rows.d
        most = int(all_rows(comm, np.int64(len(points))).max())
        size = max(1, PART_BYTES // (8 * (3 * d + 1) * comm.size))
        sums = np.zeros((len(points), 2 * d + 1))
        for lo in range(0, most, size):
            every, begins = all_parts(comm, points[lo : lo + size])
            found = sums_near(to_device(every), self._rows.local, self._limit, self._grid)
            own = slice(int(begins[comm.rank]), int(begins[comm.rank + 1]))
            sums[lo : lo + size] = total_of(comm, found)[own]
        near = sums[:, -1].astype(np.int64)
        return (sums[:, :d] + sums[:, d:-1]) / np.maximum(near, 1)[:, None], near
