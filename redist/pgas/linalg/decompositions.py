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
from redist.pgas.linalg.matrices import check_matrices, identity_like, make_whole, per_matrix
from redist.pgas.products.matmul import matmul
from redist.pgas.shapes.permute import expand_dims
from redist.pgas.shapes.repeat import broadcast_to
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.devices import check_alike, copy_to_gpu, copy_to_host
from redist.pgas.tiles.move import move
from redist.pgas.tiles.tiled import T, Tile, Tiled
from redist.runtime.cuda.matrices import has_eig


class Qr(NamedTuple):
    """The result of :func:`qr`."""

    Q: Array
    R: Array


class Eigh(NamedTuple):
    """The result of :func:`eigh` and :func:`eig`."""

    eigenvalues: Array
    eigenvectors: Array


class Slogdet(NamedTuple):
    """The result of :func:`slogdet`."""

    sign: Array
    logabsdet: Array


class Svd(NamedTuple):
    """The result of :func:`svd`."""

    U: Array
    S: Array
    Vh: Array


@gives_f32
@asked
def qr(x: Array, /, *, mode: str = "reduced") -> Qr:
    """**Collective.** Compute ``x = Q R``; for a tall matrix, Q is cut by rows and R is whole on every rank.

    ``mode="complete"`` gives a square Q and holds the matrix whole.
    """
    check_matrices("qr", x)
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f"unknown mode {mode!r}; known: 'reduced', 'complete'")
    m, n = x.shape[-2:]
    if mode == "reduced" and tall_qr.distributes(x.type):
        return Qr(*tall_qr.qr(x))
    k = min(m, n) if mode == "reduced" else m
    return Qr(*per_matrix("qr", x, [((m, k), x.dtype), ((k, n), x.dtype)], mode=mode))


@gives_f32
@asked
def svd(x: Array, /, *, full_matrices: bool = True) -> Svd:
    """**Collective.** Compute ``x = U diag(S) Vh``; U of a tall matrix is cut by rows, unless full."""
    check_matrices("svd", x)
    m, n = x.shape[-2:]
    k, real = min(m, n), real_dtype(x.dtype)
    if not full_matrices and m > n and tall_qr.distributes(x.type):
        q, r = tall_qr.qr(x)
        u, s, vh = svd(r, full_matrices=False)
        return Svd(matmul(q, u), s, vh)
    a, b = (m, n) if full_matrices else (k, k)
    ends = [((m, a), x.dtype), ((k,), real), ((b, n), x.dtype)]
    return Svd(*per_matrix("svd", x, ends, full_matrices=full_matrices))


@gives_f32
@asked
def svdvals(x: T, /) -> T:
    """**Collective.** The singular values, in descending order."""
    check_matrices("svdvals", x)
    if x.shape[-2] > x.shape[-1] and tall_qr.distributes(x.type):
        x = tall_qr.qr(x)[1]
    k = min(x.shape[-2:])
    return per_matrix("svdvals", x, [((k,), real_dtype(x.dtype))])[0]


@gives_f32
@asked
def cholesky(x: T, /, *, upper: bool = False) -> T:
    """**Collective.** The triangular (Cholesky) factors of positive definite matrices."""
    check_matrices("cholesky", x, square=True)
    return per_matrix("cholesky", x, [(x.shape[-2:], x.dtype)], upper=upper)[0]


@in_f32
@asked
def det(x: T, /) -> T:
    """**Collective.** The determinants of square matrices."""
    check_matrices("det", x, square=True)
    return per_matrix("det", x, [((), x.dtype)])[0]


@in_f32
@asked
def slogdet(x: Array, /) -> Slogdet:
    """**Collective.** The signs of determinants, and the logarithms of their absolute values."""
    check_matrices("slogdet", x, square=True)
    ends = [((), x.dtype), ((), real_dtype(x.dtype))]
    return Slogdet(*per_matrix("slogdet", x, ends))


