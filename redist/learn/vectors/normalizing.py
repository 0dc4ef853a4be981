"""A matrix scaled by its rows and its columns, as spectral biclustering does, its rows cut over ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.kernels.steps import column_sums
from redist.spmd import ExactGrid, Rows, largest, total_of

Values = NDArray[Any]
ROUNDS, NEAR = 1000, 1e-5
"""Rounds of :func:`bistochastic`, and a change of the matrix after which none follow, as in scikit-learn."""


def balanced(rows: Rows) -> tuple[Rows, Values, Values]:
    """**Collective.** A matrix divided by the roots of the sums of its rows and of its columns.

    Also one over the roots of the own rows, and one over those of all columns.
    """
    from_zero = _at_least(rows, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_rows = 1.0 / np.sqrt(from_zero.local.sum(axis=1))
        of_columns = 1.0 / np.sqrt(_column_totals(from_zero))
        of_rows, of_columns = (np.where(np.isnan(one), 0, one) for one in (of_rows, of_columns))
        scaled = of_rows[:, None] * from_zero.local * of_columns
    return rows.holding(scaled), of_rows, of_columns


def bistochastic(rows: Rows) -> Rows:
    """**Collective.** The same again and again, until the matrix stays."""
    now = _at_least(rows, 0)
    for _ in range(ROUNDS):
        new = balanced(now)[0]
        with np.errstate(invalid="ignore"):
            apart = new.local - now.local
        most = largest(rows.comm, apart)
        if not np.isfinite(most):
            return new
        grid = ExactGrid.for_sum(most * most * rows.d, rows.n)
        sums = grid.sum_rows((apart * apart).sum(axis=1))
        now = new
        if np.sqrt(total_of(rows.comm, sums).sum()) < NEAR:
            break
    return now


def logarithmic(rows: Rows) -> Rows:
    """**Collective.** The logarithm of a matrix, less what its rows and its columns have on average."""
    logs = np.log(_at_least(rows, 1).local)
    held = rows.holding(logs)
    of_columns = _column_totals(held)
    of_rows = logs.mean(axis=1)[:, None]
    average = of_columns.sum() / (rows.n * rows.d)
    return rows.holding(logs - of_rows - of_columns / rows.n + average)


def _at_least(rows: Rows, least: float) -> Rows:
    """**Collective.** The matrix, raised so that no number is below the least."""
    own = np.array([rows.local.min(initial=np.inf)])
    found = float(total_of(rows.comm, own, "min")[0])
    return rows.holding(rows.local + (least - found)) if found < least else rows


def _column_totals(rows: Rows) -> Values:
    """**Collective.** The sums of columns over all ranks' rows."""
    grid = ExactGrid.for_sum(largest(rows.comm, rows.local), rows.n)
    total: Values = total_of(rows.comm, column_sums(rows.local, grid)).sum(axis=0)
    return total
