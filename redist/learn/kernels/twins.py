"""The kernels of native/ in NumPy, some for arrays on a GPU too: slower, with the same results.

Sums have the same bits. Which of two centres is nearer is decided by products that BLAS adds up, as C does
dim by dim where BLAS fuses products with additions: it can differ where both are equally far.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from redist.learn.kernels.outside_tree import Apart, OutsideTree
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_host
from redist.runtime.cuda.loops import functions_for
from redist.spmd import ExactGrid

PART, GPU_PART = 4096, 2**20
"""Rows that are worked on at a time."""
Values = NDArray[Any]
Numbers = NDArray[np.int64]


def lloyd_step(
    rows: Values,
    weights: Values,
    centers: Values,
    norms: Values,
    labels: NDArray[np.int32],
    grids: tuple[ExactGrid, ExactGrid] | None,
) -> tuple[int, Values | None]:
    """**Local.** As :func:`redist.learn.kernels.steps.lloyd_step`."""
    k, d = centers.shape
    changed, sums = 0, None if grids is None else np.zeros((k, 2, d + 1))
    for lo in range(0, len(rows), PART):
        part = rows[lo : lo + PART]
        found = (norms - 2 * (part @ centers.T)).argmin(axis=1)
        changed += int((labels[lo : lo + PART] != found).sum())
        labels[lo : lo + PART] = found
        if grids is None or sums is None:
            continue
        w = weights[lo : lo + PART]
        parts = grids[0].split((part * w[:, None]).astype(np.float64))
        of_weights = grids[1].split(w.astype(np.float64))
        for which in range(2):
            for j in range(d):
                sums[:, which, j] += np.bincount(found, parts[which][:, j], k)
            sums[:, which, d] += np.bincount(found, of_weights[which], k)
    return changed, sums


def column_sums(rows: Values, grid: ExactGrid, squared: bool = False) -> Values:
    """**Local.** As :func:`redist.learn.kernels.steps.column_sums`."""
    out, step = np.zeros((2, rows.shape[1])), part_of(rows)
    for lo in range(0, len(rows), step):
        part = rows[lo : lo + step].astype(np.float64)
        out += to_host(grid.sum_rows(part * part if squared else part))
    return out


def part_of(rows: Values) -> int:
    """**Local.** How many rows are worked on at a time."""
    return GPU_PART if is_device(rows) else PART


def pair_sums(rows: Values, grid: ExactGrid, squared: bool) -> Values:
    """**Local.** As :func:`redist.learn.kernels.steps.pair_sums`."""
    d = rows.shape[1]
    out = np.zeros((2, d, d))
    for lo in range(0, len(rows), PART):
        part = rows[lo : lo + PART]
        for i in range(d):
            apart = part[:, i : i + 1] - part
            out[:, i] += grid.sum_rows(apart * apart if squared else np.abs(apart))
    return out


def inertia_sums(
    rows: Values,
    weights: Values,
    centers: Values,
    labels: NDArray[np.int32],
    into: NDArray[np.int32],
    m: int,
    grid: ExactGrid,
) -> Values:
    """**Local.** As :func:`redist.learn.kernels.steps.inertia_sums`."""
    xp, step = functions_for(rows), part_of(rows)
    out = xp.zeros((2, m))
    places = xp.asarray(centers)
    for lo in range(0, len(rows), step):
        own = slice(lo, lo + step)
        apart = rows[own].astype(np.float64) - places[labels[own]].astype(np.float64)
        far = xp.zeros(len(apart))
        for column in apart.T:
            far += column * column
        for which, part in enumerate(grid.split(far * weights[own])):
            out[which] += xp.bincount(into[own], part, m)
    return to_host(out)


def try_candidates(
    rows: Values,
    norms: Values,
    weights: Values,
    candidates: Values,
    candidate_norms: Values,
    closest: Values,
    grid: ExactGrid,
) -> tuple[Values, Values]:
    """**Local.** As :func:`redist.learn.kernels.steps.try_candidates`."""
    near, sums = np.empty((len(candidates), len(rows))), np.empty((len(candidates), 2))
    for t, candidate in enumerate(candidates.astype(np.float64)):
        product = np.zeros(len(rows))
        for j, value in enumerate(candidate):
            product += rows[:, j].astype(np.float64) * value
        far = np.maximum((-2 * product + candidate_norms[t]) + norms, 0)
        near[t] = np.minimum(far, closest)
        sums[t] = grid.sum_rows(near[t] * weights)
    return near, sums


def join_lists(
    ends: Numbers,
    indices: NDArray[np.int32],
    first: int,
    marked: NDArray[np.bool_],
    parent: Numbers,
) -> None:
    """**Local.** As :func:`redist.learn.kernels.steps.join_lists`; parents become roots."""
    n = len(parent)
    owners = np.repeat(np.arange(first, first + len(ends) - 1), np.diff(ends))
    both = marked[owners] & marked[indices]
    one = np.concatenate([owners[both], np.arange(n)])
    other = np.concatenate([indices[both], parent])
    _, parts = connected_components(coo_array((np.ones(len(one)), (one, other)), (n, n)), False)
    least = np.full(n, n)
    np.minimum.at(least, parts, np.arange(n))
    parent[:] = least[parts]


def grow_tree(outside: OutsideTree, apart: Apart, added: Values, offer: Values) -> None:
    """**Local.** As a step of :func:`redist.learn.kernels.growing.loop_of`; products are rounded."""
    outside.take(int(added[1]))
    far = np.zeros(outside.m)
    for value, column in zip(added[4:], outside.points.T, strict=True):
        far += (value - column) ** 2
    outside.offer(approach(outside, np.sqrt(far) / apart.alpha, apart, added), offer)


def approach(outside: OutsideTree, far: Values, apart: Apart, added: Values) -> int:
    """**Local.** Let a point of the tree be so far from the points outside; where the nearest of them is."""
    m, core, number = outside.m, float(added[3]), int(added[1])
    if m == 0:
        return -1
    far = np.maximum(np.where(far > apart.most, np.inf, far), core)
    if apart.both:
        far = np.maximum(far, outside.core[:m])
    if apart.unit:
        far = np.rint(far * apart.unit) / apart.unit
    nearer = far < outside.reach[:m]
    outside.reach[:m][nearer] = far[nearer]
    outside.nearest[:m][nearer] = number
    least = np.flatnonzero(outside.reach[:m] == outside.reach[:m].min())
    return int(least[outside.number[least].argmin()])
