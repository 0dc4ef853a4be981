"""Check runs: each element of the target must arrive once, from a rank that has it, within the limit.

A run says that ``count`` blocks of bytes go from a buffer of the source to a buffer of the target. Three
questions decide whether a list of runs is right, whatever made it:

1. *Content.* Is the element that a block writes the one that it reads? (:mod:`redist.check.follow`)
2. *Once.* Do the blocks fill the boxes of the target without overlaps? (:mod:`redist.check.writes`)
3. *Room.* How much does each rank send and receive in a round? (here)

The check knows nothing about how the runs were made. Any rank that has a copy of an element may send it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.check.box_places import Places
from redist.check.boxes import Boxes, Ints, Rows, side_of
from redist.check.follow import (
    AT_ONCE,
    OUT,
    READS_NOBODY,
    WRITES_NOBODY,
    WRONG,
    Blocks,
    Event,
    Follower,
)
from redist.check.held import missing_bytes
from redist.check.run_rows import FIELDS, as_runs
from redist.check.verdict import Fault, RankBytes, Verdict
from redist.check.writes import Place, Writes
from redist.errors import ArgumentError
from redist.text.units import format_beside, limit_from

TWICE, NEVER, FULL = "written twice", "never written", "too much in a round"


def check_runs(
    runs: Any, source: Any = None, target: Any = None, *, limit_bytes: int | str | None = None
) -> Verdict:
    """**Local.** Check the runs between two sides; report each kind of fault with its first element.

    >>> import redist
    >>> from redist.check.boxes import Boxes
    >>> rows = [(0, "w", (0, 0), (2, 6), 0, None, 2), (1, "w", (2, 0), (2, 6), 0, None, 2)]
    >>> source = Boxes.of({"w": (4, 6)}, [(0, "w", 24), (1, "w", 24)], rows)
    >>> target = Boxes.of({"w": (4, 6)}, [(5, "w", 48)], [(0, "w", (0, 0), (4, 6), 0, None, 2)])
    >>> print(redist.check_runs([(0, 0, 0, 0, 0, 24), (0, 1, 0, 0, 24, 24)], source, target))
    right      2 runs write each byte of 1 target box once, from a rank that has it
    received   48 B = 1.00 x lower bound
    senders    the busiest sends 1.00 x the mean
    rounds     1, at most 48 B sent and received by a rank in one
    <BLANKLINE>
    rank   received   lower bound   sent   most in a round
       0        0 B           0 B   24 B              24 B
       1        0 B           0 B   24 B              24 B
       5       48 B          48 B    0 B              48 B
    >>> for fault in redist.check_runs([(0, 0, 0, 0, 0, 24), (0, 1, 2, 0, 24, 22)], source, target).faults:
    ...     print(fault)
    wrong bytes: byte 24 of 'w' on rank 5, w[2, 0], comes from byte 2 of 'w' on rank 1, w[2, 1] (1 run)
    never written: byte 46 of 'w' on rank 5, w[3, 5], 2 bytes (1 box)

    ``runs`` is an array of :data:`~redist.check.run_rows.RUN`, or rows ``(round, source buffer, offset,
    target buffer, offset, bytes)``, each followed by three more numbers if blocks repeat: ``count, source
    step, target step``. Each side is a :class:`~redist.check.boxes.Boxes`, or an object whose method
    ``boxes()`` makes one. If ``runs`` is a path and no sides are given, everything is read from the manifest
    at that path.
    """
    if source is None and target is None:
        from redist.check.manifest import read_manifest

        if not isinstance(runs, (str, PathLike)):
            raise ArgumentError(
                "cannot judge runs without sides: give source and target, or the path of a manifest alone"
            )
        runs, source, target = read_manifest(Path(runs))
    rows = as_runs(runs)
    judged = _Judging(rows, side_of(source), side_of(target), limit_from(limit_bytes))
    return judged.verdict()


class _Judging:
    """One list being judged."""

    def __init__(self, rows: Rows, source: Boxes, target: Boxes, limit: int | None) -> None:
        self.rows, self.limit = rows, limit
        numbers = {name: k for k, name in enumerate(target.tensors)}
        for name, shape in source.tensors.items():
            if target.tensors.get(name, shape) != shape:
                raise ArgumentError(
                    f"cannot judge runs: {name!r} has shape {shape} at the source and "
                    f"{target.tensors[name]} at the target"
                )
        self.same: Ints = np.array([numbers.get(n, -1) for n in source.tensors], dtype=np.int64)
        n_dims = max(source.n_dims, target.n_dims)
        self.source, self.target = Places(source, n_dims), Places(target, n_dims)
        for name, side in (("source", source), ("target", target)):
            outside = (rows[name] < 0) | (rows[name] >= len(side.names))
            self._refuse(outside, f"the {name} has {len(side.names)} buffers")
        few = rows["bytes"] < 1
        if "count" in (rows.dtype.names or ()):
            few = few | (rows["count"] < 1)
        self._refuse(few, "bytes and count are 1 or more")
        self.ranks = np.unique(np.concatenate([source.ranks, target.ranks]))
        self.rounds = np.unique(rows["round"])
        self.rank_of = [np.searchsorted(self.ranks, side.ranks) for side in (source, target)]
        self.load: Ints = np.zeros((len(self.rounds), len(self.ranks)), dtype=np.int64)
        self.sums: Ints = np.zeros((2, len(self.ranks)), dtype=np.int64)
        self.follower = Follower(self.source, self.target, self.same)
        self.writes = Writes(self.target)

    def _refuse(self, wrong: NDArray[np.bool_], reason: str) -> None:
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ArgumentError(f"cannot use run {at}, {self.rows[at].tolist()}: {reason}")

    def _columns(self, which: slice) -> dict[str, Ints]:
        """The fields of some runs."""
        rows = self.rows[which]
        plain = {"count": 1, "source_step": 0, "target_step": 0}
        return {
            name: rows[name].astype(np.int64)
            if name in (rows.dtype.names or ())
            else np.full(len(rows), plain[name])
            for name in FIELDS
        }

    def _blocks(self) -> Iterator[Blocks]:
        """All runs that stay in their buffers, with addresses; bytes are added up on the way."""
        for begin in range(0, len(self.rows), AT_ONCE):
            c = self._columns(slice(begin, begin + AT_ONCE))
            run = np.arange(begin, begin + len(c["round"]))
            inside = np.ones(len(run), dtype=np.bool_)
            for name, places in (("source", self.source), ("target", self.target)):
                inside &= _inside(
                    places.side.sizes[c[name]], c[f"{name}_offset"], c[f"{name}_step"], c
                )
            blocks = Blocks(
                run,
                c["source"],
                c["target"],
                self.source.base[c["source"]] + c["source_offset"],
                self.target.base[c["target"]] + c["target_offset"],
                *(c[name] for name in FIELDS[5:]),
            )
            if not inside.all():
                self.follower.found.add(OUT, blocks.take(~inside))
                c = {name: column[inside] for name, column in c.items()}
                blocks = blocks.take(inside)
            self._add_up(c)
            yield blocks

    def _add_up(self, c: dict[str, Ints]) -> None:
        """Add the bytes of runs to those of their ranks and rounds."""
        sender, receiver = (self.rank_of[k][c[name]] for k, name in enumerate(("source", "target")))
        travel = np.where(sender == receiver, 0, c["bytes"] * c["count"])
        number = np.searchsorted(self.rounds, c["round"])
        for k, rank in enumerate((sender, receiver)):
            np.add.at(self.sums[k], rank, travel)
            np.add.at(self.load.reshape(-1), number * len(self.ranks) + rank, travel)

    def verdict(self) -> Verdict:
        """Follow all runs, then ask whether everything is written once, and add up."""
        for written in self.follower.follow(self._blocks()):
            self.writes.add(written)
        least = np.zeros(len(self.ranks), dtype=np.int64)
        rank = self.rank_of[1][self.target.buffer]
        np.add.at(least, rank, missing_bytes(self.source, self.target, self.same))
        peak = self.load.max(axis=0, initial=0)
        columns = (self.ranks, self.sums[1], self.sums[0], peak, least)
        figures = tuple(RankBytes(*map(int, row)) for row in zip(*columns, strict=True))
        faults = tuple(self._faults())
        n_boxes, n_rounds = len(self.target.start), len(self.rounds)
        n_sources = len(np.unique(self.source.side.ranks))
        return Verdict(len(self.rows), n_boxes, n_rounds, faults, figures, n_sources, self.limit)

    def _faults(self) -> Iterator[Fault]:
        """The first fault of every kind."""
        name = _Namer(self.source, self.target, self._run)
        for kind in (OUT, READS_NOBODY, WRITES_NOBODY, WRONG):
            event = self.follower.found.of(kind)
            if event is not None:
                yield name.event(kind, event)
        twice, doubled = self.writes.twice(bool(self.follower.found.first))
        if twice is not None:
            by = self.writes.runs_at(twice.start)
            yield name.place(TWICE, twice, f", by runs {', '.join(map(str, by[:4]))}")
        never = self.writes.never(doubled)
        if never is not None:
            yield name.place(NEVER, never)
        if self.limit is not None and (self.load > self.limit).any():
            yield self._full(name, self.limit)

    def _full(self, name: _Namer, limit: int) -> Fault:
        """The first round that is too much for a rank, and the run that makes it so."""
        number, place = (int(one[0]) for one in np.nonzero(self.load > limit))
        rank, load = int(self.ranks[place]), int(self.load[number, place])
        which = np.flatnonzero(self.rows["round"] == self.rounds[number])
        ends = [
            of[self.rows[side][which]]
            for of, side in zip(self.rank_of, ("source", "target"), strict=True)
        ]
        which = which[(ends[0] != ends[1]) & ((ends[0] == place) | (ends[1] == place))]
        count = self.rows["count"][which] if "count" in (self.rows.dtype.names or ()) else 1
        run = int(which[np.argmax(np.cumsum(self.rows["bytes"][which] * count) > limit)])
        words = (
            f"rank {rank} sends and receives {format_beside(load, limit)} in round {self.rounds[number]}, "
            f"more than {format_beside(limit, load)}"
        )
        return name.run(FULL, run, rank, load - limit, words, int((self.load > limit).sum()))

    def _run(self, number: int) -> dict[str, int]:
        return {name: int(c[0]) for name, c in self._columns(slice(number, number + 1)).items()}


def _inside(size: Ints, offset: Ints, step: Ints, c: dict[str, Ints]) -> NDArray[np.bool_]:
    """Whether all blocks lie in buffers of these sizes; no number here can grow out of 64 bits."""
    good = (offset >= 0) & (offset <= size) & (c["bytes"] <= size - offset)
    if (c["count"] == 1).all():
        return np.asarray(good)
    steps = np.maximum(c["count"] - 1, 1)
    up, down = (size - c["bytes"] - offset) // steps, -(offset // steps)
    return np.asarray(good & ((c["count"] == 1) | ((step <= up) & (step >= down))))


# Faults in words: where they are, byte by buffer, and which element that is.


Near = tuple["str | None", "tuple[int, ...] | None"]
"""Tensor and index, if an element is there."""
NOTHING: Near = (None, None)


class _Namer:
    """Makes faults of addresses; ``row`` returns the fields of a run."""

    def __init__(
        self, source: Places, target: Places, row: Callable[[int], dict[str, int]]
    ) -> None:
        self.source, self.target, self.row = source, target, row

    def event(self, kind: str, event: Event) -> Fault:
        """A fault of a run."""
        if kind == OUT:
            return self._out(event)
        rank, to, near = _spot(self.target, event.target)
        text, n_bytes = f"{to} is written by run {event.run}", event.n_bytes
        if event.source >= 0:
            _, come, read = _spot(self.source, event.source)
            text = f"{to}, comes from {come}"
            if kind == READS_NOBODY:
                text += ", where no tensor is"
            elif kind == WRITES_NOBODY:
                text, near = f"{to}, where no tensor is, gets {come}", read
            elif near == read:
                text += ", but its bytes are not whole elements, in order"
        return Fault(kind, rank, *near, n_bytes, text, event.count, "run")

    def place(self, kind: str, place: Place, more: str = "") -> Fault:
        """A fault at a place of the target."""
        rank, text, near = _spot(self.target, place.start)
        text = f"{text}, {place.n_bytes} bytes{more}"
        return Fault(kind, rank, *near, place.n_bytes, text, place.count, "box")

    def run(self, kind: str, number: int, rank: int, n_bytes: int, words: str, count: int) -> Fault:
        """A fault that a run completes: it is named by the element that the run begins with."""
        row = self.row(number)
        near = self._element("target", row)
        text = f"{words}; run {number}, {_element_text(near)}, goes beyond"
        return Fault(kind, rank, *near, n_bytes, text, count, "round")

    def _element(self, side: str, row: dict[str, int]) -> Near:
        """What lies where a run begins."""
        places = self.source if side == "source" else self.target
        offset = row[f"{side}_offset"]
        if not 0 <= offset < places.side.sizes[row[side]]:
            return NOTHING
        return places.element(int(places.base[row[side]]) + offset) or NOTHING

    def _out(self, event: Event) -> Fault:
        row = self.row(event.run)
        side = verb = ""
        for side, verb in (("target", "writes"), ("source", "reads")):  # noqa: B007
            places, number = (self.source if side == "source" else self.target), row[side]
            begin, step = row[f"{side}_offset"], row[f"{side}_step"]
            last = begin + (row["count"] - 1) * step
            low, high = min(begin, last), max(begin, last) + row["bytes"]
            size = int(places.side.sizes[number])
            if low < 0 or high > size:
                break
        else:
            side, verb, places, number = "target", "casts", self.target, row["target"]
            size = int(places.side.sizes[number])
        near = self._element(side, row)
        if near == NOTHING:
            near = self._element("source" if side == "target" else "target", row)
        rank, name = int(places.side.ranks[number]), places.side.names[number]
        text = f"run {event.run} {verb} bytes {low} to {high} of {name!r} on rank {rank}, which has {size}"
        text = f"{text}; it begins at {_element_text(near)}"
        return Fault(OUT, rank, *near, row["bytes"], text, event.count, "run")


def _spot(places: Places, at: int) -> tuple[int, str, Near]:
    """Rank, words and element of an address."""
    rank, name, byte, _ = places.where(at)
    near = places.element(at) or NOTHING
    words = f"byte {byte} of {name!r} on rank {rank}"
    return rank, words if near == NOTHING else f"{words}, {_element_text(near)}", near


def _element_text(near: Near) -> str:
    name, index = near
    if name is None or index is None:
        return "no element"
    return f"{name}[{', '.join(map(str, index))}]" if index else name
