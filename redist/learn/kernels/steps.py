"""Loops over the rows of a rank: in C where that was built, else in NumPy, or on a GPU; the same bits.

In NumPy which of two centres is nearer is decided by products that BLAS adds up, as C does dim by dim
where BLAS fuses products with additions: it can differ where both are equally far.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from redist.learn.kernels.cuda import columns as columns_on_gpu
from redist.learn.kernels.cuda import lloyd as on_gpu
from redist.learn.kernels.library import SUFFIX, address, in_turns, library
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_host
from redist.runtime.cuda.loops import functions_for
from redist.spmd import ExactGrid

Values = NDArray[Any]
Numbers = NDArray[np.int64]
Labels = NDArray[np.int32]
Grids = tuple[ExactGrid, ExactGrid] | None
FEW, MANY = 4, 8
"""Centres that C compares at a time, as in native/lloyd.c: so few doubles, or multiples of this many."""
PART, GPU_PART = 4096, 2**20
"""Rows that are worked on at a time."""


def lloyd_step(
    rows: Values, weights: Values, centers: Values, norms: Values, labels: Labels, grids: Grids
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
        return _lloyd_step(rows, weights, centers, norms, labels, grids)
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
        return _column_sums(rows, grid, squared)
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

    Those above the diagonal are there; others may be. Rows are doubles.
    """
    if is_device(rows):
        found: Values = columns_on_gpu.pair_sums(rows, grid, squared)
        return found
    c = library()
    if c is None:
        return _pair_sums(rows, grid, squared)
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
    rows: Values, weights: Values, centers: Values, labels: Labels, into: Labels, m: int,
    grid: ExactGrid,
) -> Values:  # fmt: skip
    """**Local.** Exact sums of weighted squared distances to the rows' centres: ``2, m``.

    Each row's goes into the one of ``m`` sums that ``into`` names.
    """
    c = library()
    if c is None or is_device(rows):
        return _inertia_sums(rows, weights, centers, labels, into, m, grid)
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
    rows: Values, norms: Values, weights: Values, candidates: Values, candidate_norms: Values,
    closest: Values, grid: ExactGrid,
) -> tuple[Values, Values]:  # fmt: skip
    """**Local.** How near rows would be to their nearest centre with each candidate, and weighted sums.

    Squared distances ``trials, n``, at most ``closest``; the sums ``trials, 2``, coarse and fine.
    """
    c, trials, d = library(), *candidates.shape
    if is_device(rows):
        return on_gpu.try_candidates(
            rows, norms, weights, candidates, candidate_norms, closest, grid
        )
    if c is None:
        return _try_candidates(rows, norms, weights, candidates, candidate_norms, closest, grid)
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
    ends: Numbers, indices: Labels, first: int, marked: NDArray[np.bool_], parent: Numbers
) -> None:
    """**Local.** Join marked items ``first`` and following with their marked neighbours, in ``parent``.

    Item ``first + i`` has the neighbours ``indices[ends[i]:ends[i + 1]]``. An item whose parent is itself is
    the root of its part.
    """
    c = library()
    if c is None:
        _join_lists(ends, indices, first, marked, parent)
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


def _lloyd_step(
    rows: Values, weights: Values, centers: Values, norms: Values, labels: Labels, grids: Grids
) -> tuple[int, Values | None]:
    """**Local.** As :func:`lloyd_step`."""
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


def _column_sums(rows: Values, grid: ExactGrid, squared: bool = False) -> Values:
    """**Local.** As :func:`column_sums`."""
    out, step = np.zeros((2, rows.shape[1])), part_of(rows)
    for lo in range(0, len(rows), step):
        part = rows[lo : lo + step].astype(np.float64)
        out += to_host(grid.sum_rows(part * part if squared else part))
    return out


def part_of(rows: Values) -> int:
    """**Local.** How many rows are worked on at a time."""
    return GPU_PART if is_device(rows) else PART


def _pair_sums(rows: Values, grid: ExactGrid, squared: bool) -> Values:
    """**Local.** As :func:`pair_sums`."""
    d = rows.shape[1]
    out = np.zeros((2, d, d))
    for lo in range(0, len(rows), PART):
        part = rows[lo : lo + PART]
        for i in range(d):
            apart = part[:, i : i + 1] - part
            out[:, i] += grid.sum_rows(apart * apart if squared else np.abs(apart))
    return out


def _inertia_sums(
    rows: Values, weights: Values, centers: Values, labels: Labels, into: Labels, m: int,
    grid: ExactGrid,
) -> Values:  # fmt: skip
    """**Local.** As :func:`inertia_sums`."""
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


def _try_candidates(
    rows: Values, norms: Values, weights: Values, candidates: Values, candidate_norms: Values,
    closest: Values, grid: ExactGrid,
) -> tuple[Values, Values]:  # fmt: skip
    """**Local.** As :func:`try_candidates`."""
    near, sums = np.empty((len(candidates), len(rows))), np.empty((len(candidates), 2))
    for t, candidate in enumerate(candidates.astype(np.float64)):
        product = np.zeros(len(rows))
        for j, value in enumerate(candidate):
            product += rows[:, j].astype(np.float64) * value
        far = np.maximum((-2 * product + candidate_norms[t]) + norms, 0)
        near[t] = np.minimum(far, closest)
        sums[t] = grid.sum_rows(near[t] * weights)
    return near, sums


def _join_lists(
    ends: Numbers, indices: Labels, first: int, marked: NDArray[np.bool_], parent: Numbers
) -> None:
    """**Local.** As :func:`join_lists`; parents become roots."""
    n = len(parent)
    owners = np.repeat(np.arange(first, first + len(ends) - 1), np.diff(ends))
    both = marked[owners] & marked[indices]
    one = np.concatenate([owners[both], np.arange(n)])
    other = np.concatenate([indices[both], parent])
    _, parts = connected_components(coo_array((np.ones(len(one)), (one, other)), (n, n)), False)
    least = np.full(n, n)
    np.minimum.at(least, parts, np.arange(n))
    parent[:] = least[parts]
