"""Follow runs from the source to the target, and say where elements come from that should not be there.

A run is ``count`` blocks of bytes, apart by one step at the source and by another at the target. It is not
taken apart into blocks. A block begins at some element on both sides; it goes on in step until the shorter
stretch ends. The next block begins another element further, the same way further each time, until it leaves
one of the two boxes. So a few comparisons settle all blocks of a *piece*::

    run           [aaaa]...[bbbb]...[cccc]...[dddd]        first element, and how far it is to the next
    box ends          |                  |                 piece 1: the first 3 bytes of 3 blocks
                                                           rest: the last byte of 3 blocks; the last block

What is left over is a run again and is looked at in the next turn. A run that covers many boxes side by
side, row after row, is first folded into one block a row.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from redist.check.box_places import Places, Spots, bytes_on_the_way, stretch
from redist.check.boxes import Ints

OUT = "out of bounds"
READS_NOBODY = "reads what nobody has"
WRITES_NOBODY = "writes what nobody asked for"
WRONG = "wrong bytes"
AT_ONCE = 1 << 16
"""Runs that are looked at together: their columns stay in the cache."""
MOST_LEFT = 1 << 20
"""If more is left over than this, it is looked at before further runs are."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Runs with addresses: ``n_bytes`` as they travel, which is the narrower of two itemsizes."""

    run: Ints
    source_buffer: Ints
    target_buffer: Ints
    source: Ints
    target: Ints
    n_bytes: Ints
    count: Ints
    source_step: Ints
    target_step: Ints

    def take(self, which: Ints | NDArray[np.bool_] | slice) -> Blocks:
        """Some of them."""
        return Blocks(*(getattr(self, one.name)[which] for one in fields(self)))

    def moved(self, blocks: Ints) -> Blocks:
        """Without this many blocks at the beginning."""
        return replace(
            self,
            source=self.source + blocks * self.source_step,
            target=self.target + blocks * self.target_step,
            count=self.count - blocks,
        )

    def __len__(self) -> int:
        return len(self.run)


def joined(parts: list[Blocks]) -> Blocks:
    """All in one."""
    return Blocks(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Blocks)))


Rest = dict[bool, list[Blocks]]
"""What is left of blocks, and whether they have a fault already."""


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """Pieces within one target box each: run, address, bytes of a block, blocks, their step, box."""

    run: Ints
    start: Ints
    n_bytes: Ints
    count: Ints
    step: Ints
    box: Ints


@dataclass(frozen=True, slots=True)
class Event:
    """What was found of one kind: the first run with it, its addresses there, bytes; how many runs have it.

    ``source`` is -1 if the run has another fault before.
    """

    run: int
    source: int
    target: int
    n_bytes: int
    count: int


class Found:
    """Collects events: the first of each kind, and how many runs have one."""

    def __init__(self) -> None:
        self.first: dict[str, Event] = {}
        self.runs: dict[str, list[Ints]] = {}

    def add(self, kind: str, blocks: Blocks, lost: bool = False) -> None:
        """Note blocks, all of which have a fault of this kind in their first block."""
        if len(blocks):
            at = int(np.lexsort((blocks.target, blocks.run))[0])
            source = -1 if lost else int(blocks.source[at])
            event = Event(
                int(blocks.run[at]), source, int(blocks.target[at]), int(blocks.n_bytes[at]), 0
            )
            if kind not in self.first or event.run < self.first[kind].run:
                self.first[kind] = event
            self.runs.setdefault(kind, []).append(np.unique(blocks.run))

    def of(self, kind: str) -> Event | None:
        """What was found of a kind."""
        if kind not in self.first:
            return None
        return replace(self.first[kind], count=len(np.unique(np.concatenate(self.runs[kind]))))


