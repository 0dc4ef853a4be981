"""All rows within a radius of each row, as lists, a part at a time; and the parts of the graph that they are.

Lists name *items*: first the rows that this rank looks after, then others' rows that it knows of. Each
rank joins what it knows of; a row that several ranks know of joins their parts. Ranks tell each other one
pair for each two parts that meet so, and each finds the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from redist.learn.near.searching import OWN_ROWS, Search, Slabs, parts_of
from redist.runtime.ranks.world import Comm
from redist.spmd import Passing, Rows, Visits, all_parts
from redist.text.progress import Said, nothing

Values = NDArray[Any]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ListPart:
    """Items ``first``, ``first + 1``, ... are near ``indices[ends[i]:ends[i + 1]]``."""

    first: int
    ends: Numbers
    indices: NDArray[np.int32]

    @property
    def n_bytes(self) -> int:
        """What it takes."""
        return self.ends.nbytes + self.indices.nbytes


class NearLists(Protocol):
    """Lists of what is near, and the way of values between rows, items and ranks."""

    numbers: Numbers
    """The row that each item is, by its number in the whole."""
    n_own: int
    homes: Numbers
    """Who looks after each of the others."""

    def lists(self) -> Iterator[ListPart]:
        """**Collective.** What is near each own item; several parts may be about the same item."""

    def tell(self, values: Values) -> Values:
        """**Collective.** Values of own items, as others know them: those of this rank's others."""

    def bring(self, values: Values) -> Values:
        """**Collective.** Values of the ranks' rows, as values of own items."""

    def take_back(self, values: Values) -> Values:
        """**Collective.** Values of own items, as values of the ranks' rows."""


class SlabLists:
    """Near rows by slabs: each rank looks after a slab, and knows of what is within the radius of it."""

    def __init__(self, rows: Rows, radius: float, search: Search, said: Said) -> None:
        self._slabs = slabs = Slabs.of(rows)
        which, ranks = slabs.met(slabs.rows, np.full(len(slabs.rows), radius))
        self._halo = halo = Passing.of(rows.comm, which, ranks)
        self._items = np.concatenate([slabs.rows, halo.there(slabs.rows)])
        self.numbers = np.concatenate([slabs.numbers, halo.there(slabs.numbers)])
        self.n_own, self.homes = len(slabs.rows), halo.from_ranks
        self._radius, self._search, self._said = radius, search, said
        self.tell, self.bring, self.take_back = halo.there, slabs.bring, slabs.take_back

    def lists(self) -> Iterator[ListPart]:
        """**Local.** What is near each row of the slab, once."""
        if self.n_own:
            model = self._search.over(self._items)
            for part in parts_of(model, self.n_own):
                found = model.radius_neighbors(self._items[part], self._radius, False)
                self._said(part.stop, self.n_own, OWN_ROWS)
                yield _part_of(part.start, found)


class VisitLists:
    """Near rows by visits: each rank looks after its rows, and knows of the numbers of all others."""

    def __init__(self, rows: Rows, radius: float, search: Search, said: Said) -> None:
        self._rows, self._visits = rows, Visits(rows)
        n, first = len(rows.local), rows.first
        others = np.concatenate([np.arange(first), np.arange(first + n, rows.n)])
        self.numbers = np.concatenate([np.arange(first, first + n), others])
        self.n_own = n
        self.homes = np.searchsorted(rows.firsts()[:-1], others, side="right") - 1
        self._radius, self._search, self._said = radius, search, said

    def lists(self) -> Iterator[ListPart]:
        """**Collective.** What is near each own row, in each tile."""
        local, first, done = self._rows.local, self._rows.first, 0
        for start, tile in self._visits:
            if not len(tile):
                continue
            model = self._search.over(tile)
            shift = -first if start == first else (self.n_own if start < first else 0)
            for some in parts_of(model, len(local)):
                part = _part_of(
                    some.start, model.radius_neighbors(local[some], self._radius, False)
                )
                yield ListPart(part.first, part.ends, part.indices + np.int32(start + shift))
            done += len(tile)
            self._said(done, self._rows.n)

    def tell(self, values: Values) -> Values:
        """**Collective.** Values of the rows of all other ranks."""
        whole, lo = self._rows.gather(values), self._rows.first
        return np.concatenate([whole[:lo], whole[lo + self.n_own :]])

    def bring(self, values: Values) -> Values:
        """**Local.** The values: rows stay where they are."""
        return values

    take_back = bring


def near_lists(rows: Rows, radius: float, search: Search, said: Said = nothing) -> NearLists:
    """**Collective.** Lists of all rows within a radius of each row; ``said`` hears how many are done."""
    kind = SlabLists if search.by_slabs else VisitLists
    return kind(rows, radius, search, said)


def _part_of(first: int, found: NDArray[np.object_]) -> ListPart:
    ends = np.zeros(len(found) + 1, np.int64)
    np.cumsum([len(one) for one in found], out=ends[1:])
    indices = np.empty(int(ends[-1]), np.int32)
    if len(found):
        np.concatenate(found, out=indices, casting="same_kind")
    return ListPart(first, ends, indices)


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
