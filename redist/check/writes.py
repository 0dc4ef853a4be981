"""Is every byte of the target's boxes written, and none twice?

All pieces lie in boxes, and boxes do not overlap. So everything is written exactly once if no two pieces of
a box overlap and their bytes add up to those of the box. A piece that fills a box alone is done. Of the
others, neighbours with the same step and count become one, which mostly leaves no strides::

    [aa]....[aa]....[aa]....          [aabb]..[aabb]..[aabb]..          [aabbccaabbccaabbcc]
    ..[bb]....[bb]....[bb]..    ->    ....[cc]....[cc]....[cc]    ->
    ....[cc]....[cc]....[cc]

Intervals overlap if and only if, with starts and ends sorted each for itself, one starts before the end
in front of it. Bytes that are missing in one place and written twice in another would add up, so boxes
with overlaps are counted anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from redist.check.box_places import Places
from redist.check.boxes import Ints
from redist.check.follow import Written

AT_ONCE = 1 << 23
"""Blocks that are listed one by one at a time."""
ENOUGH = 1 << 27
"""In a list that is known to be wrong, no more blocks are listed to count what else is."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is wrong first, how many bytes there, and how many boxes have that (at least)."""

    start: int
    n_bytes: int
    count: int


class Writes:
    """What is written to the boxes of a target. Every box has a line of its own, one behind another."""

    def __init__(self, target: Places) -> None:
        self.target = target
        self.parts: list[Written] = []
        self.bytes: Ints = np.zeros(len(target.start), dtype=np.int64)
        extents = (
            target.stop - target.start + 1
        )  # apart, so that intervals of two boxes never touch
        self.line: Ints = np.concatenate([[0], np.cumsum(extents)]).astype(np.int64)

    def add(self, pieces: Written) -> None:
        """Note what a run writes."""
        np.add.at(self.bytes, pieces.box, pieces.n_bytes * pieces.count)
        if (pieces.count == 1).all():  # one 1 for all: most lists have millions of these
            one = np.ones(1, dtype=np.int64)
            count, step = (np.broadcast_to(each, len(pieces.box)) for each in (one, one))
            pieces = Written(pieces.run, pieces.start, pieces.n_bytes, count, step, pieces.box)
        self.parts.append(pieces)

    def twice(self, is_wrong: bool) -> tuple[Place | None, Ints]:
        """The first bytes that two blocks write, and all boxes with some; none is None.

        If the list ``is_wrong`` anyway, ``ENOUGH`` blocks are looked at.
        """
        is_wrong = is_wrong or bool((self.bytes != self.target.bytes).any())
        is_doubled = self.bytes > self.target.bytes  # no need to look
        listed = 0
        for blocks in self._doubtful(~is_doubled):
            starts, ends = np.sort(blocks.start), np.sort(blocks.start + blocks.n_bytes)
            overlaps = starts[1:] < ends[:-1]
            is_doubled[self._boxes(starts[1:][overlaps])] = True
            listed += len(starts)
            if listed > ENOUGH and (is_wrong or is_doubled.any()):
                break
        doubled = np.flatnonzero(is_doubled)
        if not len(doubled):
            return None, doubled
        blocks = _blocks(self._of_box(int(doubled[0])))
        order = np.argsort(blocks.start, kind="stable")
        start, end = blocks.start[order], (blocks.start + blocks.n_bytes)[order]
        reach = np.maximum.accumulate(end)[:-1]
        first = int(np.argmax(start[1:] < reach))
        at, stop = int(start[first + 1]), int(min(end[first + 1], reach[first]))
        return Place(self._address(at, int(doubled[0])), stop - at, len(doubled)), doubled

    def runs_at(self, at: int) -> list[int]:
        """The runs that write to an address, as they are numbered."""
        p = self._pieces()
        step = np.abs(p.step)
        behind = at - p.start + np.where(p.step < 0, (p.count - 1) * step, 0)
        block = np.clip(behind // np.maximum(step, 1), 0, p.count - 1)
        behind -= block * step
        return [int(run) for run in np.unique(p.run[(behind >= 0) & (behind < p.n_bytes)])]

    def never(self, doubled: Ints) -> Place | None:
        """The first bytes that nobody writes, and how many boxes have some; ``doubled`` have overlaps."""
        lacking = self.bytes < self.target.bytes
        hidden = np.zeros(len(lacking), dtype=np.bool_)
        hidden[doubled] = True
        hidden &= ~lacking
        listed = 0
        for blocks in _portions(self._chosen(hidden)) if hidden.any() else ():
            start, end = _merged(blocks)
            covered = np.zeros(len(lacking), dtype=np.int64)
            np.add.at(covered, self._boxes(start), end - start)
            lacking |= (covered > 0) & (covered < self.target.bytes)
            listed += len(blocks.start)
            if listed > ENOUGH:
                break
        if not lacking.any():
            return None
        first = int(np.argmax(lacking))
        at, n_bytes = self._gap(first, *_merged(_blocks(self._of_box(first))))
        return Place(self._address(at, first), n_bytes, int(np.count_nonzero(lacking)))

    def _gap(self, box: int, start: Ints, end: Ints) -> tuple[int, int]:
        """The first bytes of a box outside some intervals, which lie in it, in order and apart."""
        offsets: Ints = np.zeros(1, dtype=np.int64)
        n_bytes = int(self.target.item[box])
        for size, step, no_gap in zip(
            self.target.size[:, box],
            self.target.step[:, box],
            self.target.joined[:, box],
            strict=True,
        ):
            if no_gap:
                n_bytes *= int(size)
            else:
                offsets = (offsets[:, None] + np.arange(size) * step).ravel()
        spans = self.line[box] + offsets
        before = np.searchsorted(start, spans, side="right") - 1
        reach = np.append(end, -1)[before]  # of the interval that begins at or before the span
        lacks = reach < spans + n_bytes
        first = int(np.argmax(lacks))
        at = max(int(spans[first]), int(reach[first]))
        later = start[start > at]
        stop = int(spans[first]) + n_bytes
        return at, min(stop, int(later[0]) if len(later) else stop) - at

    def _address(self, at: int, box: int) -> int:
        return at - int(self.line[box]) + int(self.target.start[box])

    def _pieces(self) -> Written:
        """All pieces in one."""
        if not self.parts:
            none = np.zeros(0, dtype=np.int64)
            return Written(none, none, none, none, none, none)
        if len(self.parts) > 1:
            columns = (
                np.concatenate([getattr(p, f.name) for p in self.parts]) for f in fields(Written)
            )
            self.parts = [Written(*columns)]
        return self.parts[0]

    def _boxes(self, at: Ints) -> Ints:
        """The boxes on whose lines some places are."""
        return np.searchsorted(self.line, at, side="right") - 1

    def _of_box(self, box: int) -> Written:
        """The pieces of a box, on its line."""
        only = np.zeros(len(self.bytes), dtype=np.bool_)
        only[box] = True
        return self._chosen(only)

    def _chosen(self, boxes: NDArray[np.bool_]) -> Written:
        """Pieces of some boxes, on their lines."""
        pieces = self._pieces()
        return self._on_lines(pieces, np.flatnonzero(boxes[pieces.box]))

    def _on_lines(self, pieces: Written, which: Ints) -> Written:
        some = _take(pieces, which)
        start = some.start + (self.line[:-1] - self.target.start)[some.box]
        back = (some.count > 1) & (some.step < 0)
        if back.any():
            start = np.where(back, start + (some.count - 1) * some.step, start)
        dense = some.step == some.n_bytes
        n_bytes = np.where(dense, some.n_bytes * some.count, some.n_bytes)
        count = np.where(dense, 1, some.count)
        return Written(some.run, start, n_bytes, count, np.abs(some.step), some.box)

    def _doubtful(self, boxes: NDArray[np.bool_]) -> Iterator[Written]:
        """Blocks in some boxes that could overlap, all of a box together."""
        pieces, target = self._pieces(), self.target
        full = self.bytes == target.bytes
        fills = (pieces.n_bytes * pieces.count == target.bytes[pieces.box]) & full[pieces.box]
        fills &= (pieces.count == 1) | (np.abs(pieces.step) >= pieces.n_bytes)
        left = self._on_lines(pieces, np.flatnonzero(~fills & boxes[pieces.box]))
        if (left.count > 1).any():
            left = _neighbours_joined(left)
            strided = left.count > 1
            single = np.bincount(left.box, minlength=len(full))[left.box] == 1
            done = single & (~strided | (left.step >= left.n_bytes))
            mixed = np.zeros(len(full), dtype=np.bool_)
            mixed[left.box[strided & ~done]] = True
            yield from _portions(_take(left, np.flatnonzero(mixed[left.box])))
            left = _take(left, np.flatnonzero(~mixed[left.box] & ~done))
        yield left


def _take(pieces: Written, which: Ints) -> Written:
    return Written(*(getattr(pieces, one.name)[which] for one in fields(Written)))


def _neighbours_joined(pieces: Written) -> Written:
    """Pieces with strides, of a box and with the same step and count, are one if they lie side by side."""
    strided = np.flatnonzero(pieces.count > 1)
    strided = strided[
        np.lexsort([getattr(pieces, name)[strided] for name in ("start", "count", "step", "box")])
    ]
    p = _take(pieces, strided)
    new = np.ones(len(strided), dtype=np.bool_)
    new[1:] = p.start[1:] != (p.start + p.n_bytes)[:-1]
    for one in (p.box, p.step, p.count):
        new[1:] |= one[1:] != one[:-1]
    heads = np.flatnonzero(new)
    n_bytes = np.add.reduceat(p.n_bytes, heads)
    whole = n_bytes == p.step[heads]
    p = _take(p, heads)
    count = np.where(whole, 1, p.count)
    wide = replace(p, n_bytes=np.where(whole, n_bytes * p.count, n_bytes), count=count)
    plain = _take(pieces, np.flatnonzero(pieces.count == 1))
    return Written(
        *(np.concatenate([getattr(plain, f.name), getattr(wide, f.name)]) for f in fields(Written))
    )


def _portions(pieces: Written) -> Iterator[Written]:
    """Blocks one by one, all of a box together, so many boxes at a time as there is room for."""
    p = _take(pieces, np.argsort(pieces.box, kind="stable"))
    last = np.flatnonzero(np.append(p.box[1:] != p.box[:-1], True)) if len(p.box) else p.box
    cumulated = np.cumsum(p.count)
    begin = 0
    while begin < len(p.box):
        before = int(cumulated[begin - 1]) if begin else 0
        fit = int(np.searchsorted(cumulated[last], before + AT_ONCE, side="right"))
        fit = max(fit, int(np.searchsorted(last, begin)) + 1)
        end = int(last[fit - 1]) + 1
        yield _blocks(_take(p, np.arange(begin, end)))
        begin = end


def _blocks(pieces: Written) -> Written:
    """Every block as a piece of its own."""
    if (pieces.count == 1).all():
        return pieces
    which = np.repeat(np.arange(len(pieces.count)), pieces.count)
    first = np.repeat(np.cumsum(pieces.count) - pieces.count, pieces.count)
    p = _take(pieces, which)
    number = np.arange(len(which)) - first
    return Written(p.run, p.start + number * p.step, p.n_bytes, np.ones_like(which), p.step, p.box)


def _merged(blocks: Written) -> tuple[Ints, Ints]:
    """Starts and ends of what blocks cover together, in order and without overlaps."""
    order = np.argsort(blocks.start, kind="stable")
    start, end = blocks.start[order], np.maximum.accumulate((blocks.start + blocks.n_bytes)[order])
    new = np.ones(len(start), dtype=np.bool_)
    new[1:] = start[1:] > end[:-1]
    heads = np.flatnonzero(new)
    last = np.append(heads[1:], len(start)) - 1
    return start[heads], end[last] if len(start) else end
