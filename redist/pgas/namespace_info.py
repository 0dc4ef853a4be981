"""What the namespace reports about itself: dtypes, promotion, capabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.errors import ArgumentError
from redist.pgas import kinds
from redist.pgas.kinds import dtype_asked, float_limits, number_kind, promote
from redist.pgas.tiles import devices
from redist.pgas.tiles.tiled import Tiled

API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
DTYPES: dict[str, Any] = {
    name: getattr(np, name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float32", "float64", "complex64", "complex128",
    )
}  # fmt: skip
"""Dtypes by name: NumPy's scalar types, since its ``dtype("float64")`` equals None."""
KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu",
    "real floating": "f", "complex floating": "c", "numeric": "iufc",
}  # fmt: skip


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype that these operands give; bf16 and f16 stay with integers and Python numbers.

    >>> str(result_type(np.float16, np.int64)), str(result_type(np.float16, np.float32))
    ('float16', 'float32')
    """
    return promote(*arrays_and_dtypes)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether values of a dtype can be cast to another dtype without loss.

    >>> can_cast(np.float16, np.float32), can_cast(np.float32, np.float16)
    (True, False)
    """
    return kinds.can_cast(from_.dtype if isinstance(from_, Tiled) else from_, to)


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """The result of :func:`finfo`, as Python numbers."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class IntLimits:
    """The result of :func:`iinfo`."""

    bits: int
    max: int
    min: int
    dtype: np.dtype[Any]


def finfo(type: Any, /) -> FloatLimits:
    """The limits of a floating-point dtype."""
    f = float_limits(type.dtype if isinstance(type, Tiled) else type)
    limits = (float(f.eps), float(f.max), float(f.min), float(f.smallest_normal))
    return FloatLimits(int(f.bits), *limits, np.dtype(f.dtype))


def iinfo(type: Any, /) -> IntLimits:
    """The limits of an integer dtype."""
    kind = np.dtype(type.dtype if isinstance(type, Tiled) else type)
    i = np.iinfo(kind)
    return IntLimits(i.bits, i.max, i.min, kind)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind, given by name or as a dtype, or of one of several kinds."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ArgumentError(f"unknown kind {kind!r}; known: {', '.join(KINDS)}")
        return number_kind(dtype_asked(dtype)) in KINDS[kind]
    return dtype_asked(dtype) == dtype_asked(kind)


class Info:
    """The result of :func:`__array_namespace_info__`."""

    def capabilities(self) -> dict[str, Any]:
        """The optional features of the standard, and whether this namespace has them."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The default device, which is always ``cpu``."""
        return "cpu"

    def devices(self) -> tuple[str, ...]:
        """The devices: ``cpu``, and this rank's GPUs once CuPy is in use."""
        return tuple(devices.names())

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The dtypes of arrays that are made without naming one."""
        return {
            "real floating": np.dtype(float),
            "complex floating": np.dtype(complex),
            "integral": np.dtype(np.int64),
            "indexing": np.dtype(np.int64),
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """All dtypes, or those of one kind."""
        return {name: np.dtype(d) for name, d in DTYPES.items() if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> Info:
    """Describe the namespace: its dtypes, devices and capabilities."""
    return Info()
