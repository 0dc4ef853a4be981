"""The singular vectors of the largest singular values of a matrix whose rows are cut over ranks.

Those of rows come cut as the rows are, those of columns whole on every rank: with the same bits for every
number of ranks.

Matrices are scaled and shifted before, by what their rows and columns add up to. They may lie on a GPU;
blocks of vectors are in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, svd
from scipy.sparse.linalg import svds
from sklearn.utils.extmath import randomized_svd

from redist.learn.given import one_random_state
from redist.learn.kernels.steps import column_sums
from redist.learn.vectors.eigenvectors import (
    Symmetric,
    block_width,
    inner,
    largest_eigenvectors,
    orthonormal,
    start_block,
    times,
    with_signs,
)
from redist.spmd import ExactGrid, Rows, largest, own_range, total_of

Values = NDArray[Any]
ROUNDS, NEAR = 1000, 1e-5
"""Rounds of :func:`bistochastic`, and a change of the matrix after which none follow, as in scikit-learn."""
FEW = 2**16
"""A matrix of this many numbers goes whole to every rank, and to scikit-learn."""


def balanced(rows: Rows) -> tuple[Rows, Values, Values]:
    """**Collective.** A matrix divided by the roots of the sums of its rows and of its columns.

    Also one over the roots of the own rows, and one over those of all columns.
    """
    from_zero = _at_least(rows, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_rows = 1.0 / np.sqrt(_row_totals(from_zero))
        of_columns = 1.0 / np.sqrt(_column_totals(from_zero))
        of_rows, of_columns = (np.where(np.isnan(one), 0, one) for one in (of_rows, of_columns))
        scaled = rows.beside(of_rows)[:, None] * from_zero.local
        scaled *= rows.beside(of_columns)
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
        grid = ExactGrid.for_sum(most * most, rows.n)
        sums = column_sums(apart, grid, squared=True)
        now = new
        if np.sqrt(total_of(rows.comm, sums).sum()) < NEAR:
            break
    return now


def logarithmic(rows: Rows) -> Rows:
    """**Collective.** The logarithm of a matrix, less what its rows and its columns have on average."""
    logs = np.log(_at_least(rows, 1).local)
    held = rows.holding(logs)
    of_columns = _column_totals(held)
    of_rows = rows.beside(_row_totals(held) / rows.d)[:, None]
    average = float(of_columns.sum() / (rows.n * rows.d))
    return rows.holding(logs - of_rows - rows.beside(of_columns / rows.n) + average)


def _at_least(rows: Rows, least: float) -> Rows:
    """**Collective.** The matrix, raised so that no number is below the least."""
    own = float(rows.local.min()) if len(rows.local) else np.inf
    found = float(total_of(rows.comm, np.array([own]), "min")[0])
    return rows.holding(rows.local + (least - found)) if found < least else rows


def _row_totals(rows: Rows) -> Values:
    """**Local.** The sums of the own rows, in memory."""
    return times(rows.local, np.ones((rows.d, 1)))[:, 0]


def _column_totals(rows: Rows) -> Values:
    """**Collective.** The sums of columns over all ranks' rows."""
    grid = ExactGrid.for_sum(largest(rows.comm, rows.local), rows.n)
    total: Values = total_of(rows.comm, column_sums(rows.local, grid)).sum(axis=0)
    return total


@dataclass(frozen=True, slots=True)
class SingularVectors:
    """The own rows of vectors of rows, and all vectors of columns, each as columns."""

    of_rows: Values
    of_columns: Values


def random_singular_vectors(rows: Rows, k: int, spare: int, random_state: Any) -> SingularVectors:
    """**Collective.** The first ``k``, found among products with ``spare`` more random vectors.

    It is scikit-learn's ``randomized_svd`` with the same random numbers; vectors differ in the last digits.
    """
    random_state = one_random_state(rows.comm, random_state)
    n, d, width = rows.n, rows.d, k + spare
    mine = slice(rows.first, rows.first + len(rows.local))
    if n * d <= FEW or width >= min(n, d):
        u, _, vt = randomized_svd(
            rows.gather(rows.local), k, n_oversamples=spare, random_state=random_state
        )
        return SingularVectors(np.ascontiguousarray(u[mine]), np.ascontiguousarray(vt.T))
    rounds = 7 if k < 0.1 * min(n, d) else 4
    drawn = random_state.normal(size=(min(n, d), width))
    if n < d:
        left = _spread(rows, np.ascontiguousarray(drawn[mine]))
    else:
        left = _spread(rows, times(rows.local, drawn))
    for _ in range(rounds - (n < d)):
        left = _spread(rows, times(rows.local, _whole_basis(rows, left)))
    # The matrix as seen from the basis of one side: small, or as tall as the other side.
    if n < d:
        basis = _whole_basis(rows, left)
        left = _spread(rows, times(rows.local, basis))
        basis = _whole_basis(rows, left)
        seen, factor = orthonormal(rows.comm, n, times(rows.local, basis), drop=False)
        seen, second = orthonormal(rows.comm, n, seen, drop=False)
        u, _, vt = svd(second @ factor)
        found = times(seen, np.ascontiguousarray(u[:, :k])), basis @ vt.T[:, :k]
    else:
        u, _, vt = svd(inner(rows.comm, n, rows.local, left).T, full_matrices=False)
        found = times(left, np.ascontiguousarray(u[:, :k])), vt.T[:, :k]
    of_rows, signs = with_signs(rows.comm, found[0])
    return SingularVectors(of_rows, np.ascontiguousarray(found[1] * signs))


def exact_singular_vectors(rows: Rows, k: int) -> SingularVectors:
    """**Collective.** The first ``k``, as exact as rounding allows; the first comes last, as in SciPy."""
    comm, n, d = rows.comm, rows.n, rows.d
    if not 0 < k < min(n, d):
        svds(np.zeros((2, 2)), k=max(k, 2))  # which says why not
    columns = own_range(comm, d)
    tall = Rows(np.empty((columns[1] - columns[0], 1)), columns[0], d, comm, None)

    def multiply(block: Values) -> Values:
        there = times(rows.local, tall.gather(block))
        return np.ascontiguousarray(inner(comm, n, rows.local, there)[slice(*columns)])

    start = start_block(d, columns, block_width(d, k))
    found = largest_eigenvectors(Symmetric(comm, d, columns, multiply), k, start)
    of_columns = tall.gather(found.vectors)
    lengths = np.sqrt(np.maximum(found.values, np.finfo(float).tiny))
    of_rows, signs = with_signs(comm, times(rows.local, of_columns) / lengths)
    return SingularVectors(of_rows[:, ::-1].copy(), (of_columns * signs)[:, ::-1].copy())


def _spread(rows: Rows, block: Values) -> Values:
    """**Collective.** Orthonormal columns with the span of a block whose rows are cut."""
    for _ in range(2):
        block = orthonormal(rows.comm, rows.n, block, drop=False)[0]
    return block


def _whole_basis(rows: Rows, left: Values) -> Values:
    """**Collective.** An orthonormal basis of the transpose times a block, whole on every rank."""
    found: Values = qr(inner(rows.comm, rows.n, rows.local, left), mode="economic")[0]
    return np.ascontiguousarray(found)
