"""Which rank sends what to which: pieces of boxes, each from a replica that is near and not busy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import Ints
from redist.layout.spans import SegmentCut
from redist.layout.tiles import (
    Grid,
    SpanGrid,
    common,
    grids,
    number_tiles,
    overlap_tables,
    spans_in,
)
from redist.plan.rules import added_axes, kept_axes, resolved_axes
from redist.plan.topology import Topology


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Pieces to move: row numbers of sender and receiver, the level they meet at, and the box."""

    sender: Ints
    receiver: Ints
    level: Ints
    lo: Ints
    hi: Ints

    def elems(self) -> Ints:
        """Elements of every piece."""
        out: Ints = np.prod(self.hi - self.lo, axis=1, dtype=np.int64)
        return out


def source_ranges(a: Grid, b: Grid) -> tuple[Ints, Ints]:
    """First tile of a that meets each box of b, and how many do, one column per dim."""
    lo, hi = b.boxes()
    first, count = np.empty_like(lo), np.empty_like(lo)
    for i, cut in enumerate(a.dims):
        first[:, i], count[:, i] = cut.tiles_meeting(lo[:, i], hi[:, i])
    return first, count


def own_rows(a: Grid | SpanGrid, b: Grid | SpanGrid) -> Ints:
    """For each row of b the row of a with the same rank that holds something, or -1."""
    own = np.full(len(b.ranks), -1, dtype=np.int64)
    ia, ib = common(a, b)
    own[ib] = np.where(a.holds[ia], ia, -1)
    return own


def make_schedule(a: Grid, b: Grid, topology: Topology) -> Schedule:
    """Every piece that the boxes of b need and their ranks do not hold under a, with a sender each.

    Senders come from the nearest level that holds the piece; there, requests for one tile go to its
    holders in turn, so no holder serves more than one request above another.
    """
    first, count = source_ranges(a, b)
    per_row = np.prod(count, axis=1, dtype=np.int64) * b.holds
    row = np.repeat(np.arange(len(per_row), dtype=np.int64), per_row)
    place = np.arange(len(row), dtype=np.int64) - np.repeat(np.cumsum(per_row) - per_row, per_row)
    tile = np.empty((len(row), len(a.dims)), dtype=np.int64)
    for i in reversed(range(len(a.dims))):
        tile[:, i] = first[row, i] + place % count[row, i]
        place = place // count[row, i]
    own = own_rows(a, b)[row]
    mine = (own >= 0) & np.all(a.index[own] == tile, axis=1)
    row, tile = row[~mine], tile[~mine]
    sender, level = choose_senders(a, tile, b.ranks[row], topology)
    lo, hi = b.boxes()
    lo, hi = lo[row], hi[row]
    for i, cut in enumerate(a.dims):
        start, end = cut.ranges_of(tile[:, i])
        lo[:, i] = np.maximum(lo[:, i], start)
        hi[:, i] = np.minimum(hi[:, i], end)
    return Schedule(sender, row, level, lo, hi)


def choose_senders(
    a: Grid | SpanGrid, tile: Ints, rank: Ints, topology: Topology
) -> tuple[Ints, Ints]:
    """Row of a and level for every request of a tile by a rank."""
    wanted = number_tiles(tile, a.n_tiles)
    rows = np.flatnonzero(a.holds)
    held = a.shards()[rows]
    sender = np.full(len(tile), -1, dtype=np.int64)
    level = np.zeros(len(tile), dtype=np.int64)
    blocks = int(max(a.ranks.max(initial=0), rank.max(initial=0))) + 1
    open_ = np.arange(len(tile), dtype=np.int64)
    for number, at in enumerate(topology.levels):
        size = blocks if at.size is None else at.size
        key = held * blocks + a.ranks[rows] // size
        order = np.lexsort((a.ranks[rows], key))
        sorted_key = key[order]
        asked = wanted[open_] * blocks + rank[open_] // size
        start = np.searchsorted(sorted_key, asked, side="left")
        holders = np.searchsorted(sorted_key, asked, side="right") - start
        found = holders > 0
        turn = _turns(asked[found])
        chosen = order[start[found] + turn % holders[found]]
        sender[open_[found]] = rows[chosen]
        level[open_[found]] = number
        open_ = open_[~found]
    return sender, level


