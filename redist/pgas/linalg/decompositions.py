"""Decompositions of the standard and what follows from them: inverses, determinants, ranks.

``qr`` and ``svd`` of tall matrices work on cut ones; the others spread stacks over the ranks and hold
each matrix whole, up to a limit of its size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.pgas import reductions
from redist.pgas.elementwise.apply import apply
from redist.pgas.elementwise.in_f32 import gives_f32, in_f32
from redist.pgas.global_array import Array
from redist.pgas.kinds import complex_dtype, float_limits, real_dtype
from redist.pgas.linalg import tall_qr
from redist.pgas.linalg.equations import is_large, solve_by_panels
from redist.pgas.linalg.matrices import (
    check_matrices,
    identity_like,
    make_whole,
    per_matrix,
)
from redist.pgas.products.matmul import matmul
from redist.pgas.shapes.permute import expand_dims
from redist.pgas.shapes.repeat import broadcast_to
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.devices import in_memory
from redist.pgas.tiles.move import move
from redist.pgas.tiles.tiled import T, Tile, Tiled


class Qr(NamedTuple):
    """Result of :func:`qr`."""

    Q: Array
    R: Array


class Eigh(NamedTuple):
    """Result of :func:`eigh` and :func:`eig`."""

    eigenvalues: Array
    eigenvectors: Array


class Slogdet(NamedTuple):
    """Result of :func:`slogdet`."""

    sign: Array
    logabsdet: Array


class Svd(NamedTuple):
    """Result of :func:`svd`."""

    U: Array
    S: Array
    Vh: Array


@gives_f32
@asked
@in_memory
def qr(x: Array, /, *, mode: str = "reduced") -> Qr:
    """**Collective.** ``x = Q R``; Q of a tall matrix is cut by rows and R whole on every rank.

    ``mode="complete"`` gives a square Q and holds the matrix whole.
    """
    check_matrices("qr", x)
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f"unknown mode {mode!r}; known: 'reduced', 'complete'")
    m, n = x.shape[-2:]
    if mode == "reduced" and tall_qr.distributes(x.type):
        return Qr(*tall_qr.qr(x))
    k = min(m, n) if mode == "reduced" else m
    function = lambda tile: tuple(np.linalg.qr(tile, mode=mode))  # type: ignore[call-overload] # noqa: E731
    return Qr(*per_matrix("qr", function, x, [((m, k), x.dtype), ((k, n), x.dtype)]))


@gives_f32
@asked
@in_memory
def svd(x: Array, /, *, full_matrices: bool = True) -> Svd:
    """**Collective.** ``x = U diag(S) Vh``; of a tall matrix and not full, U is cut by rows."""
    check_matrices("svd", x)
    m, n = x.shape[-2:]
    k, real = min(m, n), real_dtype(x.dtype)
    if not full_matrices and m > n and tall_qr.distributes(x.type):
        q, r = tall_qr.qr(x)
        u, s, vh = svd(r, full_matrices=False)
        return Svd(matmul(q, u), s, vh)
    a, b = (m, n) if full_matrices else (k, k)
    function = lambda tile: tuple(np.linalg.svd(tile, full_matrices=full_matrices))  # noqa: E731
    return Svd(
        *per_matrix("svd", function, x, [((m, a), x.dtype), ((k,), real), ((b, n), x.dtype)])
    )


@gives_f32
@asked
@in_memory
def svdvals(x: T, /) -> T:
    """**Collective.** Singular values, falling."""
    check_matrices("svdvals", x)
    if x.shape[-2] > x.shape[-1] and tall_qr.distributes(x.type):
        x = tall_qr.qr(x)[1]
    k = min(x.shape[-2:])
    return per_matrix("svdvals", np.linalg.svdvals, x, [((k,), real_dtype(x.dtype))])[0]


@gives_f32
@asked
@in_memory
def cholesky(x: T, /, *, upper: bool = False) -> T:
    """**Collective.** The triangular factor of positive definite matrices."""
    check_matrices("cholesky", x, square=True)
    function = lambda tile: np.linalg.cholesky(tile, upper=upper)  # noqa: E731
    return per_matrix("cholesky", function, x, [(x.shape[-2:], x.dtype)])[0]


@in_f32
@asked
@in_memory
def det(x: T, /) -> T:
    """**Collective.** Determinants."""
    check_matrices("det", x, square=True)
    return per_matrix("det", np.linalg.det, x, [((), x.dtype)])[0]


@in_f32
@asked
@in_memory
def slogdet(x: Array, /) -> Slogdet:
    """**Collective.** Signs and logarithms of determinants."""
    check_matrices("slogdet", x, square=True)
    ends = [((), x.dtype), ((), real_dtype(x.dtype))]
    return Slogdet(*per_matrix("slogdet", lambda tile: tuple(np.linalg.slogdet(tile)), x, ends))


@in_f32
@asked
@in_memory
def inv(x: T, /) -> T:
    """**Collective.** Inverses; that of one matrix too large for a rank stays cut by rows."""
    check_matrices("inv", x, square=True)
    if x.ndim == 2 and x.size and is_large(x):
        return solve_by_panels(x, identity_like(x))
    return per_matrix("inv", np.linalg.inv, x, [(x.shape[-2:], x.dtype)])[0]


@gives_f32
@asked
@in_memory
def eigh(x: Array, /) -> Eigh:
    """**Collective.** Eigenvalues, rising, and eigenvectors of Hermitian matrices."""
    check_matrices("eigh", x, square=True)
    n, real = x.shape[-1], real_dtype(x.dtype)
    ends = [((n,), real), ((n, n), x.dtype)]
    return Eigh(*per_matrix("eigh", lambda tile: tuple(np.linalg.eigh(tile)), x, ends))


@gives_f32
@asked
@in_memory
def eigvalsh(x: T, /) -> T:
    """**Collective.** Eigenvalues of Hermitian matrices, rising."""
    check_matrices("eigvalsh", x, square=True)
    ends = [((x.shape[-1],), real_dtype(x.dtype))]
    return per_matrix("eigvalsh", np.linalg.eigvalsh, x, ends)[0]


@gives_f32
@asked
@in_memory
def eig(x: Array, /) -> Eigh:
    """**Collective.** Complex eigenvalues and eigenvectors of any square matrices, in no order.

    For symmetric and Hermitian matrices prefer :func:`eigh`.
    """
    check_matrices("eig", x, square=True)
    n, kind = x.shape[-1], complex_dtype(x.dtype)

    def both(tile: Tile) -> tuple[Tile, ...]:
        return tuple(part.astype(kind) for part in np.linalg.eig(tile))

    return Eigh(*per_matrix("eig", both, x, [((n,), kind), ((n, n), kind)]))


@gives_f32
@asked
@in_memory
def eigvals(x: T, /) -> T:
    """**Collective.** Complex eigenvalues of any square matrices, in no order."""
    check_matrices("eigvals", x, square=True)
    kind = complex_dtype(x.dtype)
    function = lambda tile: np.linalg.eigvals(tile).astype(kind)  # noqa: E731
    return per_matrix("eigvals", function, x, [((x.shape[-1],), kind)])[0]


@in_f32
@asked
@in_memory
def pinv(x: T, /, *, rtol: Any = None) -> T:
    """**Collective.** Pseudo-inverses; values below ``rtol`` times the largest count as 0."""
    check_matrices("pinv", x)
    m, n = x.shape[-2:]
    x = make_whole("pinv", x)
    options: dict[str, Any] = {} if rtol is None else {"rtol": _per_stack(x, rtol)}
    function = lambda tile: np.linalg.pinv(tile, **options)  # noqa: E731
    return per_matrix("pinv", function, x, [((n, m), x.dtype)])[0]


def _per_stack(x: Tiled, value: Any) -> float | Tile | None:
    """**Collective.** One number for all matrices, or one for each in the tile of this rank."""
    if not isinstance(value, Tiled):
        return float(value)
    t = x.type
    stack = ArrayType(t.mesh, value.type.dtype, t.shape[:-2], t.dims[:-2])
    return move(broadcast_to(value, stack.shape), stack).tile


@in_f32
@asked
@in_memory
def matrix_rank(x: T, /, *, rtol: Any = None) -> T:
    """**Collective.** How many singular values are larger than ``rtol`` times the largest."""
    check_matrices("matrix_rank", x)
    values = svdvals(x)
    if values.shape[-1] == 0:
        return reductions.count_nonzero(values, axis=-1)
    factor = float(float_limits(values.dtype).eps) * max(x.shape[-2:]) if rtol is None else rtol
    factor = expand_dims(factor, axis=-1) if isinstance(factor, Tiled) else float(factor)
    least = apply(np.multiply, reductions.max(values, axis=-1, keepdims=True), factor)
    return reductions.count_nonzero(apply(np.greater, values, least), axis=-1)
