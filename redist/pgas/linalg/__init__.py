"""``pgas.linalg``: linear algebra of the standard, cut where it distributes well.

Norms, products, traces, ``qr``, ``svd`` and ``lstsq`` of tall matrices work on cut matrices; the other
decompositions spread stacks over the ranks and hold each matrix whole, up to a limit of its size.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from redist.layout.array_type import ArrayType
from redist.pgas.elementwise.apply import apply
from redist.pgas.linalg import panel_solve as large_solve
from redist.pgas.linalg import tall_qr
from redist.pgas.linalg.equations import is_large, lstsq, solve
from redist.pgas.linalg.matrices import check_matrices, per_matrix, real_dtype, whole
from redist.pgas.linalg.norms import matrix_norm, vector_norm
from redist.pgas.memory import as_tile
from redist.pgas.products.named import matmul, outer, tensordot, vecdot
from redist.pgas.reductions import named as reductions
from redist.pgas.shapes.diagonals import diagonal as _diagonal
from redist.pgas.shapes.manipulation import broadcast_to, expand_dims
from redist.pgas.shapes.manipulation import matrix_transpose as _matrix_transpose
from redist.pgas.suggestions import missing
from redist.pgas.tiles.array_arguments import check_arrays, of_array
from redist.pgas.tiles.devices import check_alike, in_memory, kind_of
from redist.pgas.tiles.free_dims import freed
from redist.pgas.tiles.layouts import dtype_of, folded, meet, with_dtype
from redist.pgas.tiles.move import move, settle
from redist.pgas.tiles.tiled import Tiled

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "lstsq", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr",
    "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip
NOT_OFFERED = ("eig", "eigvals", "lu", "schur", "expm")


matrix_transpose = of_array(_matrix_transpose)


class Qr(NamedTuple):
    """Result of :func:`qr`."""

    Q: Any
    R: Any


class Eigh(NamedTuple):
    """Result of :func:`eigh`."""

    eigenvalues: Any
    eigenvectors: Any


class Slogdet(NamedTuple):
    """Result of :func:`slogdet`."""

    sign: Any
    logabsdet: Any


class Svd(NamedTuple):
    """Result of :func:`svd`."""

    U: Any
    S: Any
    Vh: Any


@in_memory
def qr(x: Tiled, /, *, mode: str = "reduced") -> Qr:
    """**Collective.** ``x = Q R``; Q of a tall matrix is cut by rows and R whole on every rank.

    ``mode="complete"`` gives a square Q and holds the matrix whole.
    """
    check_matrices("qr", x)
    if mode not in ("reduced", "complete"):
        raise ValueError(f"unknown mode {mode!r}; known: 'reduced', 'complete'")
    m, n = x.shape[-2:]
    if mode == "reduced" and tall_qr.distributes(x.type):
        return Qr(*tall_qr.qr(x))
    k = min(m, n) if mode == "reduced" else m
    function = lambda tile: tuple(np.linalg.qr(tile, mode=mode))  # type: ignore[call-overload] # noqa: E731
    return Qr(*per_matrix("qr", function, x, [((m, k), x.dtype), ((k, n), x.dtype)]))


@in_memory
def svd(x: Tiled, /, *, full_matrices: bool = True) -> Svd:
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


@in_memory
def svdvals(x: Tiled, /) -> Any:
    """**Collective.** Singular values, falling."""
    check_matrices("svdvals", x)
    if x.shape[-2] > x.shape[-1] and tall_qr.distributes(x.type):
        x = tall_qr.qr(x)[1]
    k = min(x.shape[-2:])
    return per_matrix("svdvals", np.linalg.svdvals, x, [((k,), real_dtype(x.dtype))])[0]


@in_memory
def cholesky(x: Tiled, /, *, upper: bool = False) -> Any:
    """**Collective.** The triangular factor of positive definite matrices."""
    check_matrices("cholesky", x, square=True)
    function = lambda tile: np.linalg.cholesky(tile, upper=upper)  # noqa: E731
    return per_matrix("cholesky", function, x, [(x.shape[-2:], x.dtype)])[0]


@in_memory
def det(x: Tiled, /) -> Any:
    """**Collective.** Determinants."""
    check_matrices("det", x, square=True)
    return per_matrix("det", np.linalg.det, x, [((), x.dtype)])[0]


@in_memory
def slogdet(x: Tiled, /) -> Slogdet:
    """**Collective.** Signs and logarithms of determinants."""
    check_matrices("slogdet", x, square=True)
    ends = [((), x.dtype), ((), real_dtype(x.dtype))]
    return Slogdet(*per_matrix("slogdet", lambda tile: tuple(np.linalg.slogdet(tile)), x, ends))


@in_memory
def inv(x: Tiled, /) -> Any:
    """**Collective.** Inverses; that of one matrix too large for a rank stays cut by rows."""
    check_matrices("inv", x, square=True)
    if x.ndim == 2 and x.size and is_large(x):
        return large_solve.solve(x, _identity(x))
    return per_matrix("inv", np.linalg.inv, x, [(x.shape[-2:], x.dtype)])[0]


@in_memory
def eigh(x: Tiled, /) -> Eigh:
    """**Collective.** Eigenvalues, rising, and eigenvectors of Hermitian matrices."""
    check_matrices("eigh", x, square=True)
    n, real = x.shape[-1], real_dtype(x.dtype)
    ends = [((n,), real), ((n, n), x.dtype)]
    return Eigh(*per_matrix("eigh", lambda tile: tuple(np.linalg.eigh(tile)), x, ends))


@in_memory
def eigvalsh(x: Tiled, /) -> Any:
    """**Collective.** Eigenvalues of Hermitian matrices, rising."""
    check_matrices("eigvalsh", x, square=True)
    ends = [((x.shape[-1],), real_dtype(x.dtype))]
    return per_matrix("eigvalsh", np.linalg.eigvalsh, x, ends)[0]


@in_memory
def pinv(x: Tiled, /, *, rtol: Any = None) -> Any:
    """**Collective.** Pseudo-inverses; values below ``rtol`` times the largest count as 0."""
    check_matrices("pinv", x)
    m, n = x.shape[-2:]
    x = whole("pinv", x)
    options: dict[str, Any] = {} if rtol is None else {"rtol": _per_stack(x, rtol)}
    function = lambda tile: np.linalg.pinv(tile, **options)  # noqa: E731
    return per_matrix("pinv", function, x, [((n, m), x.dtype)])[0]


def _per_stack(x: Tiled, value: Any) -> Any:
    """**Collective.** One number for all matrices, or one for each in the tile of this rank."""
    if not isinstance(value, Tiled):
        return float(value)
    t = x.type
    stack = ArrayType(t.mesh, value.type.dtype, t.shape[:-2], t.dims[:-2])
    return move(broadcast_to(value, stack.shape), stack).local


@in_memory
def matrix_rank(x: Tiled, /, *, rtol: Any = None) -> Any:
    """**Collective.** How many singular values are larger than ``rtol`` times the largest."""
    check_matrices("matrix_rank", x)
    values = svdvals(x)
    if values.shape[-1] == 0:
        return reductions.count_nonzero(values, axis=-1)
    factor = float(np.finfo(values.dtype).eps) * max(x.shape[-2:]) if rtol is None else rtol
    factor = expand_dims(factor, axis=-1) if isinstance(factor, Tiled) else float(factor)
    least = apply(np.multiply, reductions.max(values, axis=-1, keepdims=True), factor)
    return reductions.count_nonzero(apply(np.greater, values, least), axis=-1)


def matrix_power(x: Tiled, n: int, /) -> Any:
    """**Collective** where operands must move. Products of square matrices with themselves."""
    check_matrices("matrix_power", x, square=True, floating=False)
    n = operator.index(n)
    if n < 0:
        x, n = inv(x), -n
    if n == 0:
        return _identity(x)
    out = None
    while n:
        if n & 1:
            out = x if out is None else matmul(out, x)
        n >>= 1
        x = matmul(x, x) if n else x
    assert out is not None
    return out.new(out.type, None if out.local is None else out.local.copy())


def _identity(x: Tiled) -> Any:
    from redist.pgas.creation import make

    def fill(tile: Any, box: Any) -> None:
        (r0, r1), (c0, c1) = box[-2:]
        tile[...] = np.arange(r0, r1)[:, None] == np.arange(c0, c1)[None, :]

    t = settle(x).type
    t = ArrayType(t.mesh, t.dtype, t.shape, t.dims)
    return make(x.shape, x.dtype, fill, t, comm=x.comm, device=kind_of(x))


def diagonal(x: Tiled, /, *, offset: int = 0) -> Any:
    """**Collective** where rows and columns are cut. Diagonals of a stack of matrices."""
    check_matrices("diagonal", x, floating=False)
    return _diagonal(x, x.ndim - 2, x.ndim - 1, offset)


def trace(x: Tiled, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """**Collective** where rows and columns are cut. Sums of diagonals."""
    check_matrices("trace", x, floating=False)
    return reductions.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def cross(x1: Tiled, x2: Tiled, /, *, axis: int = -1) -> Any:
    """**Collective** where operands must move. Cross products of vectors of 3 elements."""
    if axis >= 0 and x1.ndim != x2.ndim:
        raise ValueError(f"cannot cross shapes {x1.shape} and {x2.shape} along dim {axis}")
    for x in (x1, x2):
        if not -x.ndim <= axis < x.ndim or x.shape[axis] != 3:
            raise ValueError(f"cannot cross shape {x.shape}: dim {axis} must have size 3")
    check_arrays("cross", x1, x2)
    check_alike("cross", x1, x2)
    together = meet((x1.type, x2.type))[-1]
    end = freed(together, frozenset({axis % together.ndim}))
    a, b = (move(x, folded(x.type, end)) for x in (x1, x2))
    dtype = np.result_type(a.dtype, b.dtype)
    t = with_dtype(end, dtype_of(dtype))
    if a.local is None or b.local is None:
        return a.new(t, None)
    dim = axis if axis < 0 else axis - x1.ndim
    return a.new(t, as_tile(np.cross(a.local, b.local, axis=dim)).astype(dtype, copy=False))


def __getattr__(name: str) -> Any:
    if name in NOT_OFFERED:
        raise AttributeError(
            f"pgas.linalg.{name} is not offered: it does not distribute; use a.gather() and NumPy"
        )
    raise AttributeError(missing("pgas.linalg", name))
