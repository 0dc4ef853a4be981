"""The eigenvectors of the largest eigenvalues of a symmetric matrix whose rows are cut over ranks.

A block of vectors is multiplied with the matrix again and again; the best vectors that lie in the span of
all blocks are the answer (block Lanczos with full orthogonalisation). Where the span grows too large it
is begun again from its best vectors. All of it has the same bits for every number of ranks.

They are made of blocks of columns whose rows are cut over ranks: products, inner products, orthonormal
columns. A block has the same bits for every number of ranks: a row's products are added up in one order
that does not depend on the rows beside it, and inner products are exact sums. In C where it was built,
else in NumPy, which rounds products before it adds them. Blocks lie in memory; what they are multiplied
with may lie on a GPU, where products have the bits of C.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.exceptions import ConvergenceWarning

from redist.learn.kernels.cuda import columns as on_gpu
from redist.learn.kernels.library import address, in_turns, library
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.ranks.world import Comm
from redist.spmd import ExactGrid, all_rows, total_of

Values = NDArray[Any]
SIDE = 4
"""C works on multiples of this many columns."""
NUMPY_BYTES = 2**22
"""What NumPy works on at a time."""
ROUGH = 1e-13
"""Directions that are shorter than this much of the longest, squared, are made of rounding."""
SPARE = 4
"""Vectors of a block beyond those that are asked for."""
BLOCKS = 8
"""Blocks that the span has at most."""
FEW = 256
"""Matrices of this many rows are solved whole, on every rank."""
LEAST = 1e-11
"""How far a vector may be from an eigenvector, beside its eigenvalue: rounding allows hardly less."""
SMALL = 1e-4
"""Eigenvalues that are smaller than this much of the largest count as that."""
HOPE, PATIENCE = {12: 3e-3, 24: 1e-5}, 100
"""If more than this is left after this many products, or after this many at all, an inverse is worth it."""


def times(rows: Values, small: Values) -> Values:
    """**Local.** Rows times a matrix; every row's answer is the same whatever rows are beside it.

    >>> times(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0], [10.0]])).tolist()
    [[21.0], [43.0]]
    """
    if is_device(rows):
        found: Values = on_gpu.times(rows, small)
        return found
    (n, m), k = rows.shape, small.shape[1]
    padded = -(-k // SIDE) * SIDE
    out = np.zeros((n, padded))
    c = library()
    if c is None:
        for j in range(m):
            out[:, :k] += rows[:, j, None] * small[j]
        return np.ascontiguousarray(out[:, :k])
    right = np.zeros((m, padded))
    right[:, :k] = small
    count = ctypes.c_int64
    for part in in_turns(n, m * padded):
        here = rows[part]
        c.redist_times(
            _place(here), count(len(here)), count(m), count(_stride(rows)), address(right),
            count(padded), address(out[part]), count(padded),
        )  # fmt: skip
    return out if k == padded else np.ascontiguousarray(out[:, :k])


def inner(comm: Comm, n: int, one: Values, other: Values) -> Values:
    """**Collective.** The inner products of the columns of two blocks of ``n`` rows, over all ranks' rows."""
    most = [max(float(x.max()), -float(x.min())) if x.size else 0.0 for x in (one, other)]
    bounds = total_of(comm, np.array(most), "max")
    grid = ExactGrid.for_sum(float(bounds[0] * bounds[1]), n)
    total: Values = total_of(comm, _inner_sums(one, other, grid)).sum(axis=0)
    return total


def orthonormal(comm: Comm, n: int, block: Values, drop: bool = True) -> tuple[Values, Values]:
    """**Collective.** Orthonormal columns, and what they are multiplied with to give the block.

    Columns that the others already span, but for rounding, are dropped; with ``drop=False`` they become
    directions that rounding decides.
    """
    length = np.sqrt(np.diag(products := inner(comm, n, block, block)))
    length[length == 0] = 1
    squares, turned = alike(comm, *np.linalg.eigh(products / length / length[:, None]))
    most = squares[-1] if len(squares) else 0.0
    squares = np.maximum(squares, most * 1e-16)
    kept = squares > (ROUGH * most if drop else 0)
    squares, turned = np.sqrt(squares[kept]), turned[:, kept]
    made = times(block, turned / length[:, None] / squares)
    return made, squares[:, None] * turned.T * length


