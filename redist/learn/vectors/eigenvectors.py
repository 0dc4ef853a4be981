"""The eigenvectors of the largest eigenvalues of a symmetric matrix whose rows are cut over ranks.

A block of vectors is multiplied with the matrix again and again; the best vectors that lie in the span of all
blocks are the answer (block Lanczos with full orthogonalisation). Where the span grows too large it is begun
again from its best vectors. All of it has the same bits for every number of ranks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.exceptions import ConvergenceWarning

from redist.learn.vectors.blocks import SIDE, alike, inner, orthonormal, times
from redist.runtime.ranks.world import Comm
from redist.spmd import total_of

Values = NDArray[Any]
Product = Callable[[Values], Values]
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
