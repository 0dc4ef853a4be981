"""k-means++ over ranks: the same rows as scikit-learn chooses from the same random state.

A centre costs four small exchanges: where the ranks' weights begin, which rows are drawn, what is in them,
and how much nearer they would bring all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.kernels.steps import try_candidates
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.loops import functions_for
from redist.spmd import ExactGrid, Rows, RunningSums, Totals, draw, largest

Values = NDArray[Any]


def squared_norms(rows: Values) -> Values:
    """**Local.** The squared norm of every row, in double precision."""
    if not is_device(rows):
        out: Values = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        return out
    total = functions_for(rows).zeros(len(rows))
    for column in rows.T:
        total += column.astype(np.float64) ** 2
    return total


def choose_seeds(
    rows: Rows,
    weights: Values,
    k: int,
    random_state: np.random.RandomState,
    norms: Values | None = None,
    n_trials: int | None = None,
) -> tuple[Values, NDArray[np.int64]]:
    """**Collective.** ``k`` rows, and their numbers, that lie far from each other; greedy k-means++.

    Of ``n_trials`` rows drawn by their squared distance to the nearest seed, each time the one is kept
    that brings all rows nearest. ``norms`` are the squared norms of the own rows, if they are known.
    """
    trials = 2 + int(np.log(k)) if n_trials is None else n_trials
    norms = squared_norms(rows.local) if norms is None else norms.astype(np.float64)
    weights = weights.astype(np.float64)
    bound = 4 * largest(rows.comm, norms) * largest(rows.comm, weights)
    grid = ExactGrid.for_sum(bound, rows.n)
    add_up = Totals(rows.comm, 2 * trials)
    numbers = draw(rows, weights, random_state, 1)
    seeds = rows.fetch(numbers)
    nothing = functions_for(norms).full(len(norms), np.inf)
    near, sums = try_candidates(
        rows.local, norms, weights, seeds, squared_norms(seeds), nothing, grid
    )
    closest = near[0]
    pot = Totals(rows.comm, 2)(sums).sum()
    for _ in range(1, k):
        shares = random_state.uniform(size=trials) * pot
        ids = RunningSums.of(rows, weights * closest, bound).find(shares)
        ids = np.minimum(ids, rows.n - 1)
        candidates = rows.fetch(ids)
        near, sums = try_candidates(
            rows.local, norms, weights, candidates, squared_norms(candidates), closest, grid
        )
        pots = add_up(sums).reshape(-1, 2).sum(axis=1)
        best = int(pots.argmin())
        pot, closest = pots[best], near[best].copy()
        numbers = np.append(numbers, ids[best])
        seeds = np.append(seeds, candidates[best : best + 1], axis=0)
    return seeds, numbers