def _turns(keys: Ints) -> Ints:
    """How many equal keys stand before each."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    new = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(keys) else order
    lengths = np.diff(np.r_[new, len(keys)])
    turns = np.empty_like(keys)
    turns[order] = np.arange(len(keys)) - np.repeat(new, lengths)
    return turns


# Types with segments
#
# For every choice of segments of both types the ends are grids (redist.layout.spans). A cell is what a tile
# of a target grid has in common with a tile of a source grid; it comes from one sender. In every dim it is a
# list of ranges, which in the two tiles lie at places of their own. Ranges of one length at equal distances
# are a comb, and combs of all dims together make one box with a dim more for each:
#
#     rows 0 to 3, 8 to 11, 16 to 19 of a tile  ->  rows 4 to 7, 20 to 23, 36 to 39 of another
#     comb: 3 times 4 rows, 8 apart in the source and 16 apart in the target


OWN = -1
"""The level of what a rank has already."""
MOST_PERIOD = 64
"""Combs are looked for among ranges that repeat after at most this many."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The cells of two grids: rows of sender and receiver, the level they meet at, tiles, elements."""

    have: SpanGrid
    need: SpanGrid
    sender: Ints
    receiver: Ints
    level: Ints
    tile: Ints
    elems: Ints

    def ranges(self, cell: int, ndim: int) -> list[list[tuple[int, int]]]:
        """The indices of a cell: for every dim of the array its ranges."""
        out = []
        for i in range(ndim):
            a, b = self.have.cuts[i], self.need.cuts[i]
            rows = _rows(
                a, int(self.tile[cell, i]), b, int(self.need.index[self.receiver[cell], i])
            )
            starts, ends, _ = _ranges(a, b)
            out.append(list(zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)))
        return out


def list_cells(before: ArrayType, after: ArrayType, topology: Topology) -> list[Cells]:
    """All cells of a step between two types, of which one at least has segments."""
    resolved, kept = resolved_axes(before, after), kept_axes(before, after)
    n_resolved, n_kept = (math.prod(part.size for part in axes) for axes in (resolved, kept))
    shared = [(n_kept, kept)] if n_kept > 1 else []
    own = [(n_resolved, resolved), *shared] if n_resolved > 1 else shared
    wanted = [(n_resolved, ()), *shared] if n_resolved > 1 else shared
    needs = grids(after, wanted, added_axes(before, after))
    every = (_cells(have, need, topology) for have in grids(before, own) for need in needs)
    return [cells for cells in every if len(cells.sender)]


def _cells(have: SpanGrid, need: SpanGrid, topology: Topology) -> Cells:
    """Every row of need with every tile of have that it meets, and who sends it."""
    tables = overlap_tables(have, need)
    meets = [np.nonzero(table.T) for table in tables]  # sorted by the tile of need
    counts, firsts = [], []
    for (tiles, _), n in zip(meets, need.n_tiles, strict=True):
        count = np.bincount(tiles, minlength=n)
        counts.append(count)
        firsts.append(np.cumsum(count) - count)
    per_row = need.holds.astype(np.int64)
    for i, count in enumerate(counts):
        per_row = per_row * count[need.index[:, i]]
    row = np.repeat(np.arange(len(per_row), dtype=np.int64), per_row)
    place = np.arange(len(row), dtype=np.int64) - np.repeat(np.cumsum(per_row) - per_row, per_row)
    tile = np.empty((len(row), len(tables)), dtype=np.int64)
    elems = np.ones(len(row), dtype=np.int64)
    for i in reversed(range(len(tables))):
        mine = need.index[row, i]
        tile[:, i] = meets[i][1][firsts[i][mine] + place % counts[i][mine]]
        place = place // counts[i][mine]
        elems *= tables[i][tile[:, i], mine]
    own = own_rows(have, need)[row]
    is_own = (own >= 0) & np.all(have.index[own] == tile, axis=1)
    sender, level = own.copy(), np.full(len(row), OWN, dtype=np.int64)
    far = np.flatnonzero(~is_own)
    sender[far], level[far] = choose_senders(have, tile[far], need.ranks[row[far]], topology)
    return Cells(have, need, sender, row, level, tile, elems)


