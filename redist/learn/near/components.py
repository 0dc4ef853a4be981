"""Connected parts of a graph whose items lie on many ranks, numbered by their lowest rows.

Each rank joins what it knows of; a row that several ranks know of joins their parts. Ranks tell each other
one pair for each two parts that meet so, and each finds the same answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from redist.learn.near.near_lists import NearLists
from redist.runtime.ranks.world import Comm
from redist.spmd import all_parts

Values = NDArray[Any]
Numbers = NDArray[np.int64]


def number_parts(
    comm: Comm, lists: NearLists, marked: NDArray[np.bool_], parent: Numbers
) -> Numbers:
    """**Collective.** The part of each marked item, over all ranks; -1 for items that are not marked.

    ``parent`` leads every item to the root of its part on this rank. Parts are numbered in the order of
    their lowest rows.
    """
    items = np.flatnonzero(marked)
    roots, own = np.unique(_roots(parent)[items], return_inverse=True)
    lowest = np.full(len(roots), np.iinfo(np.int64).max)
    np.minimum.at(lowest, own, lists.numbers[items])
    every, begin = all_parts(comm, lowest)
    here = np.full(len(parent), -1)
    here[items] = own + begin[comm.rank]
    there = lists.tell(here[: lists.n_own])
    both = marked[lists.n_own :]
    pairs, _ = all_parts(comm, _distinct(here[lists.n_own :][both], there[both]))
    n = len(every)
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), (n, n))
    count, joined = connected_components(graph, directed=False)
    least = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(least, joined, every)
    place = np.empty(count, np.int64)
    place[np.argsort(least, kind="stable")] = np.arange(count)
    out = np.full(len(parent), -1)
    out[items] = place[joined[here[items]]]
    return out


def _roots(parent: Numbers) -> Numbers:
    while True:
        above = parent[parent]
        if np.array_equal(above, parent):
            return parent
        parent = above


def _distinct(one: Numbers, other: Numbers) -> Numbers:
    """Each pair once."""
    return np.unique(np.stack([one, other], axis=1), axis=0)
