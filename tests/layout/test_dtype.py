"""Element types by name."""

from __future__ import annotations

import numpy as np
import pytest

from redist.errors import LayoutError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh


@pytest.mark.parametrize(
    ("short", "long", "itemsize"),
    [
        ("bool", "bool", 1),
        ("i8", "int8", 1),
        ("i16", "int16", 2),
        ("i32", "int32", 4),
        ("i64", "int64", 8),
        ("u8", "uint8", 1),
        ("u16", "uint16", 2),
        ("u32", "uint32", 4),
        ("u64", "uint64", 8),
        ("f16", "float16", 2),
        ("f32", "float32", 4),
        ("f64", "float64", 8),
        ("c64", "complex64", 8),
        ("c128", "complex128", 16),
    ],
)
def test_ours_and_numpys_names(short: str, long: str, itemsize: int) -> None:
    dtype = DType.parse(short)
    assert dtype == DType.parse(long)
    assert (dtype.name, dtype.itemsize, str(dtype)) == (short, itemsize, short)
    assert dtype.to_numpy() == np.dtype(long)
    assert dtype.extended_name is None


@pytest.mark.parametrize(
    ("short", "long", "itemsize"),
    [
        ("bf16", "bfloat16", 2),
        ("f8e4m3fn", "float8_e4m3fn", 1),
        ("f8e5m2", "float8_e5m2", 1),
        ("f8e8m0fnu", "float8_e8m0fnu", 1),
    ],
)
def test_types_that_move_as_bytes(short: str, long: str, itemsize: int) -> None:
    dtype = DType.parse(short)
    assert dtype == DType.parse(long)
    assert (dtype.itemsize, dtype.extended_name) == (itemsize, long)
    assert dtype.to_numpy() == np.dtype(f"u{itemsize}")


@pytest.mark.parametrize(
    "name",
    ["S5", "U3", "V7", "datetime64[s]", "timedelta64[25ms]", "longdouble", "intp", "half", "f4"],
)
def test_other_numpy_names(name: str) -> None:
    dtype = DType.parse(name)
    assert dtype.to_numpy() == np.dtype(name)
    assert dtype.itemsize == np.dtype(name).itemsize
    assert DType.parse(dtype.name) == dtype
    text = str(ArrayType(Mesh(), dtype, (4,), ((),)))
    assert ArrayType.parse(text, Mesh()).dtype == dtype


@pytest.mark.parametrize(
    "name",
    ["", "f31", "O", "object", "str", "S", "S0", "void", "f4,i4", "floaty", "S" + "9" * 30, "x\ny"],
)
def test_unknown_names(name: str) -> None:
    with pytest.raises(
        LayoutError, match=r"unknown dtype .*known: bool, i8, .*NumPy name"
    ) as caught:
        DType.parse(name)
    assert "\n" not in str(caught.value)


def test_ambiguous_and_foreign_names() -> None:
    with pytest.raises(LayoutError, match="'f8': it is ambiguous; write f64, or f8e4m3fn"):
        DType.parse("f8")
    other = ">" if np.little_endian else "<"
    for name in (f"{other}f4", f"{other}U3", "(2,3)f4"):
        with pytest.raises(LayoutError, match="need one element in native byte order"):
            DType.parse(name)


def test_pytorchs_dtypes_are_taken_by_what_they_print() -> None:
    class TorchDtype:
        def __str__(self) -> str:
            return "torch.bfloat16"

    TorchDtype.__module__ = "torch"
    assert DType.parse(TorchDtype()) == DType.parse("bf16")
