"""Functions that follow the standard where NumPy does not: on tiles of one rank."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from redist.pgas.elementwise import standard_limits
from tests.programs.pgas.standard import OTHERS, expected

VALUES = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 3e-30, 1e30)


def same(got: Any, want: Any) -> None:
    """The same numbers, with the signs of zeros."""
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    for a, b in ((got.real, want.real), (got.imag, want.imag)):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a)[b == 0], np.signbit(b)[b == 0])


def test_the_same_functions_differ() -> None:
    copies = {"imag", "real"}  # the same values, never a view
    assert set(standard_limits.FUNCTIONS) - copies == set(OTHERS)
    assert standard_limits.function_on_tiles("add") is np.add


@pytest.mark.parametrize("name", ["expm1", "tan", "tanh"])
@pytest.mark.parametrize("dtype", ["c16", "c8", "f8", "f4"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_one_operand(name: str, dtype: str) -> None:
    pairs = itertools.product(VALUES, VALUES)
    values = np.array([complex(a, b) for a, b in pairs])
    values = (values if dtype[0] == "c" else values.real).astype(dtype)
    function = standard_limits.FUNCTIONS[name]
    same(function(values), expected(name)(values))
    same(function(values[3]), expected(name)(values[3])[()])
    out = np.empty_like(values)
    assert function(values, out=out) is out
    same(out, expected(name)(values))
    ordinary = values[np.isfinite(values) & (values.real != 0)]
    same(function(ordinary), getattr(np, name)(ordinary))


@pytest.mark.parametrize("dtypes", [*itertools.product(["f8", "f4"], ["f8", "f4", "i4"])])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_floor_divide(dtypes: tuple[str, str]) -> None:
    right = expected("floor_divide")
    a, b = (np.array(VALUES).astype(dtype) for dtype in dtypes)
    same(standard_limits.floor_divide(a[:, None], b), right(a[:, None], b))
    for number in (np.inf, -np.inf, 2.0, -3):
        same(standard_limits.floor_divide(a, number), right(a, number))
        same(standard_limits.floor_divide(number, a), right(number, a))
    kept = a.copy()
    standard_limits.floor_divide(kept, b[::-1], out=kept, casting="same_kind")
    same(kept, right(a, b[::-1]).astype(a.dtype))
    standard_limits.floor_divide(kept, kept, out=kept)
    assert standard_limits.floor_divide(np.arange(5), 2).tolist() == [0, 0, 1, 1, 2]
