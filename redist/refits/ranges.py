"""Boxes of a named tensor in a tile: ranges of indices of every dim, and where they lie."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from redist.layout.axes import Ints
from redist.refits.recorded import Shape


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Ranges of one dim of a named tensor: first indices in order, lengths, places in the tile in bytes.

    Neighbouring indices of a range are ``step`` bytes apart.
    """

    lo: Ints
    n: Ints
    at: Ints
    step: int

    @property
    def key(self) -> tuple[bytes, bytes, bytes, int]:
        """What makes equal ranges equal."""
        return self.lo.tobytes(), self.n.tobytes(), self.at.tobytes(), self.step


Box: TypeAlias = tuple[Ranges, ...]
"""Ranges of every dim. Places of the dims add up."""
Tile: TypeAlias = tuple[Box, ...]
"""The boxes of a tile, which do not overlap; places count from the first element."""


def joined(lo: Ints, n: Ints, at: Ints, step: int) -> Ranges:
    """Ranges in order, neighbours that lie one behind the other joined.

    >>> found = joined(np.array([4, 0]), np.array([2, 4]), np.array([32, 0]), 8)
    >>> found.lo.tolist(), found.n.tolist(), found.at.tolist()
    ([0], [6], [0])
    """
    order = np.argsort(lo, kind="stable")
    lo, n, at = lo[order], n[order], at[order]
    new = np.ones(len(lo), dtype=np.bool_)
    new[1:] = (lo[1:] != lo[:-1] + n[:-1]) | (at[1:] != at[:-1] + n[:-1] * step)
    first = np.flatnonzero(new)
    lengths = np.add.reduceat(n, first)
    return Ranges(lo[first], lengths, at[first], step)


def tile_of_boxes(boxes: Collection[tuple[Shape, Shape, Shape, int]]) -> Tile:
    """A tile from boxes: first index, shape, strides and place of each; those alike along a dim become one.

    Indices that lie in the tile more than once are in several boxes.

    >>> (rows, columns), = tile_of_boxes([((0, 0), (2, 3), (12, 4), 0), ((4, 0), (2, 3), (12, 4), 60)])
    >>> rows.lo.tolist(), rows.n.tolist(), rows.at.tolist(), columns.n.tolist()
    ([0, 4], [2, 2], [0, 60], [3])
    """
    every = sorted(boxes)
    n_dims = len(every[0][0])

    def along(d: int) -> dict[object, list[tuple[Shape, Shape, Shape, int]]]:
        found: dict[object, list[tuple[Shape, Shape, Shape, int]]] = {}
        for box in every:
            lo, n, strides, _ = box
            found.setdefault(
                (strides, *(p for e, p in enumerate(zip(lo, n, strict=True)) if e != d)), []
            ).append(box)
        return found

    if n_dims == 0:
        return ((),)
    chosen = min(range(n_dims), key=lambda d: len(along(d)))
    tile = []
    for group in _without_overlaps(along(chosen).values(), chosen):
        los, ns, (strides, *_), ats = zip(*group, strict=True)
        first = min(ats)
        ranges = []
        for d in range(n_dims):
            own = range(len(group)) if d == chosen else range(1)
            at = np.array([ats[k] - first if d == chosen else 0 for k in own], dtype=np.int64)
            lo, n = (
                np.array([numbers[k][d] for k in own], dtype=np.int64) for numbers in (los, ns)
            )
            ranges.append(joined(lo, n, at + (first if d == 0 else 0), strides[d]))
        tile.append(tuple(ranges))
    return tuple(tile)


def _without_overlaps(
    groups: Iterable[Sequence[tuple[Shape, Shape, Shape, int]]], d: int
) -> Iterator[list[tuple[Shape, Shape, Shape, int]]]:
    """Groups in which no two boxes have an index of dim ``d``: each box joins the first where it has room."""
    for group in groups:
        found: list[list[tuple[Shape, Shape, Shape, int]]] = []
        for box in sorted(group):
            lo = box[0][d]
            room = next((one for one in found if one[-1][0][d] + one[-1][1][d] <= lo), None)
            if room is None:
                found.append([box])
            else:
                room.append(box)
        yield from found
