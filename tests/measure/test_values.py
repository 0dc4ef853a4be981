"""Values: what every rank must hold, against NumPy and the brute-force oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.measure.cases import KINDS, make_case
from redist.measure.values import ValueBox, boxes, parts, source_values, target_values
from tests.problems.oracle import holdings


def whole(t: ArrayType) -> ValueBox:
    return ValueBox((0,) * t.ndim, t.shape)


def every(t: ArrayType) -> list[Any]:
    return [np.arange(n) for n in t.shape]


def test_values_are_row_major_numbers() -> None:
    t = ArrayType.parse("f64[5, 3, 4]", Mesh(x=2))
    want = np.arange(60.0).reshape(5, 3, 4)
    assert np.array_equal(source_values(t, whole(t), 0), want)
    box = ValueBox((1, 0, 2), (4, 3, 3))
    assert np.array_equal(source_values(t, box, 0), want[1:4, 0:3, 2:3])
    assert source_values(ArrayType.parse("f64[]", Mesh(x=2)), ValueBox((), ()), 3) == 3.0


@pytest.mark.parametrize("dtype", ["u8", "i8", "i16", "f16", "f32", "c64", "i32", "u64"])
def test_values_stay_exact_in_every_dtype_and_neighbours_differ(dtype: str) -> None:
    t = ArrayType.parse(f"{dtype}[600, 500]", Mesh(x=2))
    values = source_values(t, whole(t), 0)
    assert values.dtype == t.dtype.to_numpy()
    assert np.array_equal(values.real.astype(np.int64), values.real)
    for shift in (1, 2, 4, 8, 16, 50, 64, 100):
        assert np.all(values[shift:] != values[:-shift]) or dtype in ("u8", "i8", "f16", "i16")
        assert np.any(values[shift:] != values[:-shift])
        assert np.any(values[:, shift:] != values[:, :-shift])


def test_large_arrays_of_short_floats_repeat_late() -> None:
    t = ArrayType.parse("f32[100000000]", Mesh(x=2))
    values = source_values(t, ValueBox((99_999_000,), (100_000_000,)), 0)
    assert np.array_equal(np.diff(values), np.ones(999, np.float32))


@pytest.mark.parametrize("name", KINDS)
def test_boxes_are_what_the_oracle_says(name: str) -> None:
    case = make_case(name, 2000, 6)
    for t in (case.source, case.target):
        if not t.is_plain:
            continue
        held = holdings(t)
        for rank, box in boxes(t).items():
            inside = {
                index
                for index in np.ndindex(*t.shape)
                if all(a <= i < b for a, i, b in zip(box.lo, index, box.hi, strict=True))
            }
            assert inside == set(held.get(rank, ()))


def test_a_sum_is_the_sum_of_its_parts() -> None:
    source = make_case("sum-all", 2000, 4).source
    total = sum(source_values(source, whole(source), part) for part in parts(source).values())
    assert np.array_equal(total, target_values(source, every(source)))


def test_other_reductions_have_no_formula_yet() -> None:
    t = ArrayType.parse("f64[4] max{x}", Mesh(x=2))
    with pytest.raises(RequestError, match="sums of f64"):
        target_values(t, every(t))


def test_boxes_meet() -> None:
    outer = ValueBox((2, 3), (8, 9))
    inner = ValueBox((4, 3), (6, 5))
    assert outer.meet(inner) == inner
    assert inner.shape == (2, 2)
