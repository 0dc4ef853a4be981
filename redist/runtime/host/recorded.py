"""Repeat a call by one list of operations for the compiled kernel, recorded after it ran once.

A repeated call with arrays like those of the call before then costs a few checks and one call into C:
describe, publish, meet, check that the neighbours' arrays are where they were, fetch, meet again. Between
nodes C pauses where ranks meet by letters, which carry all that passes between nodes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.runtime.copies import kernels
from redist.runtime.copies.addresses import Addresses, address_of
from redist.runtime.copies.copy_list import CopyList
from redist.runtime.copies.reduce import kernel_code
from redist.runtime.copies.script import Description, Operation, Script
from redist.runtime.host.executor import CallRecord, HostExecutor, Tiles, tiles_of
from redist.runtime.host.places import IN_PLACE
from redist.runtime.host.recorded_arrays import (
    Arrays,
    End,
    RecordedEnd,
    RecordedStage,
    Whose,
    are_apart,
    recorded_stages,
)
from redist.runtime.host.stage import StageReplay
from redist.runtime.ranks.meeting import BETWEEN_NODES_NS, SLICE_NS, Disagreement, Met

AnyArray = NDArray[Any]
AddressTables = tuple[Addresses, Addresses]
"""Base addresses for even and for odd meetings."""
MOST_CALLS = 3
"""Recorded calls that a transfer keeps."""
MOST_MISMATCHES = 8
"""How often a transfer records another call because other ranks did otherwise."""


class RecordedCalls:
    """Lets a host executor repeat its calls, if its ranks are of one node or letters carry all between nodes.

    ``meets_first`` says that calls meet before their first stage, which is local.
    """

    def __init__(self, host: HostExecutor, token: int, meets_first: bool) -> None:
        self.host, self.token, self.meets_first = host, token, meets_first
        self.calls: list[RecordedCall] = []
        self._n_mismatches = 0
        world, schedule = host.world, host.schedule
        lettered = world.letters is not None and all(
            stage.is_local or stage.staging.enclosed is not None for stage in host.stages
        )
        self._can_record = (
            (world.one_node or lettered)
            and world.node.kernels is not None
            and not host.donates
            and schedule.plans[0].limit_bytes is None
            and not schedule.is_tight
        )

    def find(self, sources: Arrays, outs: Arrays) -> tuple[RecordedCall, Arrays] | None:
        """A call that these arrays fit, pointed at them, and the arrays for its results.

        Arrays that neighbours read in place fit their own call, and often one that passes any array through
        a pool, too. Other ranks may have only the first: that one is taken.
        """
        calls = self.calls
        if calls[0].is_again(sources, outs):
            return calls[0], outs
        fitting = [
            call for call in calls if call.fits(sources, outs) and not call.is_set_apart(sources[0])
        ]
        if not fitting:
            return None
        call = max(fitting, key=lambda one: one.n_fixed)
        results = call.results(outs)
        call.point_at(sources, results)
        return call, results

    def note_mismatch(self, call: RecordedCall) -> None:
        """Other ranks did otherwise: another call is recorded next time, from what they do then.

        Not again and again: a neighbour may bring new arrays each time.
        """
        if self._n_mismatches < MOST_MISMATCHES:
            self._n_mismatches += 1
            call.set_apart()

    def record(self, tiles: Tiles, record: CallRecord) -> None:
        """Make the next call with arrays like these a short one, if it can be."""
        if not self._can_record:
            return
        stages = recorded_stages(self.host, record)
        if stages:
            items = range(len(self.host.schedule.plans))
            sources = [tiles[item, 0] for item in items]
            targets = [tiles[item, self.host.schedule.last(item)] for item in items]
            kind = RecordedCall if len(items) > 1 else RecordedMove
            call = kind(
                self.host, stages, sources, targets, self.token, self.meets_first, record.met_after
            )
            self.calls.insert(0, call)
            del self.calls[MOST_CALLS:]


class RecordedCall:
    """One way to repeat a call: with arrays of the same dtypes, shapes and strides."""

    def __init__(
        self,
        host: HostExecutor,
        stages: Sequence[RecordedStage],
        sources: Arrays,
        targets: Arrays,
        token: int,
        meets_first: bool,
        meets_after: bool,
    ) -> None:
        world = host.world
        assert world.node.kernels is not None
        self.host, self.world, self.stages, self.token = host, world, tuple(stages), token
        self.are_new_like = all(t is None or t.flags.c_contiguous for t in targets)
        self.tables: list[AddressTables] = [one.stage.tables(one.replay) for one in stages]
        described = self._described()
        self.sources, self.targets = (
            tuple(
                RecordedEnd.of(array, (whose, item) in described, self._pointers((whose, item)))
                for item, array in enumerate(arrays)
            )
            for whose, arrays in ((Whose.SOURCE, sources), (Whose.TARGET, targets))
        )
        self.ends = (*self.targets, *self.sources)
        self.n_fixed = sum(end.is_fixed for end in self.ends)
        self.mismatched: list[Any] = []
        """Sources with which other ranks did otherwise."""
        self.kept: list[AnyArray] = []
        """What operations have the addresses of."""
        self.stage_of: list[int] = []
        """The stage of every operation."""
        operations = self._write(meets_first, meets_after)
        self.enclosed = [
            one.stage.enclosed(one.replay.strides, tables[0])
            for one, tables in zip(self.stages, self.tables, strict=True)
        ]
        """What the letters of every stage carry, from arrays that both tables name alike."""
        self.operations = (Operation * len(operations))(*operations)
        self.state = Script(
            operations=ctypes.addressof(self.operations),
            n_operations=len(operations),
            control=world.pages.table,
            n=len(world.node.ranks),
            me=world.node.place,
            wait_ns=SLICE_NS if world.one_node else BETWEEN_NODES_NS,
        )
        self.pointer = ctypes.addressof(self.state)
        self.replay_in_c = world.node.kernels.script
        self.meeting, self.pages = world.meeting, world.pages
        self.version = world.pages.version

    def _described(self) -> set[End]:
        """The arrays of this rank that neighbours read or write in place."""
        me, found = self.world.rank, set()
        for one in self.stages:
            kinds, opened = one.replay.found.kinds, one.replay.found.opened
            found |= {end for k, end in enumerate(one.reads) if kinds.get((me, k)) in IN_PLACE}
            found |= {end for k, end in enumerate(one.writes) if (me, k) in opened}
        return found

    def _pointers(self, end: End) -> list[tuple[Addresses, int]]:
        """Where the addresses of an array stand in the tables."""
        found = []
        for one, tables in zip(self.stages, self.tables, strict=True):
            bases = one.stage.bases
            places = [bases.target(k) for k, other in enumerate(one.writes) if other == end]
            places += [bases.source(k) for k, other in enumerate(one.reads) if other == end]
            found += [(table, base) for base in places for table in tables]
        return found

    # Recording

    def _write(self, meets_first: bool, meets_after: bool) -> list[Operation]:
        operations: list[Operation] = []
        if meets_first:
            one_node = self.world.one_node
            operations.append(
                Operation.meet_with(2 * self.token) if one_node else Operation.pause()
            )
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
                near = Operation.meet_with(said, address_of(words))
                operations.append(near if world.one_node else Operation.pause())
                for rank in ranks:
                    if rank != world.rank and flags[rank]:
                        operations.append(Operation.check(self._description(replay, rank)))
            else:
                operations.append(Operation.meet_with())
            copy(round_.copies)
            for rank, moves in round_.reads:
                operations.append(Operation.read(moves.pointer, where, world.node.pids[rank]))
            copy(round_.unpack)
            for combine in round_.combines:
                code = kernel_code(combine.op, combine.dtype)
                assert code is not None
                operations.append(Operation.combine(combine.moves.pointer, where, code))
        if replay.found.opened:
            operations.append(Operation.meet_with())
        return operations

    def _description(self, replay: StageReplay, rank: int) -> Description:
        """Where a rank describes its arrays, for even and odd meetings, and how it did."""
        n = len(replay.descriptions[rank])
        rows = [rows[:n] for rows in self.world.pages[rank].descriptions]
        even, odd, same = map(address_of, (*rows, replay.descriptions[rank]))
        return Description(even, odd, same, rows[0].nbytes)

    # Matching

    def is_again(self, sources: Arrays, outs: Arrays) -> bool:
        """Whether these are the very arrays of the last call, as they were."""
        for end, array in zip(
            self.ends, (*outs, *sources), strict=True
        ):  # results are new most often
            if (
                array is None
                or end.last() is not array
                or (array.dtype, array.shape, array.strides) != end.like
                or end.cell.value != end.place
            ):
                return False
        for out in outs:
            if not out.flags.writeable:
                return False
        return bool(self.pages.version == self.version)

    def fits(self, sources: Arrays, outs: Arrays) -> bool:
        """Whether a call with these arrays can be run so; an ``out`` is None if it would be new."""
        if self.pages.version != self.version:
            return False
        for end, array in zip(self.sources, sources, strict=True):
            if not end.fits(array):
                return False
        given: list[Any] = []
        for end, array in zip(self.targets, outs, strict=True):
            if array is None:
                if not self.are_new_like or end.is_fixed:
                    return False
            elif not end.fits(array) or not array.flags.writeable:
                return False
            else:
                given.append(array)
        return not given or are_apart(given, [one for one in sources if one is not None])

    def results(self, outs: Arrays) -> Arrays:
        """The arrays for the results, new ones where there is none yet."""
        return [
            np.empty(end.like[1], end.like[0]) if out is None and end.like is not None else out
            for end, out in zip(self.targets, outs, strict=True)
        ]

    def point_at(self, sources: Arrays, targets: Arrays) -> None:
        """Take these arrays for the next run."""
        for end, array in zip(self.ends, (*targets, *sources), strict=True):
            end.point_at(array)

    # Running

    def is_set_apart(self, source: Any) -> bool:
        """Whether other ranks did otherwise than recorded when this array was moved."""
        return any(one() is source for one in self.mismatched)

    def set_apart(self) -> None:
        """Do not take the call again for the arrays that it has just moved."""
        self.mismatched.append(self.sources[0].last)
        for end in self.ends:
            end.forget()

    def run(self, sources: Arrays, results: Arrays, timeout_s: float | None) -> bool:
        """**Collective.** Move between the arrays that the call was pointed at, which these are.

        False if other ranks did otherwise than when this was recorded; the data have come all the same.
        """
        state, meeting = self.state, self.meeting
        state.at, state.entered, state.seq = 0, 0, meeting.seq
        answer = self.replay_in_c(self.pointer)
        if answer == kernels.ALL_SAME:
            meeting.seq = state.seq
            return True
        with self.world.operation(timeout_s):
            done, in_place, answer = self._wait(answer)
            if done < len(self.stages) or in_place:
                tiles = tiles_of(self.host.schedule, sources, results)
                self.host.finish(self.token, tiles, done, in_place)
        return answer not in (kernels.CHANGED, kernels.DIFFERENT)

    def _wait(self, answer: int) -> tuple[int, bool, int]:
        """Wait where the kernel waits, and stop it if what was recorded does not apply any more.

        How many stages are done, whether arrays may still be read in place, and the kernel's last answer.
        """
        state, meeting = self.state, self.meeting
        while True:
            meeting.seq = state.seq
            if answer == kernels.ALL_SAME:
                return len(self.stages), False, answer
            if answer == kernels.REFUSED:
                raise TransferError("the system does not let this process read its neighbours")
            if answer == kernels.PAUSED and self._meet_far(self.stage_of[state.at]):
                state.seq, state.at = meeting.seq, state.at + 1
                answer = self.replay_in_c(self.pointer)
                if answer != kernels.NOT_YET:
                    continue
            elif answer in (kernels.PAUSED, kernels.CHANGED, kernels.DIFFERENT):
                done = self._leave(self.stage_of[state.at])
                return *done, kernels.CHANGED
            answer = meeting.wait_until(lambda: int(self.replay_in_c(self.pointer)))

    def _meet_far(self, number: int) -> bool:
        """**Collective.** Meet by letters; whether the neighbours' arrays are of the kinds they were."""
        replay, meeting = self.stages[number].replay, self.meeting
        met = meeting.meet(self.token, replay.flag, self.enclosed[number])
        if met is Met.DISAGREE:
            raise Disagreement
        near, said = self.world.node.ranks, replay.descriptions
        return len(near) == 1 or all(meeting.flag_of(rank) == (rank in said) for rank in near)

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


