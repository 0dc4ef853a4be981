"""Cast elements to another dtype: files and other ranks may hold fewer bits than memory, or more.

bf16 is converted bit by bit: it is the upper half of an f32, rounded to nearest, ties to even. Other floats
that NumPy does not have need the package ml_dtypes. CuPy arrays are cast like NumPy arrays, except to or from
those floats.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError
from redist.layout.dtype import DType
from redist.text.extras import install_line

Values = NDArray[Any]


def check_cast(name: str, source: DType, target: DType) -> None:
    """**Local.** Raise if an array cannot be cast, or if the cast would lose more than rounding does."""
    if source == target:
        return
    kinds = [_kind(one) for one in (source, target)]
    if not all(kinds) or (kinds[0] == "c" and kinds[1] != "c"):
        raise ArgumentError(f"cannot cast {name!r} from {source} to {target}: need numbers alike")
    for one in (source, target):
        if one.extended_name is not None and one.name != "bf16":
            _ml_dtype(one)


def _kind(dtype: DType) -> str:
    """The letter of what numbers a dtype has; empty if it has none."""
    if dtype.extended_name is not None:
        return "f"
    kind = dtype.to_numpy().kind
    return kind if kind in "biufc" else ""


def cast(values: Values, source: DType, target: DType) -> Values:
    """**Local.** The values as a new array of another dtype; the array itself if the dtype is the same.

    >>> half = cast(np.array([1.0, 1.00390625, -2.5], "f4"), DType.parse("f32"), DType.parse("bf16"))
    >>> cast(half, DType.parse("bf16"), DType.parse("f64")).tolist()
    [1.0, 1.0, -2.5]
    """
    if source == target:
        return values
    with np.errstate(all="ignore"):
        plain = _to_plain(values, source)
        if target.extended_name is None:
            return plain.astype(target.to_numpy())
        if target.name == "bf16":
            return _bf16(plain.astype(np.float32, copy=False))
        return plain.astype(_ml_dtype(target)).view(target.to_numpy())


def _to_plain(values: Values, source: DType) -> Values:
    """Values that NumPy can count with."""
    if source.extended_name is None:
        return values
    if source.name == "bf16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.ascontiguousarray(values).view(_ml_dtype(source)).astype(np.float32)


def _bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = (values if values.flags.c_contiguous else values.copy()).view(np.uint32)
    rounded = bits >> np.uint32(16)
    rounded &= np.uint32(1)
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded >>= np.uint32(16)
    found: NDArray[np.uint16] = rounded.astype(np.uint16)
    is_nan = np.isnan(values)
    if not is_nan.any():
        return found
    quiet = ((bits >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
    return np.where(is_nan, quiet, found)


def _ml_dtype(dtype: DType) -> Any:
    try:
        import ml_dtypes
    except ImportError:
        raise ArgumentError(
            f"cannot cast {dtype}: ml_dtypes is not installed; {install_line('dtypes')}"
        ) from None
    return np.dtype(getattr(ml_dtypes, str(dtype.extended_name)))
