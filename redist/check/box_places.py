"""Which element of which tensor lies at an address: all buffers of a side lie on one line.

The dims of a box, from the one with the longest stride to the one with the shortest, are its *levels*. An
address in a box is a number whose digits are places on these levels::

    at = start + 8 * row + 2 * column + rest           rows of 8 bytes, columns of 2 bytes

So two divisions find the element. Strides that do not nest (an address would have two readings) are
refused. The inner levels without gaps between them make *stretches*: elements one behind another. Boxes
whose addresses interleave, as columns side by side do, form a *cluster*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from redist.check.boxes import MOST, Boxes, Ints

Mask = NDArray[np.bool_]
NOWHERE = -1
MOST_STRETCHES = 2**25
"""Of boxes that interleave without a period no more stretches are listed."""


@dataclass(frozen=True, slots=True, eq=False)
class Spots:
    """Where addresses lie: box or ``NOWHERE``, index in every dim of its tensor, bytes into the element."""

    box: Ints
    index: list[Ints]
    rest: Ints

    def take(self, which: Ints | Mask) -> Spots:
        """Some of the addresses."""
        return Spots(self.box[which], [one[which] for one in self.index], self.rest[which])


class Places:
    """The boxes of a side by address: box 0 here is the one that begins first."""

    def __init__(self, side: Boxes, n_dims: int) -> None:
        rows = side.rows
        self.side = side
        self.n_dims = n_dims
        self.base: Ints = np.concatenate([[0], np.cumsum(side.sizes)]).astype(np.int64)
        start = self.base[:-1][rows["buffer"]] + rows["offset"]
        self.order = np.argsort(start, kind="stable")
        self.start: Ints = start[self.order]
        self.buffer, self.tensor, self.item = (
            rows[name][self.order] for name in ("buffer", "tensor", "itemsize")
        )
        self.bytes: Ints = side.bytes_of_boxes()[self.order]
        front = n_dims - side.n_dims
        lo, shape, stride = (
            np.concatenate(
                [np.full((front, len(rows)), fill), np.ascontiguousarray(rows[name][self.order].T)]
            )
            for name, fill in (("lo", 0), ("shape", 1), ("strides", 0))
        )
        self.lo: Ints = lo
        self.hi: Ints = lo + shape
        self._make_levels(shape, stride)
        self._make_clusters()
        self._refuse_overlaps()

    def _make_levels(self, shape: Ints, stride: Ints) -> None:
        """``size``, ``step``, ``dim`` of levels, outermost first; ``joined``: no gap from there inwards."""
        step = self._fill(shape, stride)
        self.dim: Ints | None = None
        if (step[:-1] < step[1:]).any():
            self.dim = np.argsort(np.where(shape > 1, -stride, -(2**62)), axis=0, kind="stable")
            shape, stride = (np.take_along_axis(one, self.dim, 0) for one in (shape, stride))
            step = self._fill(shape, stride)
        self.size, self.step = shape, step
        self.joined: Mask = np.empty(shape.shape, dtype=np.bool_)
        self.joined[-1] = step[-1] == self.item
        self.pitch: Ints = np.where(self.joined[-1], 0, step[-1])
        extent, nested = self.item.copy(), np.ones(shape.shape[1], dtype=np.bool_)
        for level in range(self.n_dims - 1, -1, -1):
            nested &= step[level] >= extent
            extent += (shape[level] - 1) * step[level]
            if level == self.n_dims - 1:
                continue
            no_gap = step[level] == shape[level + 1] * step[level + 1]
            self.joined[level] = self.joined[level + 1] & no_gap
            gap = self.joined[level + 1] & ~no_gap
            self.pitch[gap] = step[level][gap]
        self.stop: Ints = self.start + extent
        self._refuse("its strides do not nest; describe it as several boxes", ~nested)
        same = np.zeros(len(nested), dtype=np.bool_)
        same[1:] = self.start[1:] == self.start[:-1]
        self._refuse(
            "another box begins at the same byte; give each name a buffer of its own", same
        )

    def _refuse(self, reason: str, wrong: Mask) -> None:
        table = np.zeros(len(wrong), dtype=np.bool_)
        table[self.order[wrong]] = True
        self.side.check_boxes(reason, table)

    def _fill(self, shape: Ints, stride: Ints) -> Ints:
        """Strides, where dims of 1 have those that they would have in C order."""
        step = stride.copy()
        step[-1] = np.where(shape[-1] > 1, stride[-1], self.item)
        for dim in range(self.n_dims - 2, -1, -1):
            in_c_order = shape[dim + 1] * step[dim + 1]
            step[dim] = np.where(shape[dim] > 1, stride[dim], in_c_order)
        return step

    def _make_clusters(self) -> None:
        """Find boxes that interleave; if all in a cluster have one outermost step, it is their ``period``."""
        reach = np.maximum.accumulate(self.stop) if len(self.stop) else self.stop
        new = np.ones(len(reach), dtype=np.bool_)
        new[1:] = self.start[1:] >= reach[:-1]
        self.first: Ints = np.flatnonzero(new)
        self.count: Ints = np.diff(np.append(self.first, len(reach)))
        self.cluster_start: Ints = self.start[self.first]
        bounds = np.searchsorted(self.cluster_start, self.base)
        self.first_cluster, self.n_clusters = bounds[:-1], np.diff(bounds)
        self.period: Ints | None = None
        if len(self.first) < len(reach):
            outer = np.argmax(self.size > 1, axis=0)
            step = np.take_along_axis(self.step, outer[None], 0)[0]
            least = np.minimum.reduceat(step, self.first)
            same = least == np.maximum.reduceat(step, self.first)
            short = self.start[np.append(self.first[1:], len(reach)) - 1] - self.cluster_start
            self.period = np.where(same & (short < least) & (self.count > 1), least, 0)

    def _refuse_overlaps(self) -> None:
        """Raise if two boxes have a byte in common: an address there would be two elements.

        Only boxes that interleave can. Their stretches are listed, of those with a period in one turn of it.
        """
        if self.period is None:
            return
        cluster = np.repeat(np.arange(len(self.first)), self.count)
        outer = np.argmax(self.size > 1, axis=0)
        rows = np.take_along_axis(self.size, outer[None], 0)[0]
        folds = (self.period > 0) & (np.minimum.reduceat(rows, self.first) > 1)
        period = np.where(folds, self.period, 0)[cluster]
        folded = np.where(period > 0, outer, -1)  # levels up to this one are left out
        n_bytes, done = self.item.copy(), np.zeros(len(period), dtype=np.bool_)
        box = np.flatnonzero(self.count[cluster] > 1)
        at = self.start[box] - self.cluster_start[cluster[box]]
        for level, (size, step) in enumerate(zip(self.size, self.step, strict=True)):
            stretch_here = self.joined[level] & ~done & (level > folded)
            n_bytes = np.where(stretch_here, size * step, n_bytes)
            done |= stretch_here
            times = np.where(done | (level <= folded), 1, size)[box]
            if float(times.sum(dtype=np.float64)) > MOST_STRETCHES:
                self._refuse(
                    "it interleaves with others in too many rows; say several buffers", period >= 0
                )
            number = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
            box, at = np.repeat(box, times), np.repeat(at, times)
            at = at + number * step[box]
        turn = period[box]
        at = np.where(turn > 0, at % np.maximum(turn, 1), at)
        wraps = np.flatnonzero((turn > 0) & (at + n_bytes[box] > turn))
        box, at = np.append(box, box[wraps]), np.append(at, at[wraps] - turn[wraps])
        order = np.lexsort([at, cluster[box]])
        box, at = box[order], at[order]
        meets = (at[1:] < (at + n_bytes[box])[:-1]) & (cluster[box[1:]] == cluster[box[:-1]])
        double = np.zeros(len(period), dtype=np.bool_)
        double[box[1:][meets]] = True
        self._refuse("another box has bytes of it; give each name a buffer of its own", double)

    def find(self, at: Ints, buffer: Ints) -> Spots:
        """Which element lies at each address, which is in this buffer."""
        cluster = self.first_cluster[buffer]
        several = np.flatnonzero(self.n_clusters[buffer] != 1)
        cluster[several] = np.searchsorted(self.cluster_start, at[several], side="right") - 1
        if self.period is None:
            return self._spots(cluster, at)
        period, begin = self.period[cluster], self.cluster_start[cluster]
        folds = np.flatnonzero((period > 0) & (cluster >= 0))
        folded = at.copy()
        folded[folds] -= (at[folds] - begin[folds]) // period[folds] * period[folds]
        found = self._spots(np.searchsorted(self.start, folded, side="right") - 1, at)
        members = self.count[cluster]
        left = np.flatnonzero((found.box < 0) & (cluster >= 0) & (members > 1))
        turn = 0
        while len(left):
            tried = self._spots(self.first[cluster[left]] + turn, at[left])
            hit = tried.box >= 0
            for mine, theirs in zip(
                (found.box, *found.index, found.rest),
                (tried.box, *tried.index, tried.rest),
                strict=True,
            ):
                mine[left[hit]] = theirs[hit]
            turn += 1
            left = left[~hit & (members[left] > turn)]
        return found

    def in_same_box(self, box: Ints, at: Ints) -> Spots:
        """Which element lies at each address if it lies in this box; else ``NOWHERE``."""
        return self._spots(box, at)

    def _spots(self, box: Ints, at: Ints) -> Spots:
        inside = box >= 0
        if len(self.start) == 0:
            return Spots(np.full(len(at), NOWHERE), [np.zeros_like(at)] * self.n_dims, at * 0)
        rest = at - self.start[box]
        inside &= rest >= 0
        places = []
        for size, step in zip(self.size, self.step, strict=True):
            steps = step[box]
            place = rest // steps
            rest = rest - place * steps
            inside &= place < size[box]
            places.append(place)
        inside &= rest < self.item[box]
        if self.dim is None:
            index = [lo[box] + place for lo, place in zip(self.lo, places, strict=True)]
        else:
            table = np.empty((self.n_dims, len(at)), dtype=np.int64)
            for level, place in enumerate(places):
                table[self.dim[level][box], np.arange(len(at))] = place
            index = [lo[box] + place for lo, place in zip(self.lo, table, strict=True)]
        return Spots(np.where(inside, box, NOWHERE), index, rest)

    def up_to_next(self, at: Ints) -> Ints:
        """Bytes from addresses in no box to the next byte that may be in one."""
        if len(self.start) == 0:
            return np.full(len(at), self.base[-1] + 1 - at)
        later = np.append(self.start, self.base[-1] + 1)
        out = np.asarray(later[np.searchsorted(self.start, at, side="right")] - at)
        cluster = np.searchsorted(self.cluster_start, at, side="right") - 1
        left = np.flatnonzero(cluster >= 0)
        turn = 0
        while len(left):
            box = self.first[cluster[left]] + turn
            rest = at[left] - self.start[box]
            out[left] = np.where(rest >= 0, np.minimum(out[left], self._gap(box, rest)), out[left])
            turn += 1
            left = left[self.count[cluster[left]] > turn]
        return out

    def _gap(self, box: Ints, rest: Ints) -> Ints:
        """Bytes from a place between the elements of a box to its next element, or to none."""
        out = np.full(len(rest), 2**62)
        room = np.full(
            len(rest), 2**62
        )  # of the level around: what is behind its end is the next one's
        open_ = np.ones(len(rest), dtype=np.bool_)
        for size, step in zip(self.size, self.step, strict=True):
            behind = open_ & (rest >= size[box] * step[box])
            out[behind] = room[behind] - rest[behind]
            open_ &= ~behind
            room = np.where(open_, step[box], room)
            rest = np.where(open_, rest % step[box], rest)
        last = open_ & (rest >= self.item[box])
        out[last] = room[last] - rest[last]
        return np.maximum(out, 1)

    def where(self, at: int) -> tuple[int, str, int, int]:
        """Rank, name of the buffer, byte in it, and number of the buffer of an address."""
        buffer = int(np.searchsorted(self.base, at, side="right")) - 1
        buffer = min(buffer, len(self.side.names) - 1)
        side = self.side
        return int(side.ranks[buffer]), side.names[buffer], at - int(self.base[buffer]), buffer

    def element(self, at: int) -> tuple[str, tuple[int, ...]] | None:
        """Tensor and index at an address; None if no box is there."""
        found = self.find(np.array([at]), np.array([self.where(at)[3]]))
        box = int(found.box[0])
        if box < 0:
            return None
        name, shape = list(self.side.tensors.items())[int(self.tensor[box])]
        index = [int(one[0]) for one in found.index]
        return name, tuple(index[len(index) - len(shape) :])


def bytes_on_the_way(source: Places, target: Places, same: Ints) -> Ints:
    """For every target box the bytes that an element travels as: the narrower of its itemsizes on both sides.

    ``same`` has for every tensor of the source its number at the target, or -1.
    """
    least = np.full(len(target.side.tensors) + 1, MOST)
    np.minimum.at(least, same[source.tensor], source.item)  # -1 is the last, which nobody asks for
    return np.minimum(target.item, least[target.tensor])


def stretch(
    a: Places, in_a: Ints, b: Places, in_b: Ints, index: Sequence[Ints], wanted: Ints
) -> Ints:
    """Elements from an index on that lie one behind another in both boxes; counted up to ``wanted`` at least.

    From the innermost level outwards: as long as both boxes have the same range of the same dim, and no gap,
    the next level goes on where this one ends.
    """
    out = np.ones(len(in_a), dtype=np.int64)
    left = np.arange(len(in_a))
    inner: Ints = np.ones(len(in_a), dtype=np.int64)
    behind: Ints = np.zeros(len(in_a), dtype=np.int64)
    for level in range(a.n_dims - 1, -1, -1):
        mine, theirs = in_a[left], in_b[left]
        goes_on = a.joined[level][mine] & b.joined[level][theirs]
        if a.dim is None and b.dim is None:
            lo, end = a.lo[level][mine], a.hi[level][mine]
            other_lo, other_end = b.lo[level][theirs], b.hi[level][theirs]
            place = index[level][left]
        else:
            dim = np.full(len(mine), level) if a.dim is None else a.dim[level][mine]
            goes_on &= dim == (level if b.dim is None else b.dim[level][theirs])
            lo, end, other_lo, other_end = (
                a.lo[dim, mine],
                a.hi[dim, mine],
                b.lo[dim, theirs],
                b.hi[dim, theirs],
            )
            place = np.stack(list(index))[dim, left]
        reach = (np.minimum(end, other_end) - place) * inner - behind
        out[left[goes_on]] = reach[goes_on]
        goes_on &= (lo == other_lo) & (end == other_end) & (reach < wanted[left])
        if not goes_on.any():
            break
        behind = (behind + (place - lo) * inner)[goes_on]
        inner = (inner * (end - lo))[goes_on]
        left = left[goes_on]
    return out
