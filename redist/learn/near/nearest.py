"""How far every row is from its nearest rows, and which those are, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.kernels.cuda.near import least_squares
from redist.learn.near.searching import OWN_ROWS, Search, Slabs, parts_of, rows_within
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
    _check_enough(rows, k, search)
    if rows.on_gpu:
        return _on_gpu(rows, k)
    return _nearest(rows.even_out(), k, search, False, said)[0]


def _check_enough(rows: Rows, k: int, search: Search) -> None:
    """**Local.** Let scikit-learn say, the same everywhere, that there are not ``k`` rows."""
    if k > rows.n:
        few = np.zeros((rows.n, rows.d))
        search.over(few).kneighbors(few, k)


def _on_gpu(rows: Rows, k: int) -> Values:
    xp = functions_for(rows.local)
    least = xp.full((k, len(rows.local)), np.inf)
    for _, tile in Visits(rows):
        least_squares(rows.local, tile, least)
    found: Values = xp.sqrt(least).T
    return found


def nearest_rows(rows: Rows, k: int, search: Search) -> Numbers:
    """**Collective.** For each own row the numbers of its ``k`` nearest rows, itself among them.

    Of rows that are equally far the first ones are taken, whatever ranks there are: more rows are searched
    for until the last of them is farther.
    """
    _check_enough(rows, k, search)
    wanted = min(rows.n, k + 2)
    while True:
        far, numbers = _nearest(rows, wanted, search, True, nothing)
        tied = np.count_nonzero(far[:, wanted - 1] <= far[:, k - 1])
        if wanted == rows.n or not total_of(rows.comm, np.array([tied]), "max")[0]:
            return _in_order([far, numbers])[1][:, :k]
        wanted = min(rows.n, 2 * wanted)


Found = Sequence[Values]
"""Of some rows, how far the nearest are; where they are asked for, their numbers too."""


def _nearest(rows: Rows, k: int, search: Search, numbered: bool, said: Said) -> Found:
    """**Collective.** The ``k`` nearest of each own row, by slabs or by visits."""
    return (_by_slabs if search.by_slabs else _by_visits)(rows, k, search, numbered, said)


def _by_slabs(rows: Rows, k: int, search: Search, numbered: bool, said: Said) -> Found:
    slabs = Slabs.of(rows)
    model = search.over(slabs.rows) if len(slabs.rows) else None
    numbers = slabs.numbers if numbered else None
    found = nearest_in(model, slabs.rows, k, numbers, said=said)
    which, ranks = slabs.met(slabs.rows, found[0][:, -1])
    asked = Passing.of(rows.comm, which, ranks)
    theirs, reach = asked.there(slabs.rows), asked.there(found[0][:, -1])
    told = [asked.back(one) for one in nearest_in(model, theirs, k, numbers, reach)]
    ends = np.cumsum(asked.given)
    for lo, hi in zip(ends - asked.given, ends, strict=True):
        mine = asked.rows[lo:hi]
        nearer = _first_of([one[mine] for one in found], [one[lo:hi] for one in told], k)
        for one, new in zip(found, nearer, strict=True):
            one[mine] = new
    return [slabs.take_back(one) for one in found]


def _by_visits(rows: Rows, k: int, search: Search, numbered: bool, said: Said) -> Found:
    own, done = rows.local, 0
    found = _none_yet(len(own), k, numbered)
    for first, tile in Visits(rows):
        if len(tile):
            numbers = np.arange(first, first + len(tile)) if numbered else None
            found = _first_of(found, nearest_in(search.over(tile), own, k, numbers), k)
        done += len(tile)
        said(done, rows.n)
    return found


def _none_yet(n: int, k: int, numbered: bool) -> Found:
    far = np.full((n, k), np.inf)
    return [far, np.zeros((n, k), np.int64)] if numbered else [far]


def nearest_in(
    model: Any, rows: Values, k: int, numbers: Numbers | None = None, reach: Values | None = None,
    said: Said = nothing,
) -> Found:  # fmt: skip
    """**Local.** The ``k`` nearest of a search, which has rows of these numbers; infinitely far if fewer.

    Also where nothing is within a row's ``reach``, if that is given: nobody looks for its nearest then.
    """
    found = _none_yet(len(rows), k, numbers is not None)
    which = rows_within(model, rows, reach)
    if model is not None and len(which):
        n = min(k, model.n_samples_fit_)
        for part in parts_of(model, len(which)):
            some = which[part]
            found[0][some, :n], places = model.kneighbors(rows[some], n)
            if numbers is not None:
                found[1][some, :n] = numbers[places]
            said(part.stop, len(which), OWN_ROWS)
    return found


def _in_order(found: Found) -> Found:
    """Nearest first; of equally near ones the lowest number."""
    if len(found) == 1:
        return [np.sort(found[0], axis=1)]
    order = np.lexsort(found[::-1])
    return [np.take_along_axis(one, order, axis=1) for one in found]


def _first_of(one: Found, other: Found, k: int) -> Found:
    both = [np.concatenate(pair, axis=1) for pair in zip(one, other, strict=True)]
    return [values[:, :k] for values in _in_order(both)]