# Ranges in tiles


Comb = tuple[int, int, int, int, int, int]
"""How many ranges, and of how many indices; in source, then target: where the first is, how far the next."""


@lru_cache(maxsize=2**16)
def find_combs(
    a: SegmentCut,
    tile_a: int,
    b: SegmentCut,
    tile_b: int,
    before: ArrayType,
    old: int,
    after: ArrayType,
    new: int,
    dim: int,
) -> tuple[Comb, ...]:
    """The ranges of a dim that two tiles have in common, as combs.

    ``old`` and ``new`` number the tiles of all segments of the dim, in which the ranges have their places.
    """
    starts, ends, _ = _ranges(a, b)
    rows = _rows(a, tile_a, b, tile_b)
    lo, length = starts[rows], ends[rows] - starts[rows]
    src = _places(spans_in(before, dim)[old], lo)
    dst = _places(spans_in(after, dim)[new], lo)
    new_range = np.ones(len(lo), dtype=np.bool_)
    new_range[1:] = (np.diff(src) != length[:-1]) | (np.diff(dst) != length[:-1])
    first = np.flatnonzero(new_range)
    length = np.add.reduceat(length, first)
    return tuple(_to_combs(src[first], dst[first], length))


def _rows(a: SegmentCut, tile_a: int, b: SegmentCut, tile_b: int) -> slice:
    """Which of the common ranges of two cuts are those of two tiles."""
    at = _ranges(a, b)[2]
    key = tile_a * b.n_tiles + tile_b
    return slice(int(at[key]), int(at[key + 1]))


@lru_cache(maxsize=1024)
def _ranges(a: SegmentCut, b: SegmentCut) -> tuple[Ints, Ints, Ints]:
    """Starts and ends of all common ranges, by tile of a, then of b, and where each pair of tiles begins."""
    edges, mine, theirs = a.meet(b)
    both = np.flatnonzero((mine >= 0) & (theirs >= 0))
    key = mine[both] * b.n_tiles + theirs[both]
    order = np.argsort(key, kind="stable")
    at = np.searchsorted(key[order], np.arange(a.n_tiles * b.n_tiles + 1))
    rows = both[order]
    return edges[:-1][rows], edges[1:][rows], at


def _places(spans: Ints, index: Ints) -> Ints:
    """Where indices lie in a tile."""
    row = np.searchsorted(spans[:, 0], index, side="right") - 1
    places: Ints = spans[row, 2] + index - spans[row, 0]
    return places


def _to_combs(src: Ints, dst: Ints, length: Ints) -> Iterator[Comb]:
    """Ranges as few combs: what repeats in the middle, and a first and a last one that may be cut short."""
    n = len(src)
    for lo, hi in ((0, n), (1, n), (0, n - 1), (1, n - 1)):
        period = _period(src[lo:hi], dst[lo:hi], length[lo:hi]) if hi - lo > 1 else 0
        if not period:
            continue
        for k in (*range(lo), *range(hi, n)):
            yield 1, int(length[k]), int(src[k]), 0, int(dst[k]), 0
        for k in range(lo, min(lo + period, hi)):
            count = len(range(k, hi, period))
            steps = (0, 0) if count == 1 else (src[k + period] - src[k], dst[k + period] - dst[k])
            yield count, int(length[k]), int(src[k]), int(steps[0]), int(dst[k]), int(steps[1])
        return
    for k in range(n):
        yield 1, int(length[k]), int(src[k]), 0, int(dst[k]), 0


def _period(src: Ints, dst: Ints, length: Ints) -> int:
    """After how many ranges they repeat, at equal distances; 0 if they do not.

    >>> at = np.array([0, 3, 10, 13, 20, 23])
    >>> _period(at, 2 * at, np.array([1, 2, 1, 2, 1, 2]))
    2
    """
    for p in range(1, min(len(src) // 2, MOST_PERIOD) + 1):
        by_src, by_dst = src[p:] - src[:-p], dst[p:] - dst[:-p]
        same = bool(np.all(length[p:] == length[:-p]))
        if same and bool(np.all(by_src == by_src[0])) and bool(np.all(by_dst == by_dst[0])):
            return p
    return 0
