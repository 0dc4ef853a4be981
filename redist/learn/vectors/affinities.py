"""How alike rows are: a rank's rows of an affinity matrix, also on a GPU, and the matrix scaled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array, issparse
from scipy.sparse.linalg import splu
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils.extmath import row_norms

from redist.learn.vectors.eigenvectors import Symmetric, times
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for
from redist.spmd import Passing, Rows, Visits, all_parts, own_range, same_error, total_of

Values = NDArray[Any]
GPU_PART_BYTES = 2**28
"""Affinities that are worked on at a time."""
PART_BYTES = 2**19
"""Affinities that are worked out at a time."""
TOGETHER = 64
"""Rows whose affinities one call of scikit-learn works out, counted from the first row of all."""
SHIFT = 1e-5
"""How much more than 1, the largest eigenvalue, the inverse is taken at, as in scikit-learn."""
SYMMETRIC = 1e-10
"""How much a symmetric matrix may differ from its transpose, as in scikit-learn."""


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
    step = max(1, GPU_PART_BYTES // (8 * max(1, n)))
    return [(lo, min(lo + step, n_rows)) for lo in range(0, n_rows, step)]


def gaussian_rows(rows: Rows, gamma: float) -> Values:
    """**Collective.** ``exp(-gamma |x - y|^2)`` of the own rows with all rows; the same bits on any ranks.

    On a GPU, bits depend on how its products are added up.
    """
    if rows.on_gpu:
        found = gaussian_on_gpu(rows, gamma)
        found[diagonal_of(rows)] = 1
        return found
    own = np.ascontiguousarray(rows.local, dtype=np.float64)
    norms, out = row_norms(own, squared=True), np.empty((len(own), rows.n))
    step = max(1, PART_BYTES // (8 * rows.n))
    for first, tile in Visits(rows.holding(own)):
        turned, theirs = np.ascontiguousarray(tile.T), row_norms(tile, squared=True)
        for lo in range(0, len(own) if len(tile) else 0, step):
            far = times(own[lo : lo + step], turned)
            far *= -2
            far += np.add.outer(norms[lo : lo + step], theirs)
            np.maximum(far, 0, out=far)
            far *= -gamma
            np.exp(far, out=out[lo : lo + step, first : first + len(tile)])
    out[diagonal_of(rows)] = 1
    return out


def kernel_rows(rows: Rows, metric: Any, params: dict[str, Any]) -> Values:
    """**Collective.** A kernel of scikit-learn, or a function, of the own rows with all rows.

    Every rank has all rows for it, and works on the same stretches of rows whatever ranks there are, so that
    BLAS rounds alike.
    """
    whole, last = rows.gather(rows.local), rows.first + len(rows.local)
    out = np.empty((len(rows.local), rows.n))
    with same_error(rows.comm):
        for lo in range(rows.first // TOGETHER * TOGETHER, last, TOGETHER):
            found = pairwise_kernels(
                whole[lo : lo + TOGETHER], whole, metric=metric, filter_params=True, **params
            )
            low, high = max(lo, rows.first), min(lo + TOGETHER, last)
            out[low - rows.first : high - rows.first] = found[low - lo : high - lo]
    return out


def diagonal_of(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """**Local.** Where the own rows of a square matrix meet their own columns; numbers beside the rows."""
    places = np.arange(len(rows.local))
    return rows.beside(places), rows.beside(places + rows.first)


def transposed_rows(rows: Rows, matrix: Values) -> Values:
    """**Collective.** The own rows of the transpose of a square matrix."""
    made = rows.as_global(matrix)
    tile = made.T.to(made.type).tile
    assert tile is not None
    return tile


@dataclass(frozen=True, slots=True)
class ScaledAffinity:
    """Affinities without their diagonal, each divided by the roots of the sums of its row and its column.

    ``matrix`` are the own rows of the affinities, dense, in memory or on a GPU, or in compressed rows;
    ``roots`` those of their sums, in memory: 1 where a row is alike to no other.
    """

    rows: Rows
    matrix: Any
    roots: Values

    @staticmethod
    def of(rows: Rows, matrix: Any) -> ScaledAffinity:
        """**Local.** Scale own rows of affinities whose diagonal is 0."""
        sums = to_host(matrix.sum(axis=1))
        with np.errstate(invalid="ignore"):
            return ScaledAffinity(rows, matrix, np.where(sums == 0, 1, np.sqrt(sums)))

    def symmetric(self) -> Symmetric:
        """**Local.** The scaled matrix, to find eigenvectors of."""
        rows = self.rows
        invert = self.invert if issparse(self.matrix) else None
        mine = own_range(rows.comm, rows.n)
        return Symmetric(rows.comm, rows.n, mine, self.multiply, invert, 1 + SHIFT)

    def multiply(self, block: Values) -> Values:
        """**Collective.** The own rows of the scaled matrix times a block."""
        whole = self.rows.gather(block / self.roots[:, None])
        if is_device(self.matrix):
            found = np.ascontiguousarray(to_host(self.matrix @ to_device(whole)))
        else:
            found = self.matrix @ whole if issparse(self.matrix) else times(self.matrix, whole)
        return found / self.roots[:, None]

    def invert(self) -> Callable[[Values], Values]:
        """**Collective.** What multiplies with the inverse of ``1 + SHIFT`` less the scaled matrix.

        Every rank factors the whole sparse matrix: in parts it would not stay sparse. It is symmetric, and
        all its eigenvalues are above 0, so that rows need not change places.
        """
        rows, roots = self.rows, self.rows.gather(self.roots)
        whole = gathered_graph(rows, self.matrix).multiply(1 / roots).multiply(1 / roots[:, None])
        less = (eye_array(rows.n) * (1 + SHIFT) - whole).tocsc()
        del whole
        factors = splu(
            less, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0, options={"SymmetricMode": True}
        )
        mine = slice(rows.first, rows.first + len(rows.local))

        def solve(block: Values) -> Values:
            return np.ascontiguousarray(factors.solve(rows.gather(block))[mine])

        return solve

    def is_connected(self) -> bool:
        """**Collective.** Whether a way of affinities above 0 leads from the first row to every row."""
        rows, last = self.rows, self.rows.first + len(self.rows.local)
        seen, new = np.zeros(rows.n, np.int8), np.zeros(rows.n, np.int8)
        new[0] = 1
        while new.any():
            seen |= new
            if seen.all():
                break
            here = np.flatnonzero(new[rows.first : last])
            found = np.zeros(rows.n, np.int8)
            if is_device(self.matrix):
                found |= met_by(self.matrix, here)
            elif issparse(self.matrix):
                found[self.matrix[here].indices] = 1
            else:
                for one in here:
                    found |= self.matrix[one] != 0
            new = total_of(rows.comm, found, "max") & ~seen & 1
        return bool(seen.all())


def gathered_graph(rows: Rows, own: csr_array) -> csr_array:
    """**Collective.** The graph that all ranks have rows of, whole on every rank."""
    counts = rows.gather(np.diff(own.indptr))
    indices, values = (all_parts(rows.comm, one)[0] for one in (own.indices, own.data))
    ends = np.append(0, np.cumsum(counts)).astype(indices.dtype)
    return csr_array((values, indices, ends), shape=(rows.n, rows.n))


def nearest_affinity(rows: Rows, near: NDArray[np.int64]) -> csr_array:
    """**Collective.** Own rows of a graph: 1 if two rows are near each other, 1/2 if one is near the other.

    ``near`` has for each own row the numbers of the rows that are near it.
    """
    n_own, k = near.shape
    own = np.repeat(np.arange(rows.first, rows.first + n_own), k)
    flat = near.reshape(-1)
    homes = np.searchsorted(rows.firsts()[:-1], flat, side="right") - 1
    passing = Passing.of(rows.comm, np.arange(len(flat)), homes)
    back = passing.there(np.stack([flat, own], axis=1))
    row = np.concatenate([own, back[:, 0]]) - rows.first
    column = np.concatenate([flat, back[:, 1]])
    made = csr_array((np.full(len(row), 0.5), (row, column)), shape=(n_own, rows.n))
    made.sum_duplicates()
    return made
