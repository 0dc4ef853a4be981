"""Which coordinates of a link a tile holds along one dim, and at which of its own positions.

A link is a product of dims; along each, coordinates 0, 1, ... name an index of the source and one of
the target. An edge is one end of a link: it says what each tile holds. Positions are evenly spaced, in
evenly spaced runs, or listed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.cuts import Cut, Ints
from redist.text.units import ceil_div


@dataclass(frozen=True, slots=True)
class Comb:
    """``teeth`` runs of ``n`` positions each, ``step`` apart.

    >>> list_positions(Comb(1, 5, 2, 3)).tolist()
    [1, 2, 3, 6, 7, 8]
    """

    at: int
    step: int
    teeth: int
    n: int


Positions = range | Comb | Ints
"""The one form of positions: everything that selects elements of a tile is a product of these."""


def count_from(at: int, step: int, n: int) -> range:
    """n positions from ``at`` on; one position if the step is 0.

    >>> count_from(4, -2, 3), count_from(7, 0, 5)
    (range(4, -2, -2), range(7, 8))
    """
    return range(at, at + step * n, step) if step else range(at, at + 1)


def as_slice(positions: range) -> slice:
    """The slice that takes a range of positions.

    >>> "abcdef"[as_slice(range(4, -1, -2))]
    'eca'
    """
    if not positions:
        return slice(0, 0)
    stop = positions.start + len(positions) * positions.step
    return slice(positions.start, None if stop < 0 else stop, positions.step)


def list_positions(positions: Positions) -> Ints:
    """Positions one by one."""
    match positions:
        case range():
            return np.arange(positions.start, positions.stop, positions.step)
        case Comb(at, step, teeth, n):
            starts = at + step * np.arange(teeth)
            return (starts[:, np.newaxis] + np.arange(n)).reshape(-1)
        case _:
            return positions


def take(positions: Positions, lo: int, hi: int) -> Positions:
    """The positions from number lo to number hi.

    >>> take(Comb(1, 5, 4, 3), 3, 9), take(Comb(1, 5, 4, 3), 2, 4).tolist()
    (Comb(at=6, step=5, teeth=2, n=3), [3, 6])
    """
    if not isinstance(positions, Comb):
        return positions[lo:hi]
    if lo % positions.n or hi % positions.n:
        tooth, inside = np.divmod(np.arange(lo, hi), positions.n)
        return positions.at + positions.step * tooth + inside
    first, last = lo // positions.n, hi // positions.n
    return Comb(positions.at + first * positions.step, positions.step, last - first, positions.n)


# What two tiles share along one dim of a link, and where each of them keeps it.


FEW_RUNS = 8
"""Up to this many runs are copied one by one; more become lists of positions."""
LISTED_ELEMS = 2**16
"""This many positions are listed at a time."""


@dataclass(frozen=True, slots=True)
class CommonPart:
    """Positions in the source and in the target; ``n`` elements of the source fill them.

    Where elements are needed several times, ``which`` says for each target position, ascending, which
    of the elements goes there.
    """

    source: Positions
    target: Positions
    n: int
    which: Ints | None = None

    def part(self, lo: int, hi: int) -> CommonPart:
        """Some of the elements."""
        source = take(self.source, lo, hi)
        if self.which is None:
            return CommonPart(source, take(self.target, lo, hi), hi - lo)
        a, b = np.searchsorted(self.which, (lo, hi)).tolist()
        return CommonPart(source, take(self.target, a, b), hi - lo, self.which[a:b] - lo)

    @property
    def is_sliced(self) -> bool:
        """Whether it is short to describe: it has no list of positions."""
        return not isinstance(self.source, np.ndarray) and not isinstance(self.target, np.ndarray)


def in_common(source: Held, target: Held) -> Iterator[CommonPart]:
    """The coordinates that both hold, in pieces."""
    match source, target:
        case HeldRun(), HeldRun():
            lo = max(source.first, target.first)
            n = min(source.first + source.n, target.first + target.n) - lo
            if n > 0:
                yield CommonPart(
                    count_from(source.at + source.step * (lo - source.first), source.step, n),
                    count_from(target.at + target.step * (lo - target.first), target.step, n),
                    n if source.step else 1,
                )
        case HeldRuns(), HeldRuns():
            yield from _runs_in_common(source, target)
        case HeldList(), HeldRun():
            keep, at = _listed_in_run(source, target)
            yield from _pair_lists(source.at[keep], at)
        case HeldRun(), HeldList():
            keep, at = _listed_in_run(target, source)
            if source.step == 0 and len(keep):
                yield CommonPart(range(source.at, source.at + 1), target.at[keep], 1)
            else:
                yield from _pair_lists(at, target.at[keep])
        case _:
            raise TypeError(f"cannot link {type(source).__name__} to {type(target).__name__}")


def _runs_in_common(a: HeldRuns, b: HeldRuns) -> Iterator[CommonPart]:
    first = np.searchsorted(b.firsts + b.n, a.firsts, "right")
    counts = np.maximum(np.searchsorted(b.firsts, a.firsts + a.n, "left") - first, 0)
    i = np.repeat(np.arange(len(counts)), counts)
    j = first[i] + np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts, counts)
    lo = np.maximum(a.firsts[i], b.firsts[j])
    n = np.minimum(a.firsts[i] + a.n, b.firsts[j] + b.n) - lo
    from_a, from_b = lo - a.firsts[i] + i * a.n, lo - b.firsts[j] + j * b.n
    if len(n) <= FEW_RUNS:
        for x, y, k in zip(from_a.tolist(), from_b.tolist(), n.tolist(), strict=True):
            yield CommonPart(range(x, x + k), range(y, y + k), k)
        return
    steps = np.stack([n[:-1], n[1:], np.diff(from_a), np.diff(from_b)])
    changes = np.flatnonzero(np.any(steps[:, 1:] != steps[:, :-1], axis=0)) + 1
    odd = steps[0] != steps[1]
    if len(changes) + int(odd.sum()) <= FEW_RUNS:
        breaks = {0, len(n), *changes.tolist(), *(np.flatnonzero(odd) + 1).tolist()}
        for lo_run, hi_run in itertools.pairwise(sorted(breaks)):
            yield from _combs(from_a[lo_run:hi_run], from_b[lo_run:hi_run], int(n[lo_run]))
        return
    ends = np.cumsum(n)
    start = 0
    while start < len(n):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + LISTED_ELEMS, "right")))
        if stop == start + 1:
            x, y, k = int(from_a[start]), int(from_b[start]), int(n[start])
            yield CommonPart(range(x, x + k), range(y, y + k), k)
        else:
            some = range(start, stop)
            total = int(n[some].sum())
            within = np.arange(total) - np.repeat(np.cumsum(n[some]) - n[some], n[some])
            a_at, b_at = (np.repeat(at[some], n[some]) + within for at in (from_a, from_b))
            yield CommonPart(a_at, b_at, total)
        start = stop


def _combs(from_a: Ints, from_b: Ints, n: int) -> Iterator[CommonPart]:
    """Join runs of one length into combs if they are evenly spaced."""
    most = max(1, LISTED_ELEMS // n)
    start = 0
    while start < len(from_a):
        x, y = int(from_a[start]), int(from_b[start])
        stop = min(len(from_a), start + most)
        if stop == start + 1:
            yield CommonPart(range(x, x + n), range(y, y + n), n)
        else:
            over_a, over_b = int(from_a[start + 1]) - x, int(from_b[start + 1]) - y
            even = (np.diff(from_a[start:stop]) == over_a) & (np.diff(from_b[start:stop]) == over_b)
            stop = start + 2 + int(np.argmin(np.append(even[1:], False)))
            teeth = stop - start
            yield CommonPart(Comb(x, over_a, teeth, n), Comb(y, over_b, teeth, n), teeth * n)
        start = stop


def _listed_in_run(listed: HeldList, run: HeldRun) -> tuple[NDArray[np.intp], Ints]:
    """Which of the list are in the run, and where the run keeps them."""
    c = listed.coordinates
    lo, hi = np.searchsorted(c, (run.first, run.first + run.n))
    keep = np.arange(lo, hi)
    return keep, run.at + run.step * (c[keep] - run.first)


def _pair_lists(source: Ints, target: Ints) -> Iterator[CommonPart]:
    """Each element of the source is taken once, however often it is needed."""
    if not len(source):
        return
    if bool((source[1:] > source[:-1]).all()):
        yield CommonPart(source, target, len(source))
        return
    once, which = np.unique(source, return_inverse=True)
    if len(once) == len(source):
        yield CommonPart(source, target, len(source))
    else:
        order = np.argsort(which, kind="stable")
        yield CommonPart(once, target[order], len(once), which[order])


def cut(block: tuple[CommonPart, ...], most: int) -> Iterator[tuple[CommonPart, ...]]:
    """Parts of a block, none of more elements than that."""
    n = math.prod(piece.n for piece in block)
    if n <= most:
        yield block
        return
    at = next(i for i, piece in enumerate(block) if piece.n > 1)
    piece = block[at]
    width = max(1, most // (n // piece.n))
    if isinstance(piece.source, Comb) and width > piece.source.n:
        width -= width % piece.source.n
    for lo in range(0, piece.n, width):
        part = piece.part(lo, min(piece.n, lo + width))
        yield from cut((*block[:at], part, *block[at + 1 :]), most)


@dataclass(frozen=True, slots=True)
class HeldRun:
    """Coordinates ``first, first + 1, ...``, kept at ``at, at + step, ...``."""

    first: int
    n: int
    at: int
    step: int


@dataclass(frozen=True, slots=True, eq=False)
class HeldRuns:
    """Runs of ``n`` coordinates from each of ``firsts``, kept one behind the other."""

    firsts: Ints
    n: int


@dataclass(frozen=True, slots=True, eq=False)
class HeldList:
    """Coordinates one by one, ascending, and where each is kept."""

    coordinates: Ints
    at: Ints


Held = HeldRun | HeldRuns | HeldList


@dataclass(frozen=True, slots=True)
class EdgeRange:
    """Coordinate t is the index ``indices[t]`` of a dim cut into tiles.

    >>> from redist.layout.cuts import cut_dim
    >>> EdgeRange(cut_dim(10, 2), range(9, -1, -2)).held(0)
    HeldRun(first=3, n=2, at=3, step=-2)
    """

    cut: Cut
    indices: range

    def held(self, tile: Any) -> HeldRun:
        """What a tile holds."""
        return within(self.indices, *self.cut.range_of(tile))


@dataclass(frozen=True, slots=True)
class EdgeConstant:
    """Every coordinate is the one index of a dim of size 1, cut or not."""

    n: int

    def held(self, tile: Any) -> HeldRun:
        """What a tile holds."""
        return HeldRun(0, self.n if tile == 0 else 0, 0, 0)


@dataclass(frozen=True, slots=True)
class EdgeRagged:
    """Tile k holds the coordinates from ``starts[k]`` to ``starts[k + 1]``."""

    starts: tuple[int, ...]

    def held(self, tile: Any) -> HeldRun:
        """What a tile holds."""
        return HeldRun(self.starts[tile], self.starts[tile + 1] - self.starts[tile], 0, 1)


@dataclass(frozen=True, slots=True, eq=False)
class EdgeList:
    """Coordinate t is any index ``indices[t]``, alike on all ranks."""

    cut: Cut
    indices: Ints

    def held(self, tile: Any) -> HeldList:
        """What a tile holds."""
        lo, hi = self.cut.range_of(tile)
        (found,) = np.nonzero((self.indices >= lo) & (self.indices < hi))
        return HeldList(found, self.indices[found] - lo)


@dataclass(frozen=True, slots=True)
class EdgeFlat:
    """Coordinate t is an index of several dims together, counted row by row; a tile is a box.

    >>> from redist.layout.cuts import cut_dim
    >>> EdgeFlat((cut_dim(4, 1), cut_dim(6, 2))).held((0, 1)).firsts.tolist()
    [3, 9, 15, 21]
    """

    cuts: tuple[Cut, ...]

    def held(self, tile: Any) -> HeldRuns:
        """What a tile holds."""
        sizes = [cut.size for cut in self.cuts]
        box = [cut.range_of(i) for cut, i in zip(self.cuts, tile, strict=True)]
        if any(lo == hi for lo, hi in box):
            return HeldRuns(np.zeros(0, dtype=np.int64), 0)
        inner, at = 1, len(box)
        while at > 0 and box[at - 1] == (0, sizes[at - 1]):
            at -= 1
            inner *= sizes[at]
        firsts, n = np.zeros(1, dtype=np.int64), inner
        if at > 0:
            lo, hi = box[at - 1]
            firsts, n = firsts + lo * inner, (hi - lo) * inner
        stride = inner * (sizes[at - 1] if at > 0 else 1)
        for i in range(at - 2, -1, -1):
            steps = np.arange(*box[i], dtype=np.int64) * stride
            firsts = (steps[:, np.newaxis] + firsts).reshape(-1)
            stride *= sizes[i]
        return HeldRuns(firsts, n)


def within(indices: range, lo: int, hi: int) -> HeldRun:
    """Which of a range are in a tile from lo to hi."""
    start, step, n = indices.start, indices.step, len(indices)
    if step > 0:
        first, last = ceil_div(lo - start, step), ceil_div(hi - start, step)
    else:
        first, last = (start - hi) // -step + 1, (start - lo) // -step + 1
    first, last = max(0, first), min(n, last)
    return HeldRun(first, max(0, last - first), start + step * first - lo, step)


Edge = EdgeRange | EdgeConstant | EdgeRagged | EdgeList | EdgeFlat
