"""Products of matrices on a GPU by cuBLAS itself: operands of 16 bits as they lie, added up in f32.

CuPy turns stacks of 16-bit matrices into 32 bits first, refuses those of bf16, and gives results the dtype
of the operands. cuBLAS takes them as they are, and writes f32, which is what partial values of a sum are.

cuBLAS reads matrices by columns. What lies by rows is the transpose to it, so that it is asked for
the transposed product, with the operands the other way round:

    out = x @ y      (m, n) by rows      is      out.T = y.T @ x.T      (n, m) by columns

A matrix is read as it lies if one of its strides is an element, and the other at least as long as its lines:
then it is by rows, or by columns, with that other stride as its leading dimension. So parts of matrices and
transposes are not copied.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

CUDA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
"""CUDA_R_32F, CUDA_R_16F and CUDA_R_16BF, by NumPy's names."""
ADDED_IN_F32, ANY_ALGORITHM = 68, -1
"""CUBLAS_COMPUTE_32F and CUBLAS_GEMM_DEFAULT."""
ONE, ZERO = np.ones((), np.float32), np.zeros((), np.float32)
"""What cuBLAS multiplies products by, and what was there before: it reads them from memory."""


def multiply_on_gpu(x: Any, y: Any, dtype: np.dtype[Any]) -> Any:
    """**Local.** Multiply matrices, or stacks of them, of one 16-bit dtype; None if these are others.

    The result has the dtype of the operands, or f32.
    """
    library = _cublas()
    if library is None or not _are_stacks(x, y):
        return None
    if not hasattr(getattr(x, "data", None), "ptr"):  # a ghost, or NumPy's in the place of CuPy's
        return None
    own, made = _cuda_type(x.dtype), _cuda_type(dtype)
    if x.dtype != y.dtype or x.dtype.itemsize != 2 or own is None:
        return None
    if dtype not in (x.dtype, np.float32) or not (x.size and y.size):
        return None
    import cupy

    (x, x_turned, x_line), (y, y_turned, y_line) = as_lines(x), as_lines(y)
    (m, k), n = x.shape[-2:], y.shape[-1]
    out = cupy.empty((*x.shape[:-1], n), dtype)
    handle = cupy.cuda.device.get_cublas_handle()
    given = y_turned, x_turned, n, m, k, ONE.ctypes.data
    if x.ndim == 2:
        library.gemmEx(
            handle, *given, y.data.ptr, own, y_line, x.data.ptr, own, x_line,
            ZERO.ctypes.data, out.data.ptr, made, n, ADDED_IN_F32, ANY_ALGORITHM,
        )  # fmt: skip
        return out
    library.gemmStridedBatchedEx(
        handle, *given, y.data.ptr, own, y_line, stack_step(y), x.data.ptr, own, x_line, stack_step(x),
        ZERO.ctypes.data, out.data.ptr, made, n, m * n, out.size // (m * n), ADDED_IN_F32,
        ANY_ALGORITHM,
    )  # fmt: skip
    return out


def _are_stacks(x: Any, y: Any) -> bool:
    """Whether operands are matrices, or as many of them in the same stacks: what cuBLAS is asked for."""
    return bool(min(x.ndim, y.ndim) > 1 and x.shape[:-2] == y.shape[:-2])


def product_bytes(x: Any, y: Any) -> int:
    """What a product of 16-bit matrices takes beside its result.

    cuBLAS reads operands as they lie, or a copy. What :func:`multiply_on_gpu` leaves to CuPy is done in f32:
    both operands, and a result that is rounded behind it.

    >>> x, wide, w = (np.zeros(sides, np.float16) for sides in ((8, 6), (8, 12), (6, 4)))
    >>> product_bytes(x, w), product_bytes(wide[:, ::2], w), product_bytes(x, w[:, 0])
    (0, 96, 248)
    """
    if _are_stacks(x, y):
        copied = (one for one in (x, y) if _lines_of(one.shape, one.strides, one.itemsize) is None)
        return sum(one.nbytes for one in copied)
    stack = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    n = math.prod((*stack, *x.shape[-2:-1], *(y.shape[-1:] if y.ndim > 1 else ())))
    return int(2 * (x.nbytes + y.nbytes) + 4 * n)


@lru_cache(maxsize=64)
def _cuda_type(dtype: np.dtype[Any]) -> int | None:
    """CUDA's number of a dtype that a product may have."""
    return CUDA_TYPES.get(dtype.name)


def as_lines(x: Any) -> tuple[Any, int, int]:
    """Matrices that cuBLAS can read, whether they lie by columns, and from one line to the next, in elements.

    A copy where they lie in another way.

    >>> a = np.zeros((4, 6), np.float16)
    >>> [as_lines(one)[1:] for one in (a, a.T, a[:, :3], a[:2].T)]
    [(0, 6), (1, 6), (0, 6), (1, 6)]
    >>> as_lines(a[:, ::2])[0].flags.c_contiguous
    True
    """
    found = _lines_of(x.shape, x.strides, x.itemsize)
    return (x.copy(order="C"), 0, x.shape[-1]) if found is None else (x, *found)


@lru_cache(maxsize=4096)
def _lines_of(
    shape: tuple[int, ...], strides: tuple[int, ...], size: int
) -> tuple[int, int] | None:
    """Whether matrices lie by columns, and from one line to the next; None if they lie in another way."""
    (rows, columns), (down, across) = shape[-2:], strides[-2:]
    if _one_step(shape, strides) is not None:
        by_rows, by_columns = (rows, down, columns, across), (columns, across, rows, down)
        for turned, lines in enumerate((by_rows, by_columns)):
            found = _leading(*lines, size)
            if found is not None:
                return turned, found
    return None


def _leading(n_lines: int, step: int, n: int, within: int, size: int) -> int | None:
    """From one line to the next, in elements; None if elements of a line do not lie side by side."""
    if within != size and n > 1:
        return None
    if n_lines == 1:
        return n
    return None if step % size or step < n * size else step // size


def stack_step(x: Any) -> int:
    """From one matrix of a stack to the next, in elements."""
    step = _one_step(x.shape, x.strides)
    assert step is not None
    return step // int(x.itemsize)


def _one_step(shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """From one matrix of a stack to the next, in bytes, if that is the same everywhere."""
    sizes = zip(shape[:-2], strides[:-2], strict=True)
    steps = [(n, step) for n, step in sizes if n > 1]
    if not steps:
        return 0
    for (_, outer), (n, inner) in pairwise(steps):
        if outer != n * inner:
            return None
    step = int(steps[-1][1])
    return step if step >= 0 else None


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
