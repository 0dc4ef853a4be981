"""``pgas.linalg``: the linear algebra of the standard, on cut matrices where that works well.

Norms, products, traces, and ``qr``, ``svd`` and ``lstsq`` of tall matrices work on cut matrices; the other
decompositions distribute stacks over the ranks and hold each matrix whole, up to a size limit.
"""

# ruff: noqa: I001  (names stand side by side)
from __future__ import annotations

from typing import NoReturn

from redist.errors import MissingNameError
from redist.pgas.global_array import namespace
from redist.pgas.linalg.decompositions import (
    cholesky, det, eig, eigh, eigvals, eigvalsh, inv, matrix_rank, pinv, qr, slogdet, svd, svdvals,
)  # fmt: skip
from redist.pgas.linalg.equations import lstsq, solve
from redist.pgas.linalg.norms import matrix_norm, vector_norm
from redist.pgas.linalg.powers import cross, diagonal, matrix_power, trace
from redist.pgas.products.matmul import matmul, outer, tensordot, vecdot
from redist.pgas.shapes.permute import matrix_transpose
from redist.pgas.suggestions import explain_missing

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq",
    "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr",
    "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip
_NOT_OFFERED = ("lu", "schur", "expm", "tensorinv", "tensorsolve")


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> NoReturn:
    if name in _NOT_OFFERED:
        raise MissingNameError(
            f"pgas.linalg.{name} is not offered: it does not distribute; use a.gather() and NumPy"
        )
    raise MissingNameError(explain_missing("pgas.linalg", name, vars(namespace())))
