"""All contenders on one case: checked, their memory taken, timed in turn, checked again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from redist.measure import memory
from redist.measure.cases import Case
from redist.measure.contenders.contender import Contender, Ends, new_tile
from redist.measure.contenders.registry import Ways
from redist.measure.results.results import Entry, Outcome
from redist.measure.timing import Stopwatch, Times, all_agree
from redist.runtime.copies.addresses import addresses
from redist.runtime.copies.copy_list import BufferCopy, CopyList
from redist.runtime.copies.strided import Strided

# The measure of all: every rank copies its tile of the target once, contiguously, as fast as can be.


class NumpyCopy(Contender):
    """``np.copyto``: the memcpy of the C library."""

    label = "memcpy"

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        self._from = None if ends.target is None else np.zeros_like(ends.target)

    def run(self) -> None:
        """One copy. **Local.**"""
        if self.output is not None and self._from is not None:
            np.copyto(self.output, self._from)


class KernelCopy(NumpyCopy):
    """The compiled kernel, which goes up line by line, through the cache."""

    label = "kernel"
    streams = False

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        self._moves, self._table = CopyList.of(()), addresses(())
        if self.output is not None and self._from is not None:
            whole = BufferCopy(0, 0, 1, 0, Strided(self.output.nbytes, ()))
            self._moves = CopyList.of([whole], self.streams)
            self._table = addresses([self.output, self._from])

    def run(self) -> None:
        """One copy. **Local.**"""
        self._moves.run(self._table)


class KernelStream(KernelCopy):
    """The same past the cache, where the processor has stores for that."""

    label = "kernel, past the cache"
    streams = True


def host_floors(case: Case, comm: MPI.Intracomm) -> list[Contender]:
    """**Local.** Three copies in memory; the fastest of a run is its floor."""
    ends = Ends(None, new_tile(case.target, comm.rank))
    return [way(case, comm, ends) for way in (NumpyCopy, KernelCopy, KernelStream)]


T = TypeVar("T")
MEMORY_TIMES = 2
"""Memory is taken so often, and the least counts: one-time allocations of a library are not counted."""


@dataclass(frozen=True, slots=True)
class BenchPlace:
    """Where the arrays of contenders lie: how a rank's are made there, and copies that may be the floor."""

    new_ends: Callable[[Case, int], Ends]
    new_floors: Callable[[Case, MPI.Intracomm], Sequence[Contender]]


HOST = BenchPlace(Ends.new, host_floors)


def compare(
    case: Case,
    size_bytes: int,
    contenders: Mapping[str, Ways],
    watch: Stopwatch,
    repeats: int,
    with_memory: bool = True,
    place: BenchPlace = HOST,
) -> Outcome:
    """Let the contenders do the work of a case. **Collective over `watch.comm`.**"""
    with_memory = with_memory and memory.can_measure(watch.comm)
    entries: dict[str, Entry] = {}
    fit: dict[str, type[Contender]] = {}
    for key, classes in contenders.items():
        way, note = _way(classes, case)
        entry = Entry(key, key if len(classes) > 1 else way.label, note)
        entries[key] = entry if note else _alone(entry, way, case, watch.comm, with_memory, place)
        if not entries[key].note:
            fit[key] = way
    floor, times, wrong = _in_turn(case, fit, watch, repeats, place)
    for key in fit:
        if key in wrong:
            entries[key] = replace(entries[key], note=wrong[key], is_wrong=True)
        else:
            entries[key] = replace(entries[key], times=times[key])
    done = tuple(entries.values())
    return Outcome(case.name, size_bytes, case.held_bytes, str(case), "", floor, done)


def _way(classes: Ways, case: Case) -> tuple[type[Contender], str]:
    """The first class that can express a case; or the first of all, and why none can."""
    absent = classes[0].absent()
    if absent is not None:
        return classes[0], absent
    reasons = [way.why_not(case) for way in classes]
    for way, reason in zip(classes, reasons, strict=True):
        if reason is None:
            return way, ""
    return classes[0], f"cannot: {reasons[-1]}"


def _alone(
    entry: Entry,
    way: type[Contender],
    case: Case,
    comm: MPI.Intracomm,
    with_memory: bool,
    place: BenchPlace,
) -> Entry:
    """A contender by itself on fresh arrays: is its result right, and what memory does it take?"""
    contender, note = _together(comm, lambda: _ready(way, case, comm, place))
    if contender is not None:
        note = _fault(contender)
        entry = replace(entry, label=contender.label, planned_bytes=contender.planned_bytes)
        _close(contender)
    if note:
        return replace(entry, note=note, is_wrong=True)
    if not with_memory:
        return entry
    # What it left behind after one use is no part of the next: imports, plans, MPI's own buffers.
    del contender
    peaks = []
    for _ in range(MEMORY_TIMES):
        base = memory.held_bytes(comm)
        contender = _ready(way, case, comm, place)
        contender.run()
        peaks.append(comm.allreduce(contender.peak_bytes(base), MPI.MAX))
        _close(contender)
        del contender
    return replace(entry, peak_bytes=int(min(peaks)))


def _in_turn(
    case: Case,
    ways: Mapping[str, type[Contender]],
    watch: Stopwatch,
    repeats: int,
    place: BenchPlace,
) -> tuple[Times, dict[str, Times], dict[str, str]]:
    """Times of the fastest floor, the contenders' times by name, and what is wrong with some of them."""
    comm = watch.comm
    ends = place.new_ends(case, comm.rank)
    contenders = {key: _ready(way, case, comm, place, ends) for key, way in ways.items()}
    wrong = {key: fault for key, c in contenders.items() if (fault := _fault(c))}
    right = {key: c for key, c in contenders.items() if key not in wrong}
    floors = place.new_floors(case, comm)
    works = [one.repeat for one in (*floors, *right.values())]
    all_times = watch.in_turn(works, repeats)
    floor_times = min(all_times[: len(floors)], key=lambda t: t.median_s)
    times = all_times[len(floors) :]
    wrong |= {key: f"{fault} in the end" for key, c in right.items() if (fault := _fault(c))}
    for contender in contenders.values():
        _close(contender)
    return floor_times, dict(zip(right, times, strict=True)), wrong


def _ready(
    way: type[Contender],
    case: Case,
    comm: MPI.Intracomm,
    place: BenchPlace,
    ends: Ends | None = None,
) -> Contender:
    """A contender with a communicator of its own, and arrays of its own if none are given."""
    if not way.uses_ends:
        ends = Ends(None, None)
    contender = way(case, comm.Dup(), ends or place.new_ends(case, comm.rank))
    contender.fill()
    return contender


def _close(contender: Contender) -> None:
    contender.close()
    contender.comm.Free()


def _fault(contender: Contender) -> str:
    """What is wrong with a contender's result on any rank; empty if nothing is."""
    right, note = _together(contender.comm, contender.is_right)
    return note or ("" if all_agree(contender.comm, bool(right)) else "wrong result")


def _together(comm: MPI.Intracomm, work: Callable[[], T]) -> tuple[T | None, str]:
    """What ``work`` returns; or, where it failed on any rank, None and how on the first of them."""
    done: T | None = None
    note = ""
    try:
        done = work()
    except Exception as error:
        note = f"failed: {type(error).__name__}: {error}"
    if all_agree(comm, not note):
        return done, ""
    return None, next(text for text in comm.allgather(note) if text)
