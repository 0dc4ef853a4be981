"""Reductions on NumPy arrays, also for element types that NumPy alone does not know."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import RedistError
from redist.layout.dtype import DType

AnyArray = NDArray[Any]
BLOCK_BYTES = 2**16
"""Temporary arrays are no larger."""
_KERNEL = ("f32", "f64", "i32", "i64", "u32", "u64", "u8")
_GPU = frozenset("bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128".split())
_UFUNC = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def combine(op: str, dtype: DType, a: AnyArray, b: AnyArray) -> AnyArray:
    """``a op b``, element by element.

    >>> combine("max", DType.parse("i32"), np.array([1, 5]), np.array([3, 2]))
    array([3, 5])
    """
    check_reduces(op, dtype)
    real = _arithmetic(dtype)
    out = _UFUNC[op](a.view(real), b.view(real))
    if real.kind == "c" and op == "prod":
        out = _product(a.view(real), b.view(real))
    return np.asarray(out, dtype=real).view(a.dtype)


def combine_into(op: str, dtype: DType, a: AnyArray, b: AnyArray) -> None:
    """``a = a op b``, in place; the same bits as :func:`combine`."""
    real = _arithmetic(dtype)
    if real.kind != "c" or op != "prod":
        _UFUNC[op](a.view(real), b.view(real), out=a.view(real))
    elif a.ndim == 0 or a.nbytes <= BLOCK_BYTES:
        a[...] = _product(a, b)
    elif len(a) == 1:
        combine_into(op, dtype, a[0], b[0])
    else:
        half = len(a) // 2
        combine_into(op, dtype, a[:half], b[:half])
        combine_into(op, dtype, a[half:], b[half:])


def kernel_code(op: str, dtype: DType) -> int | None:
    """The number under which reduce.c combines such values; None where NumPy has to.

    The compiled loops give the same bits as NumPy's; floats that are compared (NaN, signed zeros)
    and everything unusual are left to NumPy.
    """
    if dtype.name not in _KERNEL or (op in ("max", "min") and dtype.name[0] == "f"):
        return None
    return 4 * _KERNEL.index(dtype.name) + ("sum", "prod", "max", "min").index(op)


def combines_on_gpu(op: str, dtype: DType) -> bool:
    """Whether a GPU can combine such values; those of one byte that it does not know have a table.

    >>> combines_on_gpu("sum", DType.parse("f32")), combines_on_gpu("sum", DType.parse("f8e5m2"))
    (True, True)
    """
    return op in _UFUNC and (dtype.name in _GPU or is_tabulated(dtype))


def is_tabulated(dtype: DType) -> bool:
    """Whether a GPU looks the results of such values up in a table, made by the host."""
    return dtype.itemsize == 1 and dtype.extended_name is not None


def _product(a: AnyArray, b: AnyArray) -> AnyArray:
    """The product of complex numbers, rounded the same way whatever the memory layout."""
    out = np.empty(a.shape, a.dtype)
    out.real = a.real * b.real - a.imag * b.imag
    out.imag = a.real * b.imag + a.imag * b.real
    return out


def check_reduces(op: str, dtype: DType) -> None:
    """An error where values of ``dtype`` cannot be combined by ``op``."""
    if _arithmetic(dtype).kind == "c" and op in ("max", "min"):
        raise RedistError(f"cannot take the {op} of {dtype}: its values have no order")


def identity(op: str, dtype: DType) -> Any:
    """The value that changes nothing: 0 (-0.0) for sum, 1 for prod, the extremes for max and min.

    >>> identity("max", DType.parse("u8")), identity("min", DType.parse("f32"))
    (np.uint8(0), np.float32(inf))
    """
    real = _arithmetic(dtype)
    if op in ("sum", "prod"):
        # -0.0 + x is x for every float, 0.0 + -0.0 is not.
        zero = -0.0 if real.kind in "fcV" else 0
        value = np.array(zero if op == "sum" else 1).astype(real)
        if value != (0 if op == "sum" else 1):
            raise RedistError(
                f"cannot take the {op} of {dtype}: it has no value that changes nothing"
            )
    elif real.kind == "b":
        value = np.array(op == "min", dtype=real)
    elif real.kind in "iu":
        info = np.iinfo(real)
        value = np.array(info.min if op == "max" else info.max, dtype=real)
    elif real.kind in "fV":
        value = np.array(-np.inf if op == "max" else np.inf).astype(real)
        if not np.isinf(value.astype(np.float64)):
            import ml_dtypes

            finite: Any = ml_dtypes.finfo
            value = np.array(finite(real).min if op == "max" else finite(real).max).astype(real)
    else:
        raise RedistError(f"cannot take the {op} of {dtype}: its values have no order")
    return value.view(dtype.to_numpy())[()]


def _arithmetic(dtype: DType) -> np.dtype[Any]:
    """The dtype that computes; ``ml_dtypes`` for bf16 and f8."""
    name = dtype.extended_name
    if name is None:
        real = dtype.to_numpy()
        if real.kind in "SUVMm":
            raise RedistError(f"cannot reduce {dtype}: it has no arithmetic")
        return real
    try:
        import ml_dtypes
    except ImportError:
        raise RedistError(
            f"cannot reduce {dtype} without the package ml_dtypes; install redist[dtypes] or ml_dtypes"
        ) from None
    return np.dtype(getattr(ml_dtypes, name))
