"""Sums that have the same bits in every order and cut."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from redist.spmd import ExactGrid

FLOATS = st.floats(-1e9, 1e9, allow_subnormal=True)


@settings(deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=60), st.integers(0, 2**32 - 1), st.data())
def test_sums_have_the_same_bits_in_every_order_and_cut(values, seed, data) -> None:
    whole = np.array(values)
    grid = ExactGrid.for_sum(float(np.abs(whole).max()), len(whole))
    sums = grid.sum_rows(whole)
    shuffled = np.random.default_rng(seed).permutation(whole)
    cut = data.draw(st.integers(0, len(whole)))
    parts = grid.sum_rows(shuffled[:cut]) + grid.sum_rows(shuffled[cut:])
    assert np.array_equal(sums, parts)
    exact = float(sum(map(Fraction, values)))
    bound = len(values) * float(np.abs(whole).max()) * len(values) ** 2 * 2.0**-104
    assert abs(Fraction(float(sums[0])) + Fraction(float(sums[1])) - Fraction(exact)) <= (
        Fraction(bound) + Fraction(abs(exact)) / 2**53
    )


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60))
def test_sums_of_what_is_not_negative_never_fall(values) -> None:
    coarse, fine = ExactGrid.for_sum(max(values), len(values)).split(np.array(values))
    assert (np.diff(coarse.cumsum() + fine.cumsum()) >= 0).all()
