"""How far every row is from its nearest rows, wherever those are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.passing import Passing
from redist.learn.rows import Rows, even_out
from redist.learn.searching import Search, nearest_distances
from redist.learn.slabs import Slabs
from redist.learn.visits import Visits

Values = NDArray[Any]


def distances_to_nearest(rows: Rows, k: int, search: Search) -> Values:
    """**Collective.** For each own row the distances to its ``k`` nearest rows, itself among them, in order.

    Where slabs hold, each rank searches its slab, and asks the others only for rows whose ``k`` nearest
    may lie with them. Else every rank searches every tile.
    """
    if k > rows.n:  # scikit-learn says why not, the same everywhere
        few = np.zeros((rows.n, rows.d))
        search.over(few).kneighbors(few, k)
    return _by_slabs(rows, k, search) if search.by_slabs else _by_visits(rows, k, search)


def _by_slabs(rows: Rows, k: int, search: Search) -> Values:
    slabs = Slabs.of(rows)
    model = search.over(slabs.rows) if len(slabs.rows) else None
    found = nearest_distances(model, slabs.rows, k)
    which, ranks = slabs.met(slabs.rows, found[:, -1])
    asked = Passing.of(rows.comm, which, ranks)
    told = asked.back(nearest_distances(model, asked.there(slabs.rows), k))
    ends = np.cumsum(asked.given)
    for lo, hi in zip(ends - asked.given, ends, strict=True):
        mine = asked.rows[lo:hi]
        found[mine] = _least(found[mine], told[lo:hi], k)
    return slabs.take_back(found)


def _by_visits(rows: Rows, k: int, search: Search) -> Values:
    own = even_out(rows).local
    found = np.full((len(own), k), np.inf)
    for _, tile in Visits(even_out(rows)):
        if len(tile):
            found = _least(found, nearest_distances(search.over(tile), own, k), k)
    return found


def _least(one: Values, other: Values, k: int) -> Values:
    out: Values = np.sort(np.concatenate([one, other], axis=1), axis=1)[:, :k]
    return out
