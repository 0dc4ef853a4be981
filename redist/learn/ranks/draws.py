"""Rows drawn by weight, as NumPy's ``RandomState.choice`` draws them, though no rank has all weights.

Weights are added up exactly (:mod:`redist.learn.kernels.exact_sums`): the number of ranks changes no draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.kernels.exact_sums import ExactGrid
from redist.learn.ranks.rows import Rows
from redist.learn.ranks.totals import all_rows, total_of
from redist.runtime.cuda.arrays import to_host
from redist.runtime.cuda.loops import functions_for

Values = NDArray[Any]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AddedUp:
    """Weights of the own rows added up, those of all rows before them included; ``total`` is that of all."""

    rows: Rows
    sums: Values
    total: float

    @staticmethod
    def of(rows: Rows, weights: Values, bound: float) -> AddedUp:
        """**Collective.** Add up weights, none of which is larger than ``bound``."""
        parts = ExactGrid.for_sum(bound, rows.n).split(weights)
        sums = [part.cumsum() for part in parts]
        ends = np.array([float(one[-1]) if weights.size else 0.0 for one in sums])
        every = all_rows(rows.comm, ends)
        for one, before in zip(sums, every[: rows.comm.rank].sum(axis=0), strict=True):
            one += before
        total = every.sum(axis=0)
        return AddedUp(rows, sums[0] + sums[1], float(total[0] + total[1]))

    def find(self, values: Values, side: str = "left") -> Numbers:
        """**Collective.** How many rows' sums are below each value (``right``: not above): a row's number."""
        below = to_host(
            functions_for(self.sums).searchsorted(self.sums, self.rows.beside(values), side)
        )
        return total_of(self.rows.comm, below.astype(np.int64))

    def find_shares(self, shares: Values) -> Numbers:
        """**Collective.** The rows at shares of the total, from 0 to 1, as ``choice`` finds them."""
        sums = self.sums / self.total
        below = to_host(functions_for(sums).searchsorted(sums, self.rows.beside(shares), "right"))
        return total_of(self.rows.comm, below.astype(np.int64))


def draw(rows: Rows, weights: Values, random_state: np.random.RandomState, size: int) -> Numbers:
    """**Collective.** Draw ``size`` rows, as ``random_state.choice(n, size, p=weights / sum)`` does."""
    _must_be_shares(rows, weights)
    sums = AddedUp.of(rows, weights.astype(np.float64), largest(rows, weights))
    return sums.find_shares(random_state.random_sample(size))


def draw_distinct(
    rows: Rows, weights: Values, random_state: np.random.RandomState, size: int
) -> Numbers:
    """**Collective.** The same without drawing a row twice, as with ``replace=False``."""
    if _must_be_shares(rows, weights) < size:
        raise ValueError("Fewer non-zero entries in p than size")
    left, bound = weights.astype(np.float64), largest(rows, weights)
    found = np.empty(0, np.int64)
    while len(found) < size:
        shares = random_state.rand(size - len(found))
        here = found[rows.holds(found)] - rows.first
        left[here] = 0
        new = AddedUp.of(rows, left, bound).find_shares(shares)
        _, first = np.unique(new, return_index=True)
        found = np.append(found, new[np.sort(first)])
    return found


def largest(rows: Rows, values: Values) -> float:
    """**Collective.** The largest magnitude of any rank's values; 0 where there are none."""
    own = max(float(values.max()), -float(values.min()), 0.0) if values.size else 0.0
    return float(total_of(rows.comm, np.array([own], np.float64), "max")[0])


def _must_be_shares(rows: Rows, weights: Values) -> int:
    """**Collective.** Raise, with NumPy's words, unless weights can be shares; how many are not 0."""
    said = np.array([int((weights < 0).sum()), int((weights != 0).sum())], np.int64)
    negative, some = total_of(rows.comm, said).tolist()
    if negative:
        raise ValueError("probabilities are not non-negative")
    if not some:
        raise ValueError("probabilities contain NaN")
    return int(some)
