"""Which bytes of a named tensor in a file are which elements of a tile.

A stored array is made of named tensors (itself, without rules), each a :class:`~redist.names.part.Part`: a
C array of digits, each of which runs along one dim of the stored array. A tile has some ranges of every dim
(one, unless the type has segments). A range of a dim is, in digits, a few boxes
(:mod:`redist.names.digits`). A box in digits is a piece: so many steps of each digit, which go a fixed way
in the file and another in the tile. So a piece is a strided view of the tile, and a strided part of the
file, whatever the layout was.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import coordinates
from redist.layout.tiles import grids, spans_in
from redist.names.digits import Counted, boxes_in
from redist.names.part import Part
from redist.runtime.copies.gpu_arrays import strided_view

Span = tuple[int, int, int]
"""Where a range of a dim begins in the array, how long it is, and where it begins in the tile."""
Spans = tuple[tuple[Span, ...], ...]
"""The ranges of every dim; a tile has all combinations of them."""


@dataclass(frozen=True, slots=True)
class Share:
    """Ranges of a tile that are this rank's to write, or to check, or the rest, which others have as well."""

    spans: Spans
    is_own: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements of a named tensor in a tile: counts of digits, where they lie in the file and in the tile.

    ``start`` and ``steps`` are elements of the tensor, in C order; ``index`` is where the piece begins in the
    tile, dim by dim, and digit ``j`` goes ``along[j]`` elements of dim ``dims[j]``.
    """

    counts: tuple[int, ...]
    start: int
    steps: tuple[int, ...]
    index: tuple[int, ...]
    dims: tuple[int, ...]
    along: tuple[int, ...]

    def view(self, tile: Any) -> Any:
        """**Local.** The elements as a view of the tile, of NumPy's or of CuPy's memory."""
        corner = tile[(*(slice(at, None) for at in self.index), ...)]
        strides = tuple(
            step * tile.strides[dim] for step, dim in zip(self.along, self.dims, strict=True)
        )
        return strided_view(corner, self.counts, strides)


def pieces_of(part: Part, spans: Spans) -> Iterator[Piece]:
    """The pieces of a named tensor in a tile with these ranges."""
    by_dim = [[j for j, dim in enumerate(part.dims) if dim == d] for d in range(len(spans))]
    steps = _c_steps(part.digits)
    for chosen in itertools.product(*spans):
        choices = []
        for d, (lo, n, _) in enumerate(chosen):
            order = sorted(by_dim[d], key=lambda j: -part.steps[j])
            start = lo - part.starts[d]
            digits = [(part.digits[j], part.steps[j]) for j in order]
            choices.append([(order, box) for box in boxes_in(start, start + n, digits)])
        for boxes in itertools.product(*choices):
            yield _piece(part, chosen, boxes, steps)


def _piece(
    part: Part,
    chosen: Sequence[Span],
    boxes: Sequence[tuple[list[int], Counted]],
    steps: Sequence[int],
) -> Piece:
    firsts, counts = [0] * len(part.digits), [1] * len(part.digits)
    index = []
    for d, ((lo, _, local), (order, box)) in enumerate(zip(chosen, boxes, strict=True)):
        at = part.starts[d]
        for j, (first, count) in zip(order, box, strict=True):
            firsts[j], counts[j] = first, count
            at += first * part.steps[j]
        index.append(local + at - lo)
    start = sum(first * step for first, step in zip(firsts, steps, strict=True))
    return Piece(tuple(counts), start, tuple(steps), tuple(index), part.dims, part.steps)


def _c_steps(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[j + 1 :]) for j in range(len(sizes))]


@lru_cache(maxsize=4096)
def shares_of(t: ArrayType, rank: int) -> tuple[Share, ...]:
    """The ranges of a rank's tile: first those that are its own to write, then what other ranks have as well.

    Ranks that hold the same part of an array have equal shares of it: every element is one rank's own.
    """
    if rank not in t.mesh.ranks:
        return ()
    row = t.mesh.ranks.index(rank)
    places = [
        spans_in(t, dim)[int(coordinates(t.mesh, axes)[row])] for dim, axes in enumerate(t.dims)
    ]
    shares: list[Share] = []
    for one in grids(t):
        shards = one.shards()
        same = np.flatnonzero(shards == shards[row])
        spans = tuple(
            _spans_held(places[dim], cut.edges, cut.owners == one.index[row, dim])
            for dim, cut in enumerate(one.cuts)
        )
        shares += _split(spans, int(np.searchsorted(same, row)), len(same))
    return tuple(sorted(shares, key=lambda share: not share.is_own))


def _spans_held(places: Any, edges: Any, held: Any) -> tuple[Span, ...]:
    """The ranges between edges that are held, and where they lie in the tile."""
    starts = places[:, 0]
    found = []
    for lo, hi in zip(edges[:-1][held].tolist(), edges[1:][held].tolist(), strict=True):
        if lo < hi:
            at = int(np.searchsorted(starts, lo, side="right")) - 1
            found.append((lo, hi - lo, int(places[at, 2]) + lo - int(starts[at])))
    return tuple(found)


def _split(spans: Spans, turn: int, n: int) -> list[Share]:
    """The share of one of ``n`` ranks that hold the same ranges, and the rest."""
    lengths = [sum(length for _, length, _ in dim) for dim in spans]
    if math.prod(lengths) == 0:
        return []
    if n == 1:
        return [Share(spans, True)]
    dim = next((d for d, length in enumerate(lengths) if length >= n), None)
    if dim is None:
        dim = max(range(len(lengths)), key=lengths.__getitem__) if lengths else None
    if dim is None:
        return [Share(spans, turn == 0)]
    a, b = lengths[dim] * turn // n, lengths[dim] * (turn + 1) // n
    out = []
    for lo, hi, is_own in ((a, b, True), (0, a, False), (b, lengths[dim], False)):
        cut = _between(spans[dim], lo, hi)
        if cut:
            out.append(Share((*spans[:dim], cut, *spans[dim + 1 :]), is_own))
    return out


def _between(spans: Sequence[Span], lo: int, hi: int) -> tuple[Span, ...]:
    """The positions from ``lo`` up to ``hi`` of ranges one behind the other.

    >>> _between([(0, 3, 0), (10, 4, 3)], 2, 5)
    ((2, 1, 2), (10, 2, 3))
    """
    at, out = 0, []
    for start, n, local in spans:
        first, last = max(lo, at), min(hi, at + n)
        if first < last:
            out.append((start + first - at, last - first, local + first - at))
        at += n
    return tuple(out)
