"""What must be received at least: elements of target boxes that their own rank does not hold at the source.

Boxes of one tensor on one rank are compared pair by pair, those only that meet in the dim in which fewest do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from redist.check.box_places import Places, bytes_on_the_way
from redist.check.boxes import MOST, Ints
from redist.errors import ArgumentError

AT_ONCE = 1 << 20
"""Pairs of boxes that are compared at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Boxes of indices, one column each; those with the same key are of one tensor and on one rank."""

    key: Ints
    lo: Ints
    hi: Ints

    def take(self, which: Ints) -> Blocks:
        """Some of them."""
        return Blocks(self.key[which], self.lo[:, which], self.hi[:, which])


def missing_bytes(source: Places, target: Places, same: Ints) -> Ints:
    """For every target box the bytes, as they travel, of elements that its rank lacks at the source.

    ``same`` has for every tensor of the source its number at the target, or -1.
    """
    n_tensors = len(target.side.tensors)
    tensor = same[source.tensor]
    elems = target.bytes // target.item
    ranks = [p.side.ranks[p.side.rows["buffer"][p.order]] for p in (source, target)]
    number = np.unique(np.concatenate(ranks), return_inverse=True)[1] * max(1, n_tensors)
    held = Blocks(np.where(tensor < 0, -1, number[: len(tensor)] + tensor), source.lo, source.hi)
    asked = Blocks(number[len(tensor) :] + target.tensor, target.lo, target.hi)
    held = held.take(np.flatnonzero(np.isin(held.key, asked.key)))
    at = np.flatnonzero(np.isin(asked.key, held.key))
    common = np.zeros(len(elems), dtype=np.int64)
    if len(at):
        common[at] = _common_elems(asked.take(at), held)
    return np.asarray((elems - common) * bytes_on_the_way(source, target, same))


def _common_elems(asked: Blocks, held: Blocks) -> Ints:
    """How many elements of each box are in some box with its key."""
    rows = np.concatenate([held.key[None], held.lo, held.hi]).T
    held = held.take(
        np.unique(rows, axis=0, return_index=True)[1]
    )  # what is held twice counts once
    out = np.zeros(len(asked.key), dtype=np.int64)
    for mine, _, elems in _pairs(asked, held):
        np.add.at(out, mine, elems)
    double = [held.key[a[(a != b) & (n > 0)]] for a, b, n in _pairs(held, held)]
    for key in np.unique(np.concatenate(double)):
        few = held.take(np.flatnonzero(held.key == key))
        for box in np.flatnonzero(asked.key == key):
            out[box] = _union(asked.lo[:, box, None], asked.hi[:, box, None], few)
    return out


def _pairs(asked: Blocks, held: Blocks) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Numbers of asked and held boxes with the same key, and elements that they share, in portions."""
    keys, number = np.unique(np.concatenate([asked.key, held.key]), return_inverse=True)
    own, theirs = number[: len(asked.key)], number[len(asked.key) :]
    best: tuple[int, Ints, Ints, Ints] | None = None
    for lo, hi, asked_lo, asked_hi in zip(held.lo, held.hi, asked.lo, asked.hi, strict=True):
        scale = int(max(hi.max(), asked_hi.max())) + 1
        if len(keys) * scale >= MOST:
            raise ArgumentError(
                f"cannot judge runs: {len(keys)} times {scale} indices are too many"
            )
        order = np.lexsort([lo, theirs])
        ends = np.maximum.accumulate((theirs * scale + hi)[order])
        first = np.searchsorted(ends, own * scale + asked_lo, side="right")
        stop = np.searchsorted((theirs * scale + lo)[order], own * scale + asked_hi)
        count = np.maximum(stop - first, 0)
        if best is None or int(count.sum()) < best[0]:
            best = int(count.sum()), order, first, count
    assert best is not None  # there is a dim
    _, order, first, count = best
    done, begin = np.cumsum(count), 0
    while begin < len(count):
        before = int(done[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(done, before + AT_ONCE, side="right")))
        part = count[begin:end]
        mine = np.repeat(np.arange(begin, end), part)
        behind = np.arange(len(mine)) - np.repeat(np.cumsum(part) - part, part)
        other = order[first[mine] + behind]
        a, b = asked.take(mine), held.take(other)
        inner = np.maximum(np.minimum(a.hi, b.hi) - np.maximum(a.lo, b.lo), 0)
        yield mine, other, np.where(a.key == b.key, np.prod(inner, axis=0), 0)
        begin = end


def _union(lo: Ints, hi: Ints, held: Blocks) -> int:
    """Elements of a box that are in some of these, counted by the cells between all their edges."""
    low, high = np.clip(held.lo, lo, hi), np.clip(held.hi, lo, hi)
    edges = [np.unique([*a, *b]) for a, b in zip(low, high, strict=True)]
    cells = np.zeros([max(0, len(one) - 1) for one in edges], dtype=np.bool_)
    for a, b in zip(low.T, high.T, strict=True):
        cells[
            tuple(
                slice(*np.searchsorted(one, (x, y))) for one, x, y in zip(edges, a, b, strict=True)
            )
        ] = True
    for one in reversed(edges):
        cells = np.asarray(cells @ np.diff(one))
    return int(cells)
