"""Affinities that lie on a GPU: made, multiplied and searched there; thin blocks of vectors travel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for
from redist.spmd import Rows, Visits

Values = NDArray[Any]
PART_BYTES = 2**28
"""Affinities that are worked on at a time."""


def gaussian_on_gpu(rows: Rows, gamma: float) -> Any:
    """**Collective.** ``exp(-gamma |x - y|^2)`` of the own rows with all rows, by products of matrices."""
    xp = functions_for(rows.local)
    own = xp.ascontiguousarray(rows.local, dtype=np.float64)
    norms, out = (own * own).sum(axis=1), xp.empty((len(own), rows.n))
    for first, tile in Visits(rows.holding(own)):
        theirs = (tile * tile).sum(axis=1)
        for lo, hi in parts_of(len(own) if len(tile) else 0, rows.n):
            far = own[lo:hi] @ tile.T
            far *= -2
            far += norms[lo:hi, None] + theirs
            xp.maximum(far, 0, out=far)
            far *= -gamma
            xp.exp(far, out=out[lo:hi, first : first + len(tile)])
    return out


def times_on_gpu(matrix: Any, block: Values) -> Values:
    """**Local.** Rows on a GPU times a block in memory, in double precision; the product is in memory."""
    return np.ascontiguousarray(to_host(matrix @ to_device(block)))


def met_by(matrix: Any, places: NDArray[np.int64]) -> NDArray[np.int8]:
    """**Local.** 1 for every column in which one of some rows on a GPU is not 0, in memory."""
    xp = functions_for(matrix)
    found = xp.zeros(matrix.shape[1], bool)
    for lo, hi in parts_of(len(places), matrix.shape[1]):
        found |= (matrix[to_device(places[lo:hi])] != 0).any(axis=0)
    return np.asarray(to_host(found)).astype(np.int8)


def parts_of(n_rows: int, n: int) -> list[tuple[int, int]]:
    """**Local.** Stretches of rows of ``n`` doubles that are worked on at a time.

    >>> parts_of(5000, 2**14)
    [(0, 2048), (2048, 4096), (4096, 5000)]
    """
    step = max(1, PART_BYTES // (8 * max(1, n)))
    return [(lo, min(lo + step, n_rows)) for lo in range(0, n_rows, step)]