class Follower:
    """Follows runs; ``same`` has for every tensor of the source its number at the target, or -1."""

    def __init__(self, source: Places, target: Places, same: Ints) -> None:
        self.source, self.target, self.same = source, target, same
        self.found = Found()
        items = np.concatenate([source.item, target.item])
        self.wire = bytes_on_the_way(source, target, same)
        self.casts = len(items) > 0 and bool((items != items[0]).any())

    def follow(self, parts: Iterable[Blocks]) -> Iterator[Written]:
        """Yield what blocks write, piece by piece; what is wrong with them goes to ``found``."""
        rest: Rest = {False: [], True: []}
        for part in parts:
            yield from self._turn(part, False, rest)
            if sum(len(one) for some in rest.values() for one in some) > MOST_LEFT:
                rest = yield from self._turns(rest)
        while any(rest.values()):
            rest = yield from self._turns(rest)

    def _turns(self, todo: Rest) -> Generator[Written, None, Rest]:
        """One turn of all that is left; returns what is left then."""
        rest: Rest = {False: [], True: []}
        for lost, some in todo.items():
            left = joined(some) if some else None
            for begin in range(0, len(left or ()), AT_ONCE):
                assert left is not None
                yield from self._turn(left.take(slice(begin, begin + AT_ONCE)), lost, rest)
        return rest

    def _turn(self, b: Blocks, lost: bool, rest: Rest) -> Iterator[Written]:
        """One turn. Lost blocks have a fault already: only what they write is of interest."""
        to = self.target.find(b.target, b.target_buffer)
        nowhere = to.box < 0
        if nowhere.any():
            rest[lost] += self._past(b.take(nowhere), lost)
            b, to = b.take(~nowhere), to.take(~nowhere)
        if lost:
            yield from _cut(
                b, self.target, to, self.target, to, self.target.item[to.box], rest[True]
            )
            return
        come = self.source.find(b.source, b.source_buffer)
        wire, good = self._alike(b, come, to)
        if self.casts:
            inside = ~(self._leaves(self.target, b.target, b.target_step, b, to, wire))
            inside &= ~(good & self._leaves(self.source, b.source, b.source_step, b, come, wire))
            self.found.add(OUT, b.take(~inside))
            b, to, come = b.take(inside), to.take(inside), come.take(inside)
            wire, good = wire[inside], good[inside]
        if not good.all():
            bad = ~good
            nobody = come.box < 0
            self.found.add(READS_NOBODY, b.take(nobody))
            self.found.add(WRONG, b.take(bad & ~nobody))
            rest[True].append(self._lose(b.take(bad), wire[bad], to.box[bad]))
            b, to, come, wire = b.take(good), to.take(good), come.take(good), wire[good]
        wrong = yield from _cut(b, self.source, come, self.target, to, wire, rest[False])
        if len(wrong):
            second = b.take(wrong).moved(np.ones(len(wrong), dtype=np.int64))
            self.found.add(WRONG, second)
            rest[True].append(self._lose(b.take(wrong), wire[wrong], to.box[wrong]))

    def _alike(self, b: Blocks, come: Spots, to: Spots) -> tuple[Ints, NDArray[np.bool_]]:
        """Bytes that an element travels as, and whether blocks begin with the same element on both sides."""
        wire = self.target.item[to.box]
        tensor = (
            self.same[self.source.tensor[come.box]] if len(self.source.tensor) else to.box * 0 - 1
        )
        good = (come.box >= 0) & (tensor == self.target.tensor[to.box]) & (come.rest == to.rest)
        for one, other in zip(come.index, to.index, strict=True):
            good &= one == other
        if self.casts:
            known = np.zeros_like(wire)
            if len(self.source.item):
                known = np.where(
                    tensor == self.target.tensor[to.box], self.source.item[come.box], 0
                )
            narrow = np.where(known > 0, np.minimum(known, wire), self.wire[to.box])
            whole = (come.rest == 0) & (b.n_bytes % narrow == 0)
            good &= (known == wire) | whole
            wire = narrow
        return wire, good

    def _leaves(
        self, side: Places, at: Ints, step: Ints, b: Blocks, spots: Spots, wire: Ints
    ) -> NDArray[np.bool_]:
        """Whether blocks that are wider here than on their way leave the buffer that they begin in."""
        item, end = side.item[spots.box], side.base[side.buffer[spots.box] + 1]
        last = at + np.maximum((b.count - 1) * step, 0)
        return np.asarray((spots.box >= 0) & (last > end - _wider(b.n_bytes, wire, item)))

    def _lose(self, b: Blocks, wire: Ints, box: Ints) -> Blocks:
        """The same blocks as if they came from the target itself."""
        n_bytes = _wider(b.n_bytes, wire, self.target.item[box])
        return replace(
            b,
            n_bytes=n_bytes,
            source_buffer=b.target_buffer,
            source=b.target,
            source_step=b.target_step,
        )

    def _past(self, b: Blocks, lost: bool) -> list[Blocks]:
        """What is left of blocks that begin where no box is: halves, or of a single one what is behind."""
        single = b.count == 1
        rest = halves(b.take(~single))
        b = b.take(single)
        self.found.add(WRITES_NOBODY, b, lost)
        skip = np.minimum(self.target.up_to_next(b.target), b.n_bytes)
        left = skip < b.n_bytes
        behind = replace(
            b, source=b.source + skip, target=b.target + skip, n_bytes=b.n_bytes - skip
        )
        return [one for one in (*rest, behind.take(left)) if len(one)]


