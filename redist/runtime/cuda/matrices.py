"""Decompositions of matrices on a GPU: cuSOLVER's through CuPy, with NumPy's arguments, results and errors.

CuPy's functions have NumPy's names. Where they differ, they are asked in another way::

    errors          CuPy raises only if told to, as it must wait for the GPU to see them: it is told to
    NaN, infinity   iterations (svd, eigh, eig) on them raise, end anyhow or never end: refused here before
                    eliminations (cholesky, inv, solve) may call them singular: NaN without an error here
    solve           both operands must have the same stack: they are stretched to it
    eig             looks at the last matrix of a stack alone: matrices come one after another
    cholesky, pinv  CuPy has no ``upper``, and cuts off at one number for all matrices: done here

Singular values and eigenvalues of stacks are cuSOLVER's by Jacobi rotations; of one matrix they are not, so
that their last digits differ. What decides whether to raise, a truth value, is all that reaches memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np


def qr(a: Any, mode: str = "reduced") -> tuple[Any, Any]:
    """**Local.** As ``numpy.linalg.qr``."""
    q, r = _asked("qr", a, mode)
    return _by_rows(q), _by_rows(r)


def svd(a: Any, full_matrices: bool = True) -> tuple[Any, Any, Any]:
    """**Local.** As ``numpy.linalg.svd``."""
    _check_finite("SVD did not converge", a)
    u, s, vh = _asked("svd", a, full_matrices)
    return _by_rows(u), _by_rows(s), _by_rows(vh)


def svdvals(a: Any) -> Any:
    """**Local.** As ``numpy.linalg.svdvals``."""
    _check_finite("SVD did not converge", a)
    return _by_rows(_asked("svd", a, False, False))


def eigh(a: Any) -> tuple[Any, Any]:
    """**Local.** As ``numpy.linalg.eigh``: of the lower triangle."""
    _check_finite("Eigenvalues did not converge", a, np.tril)
    w, v = _asked("eigh", a)
    return _by_rows(w), _by_rows(v)


def eigvalsh(a: Any) -> Any:
    """**Local.** As ``numpy.linalg.eigvalsh``: of the lower triangle."""
    _check_finite("Eigenvalues did not converge", a, np.tril)
    return _by_rows(_asked("eigvalsh", a))


@lru_cache(maxsize=1)
def has_eig() -> bool:
    """**Local.** Whether CuPy and its CUDA find eigenvalues of matrices that are not Hermitian."""
    import cupy

    try:
        cupy.linalg.eigvals(cupy.ones((1, 1), "f4"))
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return True


def eig(a: Any) -> tuple[Any, Any]:
    """**Local.** As ``numpy.linalg.eig``; always complex."""
    _check_finite("Array must not contain infs or NaNs", a)
    w, v = _one_by_one("eig", a)
    return w, v


def eigvals(a: Any) -> Any:
    """**Local.** As ``numpy.linalg.eigvals``; always complex."""
    _check_finite("Array must not contain infs or NaNs", a)
    return _one_by_one("eigvals", a)[0]


def cholesky(a: Any, *, upper: bool = False) -> Any:
    """**Local.** As ``numpy.linalg.cholesky``: of the lower triangle, or of the upper."""
    given = np.conjugate(np.swapaxes(a, -1, -2)) if upper else a
    low = np.tril(_eliminated(lambda one: _asked("cholesky", one), np.tril(given)))
    made = np.conjugate(np.swapaxes(low, -1, -2)) if upper else low
    return _by_rows(made)


def inv(a: Any) -> Any:
    """**Local.** As ``numpy.linalg.inv``."""
    return _eliminated(lambda one: _asked("inv", one), a)


def solve(a: Any, b: Any) -> Any:
    """**Local.** As ``numpy.linalg.solve``: ``b`` is a vector, or a stack of matrices."""
    if b.ndim == 1:
        return solve(a, b[:, None])[..., 0]
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    sides = np.broadcast_to(b, (*stack, *b.shape[-2:]))
    if not sides.size:
        return np.zeros_like(b, np.result_type(a.dtype, b.dtype), shape=sides.shape)
    matrices = np.broadcast_to(a, (*stack, *a.shape[-2:]))
    return _by_rows(_eliminated(lambda one: _asked("solve", one, sides), matrices))


def det(a: Any) -> Any:
    """**Local.** As ``numpy.linalg.det``."""
    sign, size = slogdet(a)
    return sign * np.exp(size)


def slogdet(a: Any) -> tuple[Any, Any]:
    """**Local.** As ``numpy.linalg.slogdet``."""
    sign, size = _asked("slogdet", a)
    unknown = np.isnan(a).any(axis=(-2, -1))
    one = sign.dtype.type(np.nan if sign.dtype.kind == "c" else 1)
    return np.where(unknown, one, sign), np.where(unknown, size.dtype.type(np.nan), size)


def pinv(a: Any, *, rtol: Any = 1e-15) -> Any:
    """**Local.** As ``numpy.linalg.pinv``; ``rtol`` is a number, or has one for each matrix."""
    m, n = a.shape[-2:]
    if not a.size:
        return np.zeros_like(a, shape=(*a.shape[:-2], n, m))
    u, s, vh = svd(np.conjugate(a), full_matrices=False)
    share = rtol[..., None] if hasattr(rtol, "shape") else rtol
    kept = s > share * s.max(axis=-1, keepdims=True)
    one = s.dtype.type(1)
    inverse = np.where(kept, one / np.where(kept, s, one), s.dtype.type(0))
    return np.matmul(np.swapaxes(vh, -1, -2), inverse[..., None] * np.swapaxes(u, -1, -2))


def _asked(name: str, *args: Any) -> Any:
    """What CuPy's function gives; its errors are NumPy's ``LinAlgError``."""
    import cupy
    import cupyx

    with cupyx.errstate(linalg="raise"):
        return getattr(cupy.linalg, name)(*args)


def _by_rows(tile: Any) -> Any:
    """In C order, in memory of its own: CuPy gives views of what it worked in."""
    return tile if tile.flags.c_contiguous and tile.base is None else tile.copy(order="C")


def _check_finite(why: str, a: Any, part: Callable[[Any], Any] | None = None) -> None:
    """Raise if there is NaN or infinity in matrices, or in the part of them that is read."""
    if not bool(np.isfinite(a if part is None else part(a)).all()):
        _refuse(why)


def _refuse(why: str) -> NoReturn:
    raise np.linalg.LinAlgError(why)


def _one_by_one(name: str, a: Any) -> list[Any]:
    """What CuPy gives for each matrix of a stack, stacked: eigenvalues, and eigenvectors if asked for."""
    import cupy

    stack, n = a.shape[:-2], a.shape[-1]
    kind, count = np.result_type(a.dtype, np.complex64), math.prod(stack)
    made = [cupy.empty((count, n), kind)]
    if name == "eig":
        made.append(cupy.empty((count, n, n), kind))
    matrices = a.reshape((count, n, n))
    for k in range(count if n else 0):
        found = _asked(name, matrices[k])
        for out, part in zip(made, found if name == "eig" else (found,), strict=True):
            out[k] = part
    return [out.reshape((*stack, *out.shape[1:])) for out in made]


def _eliminated(work: Callable[[Any], Any], a: Any) -> Any:
    """``work(a)``; if it raises, NaN for matrices that are not finite, as LAPACK has it, the rest again."""
    try:
        return work(a)
    except np.linalg.LinAlgError:
        unknown = np.logical_not(np.isfinite(a).all(axis=(-2, -1)))[..., None, None]
        if not bool(unknown.any()):
            raise
    made = work(np.where(unknown, _identity(a), a))
    return np.where(unknown, made.dtype.type(np.nan), made)


def _identity(a: Any) -> Any:
    import cupy

    return cupy.eye(a.shape[-1], dtype=a.dtype)
