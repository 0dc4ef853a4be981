"""Who sends what: every request is given to one of the ranks that hold it, so that the busiest sends least.

A rank that holds what it needs itself copies it. All other requests are told apart by the *set* of ranks
that could send them. Sets with the fewest ranks have the least choice and come first, in each the largest
requests; what a set has is filled up like water, over what its ranks send already::

    load  |      ~~~~~~~~            sets of 1 rank, then of 2, then of 4
          |  ##  ~~~~~~~~
          |  ##  ##  ~~~~
          +--r0--r1--r2--r3

With a topology, a rank of the target's own node is preferred, and where the ranks of a node share a link, the
load of a rank is the time of its bytes or that of its node's link, whichever is longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from redist.layout.axes import Ints
from redist.plan.topology import Topology
from redist.refits.pairs import Pair

CHUNKS = 16
"""Into how many parts the requests of a set are dealt where links count: loads are looked at between them."""


@dataclass(slots=True)
class _Set:
    """Requests of one size that the same ranks could send: blocks of (pair, instances, requests, slots)."""

    ranks: Ints
    n_bytes: int
    blocks: list[tuple[int, Ints, Ints, Ints]] = field(default_factory=list)

    @property
    def n_requests(self) -> int:
        return sum(len(own) * len(requests) for _, own, requests, _ in self.blocks)


def choose_senders(
    pairs: Sequence[Pair], topology: Topology | None = None
) -> tuple[list[Pair], int]:
    """The pairs with senders, and a bound: no choice lets the busiest rank send less."""
    n_ranks = 1 + max((int(p.source.ranks.max()) for p in pairs), default=0)
    slots = [np.zeros((len(p.names), p.n_requests), _slot_dtype(p)) for p in pairs]
    node = topology.levels[0].size if topology is not None and len(topology.levels) > 1 else None
    sets: dict[tuple[bytes, int], _Set] = {}
    for number, pair in enumerate(pairs):
        _collect(number, pair, slots[number], node, sets)
    loads = _Loads(n_ranks, topology, node)
    every = sorted(sets.values(), key=lambda s: (len(s.ranks), -s.n_bytes, s.ranks.tobytes()))
    for one in every:
        _deal(one, loads.fill(one.ranks, one.n_bytes, one.n_requests), slots)
    return [replace(p, sender=s) for p, s in zip(pairs, slots, strict=True)], least_load(every)


def _slot_dtype(pair: Pair) -> Any:
    n = len(pair.source.tile)
    return np.uint8 if n <= 2**8 else np.uint16 if n <= 2**16 else np.uint32


def _collect(
    number: int, pair: Pair, slots: Ints, node: int | None, sets: dict[tuple[bytes, int], _Set]
) -> None:
    """Settle requests that a rank can serve itself; put the others into sets."""
    by_atom = [np.flatnonzero(pair.atom == a) for a in range(len(pair.meeting.holders))]
    candidates = [pair.slots_of(a) for a in range(len(by_atom))]
    n_bytes = pair.elems * pair.wire
    for own, ranks, needing in pair.classes():
        for atom, requests in enumerate(by_atom):
            if not len(requests):
                continue
            slot = candidates[atom]
            # A rank may hold an element in two stored tensors: its first slot stands for it.
            holding, first = np.unique(ranks[slot], return_index=True)
            slot = slot[first]
            wants = needing[pair.slot[requests]]
            at = np.minimum(np.searchsorted(holding, wants), len(holding) - 1)
            local = holding[at] == wants
            if local.any():
                slots[np.ix_(own, requests[local])] = slot[at[local]]
            away = requests[~local]
            for chosen, near in _near(away, wants[~local], holding, node):
                for size in np.unique(n_bytes[chosen]).tolist():
                    same = chosen[n_bytes[chosen] == size]
                    key = (holding[near].tobytes(), size)
                    found = sets.get(key)
                    if found is None:
                        found = sets[key] = _Set(holding[near], size)
                    found.blocks.append((number, own, same, slot[near]))


def _near(requests: Ints, wants: Ints, holding: Ints, node: int | None) -> list[tuple[Ints, Ints]]:
    """Requests with the holders that are considered: those of the target's node, if it has some."""
    every = np.arange(len(holding))
    if node is None or not len(requests):
        return [(requests, every)] if len(requests) else []
    found = []
    far = np.ones(len(requests), dtype=np.bool_)
    for where in np.unique(wants // node).tolist():
        near = np.flatnonzero(holding // node == where)
        if len(near):
            here = wants // node == where
            found.append((requests[here], near))
            far &= ~here
    if far.any():
        found.append((requests[far], every))
    return found


class _Loads:
    """What ranks send so far, and the links of their nodes, if the topology has one between nodes."""

    def __init__(self, n_ranks: int, topology: Topology | None, node: int | None) -> None:
        self._own = np.zeros(n_ranks, dtype=np.int64)
        self._link = np.zeros(n_ranks // (node or n_ranks) + 1, dtype=np.int64)
        self._node, self._rates = node, (1, 0)
        if topology is not None and node is not None:
            self._rates = topology.levels[1].byte_fs, topology.levels[1].link_fs

    def fill(self, ranks: Ints, n_bytes: int, n_requests: int) -> Ints:
        """How many of so many equal requests each rank sends."""
        rate, link = self._rates
        counts = np.zeros(len(ranks), dtype=np.int64)
        chunks = CHUNKS if link and len(ranks) > 1 else 1
        for k in range(chunks):
            share = n_requests * (k + 1) // chunks - n_requests * k // chunks
            heights = self._own[ranks] * rate
            if link and self._node:
                heights = np.maximum(heights, self._link[ranks // self._node] * link)
            more = filled(heights, n_bytes * rate, share)
            counts += more
            self._own[ranks] += more * n_bytes
            if self._node:
                np.add.at(self._link, ranks // self._node, more * n_bytes)
        return counts


def filled(heights: Ints, size: int, n: int) -> Ints:
    """How many of ``n`` pieces of one size each column gets so that the highest is as low as can be.

    >>> filled(np.array([0, 10, 100]), 10, 5)
    array([3, 2, 0])
    """
    if len(heights) == 1:
        return np.array([n], dtype=np.int64)
    if max(n * size, int(heights.max()) * len(heights)) > 2**62:
        heights = heights.astype(object)  # numbers of Python, which are never too large
    order = np.argsort(heights, kind="stable")
    low = heights[order]
    # Filling k columns to the height of the next needs this much.
    k = np.arange(1, len(low) + 1)
    below = k * low - np.cumsum(low)
    columns = int(np.searchsorted(below, n * size, side="right"))
    level = (n * size + int(np.sum(low[:columns]))) // columns
    counts = np.maximum((level - heights) // size, 0).astype(np.int64)
    rest = n - int(counts.sum())
    if rest > 0:
        after = heights + counts * size
        counts[np.argsort(after, kind="stable")[:rest]] += 1
        rest -= min(rest, len(heights))
    assert rest == 0, "what is left is less than one piece a column"
    return counts


def _deal(one: _Set, counts: Ints, slots: Sequence[Ints]) -> None:
    """Give the requests to the ranks, in turns, each as often as its count says."""
    members = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(members)) - np.repeat(np.cumsum(counts) - counts, counts)
    turn = (2 * number + 1) / (2 * counts[members])
    dealt = members[np.argsort(turn, kind="stable")]
    at = 0
    for pair, own, requests, slot in one.blocks:
        n = len(own) * len(requests)
        chosen = slot[dealt[at : at + n]].reshape(len(own), len(requests))
        slots[pair][np.ix_(own, requests)] = chosen
        at += n


MOST_SETS = 3000
"""Up to this many sets, each is compared with all others for the bound."""


def least_load(sets: Sequence[_Set]) -> int:
    """Bytes that the busiest rank sends at least, whoever sends what.

    What only ranks of a set hold, those ranks must send: at least their mean.
    """
    total: dict[bytes, int] = {}
    members: dict[bytes, int] = {}
    for one in sets:
        key = one.ranks.tobytes()
        total[key] = total.get(key, 0) + one.n_bytes * one.n_requests
        members[key] = sum(1 << rank for rank in one.ranks.tolist())
    everyone = 0
    for mask in members.values():
        everyone |= mask
    best = -(-sum(total.values()) // max(1, everyone.bit_count()))
    few = members if len(members) <= MOST_SETS else {}
    for key, mask in members.items():
        inside = (
            sum(total[other] for other, inner in few.items() if inner | mask == mask)
            if few
            else total[key]
        )
        best = max(best, -(-inside // mask.bit_count()))
    return best
