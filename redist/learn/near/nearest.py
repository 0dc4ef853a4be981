"""How far every row is from its nearest rows, and which those are, wherever they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.kernels.cuda.near import least_squares
from redist.learn.near.searching import Search, Slabs, nearest_distances, parts_of, rows_within
from redist.runtime.cuda.loops import functions_for
from redist.spmd import Passing, Rows, Visits, total_of
from redist.text.progress import Said, nothing

Values = NDArray[Any]
Numbers = NDArray[np.int64]


def distances_to_nearest(rows: Rows, k: int, search: Search, said: Said = nothing) -> Values:
    """**Collective.** For each own row the distances to its ``k`` nearest rows, itself among them, in order.

    Where slabs hold, each rank searches its slab, and asks the others only for rows whose ``k`` nearest
    may lie with them. Else every rank searches every tile. So it does on GPUs, where distances are Euclidean.
    """
    if k > rows.n:  # scikit-learn says why not, the same everywhere
        few = np.zeros((rows.n, rows.d))
        search.over(few).kneighbors(few, k)
    if rows.on_gpu:
        return _on_gpu(rows, k)
    find = _by_slabs if search.by_slabs else _by_visits
    return find(rows, k, search, said)


def _by_slabs(rows: Rows, k: int, search: Search, said: Said) -> Values:
    slabs = Slabs.of(rows)
    model = search.over(slabs.rows) if len(slabs.rows) else None
    found = nearest_distances(model, slabs.rows, k, said=said)
    which, ranks = slabs.met(slabs.rows, found[:, -1])
    asked = Passing.of(rows.comm, which, ranks)
    theirs, reach = asked.there(slabs.rows), asked.there(found[:, -1])
    told = asked.back(nearest_distances(model, theirs, k, reach))
    ends = np.cumsum(asked.given)
    for lo, hi in zip(ends - asked.given, ends, strict=True):
        mine = asked.rows[lo:hi]
        found[mine] = _least(found[mine], told[lo:hi], k)
    return slabs.take_back(found)


def _by_visits(rows: Rows, k: int, search: Search, said: Said) -> Values:
    own = rows.even_out().local
    found = np.full((len(own), k), np.inf)
    done = 0
    for _, tile in Visits(rows.even_out()):
        if len(tile):
            found = _least(found, nearest_distances(search.over(tile), own, k), k)
        done += len(tile)
        said(done, rows.n)
    return found


def _on_gpu(rows: Rows, k: int) -> Values:
    xp = functions_for(rows.local)
    least = xp.full((k, len(rows.local)), np.inf)
    for _, tile in Visits(rows):
        least_squares(rows.local, tile, least)
    found: Values = xp.sqrt(least).T
    return found


def _least(one: Values, other: Values, k: int) -> Values:
    out: Values = np.sort(np.concatenate([one, other], axis=1), axis=1)[:, :k]
    return out


def nearest_rows(rows: Rows, k: int, search: Search) -> Numbers:
    """**Collective.** For each own row the numbers of its ``k`` nearest rows, itself among them.

    Of rows that are equally far the first ones are taken, whatever ranks there are: more rows are searched
    for until the last of them is farther.
    """
    if k > rows.n:  # scikit-learn says why not, the same everywhere
        few = np.zeros((rows.n, rows.d))
        search.over(few).kneighbors(few, k)
    find = _numbered_by_slabs if search.by_slabs else _numbered_by_visits
    wanted = min(rows.n, k + 2)
    while True:
        far, numbers = find(rows, wanted, search)
        tied = np.count_nonzero(far[:, wanted - 1] <= far[:, k - 1])
        if wanted == rows.n or not total_of(rows.comm, np.array([tied]), "max")[0]:
            return _in_order(far, numbers)[1][:, :k]
        wanted = min(rows.n, 2 * wanted)


def _numbered_by_slabs(rows: Rows, k: int, search: Search) -> tuple[Values, Numbers]:
    slabs = Slabs.of(rows)
    model = search.over(slabs.rows) if len(slabs.rows) else None
    far, numbers = _numbered(model, slabs.rows, slabs.numbers, k)
    which, ranks = slabs.met(slabs.rows, far[:, -1])
    asked = Passing.of(rows.comm, which, ranks)
    theirs, reach = asked.there(slabs.rows), asked.there(far[:, -1])
    found = _numbered(model, theirs, slabs.numbers, k, reach)
    told_far, told_numbers = (asked.back(one) for one in found)
    ends = np.cumsum(asked.given)
    for lo, hi in zip(ends - asked.given, ends, strict=True):
        mine = asked.rows[lo:hi]
        told = told_far[lo:hi], told_numbers[lo:hi]
        far[mine], numbers[mine] = _first_of((far[mine], numbers[mine]), told, k)
    return slabs.take_back(far), slabs.take_back(numbers)


def _numbered_by_visits(rows: Rows, k: int, search: Search) -> tuple[Values, Numbers]:
    own = rows.local
    far, numbers = np.full((len(own), k), np.inf), np.zeros((len(own), k), np.int64)
    for first, tile in Visits(rows):
        if len(tile):
            theirs = np.arange(first, first + len(tile))
            found = _numbered(search.over(tile), own, theirs, k)
            far, numbers = _first_of((far, numbers), found, k)
    return far, numbers


def _numbered(
    model: Any, rows: Values, theirs: Numbers, k: int, reach: Values | None = None
) -> tuple[Values, Numbers]:
    """**Local.** How far the nearest rows of a search are, and their numbers."""
    far, numbers = np.full((len(rows), k), np.inf), np.zeros((len(rows), k), np.int64)
    which = rows_within(model, rows, reach)
    if model is not None and len(which):
        n = min(k, model.n_samples_fit_)
        for part in parts_of(model, len(which)):
            some = which[part]
            far[some, :n], places = model.kneighbors(rows[some], n)
            numbers[some, :n] = theirs[places]
    return far, numbers


def _in_order(far: Values, numbers: Numbers) -> tuple[Values, Numbers]:
    order = np.lexsort((numbers, far))
    return np.take_along_axis(far, order, axis=1), np.take_along_axis(numbers, order, axis=1)


def _first_of(
    one: tuple[Values, Numbers], other: tuple[Values, Numbers], k: int
) -> tuple[Values, Numbers]:
    far = np.concatenate([one[0], other[0]], axis=1)
    numbers = np.concatenate([one[1], other[1]], axis=1)
    far, numbers = _in_order(far, numbers)
    return far[:, :k], numbers[:, :k]