class RecordedMove(RecordedCall):
    """A call with one array: the same without loops, as it is repeated most."""

    def is_again(self, sources: Arrays, outs: Arrays) -> bool:
        """Whether these are the very arrays of the last call, as they were."""
        local, out, source, target = sources[0], outs[0], self.sources[0], self.targets[0]
        return (
            local is not None
            and out is not None
            and source.last() is local
            and target.last() is out
            and (local.dtype, local.shape, local.strides) == source.like
            and (out.dtype, out.shape, out.strides) == target.like
            and source.cell.value == source.place
            and target.cell.value == target.place
            and out.flags.writeable
            and self.pages.version == self.version
        )

    def fits(self, sources: Arrays, outs: Arrays) -> bool:
        """Whether a call with these arrays can be run so; ``out`` is None if it would be new."""
        local, out, target = sources[0], outs[0], self.targets[0]
        if self.pages.version != self.version or not self.sources[0].fits(local):
            return False
        if out is None:
            return self.are_new_like and not target.is_fixed
        return (
            target.fits(out)
            and out.flags.writeable
            and (local is None or not np.may_share_memory(local, out))
        )

    def results(self, outs: Arrays) -> Arrays:
        """The array for the result, a new one if there is none yet."""
        out, like = outs[0], self.targets[0].like
        return outs if out is not None or like is None else (np.empty(like[1], like[0]),)

    def point_at(self, sources: Arrays, targets: Arrays) -> None:
        """Take these arrays for the next run."""
        self.sources[0].point_at(sources[0])
        self.targets[0].point_at(targets[0])
