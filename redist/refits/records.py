"""Runs of bytes with one level of stride, from ranges along several dims.

Along every dim there are ranges, each with a place in the source and one in the target. Their combinations
are written as few records::

    last dim together in both           bytes = the range, or more where the next dim follows without a gap
    the longest of the other dims       count blocks, apart by a step here and there
    all others                          a record for every index

and blocks that follow each other at equal distances become one record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from redist.layout.axes import Ints

Dim: TypeAlias = tuple[Ints, Ints, Ints, Ints]
"""First index, length, place in the source and place in the target of the ranges along a dim."""


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """``count`` blocks of ``elems`` elements: where the first lies on both sides, and the steps, in bytes."""

    source: Ints
    target: Ints
    elems: Ints
    count: Ints
    source_step: Ints
    target_step: Ints

    def __len__(self) -> int:
        return len(self.source)

    @property
    def columns(self) -> tuple[Ints, ...]:
        """All columns, in order."""
        return self.source, self.target, self.elems, self.count, self.source_step, self.target_step

    @staticmethod
    def joined(parts: Sequence[Records]) -> Records:
        """Several one after another."""
        if len(parts) == 1:
            return parts[0]
        return Records(
            *(np.concatenate(column) for column in zip(*(p.columns for p in parts), strict=True))
        )

    def part(self, lo: int, hi: int, itemsizes: tuple[int, int]) -> Records:
        """The elements from ``lo`` up to ``hi`` of all blocks, one after another.

        >>> one = lambda *values: [np.array([v]) for v in values]
        >>> cut = Records(*one(0, 100, 4, 3, 40, 8)).part(2, 9, (1, 1))
        >>> [column.tolist() for column in cut.columns[:4]]
        [[2, 40, 80], [102, 108, 116], [2, 4, 1], [1, 1, 1]]
        """
        ends = np.cumsum(self.elems * self.count)
        starts = ends - self.elems * self.count
        found: list[tuple[int, ...]] = []
        a, b = itemsizes
        met = (ends > lo) & (starts < hi)
        for start, *record in np.stack([starts, *self.columns])[:, met].T.tolist():
            source, target, elems, count, s_step, t_step = record
            first, last = max(lo - start, 0), min(hi - start, elems * count)
            for i, at, n, several in _blocks(first, last, elems):
                steps = (s_step, t_step) if several > 1 else (0, 0)
                places = source + i * s_step + at * a, target + i * t_step + at * b
                found.append((*places, n, several, *steps))
        return Records(*np.array(found, dtype=np.int64).reshape(-1, 6).T.copy())


def _blocks(first: int, last: int, block: int) -> Iterable[tuple[int, int, int, int]]:
    """Elements of blocks: number of the first block, where in it, how many elements, how many blocks."""
    head = first // block
    if first % block or last - first < block:
        end = min(last, (head + 1) * block)
        if end > first:
            yield head, first - head * block, end - first, 1
        first = end
    whole = (last - first) // block
    if whole > 0:
        yield first // block, 0, block, whole
        first += whole * block
    if first < last:
        yield first // block, 0, last - first, 1


def records_of(
    dims: Sequence[Dim], steps: Sequence[tuple[int, int]], itemsizes: tuple[int, int]
) -> Records:
    """The records of all combinations of ranges; ``steps`` are the bytes between neighbours of a dim.

    >>> def along(*rows):
    ...     return tuple(np.array(column) for column in zip(*rows))
    >>> rows, columns = along((0, 4, 0, 0)), along((0, 8, 16, 0))  # columns 16 bytes on in rows of 64
    >>> [column.tolist() for column in records_of([rows, columns], [(64, 16), (2, 2)], (2, 2)).columns]
    [[16], [0], [8], [4], [64], [16]]
    """
    left = [_closed(dim, step) for dim, step in zip(dims, steps, strict=True)]
    block = next((d for d in reversed(range(len(left))) if steps[d] == itemsizes), None)
    a, b = itemsizes
    if block is None:
        n, at, to = (np.array([v], dtype=np.int64) for v in (1, 0, 0))
        rest = list(range(len(left)))
    else:
        n, at, to = left[block]
        rest = [d for d in range(len(left)) if d != block]
        while len(n) == 1:
            together = int(n[0])
            fits = [d for d in rest if steps[d] == (together * a, together * b)]
            if not fits:
                break
            more, x, y = left[fits[-1]]
            n, at, to = more * together, x + at, y + to
            rest.remove(fits[-1])
    count = np.ones(1, dtype=np.int64)
    source, target = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    step = (0, 0)
    many = max(rest, key=lambda d: int(left[d][0].max()), default=None)
    for d in rest:
        size, x, y = left[d]
        if d == many:
            count, step = size, steps[d]
            continue
        number = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        x, y = np.repeat(x, size) + number * steps[d][0], np.repeat(y, size) + number * steps[d][1]
        source, target = (source[:, None] + x).ravel(), (target[:, None] + y).ravel()
    if many is not None:
        _, x, y = left[many]
        source, target = (source[:, None] + x).ravel(), (target[:, None] + y).ravel()
        count = np.tile(count, len(source) // len(count))
    source, target = (source[:, None] + at).ravel(), (target[:, None] + to).ravel()
    elems = np.tile(n, len(source) // len(n))
    count = np.repeat(count, len(source) // len(count))
    many_blocks = count > 1
    made = Records(source, target, elems, count, many_blocks * step[0], many_blocks * step[1])
    order = np.argsort(target, kind="stable")
    return _equal_distances(Records(*(column[order] for column in made.columns)))


def _closed(dim: Dim, step: tuple[int, int]) -> tuple[Ints, Ints, Ints]:
    """Lengths and places of ranges, neighbours that go on on both sides joined."""
    lo, n, at, to = dim
    new = np.ones(len(lo), dtype=np.bool_)
    new[1:] = (
        (lo[1:] != lo[:-1] + n[:-1])
        | (at[1:] != at[:-1] + n[:-1] * step[0])
        | (to[1:] != to[:-1] + n[:-1] * step[1])
    )
    first = np.flatnonzero(new)
    return np.add.reduceat(n, first), at[first], to[first]


def _equal_distances(found: Records) -> Records:
    """Single blocks of one size that follow each other at equal distances, as one record."""
    if len(found) < 3 or np.any(found.count > 1):
        return found
    x, y = np.diff(found.source), np.diff(found.target)
    same = (found.elems[1:] == found.elems[:-1]) & (x > 0)
    # A change between distance k - 1 and k, or in size, ends a record.
    alike = same[1:] & same[:-1] & (x[1:] == x[:-1]) & (y[1:] == y[:-1])
    edges = np.flatnonzero(~alike) + 1
    starts, counts, k = [], [], 0
    for edge in [*edges.tolist(), len(same)]:
        # Distances from k up to edge are alike: they join blocks k to edge.
        if edge - k >= 2 or (edge > k and same[k]):
            starts.append(k)
            counts.append(edge - k + 1)
            k = edge + 1
        else:
            while k < edge:
                starts.append(k)
                counts.append(1)
                k += 1
    starts += range(k, len(found))
    counts += [1] * (len(found) - k)
    at, count = np.array(starts, dtype=np.int64), np.array(counts, dtype=np.int64)
    follow = np.minimum(at, len(x) - 1)
    several = count > 1
    steps = x[follow] * several, y[follow] * several
    return Records(found.source[at], found.target[at], found.elems[at], count, *steps)
