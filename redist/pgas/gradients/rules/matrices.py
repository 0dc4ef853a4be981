"""Rules of linear algebra: the published formulas, of real matrices where they are of decompositions.

``cholesky``, ``eigh`` and ``eigvalsh`` are of symmetric matrices: their gradients are symmetric, each element
with half of what both places owe.
"""

from __future__ import annotations

from typing import Any

from redist.pgas.creation import eye, zeros_like
from redist.pgas.elementwise.binary import where
from redist.pgas.gradients.cotangents import full, unstretched
from redist.pgas.gradients.rules.table import Owed, constant, rule, rule_of_one
from redist.pgas.kinds import number_kind
from redist.pgas.linalg.decompositions import (
    cholesky,
    det,
    eig,
    eigh,
    eigvalsh,
    inv,
    matrix_rank,
    pinv,
    qr,
    slogdet,
    svd,
    svdvals,
)  # fmt: skip
from redist.pgas.linalg.equations import solve
from redist.pgas.linalg.norms import local_norm
from redist.pgas.products.matmul import matmul
from redist.pgas.shapes.diagonals import tril
from redist.pgas.shapes.permute import expand_dims, matrix_transpose
from redist.pgas.tiles.devices import kind_of

constant(matrix_rank)


@rule_of_one(local_norm)
def _local_norm(g: Any, y: Any, x: Any, dims: tuple[int, ...], keepdims: bool) -> Any:
    if not keepdims and dims:
        g, y = (expand_dims(one, axis=dims) for one in (g, y))
    return g * (x.conj() / y)


@rule_of_one(inv)
def _inv(g: Any, y: Any, x: Any) -> Any:
    t = matrix_transpose(y)
    return -matmul(matmul(t, g), t)


@rule(solve)
def _solve(owed: Owed) -> list[Any]:
    (a, b), g, y = owed.args, owed.whole, owed.y
    first = solve(matrix_transpose(a), g)
    left, right = first, y
    if b.ndim == 1:
        left, right = (expand_dims(one, axis=-1) for one in (first, y))
    of_matrix = -matmul(left, matrix_transpose(right)) if 0 in owed.needed else None
    if of_matrix is not None:
        of_matrix = unstretched(of_matrix, a.shape, of_matrix.shape)
    return [of_matrix, unstretched(first, b.shape, first.shape) if 1 in owed.needed else None]


def _across(g: Any) -> Any:
    """A value for each matrix beside its elements."""
    return expand_dims(g, axis=(-2, -1))


@rule_of_one(det)
def _det(g: Any, y: Any, x: Any) -> Any:
    return _across(g * y) * matrix_transpose(inv(x))


@rule(slogdet)
def _slogdet(owed: Owed) -> list[Any]:
    x = _real(owed)
    g = owed.g.logabsdet
    return [
        None if g is None else _across(full(g, owed.y.logabsdet.shape)) * matrix_transpose(inv(x))
    ]


def _real(owed: Owed) -> Any:
    x = owed.operands[0]
    if number_kind(x.dtype) == "c":
        raise owed.refuse("its gradient is known for real matrices only")
    return x


def _symmetric(x: Any) -> Any:
    return (x + matrix_transpose(x)) / 2


def _identity(x: Any, n: int) -> Any:
    """Truth values on the diagonal."""
    return eye(n, dtype=bool, mesh=x.mesh, comm=x.comm, device=kind_of(x))


def _lower(x: Any) -> Any:
    """The lower half, with half of the diagonal."""
    half = where(_identity(x, x.shape[-1]), x / 2, x)
    return tril(half)


@rule(cholesky)
def _cholesky(owed: Owed) -> list[Any]:
    _real(owed)
    g, y = owed.whole, owed.y
    if owed.options.get("upper", False):
        g, y = matrix_transpose(g), matrix_transpose(y)
    t = matrix_transpose(y)
    inner = _lower(matmul(t, g))
    right = solve(t, matrix_transpose(solve(t, matrix_transpose(inner))))  # L^-T inner L^-1
    return [_symmetric(right)]


def _gaps(values: Any) -> Any:
    """``1 / (b - a)`` of two values, with 0 for one and itself."""
    d = expand_dims(values, axis=-2) - expand_dims(values, axis=-1)
    same = _identity(values, values.shape[-1])
    return where(same, d.dtype.type(0), 1 / where(same, d.dtype.type(1), d))


@rule(eigh)
def _eigh(owed: Owed) -> list[Any]:
    _real(owed)
    w, v = owed.y
    gw, gv = owed.g
    t = matrix_transpose(v)
    inner = None if gv is None else _gaps(w) * matmul(t, full(gv, v.shape))
    if gw is not None:
        own = where(
            _identity(v, w.shape[-1]), expand_dims(full(gw, w.shape), axis=-1), w.dtype.type(0)
        )
        inner = own if inner is None else inner + own
    return [_symmetric(matmul(matmul(v, inner), t))]