def _wider(n_bytes: Ints, wire: Ints, item: Ints) -> Ints:
    """Bytes on their way as bytes of a side; part of an element that is cast counts as all of it."""
    return np.where(item == wire, n_bytes, -(-n_bytes // wire) * item)


def halves(b: Blocks) -> list[Blocks]:
    """Blocks as twice half as many."""
    half = b.count // 2
    return [one.take(one.count > 0) for one in (replace(b, count=half), b.moved(half))]


def _cut(
    b: Blocks,
    source: Places,
    come: Spots,
    target: Places,
    to: Spots,
    wire: Ints,
    rest: list[Blocks],
) -> Generator[Written, None, Ints]:
    """Yield the pieces that blocks begin with, which are right, and put what is left to ``rest``.

    Returns the numbers of blocks whose second block begins with different elements on the two sides.
    """
    item, from_item = target.item[to.box], source.item[come.box]
    n, even = np.ones(len(b), dtype=np.int64), np.ones(len(b), dtype=np.bool_)
    wrong: Ints = np.zeros(0, dtype=np.int64)
    wanted = -((-b.n_bytes - to.rest) // wire)
    length = stretch(source, come.box, target, to.box, to.index, wanted) * wire - to.rest
    many = np.flatnonzero(b.count > 1)
    if len(many):
        n[many], differ, far = _steady(b.take(many), source, come.take(many), target, to.take(many))
        wrong = many[differ]
        last = stretch(source, come.box[many], target, to.box[many], far, wanted[many])
        last = last * wire[many] - to.rest[many]
        size = b.n_bytes[many]
        even[many] = (last == length[many]) | ((last >= size) & (length[many] >= size))
        even[wrong] = False
        split = many[~even[many] & ~np.isin(many, wrong)]
        rest += [half for half in halves(b.take(split)) if len(half)]
    fold = target.pitch[to.box]
    folds = (b.count == 1) & (length < b.n_bytes) & (fold > 0) & (fold == source.pitch[come.box])
    folds &= (item == from_item) & (b.n_bytes >= 2 * fold)
    if folds.any():
        rest += _fold(b.take(folds), fold[folds])
        even &= ~folds
    if not even.all():
        b, n, length = b.take(even), n[even], length[even]
        item, from_item, wire, box = item[even], from_item[even], wire[even], to.box[even]
    else:
        box = to.box
    piece = np.minimum(length, b.n_bytes)
    there, here = piece, piece
    if (item != from_item).any():
        there, here = (_wider(piece, wire, one) for one in (item, from_item))
    yield Written(b.run, b.target, there, n, b.target_step, box)
    behind = np.flatnonzero(piece < b.n_bytes)
    if len(behind):
        left = replace(
            b, source=b.source + here, target=b.target + there, n_bytes=b.n_bytes - piece, count=n
        )
        rest.append(left.take(behind))
    more = np.flatnonzero(n < b.count)
    if len(more):
        left = b.take(more).moved(n[more])
        alone = (n[more] == 1) & (left.count > 1)
        rest += [one for one in (left.take(~alone), *halves(left.take(alone))) if len(one)]
    return wrong


def _steady(
    b: Blocks, source: Places, come: Spots, target: Places, to: Spots
) -> tuple[Ints, NDArray[np.bool_], list[Ints]]:
    """How many blocks are the same way apart on both sides, within the boxes of the first.

    Also whether the second begins with different elements on the two sides, and the indices of the last
    of those many.
    """
    sides = (
        (source, come, source.in_same_box(come.box, b.source + b.source_step)),
        (target, to, target.in_same_box(to.box, b.target + b.target_step)),
    )
    inside = np.ones(len(b), dtype=np.bool_)
    for _, first, second in sides:
        inside &= (second.box >= 0) & (second.rest == first.rest)
    both = (sides[0][2].box >= 0) & (sides[1][2].box >= 0)
    differ = both & (sides[0][2].rest != sides[1][2].rest)
    n = b.count - 1
    way = []
    for dim in range(target.n_dims):
        here, there = sides[0][2].index[dim], sides[1][2].index[dim]
        differ |= both & (here != there)
        ahead = there - to.index[dim]
        way.append(ahead)
        for places, first, _ in sides:
            at, box = first.index[dim], first.box
            room = np.where(ahead > 0, places.hi[dim][box] - 1 - at, at - places.lo[dim][box])
            n = np.where(ahead == 0, n, np.minimum(n, room // np.maximum(np.abs(ahead), 1)))
    n = np.where(inside & ~differ, n, 0)
    return n + 1, differ, [at + n * ahead for at, ahead in zip(to.index, way, strict=True)]


def _fold(b: Blocks, pitch: Ints) -> list[Blocks]:
    """Single blocks as one block a row, and what is left behind the last whole row."""
    rows = b.n_bytes // pitch
    whole = rows * pitch
    folded = replace(b, n_bytes=pitch, count=rows, source_step=pitch, target_step=pitch)
    behind = replace(b, source=b.source + whole, target=b.target + whole, n_bytes=b.n_bytes - whole)
    return [one for one in (folded, behind.take(b.n_bytes > whole)) if len(one)]