def alike(comm: Comm, *values: Values) -> list[Values]:
    """**Collective.** Small arrays that every rank worked out, as the first rank has them.

    So ranks go the same way, though their processors may round differently.
    """
    if comm.size == 1:
        return list(values)
    flat = np.concatenate([np.ravel(one) for one in values])
    ends = np.cumsum([one.size for one in values])[:-1]
    parts = np.split(all_rows(comm, flat)[0], ends)
    return [part.reshape(one.shape) for part, one in zip(parts, values, strict=True)]


def with_signs(comm: Comm, block: Values) -> tuple[Values, Values]:
    """**Collective.** The block with every column's largest number above 0, and the signs that it took."""
    k = block.shape[1]
    most = np.zeros(k)
    if len(block):
        most = block[np.abs(block).argmax(axis=0), np.arange(k)]
    every = all_rows(comm, most)
    signs = np.sign(every[np.abs(every).argmax(axis=0), np.arange(k)])
    signs[signs == 0] = 1
    return block * signs, signs


def _inner_sums(one: Values, other: Values, grid: ExactGrid) -> Values:
    """**Local.** The same of this rank's rows: coarse and fine parts."""
    if is_device(one):
        found: Values = on_gpu.inner_sums(one, other, grid)
        return found
    n, a, b = len(one), one.shape[1], other.shape[1]
    sums = np.zeros((2, a, b))
    c = library()
    if c is None:
        step = max(1, NUMPY_BYTES // max(1, 8 * a * b))
        for lo in range(0, n, step):
            sums += grid.sum_rows(one[lo : lo + step, :, None] * other[lo : lo + step, None, :])
        return sums
    count = ctypes.c_int64
    for part in in_turns(n, a * b):
        left, right = one[part], other[part]
        c.redist_inner(
            _place(left), count(a), count(_stride(one)), _place(right), count(b),
            count(_stride(other)), count(len(left)), *map(ctypes.c_double, grid.steps), address(sums),
        )  # fmt: skip
    return sums


def _place(block: Values) -> ctypes.c_void_p:
    """**Local.** Where a block lies for C: numbers of a row are beside each other."""
    assert block.dtype == np.float64
    assert block.shape[1] < 2 or not len(block) or block.strides[1] == block.itemsize
    return ctypes.c_void_p(block.ctypes.data)


def _stride(block: Values) -> int:
    """**Local.** How many numbers the rows of a block are apart."""
    return int(block.strides[0] // block.itemsize)


Product = Callable[[Values], Values]


@dataclass(frozen=True, slots=True)
class Symmetric:
    """A symmetric matrix of ``n`` rows: ``multiply`` takes a rank's rows of a block to those of the product.

    ``row_numbers`` are the first row of this rank, and the first after its last. ``invert`` makes what
    multiplies a block with the inverse of ``bound`` times the identity less the matrix: eigenvalues near
    ``bound`` are far apart in it. Both are **collective**.
    """

    comm: Comm
    n: int
    row_numbers: tuple[int, int]
    multiply: Product
    invert: Callable[[], Product] | None = None
    bound: float = np.inf


@dataclass(frozen=True, slots=True)
class Eigenvectors:
    """Eigenvalues, largest first, this rank's rows of their vectors, and how far these are from exact."""

    values: Values
    vectors: Values
    residual: float
    n_products: int


def block_width(n: int, k: int) -> int:
    """**Local.** How many vectors a block has if ``k`` are asked for."""
    return min(n, -(-(k + SPARE) // SIDE) * SIDE)


def largest_eigenvectors(
    matrix: Symmetric, k: int, start: Values, tol: float = 0.0, most_products: int = 1000
) -> Eigenvectors:
    """**Collective.** The eigenvectors of the ``k`` largest eigenvalues.

    ``start`` are this rank's rows of a block to begin with, :func:`block_width` columns that are not special.
    ``tol`` is how far vectors may be from exact, beside their eigenvalues; 0 is as near as rounding allows.
    If the first products get nowhere, those with the inverse are taken, where there is one.
    """
    if matrix.n <= max(FEW, BLOCKS * start.shape[1]):
        return _solve_whole(matrix, k)
    goal = max(tol, LEAST)
    some = most_products if matrix.invert is None else PATIENCE
    found = _iterate(matrix, matrix.multiply, k, start, goal, some)
    if found.residual > goal and matrix.invert is not None:
        found = _iterate(matrix, matrix.invert(), k, start, goal, most_products)
        found = replace(found, values=matrix.bound - 1 / found.values)
    if found.residual > goal:
        warnings.warn(
            f"eigenvectors are not exact after {found.n_products} products: {found.residual:.1e} is left",
            ConvergenceWarning,
            stacklevel=2,
        )
    return found


def _iterate(
    matrix: Symmetric, multiply: Product, k: int, start: Values, goal: float, most: int
) -> Eigenvectors:
    """**Collective.** Products until vectors are as near as asked, or more of them promise nothing."""
    comm, n, width = matrix.comm, matrix.n, start.shape[1]
    span = _Span.of(comm, n, len(start), BLOCKS * width)
    block = orthonormal(comm, n, orthonormal(comm, n, start)[0])[0]
    for done in range(1, most + 1):
        span.add(block)
        block, factor = span.grow(multiply(block))
        values, turned = alike(comm, *np.linalg.eigh(span.inside))
        last = turned[-factor.shape[1] :, -k:]
        apart = np.linalg.norm(factor @ last, axis=0)
        beside = np.maximum(np.abs(values[-k:]), SMALL * max(abs(values[0]), abs(values[-1])))
        left = float((apart / beside).max(initial=0.0))
        if span.m >= k and (left <= goal or not block.shape[1]):
            left = min(left, goal)
            break
        if most == PATIENCE and left > HOPE.get(done, np.inf):
            break
        if span.m + block.shape[1] > span.room:
            span.begin_again(values, turned, min(2 * width, span.m))
    best = np.ascontiguousarray(turned[:, ::-1][:, :k])
    return Eigenvectors(values[::-1][:k].copy(), times(span.basis, best), left, done)


def start_block(n: int, rows: tuple[int, int], width: int, given: Values | None = None) -> Values:
    """**Local.** This rank's rows of a block to begin with: given columns first, then ones at random."""
    rng = np.random.default_rng(n)
    first = np.empty((n, 0)) if given is None else given[:, :width]
    out = np.empty((rows[1] - rows[0], width))
    out[:, : first.shape[1]] = first[slice(*rows)]
    for j in range(first.shape[1], width):
        out[:, j] = rng.uniform(-1, 1, n)[slice(*rows)]
    return out


@dataclass(slots=True)
class _Span:
    """Orthonormal vectors, cut by rows, with room for more, and the matrix as seen inside their span."""

    comm: Comm
    n: int
    held: Values
    inside: Values
    m: int = 0

    @staticmethod
    def of(comm: Comm, n: int, n_rows: int, room: int) -> _Span:
        return _Span(comm, n, np.empty((n_rows, room)), np.empty((0, 0)))

    @property
    def basis(self) -> Values:
        return self.held[:, : self.m]

    @property
    def room(self) -> int:
        return int(self.held.shape[1])

    def add(self, block: Values) -> None:
        """**Local.** Take a block in."""
        self.held[:, self.m : self.m + block.shape[1]] = block
        self.m += block.shape[1]

    def grow(self, product: Values) -> tuple[Values, Values]:
        """**Collective.** Note the product of the last block; what of it is new, as a block and a factor."""
        comm, n = self.comm, self.n
        seen = inner(comm, n, self.basis, product)
        old = len(self.inside)
        inside = np.empty((self.m, self.m))
        inside[:old, :old] = self.inside
        inside[:, old:], inside[old:, :] = seen, seen.T
        inside[old:, old:] = (seen[old:] + seen[old:].T) / 2
        self.inside = inside
        new, factor = orthonormal(comm, n, product - times(self.basis, seen))
        again = inner(comm, n, self.basis, new)
        new, second = orthonormal(comm, n, new - times(self.basis, again))
        return new, second @ factor

    def begin_again(self, values: Values, turned: Values, keep: int) -> None:
        """**Local.** Keep the best vectors of the span alone."""
        best = times(self.basis, np.ascontiguousarray(turned[:, -keep:]))
        self.inside, self.m = np.diag(values[-keep:]), 0
        self.add(best)


def _solve_whole(matrix: Symmetric, k: int) -> Eigenvectors:
    """**Collective.** The same for a small matrix: all of it, by LAPACK."""
    n, rows = matrix.n, slice(*matrix.row_numbers)
    columns = matrix.multiply(np.eye(n)[rows])
    whole = np.zeros((n, n))
    whole[rows] = columns
    whole = total_of(matrix.comm, whole)
    found = eigh((whole + whole.T) / 2, subset_by_index=[n - k, n - 1])
    values, vectors = alike(matrix.comm, *found)
    return Eigenvectors(values[::-1].copy(), np.ascontiguousarray(vectors[rows, ::-1]), 0.0, 1)
