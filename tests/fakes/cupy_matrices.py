"""``cupy.linalg`` made of NumPy's: CuPy's signatures, and where they differ CuPy's results and errors.

Errors are told inside ``cupyx.errstate(linalg="raise")`` only; outside, results are NaN. Iterations over NaN,
which cuSOLVER may never end, fail. Factors are views of memory by columns, as cuSOLVER leaves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.fakes import numpy_cupy

STATE = ["ignore"]


@contextmanager
def errstate(*, linalg: str) -> Iterator[None]:
    """As ``cupyx.errstate``."""
    before, STATE[0] = STATE[0], linalg
    try:
        yield
    finally:
        STATE[0] = before


def _run(function: Callable[..., Any], *arrays: Any, **options: Any) -> Any:
    """Call a function of NumPy with arrays of the pretended GPU."""
    given = []
    for one in arrays:
        if not isinstance(one, numpy_cupy.ndarray):
            raise np.linalg.LinAlgError("cupy.linalg only supports cupy.ndarray")
        if one.dtype.name not in ("float32", "float64", "complex64", "complex128"):
            raise TypeError(f"{one.dtype} is unsupported in linalg")
        given.append(one.values)
    try:
        with np.errstate(all="ignore"):
            made = function(*given, **options)
    except np.linalg.LinAlgError:
        if STATE[0] == "raise":
            raise
        with np.errstate(all="ignore"):
            made = function(
                *(np.full_like(one, np.eye(*one.shape[-2:])) for one in given), **options
            )
        made = _all(lambda one: np.full_like(one, np.nan), made)
    return _all(_by_columns, made)


def _all(change: Callable[[Any], Any], made: Any) -> Any:
    return tuple(map(change, made)) if isinstance(made, tuple) else change(made)


def _by_columns(made: Any) -> Any:
    made = np.asarray(made)
    if made.ndim < 2:
        return numpy_cupy.ndarray(made)
    return numpy_cupy.ndarray(np.swapaxes(np.swapaxes(made, -1, -2).copy(), -1, -2))


def _must_end(a: Any, read: Callable[[Any], Any] = np.asarray) -> None:
    assert np.isfinite(read(a.values)).all(), "cuSOLVER may never end"


def qr(a: Any, mode: str = "reduced") -> Any:
    return _run(np.linalg.qr, a, mode=mode)


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    _must_end(a)
    return _run(np.linalg.svd, a, full_matrices=full_matrices, compute_uv=compute_uv)


def eigh(a: Any) -> Any:
    _must_end(a, np.tril)
    return _run(np.linalg.eigh, a)


def eigvalsh(a: Any) -> Any:
    _must_end(a, np.tril)
    return _run(np.linalg.eigvalsh, a)


def eig(a: Any) -> Any:
    _must_end(a)
    assert a.ndim == 2, "errors of other matrices than the last are not told"
    kind = np.result_type(a.dtype, np.complex64)
    return tuple(one.astype(kind) for one in _run(np.linalg.eig, a))


def eigvals(a: Any) -> Any:
    _must_end(a)
    assert a.ndim == 2, "errors of other matrices than the last are not told"
    return _run(np.linalg.eigvals, a).astype(np.result_type(a.dtype, np.complex64))


def cholesky(a: Any) -> Any:
    def factor(x: Any) -> Any:
        if not np.isfinite(np.tril(x)).all():
            raise np.linalg.LinAlgError("Error reported by potrf in cuSOLVER")
        return np.linalg.cholesky(x)

    return _run(factor, a)


def inv(a: Any) -> Any:
    return _run(_refusing(np.linalg.inv), a)


def solve(a: Any, b: Any) -> Any:
    if b.ndim > 1 and a.shape[:-1] != b.shape[:-1]:
        raise ValueError("a must have (..., M, M) shape and b must have (..., M, K)")
    return _run(_refusing(np.linalg.solve), a, b)


def _refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Say of matrices with NaN that they are singular."""

    def called(*args: Any) -> Any:
        if not np.isfinite(args[0]).all():
            raise np.linalg.LinAlgError("Error reported by getrf in cuBLAS")
        return function(*args)

    return called


def slogdet(a: Any) -> Any:
    sign, size = _run(np.linalg.slogdet, a)
    return sign, size


NAMES = (qr, svd, eigh, eigvalsh, eig, eigvals, cholesky, inv, solve, slogdet)
LINALG = SimpleNamespace(**{one.__name__: one for one in NAMES}, LinAlgError=np.linalg.LinAlgError)
"""What stands for ``cupy.linalg``."""
