"""Products of stacks of 16-bit matrices, by cuBLAS itself: CuPy would turn them into 32 bits first.

cuBLAS reads matrices by columns. What lies by rows is the transpose to it, so that it is asked for
the transposed product, with the operands the other way round:

    out = x @ y      (m, n) by rows      is      out.T = y.T @ x.T      (n, m) by columns
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

F16, ADDED_IN_F32, ANY_ALGORITHM = 2, 68, -1
"""CUDA_R_16F, CUBLAS_COMPUTE_32F and CUBLAS_GEMM_DEFAULT."""


def multiply_stacks(x: Any, y: Any) -> Any:
    """**Local.** Multiply stacks of f16 matrices on a GPU, added up in f32; None if these are others."""
    library = _cublas()
    if library is None or x.ndim < 3 or x.shape[:-2] != y.shape[:-2]:
        return None
    if not hasattr(x.data, "ptr"):  # an array of NumPy, in the place of CuPy's
        return None
    if not (x.dtype == y.dtype == np.float16 and x.size and y.size):
        return None
    import cupy

    (x, x_turned), (y, y_turned) = _in_order(x), _in_order(y)
    (m, k), n = x.shape[-2:], y.shape[-1]
    out = cupy.empty((*x.shape[:-1], n), np.float16)
    one, zero = np.ones((), np.float32), np.zeros((), np.float32)
    library.gemmStridedBatchedEx(
        cupy.cuda.device.get_cublas_handle(), y_turned, x_turned, n, m, k, one.ctypes.data,
        y.data.ptr, F16, k if y_turned else n, k * n,
        x.data.ptr, F16, m if x_turned else k, m * k,
        zero.ctypes.data,
        out.data.ptr, F16, n, m * n,
        out.size // (m * n), ADDED_IN_F32, ANY_ALGORITHM,
    )  # fmt: skip
    return out


def _in_order(x: Any) -> tuple[Any, int]:
    """A stack as one run of memory, and whether its matrices lie by columns there."""
    if x.swapaxes(-1, -2).flags.c_contiguous and not x.flags.c_contiguous:
        return x, 1
    return (x if x.flags.c_contiguous else x.copy()), 0


@lru_cache(maxsize=1)
def _cublas() -> Any:
    """cuBLAS as CuPy calls it; None where there is none, or another library in CuPy's place."""
    try:
        import cupy
        from cupy_backends.cuda.libs import cublas
    except ImportError:
        return None
    has_all = hasattr(cupy.cuda, "device") and hasattr(cublas, "gemmStridedBatchedEx")
    return cublas if has_all else None