@in_f32
@asked
def inv(x: T, /) -> T:
    """**Collective.** Inverses; that of a single matrix too large for a rank stays cut by rows."""
    check_matrices("inv", x, square=True)
    if x.ndim == 2 and x.size and is_large(x):
        return solve_by_panels(x, identity_like(x))
    return per_matrix("inv", x, [(x.shape[-2:], x.dtype)])[0]


@gives_f32
@asked
def eigh(x: Array, /) -> Eigh:
    """**Collective.** Eigenvalues in ascending order, and eigenvectors, of Hermitian matrices."""
    check_matrices("eigh", x, square=True)
    n, real = x.shape[-1], real_dtype(x.dtype)
    ends = [((n,), real), ((n, n), x.dtype)]
    return Eigh(*per_matrix("eigh", x, ends))


@gives_f32
@asked
def eigvalsh(x: T, /) -> T:
    """**Collective.** The eigenvalues of Hermitian matrices, in ascending order."""
    check_matrices("eigvalsh", x, square=True)
    ends = [((x.shape[-1],), real_dtype(x.dtype))]
    return per_matrix("eigvalsh", x, ends)[0]


@gives_f32
@asked
def eig(x: Array, /) -> Eigh:
    """**Collective.** The complex eigenvalues and eigenvectors of any square matrices, in no order.

    For symmetric and Hermitian matrices prefer :func:`eigh`. CUDA before 12.6.2 has no such function: there,
    arrays on GPUs are copied to the host for it, and its results are copied back.
    """
    check_matrices("eig", x, square=True)
    return Eigh(*_eigen_of(x, "eig"))


@gives_f32
@asked
def eigvals(x: T, /) -> T:
    """**Collective.** The complex eigenvalues of any square matrices, in no order; on GPUs as :func:`eig`."""
    check_matrices("eigvals", x, square=True)
    return _eigen_of(x, "eigvals")[0]


def _eigen_of(x: T, name: str) -> list[T]:
    """**Collective.** Eigenvalues, and eigenvectors if asked for, in memory where CuPy cannot find them."""
    if x.memory.on_device and not has_eig():
        return copy_to_gpu(_eigen_of(copy_to_host(x), name))
    n, kind = x.shape[-1], complex_dtype(x.dtype)
    return per_matrix(name, x, [((n,), kind), ((n, n), kind)][: 2 if name == "eig" else 1])


@in_f32
@asked
def pinv(x: T, /, *, rtol: Any = None) -> T:
    """**Collective.** Pseudo-inverses; singular values up to ``rtol`` times the largest count as 0."""
    check_matrices("pinv", x)
    check_alike("pinv", x, rtol)
    m, n = x.shape[-2:]
    x = make_whole("pinv", x)
    options: dict[str, Any] = {} if rtol is None else {"rtol": _per_stack(x, rtol)}
    return per_matrix("pinv", x, [((n, m), x.dtype)], **options)[0]


def _per_stack(x: Tiled, value: Any) -> float | Tile | None:
    """**Collective.** One number for all matrices, or one for each in the tile of this rank."""
    if not isinstance(value, Tiled):
        return float(value)
    t = x.type
    stack = ArrayType(t.mesh, value.type.dtype, t.shape[:-2], t.dims[:-2])
    return move(broadcast_to(value, stack.shape), stack).tile


@in_f32
@asked
def matrix_rank(x: T, /, *, rtol: Any = None) -> T:
    """**Collective.** The number of singular values larger than ``rtol`` times the largest."""
    check_matrices("matrix_rank", x)
    check_alike("matrix_rank", x, rtol)
    values = svdvals(x)
    if values.shape[-1] == 0:
        return reductions.count_nonzero(values, axis=-1)
    factor = float(float_limits(values.dtype).eps) * max(x.shape[-2:]) if rtol is None else rtol
    factor = expand_dims(factor, axis=-1) if isinstance(factor, Tiled) else float(factor)
    least = apply(np.multiply, reductions.max(values, axis=-1, keepdims=True), factor)
    return reductions.count_nonzero(apply(np.greater, values, least), axis=-1)
