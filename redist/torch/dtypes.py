"""Element types of PyTorch as ours, and back."""

from __future__ import annotations

import torch

from redist.errors import ConversionError
from redist.layout.dtype import DType

_NAMES = {
    "bool": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "c64": torch.complex64,
    "c128": torch.complex128,
    "f8e4m3fn": torch.float8_e4m3fn,
    "f8e4m3fnuz": torch.float8_e4m3fnuz,
    "f8e5m2": torch.float8_e5m2,
    "f8e5m2fnuz": torch.float8_e5m2fnuz,
    "f8e8m0fnu": torch.float8_e8m0fnu,
}
_OURS = {theirs: DType.parse(name) for name, theirs in _NAMES.items()}


def from_torch(dtype: torch.dtype) -> DType:
    """Our name of an element type of PyTorch.

    ``from_torch(torch.bfloat16).name`` is ``'bf16'``.
    """
    found = _OURS.get(dtype)
    if found is None:
        raise ConversionError(
            f"cannot move a tensor of {dtype}: it is not known; view it as another"
        )
    return found


def to_torch(dtype: DType) -> torch.dtype:
    """PyTorch's name of an element type of ours."""
    found = _NAMES.get(dtype.name)
    if found is None:
        raise ConversionError(f"cannot move {dtype} with PyTorch: it has no such element type")
    return found
