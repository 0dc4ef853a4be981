"""Who sends what to whom: pieces of boxes, each from a replica that is near and not busy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from redist.layout.tiles import Grid, Ints, common
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


def own_rows(a: Grid, b: Grid) -> Ints:
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
    sender, level = _choose_senders(a, tile, b.ranks[row], topology)
    lo, hi = b.boxes()
    lo, hi = lo[row], hi[row]
    for i, cut in enumerate(a.dims):
        start, end = cut.ranges_of(tile[:, i])
        lo[:, i] = np.maximum(lo[:, i], start)
        hi[:, i] = np.minimum(hi[:, i], end)
    return Schedule(sender, row, level, lo, hi)


def _choose_senders(a: Grid, tile: Ints, rank: Ints, topology: Topology) -> tuple[Ints, Ints]:
    """Row of a and level for every request of a tile by a rank."""
    wanted = np.zeros(len(tile), dtype=np.int64)
    for i, cut in enumerate(a.dims):
        wanted = wanted * cut.n_tiles + tile[:, i]
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
