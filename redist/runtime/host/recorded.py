"""Repeat a call by one list of operations for the compiled kernel, recorded after it ran once.

A repeated call with arrays like those of the call before then costs a few checks and one call into C:
describe, publish, meet, check that the neighbours' arrays are where they were, fetch, meet again.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.runtime.copies import kernels
from redist.runtime.copies.addresses import Addresses, address_of
from redist.runtime.copies.copy_list import CopyList
from redist.runtime.copies.reduce import kernel_code
from redist.runtime.copies.script import Description, Operation, Script
from redist.runtime.host.executor import CallRecord, HostExecutor, Tiles
from redist.runtime.host.places import IN_PLACE
from redist.runtime.host.stage import MOST_ROUNDS, Stage, StageReplay
from redist.runtime.ranks.meeting import SLICE_NS, Disagreement

AnyArray = NDArray[Any]
AddressTables = tuple[Addresses, Addresses]
"""Base addresses for even and for odd meetings."""
MOST_CALLS = 3
"""Recorded calls that a transfer keeps."""


class Whose(Enum):
    """Whose array a stage reads or writes."""

    SOURCE = auto()
    TARGET = auto()
    BETWEEN = auto()


@dataclass(frozen=True, slots=True, eq=False)
class RecordedStage:
    """One stage of a recorded call: what it did, and whose arrays it reads and writes."""

    stage: Stage
    replay: StageReplay
    reads: Whose
    writes: Whose


def recorded_stages(host: HostExecutor, record: CallRecord) -> list[RecordedStage]:
    """The stages of a call; empty if the kernel cannot repeat one of them."""
    schedule = host.schedule
    whose = {0: Whose.SOURCE, schedule.last(0): Whose.TARGET}
    found = []
    for stage, ran, (part,) in zip(host.stages, record.stages, schedule.stages, strict=True):
        between = {part.source, part.target} - set(whose)
        if ran.replay is None or (between and not host.keeps_tiles):
            return []
        reads, writes = (whose.get(key, Whose.BETWEEN) for key in (part.source, part.target))
        found.append(RecordedStage(stage, ran.replay, reads, writes))
    return found if all(map(_can_repeat, found)) else []


def _can_repeat(recorded: RecordedStage) -> bool:
    """Whether a stage is nothing but what the kernel can do."""
    parts, rounds = recorded.stage.parts, recorded.replay.rounds
    return (
        len(parts) == 1
        and not parts[0].step.fills
        and len(rounds) <= MOST_ROUNDS
        and all(kernel_code(c.op, c.dtype) is not None for r in rounds for c in r.combines)
    )


class RecordedCalls:
    """Lets a host executor repeat its calls, if they are of one array and of ranks of one node.

    ``meets_first`` says that calls meet before their first stage, which is local.
    """

    def __init__(self, host: HostExecutor, token: int, meets_first: bool, is_batch: bool) -> None:
        self.host, self.token, self.meets_first = host, token, meets_first
        self.calls: list[RecordedCall] = []
        world, schedule = host.world, host.schedule
        self._can_record = (
            not is_batch
            and world.one_node
            and world.node.kernels is not None
            and not host.donates
            and schedule.plans[0].limit_bytes is None
            and not schedule.is_tight
        )

    def find(self, local: Any, out: Any) -> tuple[RecordedCall, Any] | None:
        """A call that these arrays fit, pointed at them, and the array for its result."""
        calls = self.calls
        if calls[0].is_again(local, out):
            return calls[0], out
        for call in calls:
            if call.fits(local, out):
                result = call.new_result() if out is None else out
                call.point_at(local, result)
                return call, result
        return None

    def record(self, tiles: Tiles, record: CallRecord) -> None:
        """Make the next call with arrays like these a short one, if it can be."""
        if not self._can_record:
            return
        stages = recorded_stages(self.host, record)
        if stages:
            source, target = tiles[0, 0], tiles[0, self.host.schedule.last(0)]
            call = RecordedCall(
                self.host, stages, source, target, self.token, self.meets_first, record.met_after
            )
            self.calls.insert(0, call)
            del self.calls[MOST_CALLS:]


class RecordedCall:
    """One way to repeat a call with one array: same dtype, shape and strides.

    If the neighbours read this rank's arrays in place, they must also be the same arrays.
    """

    def __init__(
        self,
        host: HostExecutor,
        stages: Sequence[RecordedStage],
        source: AnyArray | None,
        target: AnyArray | None,
        token: int,
        meets_first: bool,
        meets_after: bool,
    ) -> None:
        world = host.world
        assert world.node.kernels is not None
        self.host, self.world, self.stages, self.token = host, world, tuple(stages), token
        self.like = _likeness(source)
        self.out_like = _likeness(target)
        self.is_new_like = target is None or target.flags.c_contiguous
        me = world.rank
        described = {one.reads for one in stages if one.replay.found.kinds.get((me, 0)) in IN_PLACE}
        described |= {one.writes for one in stages if (me, 0) in one.replay.found.opened}
        self.same_source = Whose.SOURCE in described
        self.same_out = Whose.TARGET in described
        self.tables: list[AddressTables] = [one.stage.tables(one.replay) for one in stages]
        self.pointers = self._places_of(Whose.SOURCE), self._places_of(Whose.TARGET)
        """Where the addresses of source and target stand in the tables."""
        self.last = _weak(source), _weak(target)
        self.places = _place(source), _place(target)
        self.kept: list[AnyArray] = []
        """What operations have the addresses of."""
        self.stage_of: list[int] = []
        """The stage of every operation."""
        operations = self._write(meets_first, meets_after)
        self.operations = (Operation * len(operations))(*operations)
        self.state = Script(
            operations=ctypes.addressof(self.operations),
            n_operations=len(operations),
            control=world.pages.table,
            n=len(world.node.ranks),
            me=world.node.place,
            wait_ns=SLICE_NS,
        )
        self.pointer = ctypes.addressof(self.state)
        self.replay_in_c = world.node.kernels.script
        self.meeting, self.pages = world.meeting, world.pages
        self.version = world.pages.version

    def _places_of(self, whose: Whose) -> list[tuple[Addresses, int]]:
        found = []
        for one, tables in zip(self.stages, self.tables, strict=True):
            bases = one.stage.bases
            for array, base in ((one.writes, bases.target(0)), (one.reads, bases.source(0))):
                found += [(table, base) for table in tables if array is whose]
        return found

    # Recording

    def _write(self, meets_first: bool, meets_after: bool) -> list[Operation]:
        operations: list[Operation] = []
        if meets_first:
            operations.append(Operation.meet_with(2 * self.token))
        for number, recorded in enumerate(self.stages):
            operations += self._write_stage(recorded, self.tables[number])
            self.stage_of += [number] * (len(operations) - len(self.stage_of))
        if meets_after:
            operations.append(Operation.meet_with())
            self.stage_of.append(len(self.stages))
        return operations

    def _write_stage(self, recorded: RecordedStage, tables: AddressTables) -> list[Operation]:
        world, replay = self.world, recorded.replay
        bases = np.array([address_of(table) for table in tables], dtype=np.uintp)
        self.kept.append(bases)
        where = address_of(bases)
        operations: list[Operation] = []

        def copy(moves: CopyList, is_ahead: bool = False) -> None:
            if len(moves):
                operations.append(
                    Operation.copy(moves.pointer, where, is_ahead=is_ahead, streams=moves.streams)
                )

        if recorded.stage.is_local:
            copy(replay.rounds[0].copies)
            return operations
        ranks = world.node.ranks
        flags = {rank: rank in replay.descriptions for rank in ranks}
        words = np.array([2 * self.token + flags[rank] for rank in ranks], dtype=np.uint64)
        self.kept.append(words)
        if replay.flag:
            operations.append(Operation.describe(self._description(replay, world.rank)))
        for number, round_ in enumerate(replay.rounds):
            copy(round_.publish if number else replay.first, is_ahead=True)
            if number == 0:
                said = 2 * self.token + replay.flag
                operations.append(Operation.meet_with(said, address_of(words)))
                for rank in ranks:
                    if rank != world.rank and flags[rank]:
                        operations.append(Operation.check(self._description(replay, rank)))
            else:
                operations.append(Operation.meet_with())
            copy(round_.copies)
            for rank, moves in round_.reads:
                operations.append(Operation.read(moves.pointer, where, world.node.pids[rank]))
            for combine in round_.combines:
                code = kernel_code(combine.op, combine.dtype)
                assert code is not None
                operations.append(Operation.combine(combine.moves.pointer, where, code))
        if replay.found.opened:
            operations.append(Operation.meet_with())
        return operations

    def _description(self, replay: StageReplay, rank: int) -> Description:
        """Where a rank describes its array, for even and odd meetings, and how it did."""
        rows = [rows[:1] for rows in self.world.pages[rank].descriptions]
        even, odd, same = map(address_of, (*rows, replay.descriptions[rank]))
        return Description(even, odd, same, rows[0].nbytes)

    # Matching

    def is_again(self, local: Any, out: Any) -> bool:
        """Whether these are the very arrays of the last call, as they were."""
        return (
            local is not None
            and out is not None
            and self.last[0]() is local
            and self.last[1]() is out
            and (local.dtype, local.shape, local.strides) == self.like
            and (out.dtype, out.shape, out.strides) == self.out_like
            and (address_of(local), address_of(out)) == self.places
            and out.flags.writeable
            and self.pages.version == self.version
        )

    def fits(self, local: Any, out: Any) -> bool:
        """Whether a call with these arrays can be run so; ``out`` is None if it would be new."""
        if self.pages.version != self.version:
            return False
        if self.like is None:
            good = local is None
        else:
            good = (
                type(local) is np.ndarray
                and (local.dtype, local.shape, local.strides) == self.like
                and (not self.same_source or self.last[0]() is local)
            )
        if good and out is not None:
            good = (
                type(out) is np.ndarray
                and (out.dtype, out.shape, out.strides) == self.out_like
                and out.flags.writeable
                and (not self.same_out or self.last[1]() is out)
                and (local is None or not np.may_share_memory(local, out))
            )
        return good and (out is not None or (self.is_new_like and not self.same_out))

    def new_result(self) -> Any:
        """A new array for the result."""
        return None if self.out_like is None else np.empty(self.out_like[1], self.out_like[0])

    def point_at(self, local: Any, out: Any) -> None:
        """Take these arrays for the next run."""
        self.last = _weak(local), _weak(out)
        self.places = _place(local), _place(out)
        for places, address in zip(self.pointers, self.places, strict=True):
            for table, base in places:
                table[base] = address

    # Running

    def run(self, local: Any, out: Any, timeout_s: float | None) -> None:
        """**Collective.** Move between the arrays that the call was pointed at, which these are."""
        state, meeting = self.state, self.meeting
        state.at, state.entered, state.seq = 0, 0, meeting.seq
        answer = self.replay_in_c(self.pointer)
        if answer == kernels.ALL_SAME:
            meeting.seq = state.seq
            return
        with self.world.operation(timeout_s):
            done, in_place = self._wait(answer)
            if done < len(self.stages) or in_place:
                tiles = {(0, 0): local, (0, self.host.schedule.last(0)): out}
                self.host.finish(self.token, tiles, done, in_place)

    def _wait(self, answer: int) -> tuple[int, bool]:
        """Wait where the kernel waits, and stop it if what was recorded does not apply any more.

        How many stages are done, and whether arrays may still be read in place.
        """
        state, meeting = self.state, self.meeting
        while True:
            meeting.seq = state.seq
            if answer == kernels.ALL_SAME:
                return len(self.stages), False
            if answer == kernels.REFUSED:
                raise TransferError("the system does not let this process read its neighbours")
            if answer in (kernels.CHANGED, kernels.DIFFERENT):
                return self._leave(self.stage_of[state.at])
            answer = meeting.wait_until(lambda: int(self.replay_in_c(self.pointer)))

    def _leave(self, number: int) -> tuple[int, bool]:
        """End the stage that the kernel has stopped in."""
        meeting = self.meeting
        if number == len(self.stages):
            raise TransferError("internal error: ranks are at different points of a recorded call")
        stage, replay = self.stages[number].stage, self.stages[number].replay
        if stage.is_local:
            raise Disagreement
        met = meeting.classify(kernels.DIFFERENT, 2 * self.token + replay.flag)
        table = self.tables[number][meeting.seq & 1].copy()
        record = stage.resume(met, replay.flag, replay.strides, table)
        return number + 1, record.in_place


def _weak(array: Any) -> Any:
    """A reference that keeps no memory alive."""
    return _nothing if array is None else weakref.ref(array)


def _place(array: Any) -> int:
    return 0 if array is None else address_of(array)


def _nothing() -> None:
    return None


def _likeness(array: AnyArray | None) -> tuple[Any, ...] | None:
    return None if array is None else (array.dtype, array.shape, array.strides)
