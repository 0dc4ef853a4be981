"""Similarities of rows for affinity propagation: made, compared and prepared, where the rows lie."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.cluster.seeding import squared_norms
from redist.learn.kernels.cuda.messages import fill_similar
from redist.learn.kernels.exact_sums import ExactGrid
from redist.learn.kernels.steps import try_candidates
from redist.learn.ranks.rows import Rows
from redist.learn.ranks.totals import all_rows
from redist.learn.ranks.visits import Visits
from redist.learn.vectors.affinities import diagonal_of
from redist.runtime.cuda.loops import functions_for

Values = NDArray[Any]
NOISE_BYTES = 2**23
"""Random numbers that are drawn at a time: every rank draws those of all rows, and keeps its own."""


def similarities(rows: Rows) -> Values:
    """**Collective.** Minus the squared distances of the own rows to all rows, where the rows lie."""
    dtype = rows.dtype if rows.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    own = functions_for(rows.local).ascontiguousarray(rows.local, dtype=dtype)
    if rows.on_gpu:
        return _similar_on_gpu(rows.holding(own))
    out, norms = np.empty((len(own), rows.n), dtype), squared_norms(own)
    grid = ExactGrid.for_sum(1.0, 1)
    for first, tile in Visits(rows.holding(own)):
        if len(own) and len(tile):
            there, n = np.ascontiguousarray(tile), len(tile)
            given = there, squared_norms(there), np.zeros(n), own, norms, np.full(n, np.inf), grid
            np.negative(
                try_candidates(*given)[0], out=out[:, first : first + n], casting="same_kind"
            )
    places = np.arange(len(own))
    out[places, places + rows.first] = 0
    return out


def _similar_on_gpu(rows: Rows) -> Values:
    """**Collective.** The same on a GPU; norms are added up column by column."""
    xp, own, norms = functions_for(rows.local), rows.local, squared_norms(rows.local)
    out: Values = xp.empty((len(own), rows.n), own.dtype)
    for first, tile in Visits(rows):
        there = xp.ascontiguousarray(tile)
        fill_similar(own, norms, rows.first, there, squared_norms(there), first, out)
    return out


def all_alike(matrix: Rows, preference: Values) -> float | None:
    """**Collective.** The last similarity of row 0 if all are equal, and preferences too; else None."""
    start = matrix.fetch([0])[0]
    last = float(start[-1])
    if matrix.n == 1:
        return last
    same = matrix.local == start[1]
    same[diagonal_of(matrix)] = True
    every = all_rows(matrix.comm, np.array([bool(same.all())])).all()
    return last if every and (preference == preference.flat[0]).all() else None


def prepare(matrix: Rows, preference: Values, random_state: np.random.RandomState) -> None:
    """**Local.** Write preferences to the diagonal, and noise that removes ties to all similarities."""
    local, n = matrix.local, matrix.n
    own = slice(matrix.first, matrix.first + len(local))
    given = preference if preference.ndim == 0 else preference[own]
    local[diagonal_of(matrix)] = matrix.beside(given.astype(local.dtype))
    step = max(1, NOISE_BYTES // (8 * n))
    limits = np.finfo(local.dtype)
    for lo in range(0, n, step):
        noise = random_state.standard_normal(size=(min(step, n - lo), n))
        first, last = max(lo, matrix.first), min(lo + len(noise), matrix.first + len(local))
        if first < last:
            part = local[first - matrix.first : last - matrix.first]
            part += (limits.eps * part + limits.tiny * 100) * matrix.beside(
                noise[first - lo : last - lo]
            )
