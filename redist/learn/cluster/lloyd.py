"""Lloyd's rounds over ranks: labels by rows, centres by one all-reduce of ``2 k (d + 1) + 1`` numbers.

Sums are exact (:class:`redist.spmd.ExactGrid`): centres have the same bits for every number of ranks.

The rounds start from seeds: k-means++ over ranks chooses the same rows as scikit-learn from the same random
state. A seed costs four small exchanges: where the ranks' weights begin, which rows are drawn, what is in
them, and how much closer they would bring all the other rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.extmath import row_norms

from redist.learn.kernels.steps import column_sums, inertia_sums, lloyd_step, try_candidates
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.loops import functions_for
from redist.spmd import ExactGrid, Rows, RunningSums, Totals, draw, largest, total_of
from redist.text.progress import stage

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
    rows: Rows, weights: Values, k: int, random_state: np.random.RandomState,
    norms: Values | None = None, n_trials: int | None = None,
) -> tuple[Values, NDArray[np.int64]]:  # fmt: skip
    """**Collective.** ``k`` rows that lie far from each other, and their row numbers, by greedy k-means++.

    Each time, ``n_trials`` rows are drawn by their squared distance to the nearest seed, and the one that
    brings all rows closest is kept. ``norms`` are the squared norms of this rank's rows, if they are known.
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


Labels = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Clusters:
    """The result of the rounds: labels of this rank's rows, and centres and inertia over all ranks."""

    labels: Labels
    inertia: float
    centers: Values
    n_iter: int


@dataclass(frozen=True, slots=True)
class WeightedRows:
    """Rows with weights, and the grids on which their sums are exact."""

    rows: Rows
    weights: Values
    grids: tuple[ExactGrid, ExactGrid]

    @staticmethod
    def of(rows: Rows, weights: Values) -> WeightedRows:
        """**Collective.** Find out how large values and weights are."""
        most, heaviest = largest(rows.comm, rows.local), largest(rows.comm, weights)
        grids = (ExactGrid.for_sum(most * heaviest, rows.n), ExactGrid.for_sum(heaviest, rows.n))
        return WeightedRows(rows, weights, grids)


def mean_of(rows: Rows) -> Values:
    """**Collective.** The mean of every column, rounded once."""
    grid = ExactGrid.for_sum(largest(rows.comm, rows.local), rows.n)
    sums = total_of(rows.comm, column_sums(rows.local, grid)).sum(axis=0)
    return (sums / rows.n).astype(rows.dtype)


def variance_of(rows: Rows) -> float:
    """**Collective.** The mean over columns of the variance of rows whose mean is 0."""
    grid = ExactGrid.for_sum(largest(rows.comm, rows.local) ** 2, rows.n)
    sums = total_of(rows.comm, column_sums(rows.local, grid, squared=True)).sum(axis=0)
    return float(np.mean(sums / rows.n))


def label_rows(local: Values, centers: Values) -> Labels:
    """**Local.** The nearest centre of every row; if several are equally near, the first."""
    xp = functions_for(local)
    labels: Labels = xp.full(len(local), -1, np.int32)
    rows = xp.ascontiguousarray(local, dtype=centers.dtype)
    lloyd_step(rows, rows, centers, row_norms(centers, squared=True), labels, None)
    return labels


def inertia_of(rows: Rows, weights: Values, centers: Values, labels: Labels) -> float:
    """**Collective.** The weighted sum of squared distances to the centres."""
    return float(inertia_by_label(rows, weights, centers, labels, 1, labels * 0)[0])


def inertia_by_label(
    rows: Rows, weights: Values, centers: Values, labels: Labels, n: int, into: Labels
) -> Values:
    """**Collective.** The inertia in ``n`` sums: each row counts towards the sum that ``into`` names."""
    xp = functions_for(rows.local)
    local = xp.ascontiguousarray(rows.local, dtype=centers.dtype)
    most = largest(rows.comm, local) + float(np.abs(centers).max(initial=0.0))
    bound = rows.d * most * most * largest(rows.comm, weights)
    grid = ExactGrid.for_sum(bound, rows.n)
    weighing = xp.ascontiguousarray(weights, dtype=centers.dtype)
    sums = inertia_sums(local, weighing, centers, labels, into, n, grid)
    total: Values = total_of(rows.comm, sums).sum(axis=0)
    return total


