"""The arrays of a recorded call: is an array like the one before, or the very same?"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np

from redist.runtime.copies.addresses import Addresses, address_cell, address_of
from redist.runtime.copies.reduce import kernel_code
from redist.runtime.host.executor import CallRecord, HostExecutor
from redist.runtime.host.stage import Stage, StageReplay
from redist.runtime.schedule.compiler import MOST_ROUNDS

# The stages of a call that ran, with the arrays that each read and wrote, if the kernel can repeat them.


class Whose(Enum):
    """Whose array a stage reads or writes."""

    SOURCE = auto()
    TARGET = auto()
    BETWEEN = auto()


End = tuple[Whose, int]
"""Whose array, and which of a batch."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedStage:
    """One stage of a recorded call: what it did, and which arrays each of its parts reads and writes."""

    stage: Stage
    replay: StageReplay
    reads: tuple[End, ...]
    writes: tuple[End, ...]


def recorded_stages(host: HostExecutor, record: CallRecord) -> list[RecordedStage]:
    """The stages of a call; empty if the kernel cannot repeat one of them."""
    schedule = host.schedule

    def end(item: int, buffer: int) -> End:
        whose = {0: Whose.SOURCE, schedule.last(item): Whose.TARGET}
        return whose.get(buffer, Whose.BETWEEN), item

    found = []
    for stage, ran, parts in zip(host.stages, record.stages, schedule.stages, strict=True):
        reads = tuple(end(part.item, part.source) for part in parts)
        writes = tuple(end(part.item, part.target) for part in parts)
        between = any(whose is Whose.BETWEEN for whose, _ in (*reads, *writes))
        if ran.replay is None or (between and not host.keeps_tiles):
            return []
        found.append(RecordedStage(stage, ran.replay, reads, writes))
    return found if all(map(_can_repeat, found)) else []


def _can_repeat(recorded: RecordedStage) -> bool:
    """Whether a stage is nothing but what the kernel can do."""
    parts, rounds = recorded.stage.parts, recorded.replay.rounds
    return (
        not any(part.step.fills for part in parts)
        and len(rounds) <= MOST_ROUNDS
        and all(kernel_code(c.op, c.dtype) is not None for r in rounds for c in r.combines)
    )


Arrays = Sequence[Any]
"""The arrays of a call at one end, one of every array that moves; None outside its mesh."""


class _Nowhere:
    value = 0


NOWHERE = _Nowhere()
"""The address of no array."""


@dataclass(slots=True, eq=False)
class RecordedEnd:
    """An array of a recorded call at one end: what it is like, and the last one that it was.

    If the neighbours read or write it in place, ``is_fixed``, it must be the same array every time.
    ``pointers`` are where its address stands in the tables.
    """

    like: tuple[Any, ...] | None
    is_fixed: bool
    pointers: list[tuple[Addresses, int]]
    last: Any
    cell: Any
    """Where the address of the last array stands; look only while that lives."""
    place: int

    @staticmethod
    def of(array: Any, is_fixed: bool, pointers: list[tuple[Addresses, int]]) -> RecordedEnd:
        """An end that is this array now."""
        like = None if array is None else (array.dtype, array.shape, array.strides)
        made = RecordedEnd(like, is_fixed, pointers, _nothing, NOWHERE, 0)
        made.point_at(array)
        return made

    def fits(self, array: Any) -> bool:
        """Whether an array is like the ones before, and the same one if it must be."""
        if self.like is None:
            return array is None
        return (
            type(array) is np.ndarray
            and (array.dtype, array.shape, array.strides) == self.like
            and (not self.is_fixed or self.last() is array)
        )

    def forget(self) -> None:
        """Be no array's until the next one comes; the tables stay as they are."""
        self.last = _nothing

    def point_at(self, array: Any) -> None:
        """Take an array for the next run."""
        if array is None:
            self.last, self.cell, self.place = _nothing, NOWHERE, 0
        elif self.last() is array and self.cell.value == self.place:
            return
        else:
            self.last, self.cell = weakref.ref(array), address_cell(array)
            self.place = self.cell.value
        for table, base in self.pointers:
            table[base] = self.place


def are_apart(outs: Arrays, sources: Arrays) -> bool:
    """Whether no result would be written over a source, or over another result.

    >>> a = np.zeros(8)
    >>> are_apart([a[:4]], [a[4:]]), are_apart([a[:5]], [a[4:]]), are_apart([a[:2], a[1:3]], [])
    (True, False, False)
    """
    spans = [(*_span(out), True) for out in outs] + [(*_span(one), False) for one in sources]
    spans.sort()
    beyond_all = beyond_outs = 0
    for low, high, is_out in spans:
        if low < (beyond_all if is_out else beyond_outs) and low < high:
            return False
        beyond_all = max(beyond_all, high)
        if is_out:
            beyond_outs = max(beyond_outs, high)
    return True


def _span(array: Any) -> tuple[int, int]:
    """The first byte of an array, and the first behind it."""
    low = address_of(array)
    if array.flags.c_contiguous:
        return low, low + array.nbytes
    if array.size == 0:
        return low, low
    steps = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    below = sum(step for step in steps if step < 0)
    return low + below, low + sum(step for step in steps if step > 0) + array.itemsize


def _nothing() -> None:
    return None
