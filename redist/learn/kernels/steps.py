"""Loops over the rows of a rank: in C where that was built, else in NumPy, or on a GPU; the same bits."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.kernels import twins
from redist.learn.kernels.cuda import lloyd as on_gpu
from redist.learn.kernels.library import SUFFIX, address, in_turns, library
from redist.runtime.copies.gpu_arrays import is_device
from redist.spmd import ExactGrid

Values = NDArray[Any]
Numbers = NDArray[np.int64]
FEW, MANY = 4, 8
"""Centres that C compares at a time, as in native/lloyd.c: so few doubles, or multiples of this many."""


def lloyd_step(
    rows: Values,
    weights: Values,
    centers: Values,
    norms: Values,
    labels: NDArray[np.int32],
    grids: tuple[ExactGrid, ExactGrid] | None,
) -> tuple[int, Values | None]:
    """**Local.** Give every row the label of its nearest centre; of several, the first.

    ``norms`` are the squared norms of the centres. Returns how many labels changed, and, where the
    ``grids`` of sums and weights are given, for each centre ``d`` coarse sums and the coarse weight,
    then the fine ones: an array ``k, 2, d + 1``.
    """
    if is_device(rows):
        return on_gpu.lloyd_step(rows, weights, centers, norms, labels, grids)
    c, k, d = library(), *centers.shape
    if c is None:
        return twins.lloyd_step(rows, weights, centers, norms, labels, grids)
    few = k <= FEW and rows.dtype == np.float64
    padded = FEW if few else -(-k // MANY) * MANY
    turned = np.zeros((d, padded), rows.dtype)
    turned[:, :k] = centers.T
    far = np.full(padded, np.inf, rows.dtype)
    far[:k] = norms
    constants = None if grids is None else np.array([*grids[0].steps, *grids[1].steps])
    sums = None if grids is None else np.zeros((k, 2, d + 1))
    step = getattr(c, f"redist_lloyd_{SUFFIX[rows.dtype]}")
    count = ctypes.c_int64
    changed = 0
    for part in in_turns(len(rows), d * padded):
        here = rows[part]
        changed += step(
            address(here), count(len(here)), count(d), address(weights[part]), address(turned),
            address(far), count(padded), address(labels[part]), address(constants), address(sums),
        )  # fmt: skip
    return int(changed), sums


def column_sums(rows: Values, grid: ExactGrid, squared: bool = False) -> Values:
    """**Local.** The exact sums of columns, or of their squares: ``2, d``, coarse and fine."""
    c = library()
    if c is None or is_device(rows):
        return twins.column_sums(rows, grid, squared)
    n, d = rows.shape
    sums = np.zeros((2, d))
    count, number = ctypes.c_int64, ctypes.c_double
    add = getattr(c, f"redist_columns_{SUFFIX[rows.dtype]}")
    for part in in_turns(n, d):
        here, steps = rows[part], map(number, grid.steps)
        add(address(here), count(len(here)), count(d), count(squared), *steps, address(sums))
    return sums


def pair_sums(rows: Values, grid: ExactGrid, squared: bool) -> Values:
    """**Local.** Exact sums of differences of each two columns, squared or not: ``2, d, d``.

    Those above the diagonal are there; others may be.
    """
    c = library()
    if c is None:
        return twins.pair_sums(rows, grid, squared)
    n, d = rows.shape
    sums = np.zeros((2, d, d))
    count, number = ctypes.c_int64, ctypes.c_double
    for part in in_turns(n, d * d):
        here, steps = rows[part], map(number, grid.steps)
        c.redist_pairs(
            address(here), count(len(here)), count(d), count(squared), *steps, address(sums)
        )
    return sums


def inertia_sums(
    rows: Values,
    weights: Values,
    centers: Values,
    labels: NDArray[np.int32],
    into: NDArray[np.int32],
    m: int,
    grid: ExactGrid,
) -> Values:
    """**Local.** Exact sums of weighted squared distances to the rows' centres: ``2, m``.

    Each row's goes into the one of ``m`` sums that ``into`` names.
    """
    c = library()
    if c is None or is_device(rows):
        return twins.inertia_sums(rows, weights, centers, labels, into, m, grid)
    sums = np.zeros((2, m))
    count, number = ctypes.c_int64, ctypes.c_double
    add = getattr(c, f"redist_inertia_{SUFFIX[rows.dtype]}")
    for part in in_turns(len(rows), rows.shape[1]):
        here = rows[part]
        add(
            address(here), count(len(here)), count(rows.shape[1]), address(weights[part]),
            address(centers), address(labels[part]), address(into[part]), count(m),
            *map(number, grid.steps), address(sums),
        )  # fmt: skip
    return sums


def try_candidates(
    rows: Values,
    norms: Values,
    weights: Values,
    candidates: Values,
    candidate_norms: Values,
    closest: Values,
    grid: ExactGrid,
) -> tuple[Values, Values]:
    """**Local.** How near rows would be to their nearest centre with each candidate, and weighted sums.

    Squared distances ``trials, n``, at most ``closest``; the sums ``trials, 2``, coarse and fine.
    """
    c, trials, d = library(), *candidates.shape
    if is_device(rows):
        return on_gpu.try_candidates(
            rows, norms, weights, candidates, candidate_norms, closest, grid
        )
    if c is None:
        return twins.try_candidates(
            rows, norms, weights, candidates, candidate_norms, closest, grid
        )
    near, sums = np.empty((trials, len(rows))), np.empty((trials, 2))
    count, number = ctypes.c_int64, ctypes.c_double
    look = getattr(c, f"redist_candidates_{SUFFIX[rows.dtype]}")
    for part in in_turns(trials, d * len(rows)):
        some = candidates[part]
        look(
            address(rows), count(len(rows)), count(d), address(norms), address(weights), address(some),
            address(candidate_norms[part]), count(len(some)), address(closest), number(grid.steps[0]),
            number(grid.steps[1]), address(near[part]), address(sums[part]),
        )  # fmt: skip
    return near, sums


def join_lists(
    ends: Numbers,
    indices: NDArray[np.int32],
    first: int,
    marked: NDArray[np.bool_],
    parent: Numbers,
) -> None:
    """**Local.** Join marked items ``first`` and following with their marked neighbours, in ``parent``.

    Item ``first + i`` has the neighbours ``indices[ends[i]:ends[i + 1]]``. An item whose parent is itself is
    the root of its part.
    """
    c = library()
    if c is None:
        twins.join_lists(ends, indices, first, marked, parent)
        return
    count = ctypes.c_int64
    c.redist_join(
        address(ends),
        address(indices),
        count(first),
        count(len(ends) - 1),
        address(marked),
        address(parent),
    )