def run_lloyd(
    weighted: WeightedRows, centers: Values, max_iter: int, tol: float, verbose: Any, name: str
) -> Clusters:
    """**Collective.** Rounds from given centres until no label changes or the centres hardly move.

    ``name`` says which centres these are, for progress messages.
    """
    rows, weights = weighted.rows, weighted.weights
    k, d = centers.shape
    centers = np.ascontiguousarray(centers, dtype=rows.dtype)
    labels: Labels = functions_for(rows.local).full(len(rows.local), -1, np.int32)
    add_up = Totals(rows.comm, 2 * k * (d + 1) + 1)
    talks = bool(verbose) and rows.comm.rank == 0
    strict, done = False, 0
    for done in range(1, max_iter + 1):
        stage(f"{name}, round {done}")
        norms = row_norms(centers, squared=True)
        changed, sums = lloyd_step(rows.local, weights, centers, norms, labels, weighted.grids)
        assert sums is not None
        total = add_up(np.append(sums.reshape(-1), changed))
        new = _new_centers(weighted, total[:-1].reshape(k, 2, d + 1), centers, labels)
        if verbose:
            inertia = inertia_of(rows, weights, centers, labels)
            if talks:
                print(f"Iteration {done - 1}, inertia {inertia}.")
        shift = float(((new - centers) ** 2).sum())
        centers, strict = new, total[-1] == 0
        if strict or shift <= tol:
            if talks:
                why = (
                    "strict convergence"
                    if strict
                    else f"center shift {shift} within tolerance {tol}"
                )
                print(f"Converged at iteration {done - 1}: {why}.")
            break
    if not strict:
        labels = label_rows(rows.local, centers)
    return Clusters(labels, inertia_of(rows, weights, centers, labels), centers, done)


def _new_centers(weighted: WeightedRows, total: Values, old: Values, labels: Labels) -> Values:
    """**Collective** if a cluster is empty. The means of all clusters, as scikit-learn has them."""
    parts = total.sum(axis=1)
    sums, weight = parts[:, :-1].copy(), parts[:, -1].copy()
    empty = np.flatnonzero(weight == 0)
    if len(empty):
        _fill_empty(weighted, empty, sums, weight, old, labels)
    heaviest = int(weight.argmax())
    for j in range(len(sums)):
        if weight[j] > 0:
            sums[j] *= 1.0 / weight[j]
        else:
            sums[j] = sums[heaviest]  # in this order, as scikit-learn does
    return np.ascontiguousarray(sums, dtype=old.dtype)


def _fill_empty(
    weighted: WeightedRows, empty: NDArray[np.intp], sums: Values, weight: Values, old: Values,
    labels: Labels,
) -> None:  # fmt: skip
    """**Collective.** Give every empty cluster one of the rows that are farthest from their centres.

    Which goes to which is what NumPy's ``argpartition`` of all distances says, as in scikit-learn: every
    rank has these for a moment, one number a row.
    """
    rows = weighted.rows
    far = ((rows.local - rows.beside(old)[labels]) ** 2).sum(axis=1)
    every = rows.gather(far)
    if every.max() == 0:
        return  # fewer different rows than clusters
    chosen = np.argpartition(every, -len(empty))[: -len(empty) - 1 : -1]
    values = rows.fetch(chosen)
    their_weights = rows.holding(weighted.weights).fetch(chosen)
    their_labels = rows.holding(labels).fetch(chosen)
    for new, value, w, was in zip(empty, values, their_weights, their_labels, strict=True):
        sums[was] -= value * w
        sums[new] = value * w
        weight[new] = w
        weight[was] -= w
