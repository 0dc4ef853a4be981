"""Sums that have the same bits in every order: values are split into parts that add without rounding.

>>> grid = ExactGrid.for_sum(bound=1.0, count=3)
>>> coarse, fine = grid.split(np.array([0.1, 0.7, -0.3]))
>>> bool(coarse.sum() + fine.sum() == coarse[::-1].sum() + fine[::-1].sum())
True

How rows are cut over ranks, how many ranks there are, and in which order their sums meet changes nothing. The
coarse part of a value is the nearest multiple of a unit that is so large that all coarse parts together are a
multiple of it below 2**53; the fine part does the same for what is left. What is lost after that is at most
``count ** 2 * 2 ** -104`` of ``count * bound``: less than rounding loses in a usual sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
LEAST = -1074
"""Every double is a multiple of 2 to this power."""


@dataclass(frozen=True, slots=True)
class ExactGrid:
    """Two constants: adding and taking away the first leaves a coarse part, the second a fine one."""

    steps: tuple[float, float]

    @staticmethod
    def for_sum(bound: float, count: int) -> ExactGrid:
        """The grid for a sum of ``count`` values, none larger than ``bound``."""
        coarse = _unit(bound, count)
        return ExactGrid((1.5 * 2.0**52 * coarse, 1.5 * 2.0**52 * _unit(coarse / 2, count)))

    def split(self, values: Values) -> tuple[Values, Values]:
        """**Local.** The coarse and the fine parts of values, which add without rounding."""
        coarse_step, fine_step = self.steps
        coarse = (values + coarse_step) - coarse_step
        fine = values - coarse
        fine += fine_step
        fine -= fine_step
        return coarse, fine

    def sum_rows(self, values: Values) -> Values:
        """**Local.** The sums along dim 0, coarse and fine, side by side along a new first dim."""
        coarse, fine = self.split(values.astype(np.float64, copy=False))
        return np.stack([coarse.sum(axis=0), fine.sum(axis=0)])


def _unit(bound: float, count: int) -> float:
    """A power of two such that ``count`` multiples of it up to ``bound`` add exactly."""
    room = bound * max(count, 4)
    if not math.isfinite(room):
        return math.inf
    return math.ldexp(1.0, max(math.frexp(room)[1] - 51, LEAST)) if room else 2.0**LEAST