@rule(eigvalsh)
def _eigvalsh(owed: Owed) -> list[Any]:
    v = eigh(_real(owed)).eigenvectors
    return [matmul(v * expand_dims(owed.whole, axis=-2), matrix_transpose(v))]


@rule(eig)
def _eig(owed: Owed) -> list[Any]:
    """Eigenvalues change by the diagonal of ``V^-1 dA V``; eigenvectors have any length and phase."""
    if owed.g.eigenvectors is not None:
        raise owed.refuse("eigenvectors have no gradient here; that of eigenvalues is known")
    v = owed.y.eigenvectors
    row = expand_dims(full(owed.g.eigenvalues, v.shape[:-1]), axis=-2)
    return [matmul(matrix_transpose(inv(v)) * row, matrix_transpose(v))]


@rule(svdvals)
def _svdvals(owed: Owed) -> list[Any]:
    u, _, vh = svd(_real(owed), full_matrices=False)
    return [matmul(u * expand_dims(owed.whole, axis=-2), vh)]


@rule(svd)
def _svd(owed: Owed) -> list[Any]:
    x = _real(owed)
    u, s, vh = owed.y
    gu, gs, gvh = (
        None if g is None else full(g, y.shape) for g, y in zip(owed.g, owed.y, strict=True)
    )
    if (gu is None and gvh is None and u.shape[-1] != s.shape[-1]) or vh.shape[-2] != s.shape[-1]:
        u, s, vh = svd(x, full_matrices=False)
    elif x.shape[-1] != x.shape[-2] and owed.options.get("full_matrices", True):
        raise owed.refuse(
            "vectors that belong to no singular value have no gradient; give full_matrices=False"
        )
    ut, v = matrix_transpose(u), matrix_transpose(vh)
    row = expand_dims(s, axis=-2)
    gaps = _gaps(s * s)
    inner = None
    if gs is not None:
        inner = where(_identity(u, s.shape[-1]), expand_dims(gs, axis=-1), s.dtype.type(0))
    out = None
    if gu is not None:
        p = matmul(ut, gu)
        one = gaps * (p - matrix_transpose(p)) * row
        inner = one if inner is None else inner + one
        if u.shape[-2] > s.shape[-1]:
            out = matmul((gu - matmul(u, p)) / row, vh)
    if gvh is not None:
        gv = matrix_transpose(gvh)
        p = matmul(vh, gv)
        one = expand_dims(s, axis=-1) * (gaps * (p - matrix_transpose(p)))
        inner = one if inner is None else inner + one
        if v.shape[-2] > s.shape[-1]:
            rest = matmul(u, matrix_transpose((gv - matmul(v, p)) / row))
            out = rest if out is None else out + rest
    if inner is not None:
        whole = matmul(matmul(u, inner), vh)
        out = whole if out is None else out + whole
    return [out]


@rule(qr)
def _qr(owed: Owed) -> list[Any]:
    x = _real(owed)
    q, r = owed.y
    if x.shape[-2] < x.shape[-1] or q.shape[-1] != r.shape[-1]:
        raise owed.refuse(
            'its gradient is known for tall or square matrices and mode="reduced" only'
        )
    gq = zeros_like(q) if owed.g.Q is None else full(owed.g.Q, q.shape)
    gr = zeros_like(r) if owed.g.R is None else full(owed.g.R, r.shape)
    m = matmul(r, matrix_transpose(gr)) - matmul(matrix_transpose(gq), q)
    low = tril(m, k=-1)
    own = where(_identity(m, m.shape[-1]), m, m.dtype.type(0))
    whole = gq + matmul(q, low + matrix_transpose(low) + own)
    return [matrix_transpose(solve(r, matrix_transpose(whole)))]  # whole R^-T


@rule_of_one(pinv)
def _pinv(g: Any, y: Any, x: Any, *, rtol: Any = None) -> Any:
    """By the change of ``P = pinv(A)``: ``-P dA P + P Pt dAt (1 - A P) + (1 - P A) dAt Pt P``, transposed."""
    t, gt = matrix_transpose(y), matrix_transpose(g)
    left, right = matmul(y, t), matmul(t, y)  # P Pt, Pt P
    first = -matmul(matmul(t, g), t)
    second = matmul(gt, left)
    second = second - matmul(x, matmul(y, second))
    third = matmul(right, gt)
    third = third - matmul(matmul(third, y), x)
    return first + second + third
