"""A call as one list of operations for the compiled kernel, written down after it ran once.

A repeated call with arrays like those of the call before then costs a few checks and one call into
C: describe, stage, meet, look whether the neighbours' arrays are where they were, fetch, meet again.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.runtime.copies import kernels
from redist.runtime.copies.addresses import address_of
from redist.runtime.copies.copy_list import CopyList
from redist.runtime.copies.reduce import kernel_code
from redist.runtime.copies.script import Description, Operation, Script
from redist.runtime.host.stage import MOST_ROUNDS, Stage, StageRecord
from redist.runtime.ranks.world import SLICE_NS, Disagreement
from redist.runtime.schedule.compiler import PRIVATE, SHARED
from redist.runtime.schedule.stages import TransferStages

AnyArray = NDArray[Any]
AddressTables = tuple[NDArray[np.uintp], NDArray[np.uintp]]
LOCAL, OUT, FIXED = range(3)
"""Whose array a stage reads or writes: the caller's source, the caller's target, or a tile between."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedStage:
    """One stage of a script: how it went, and whose arrays it reads and writes."""

    stage: Stage
    call: StageRecord
    reads: int
    writes: int


def scenes_of(stages: Sequence[Stage], route: TransferStages, keeps: bool) -> list[RecordedStage]:
    """A call as it went, stage by stage; empty where it cannot be written down."""
    whose = {0: LOCAL, route.last(0): OUT}
    scenes = []
    for stage, (leg,) in zip(stages, route.stages, strict=True):
        between = {leg.source, leg.target} - set(whose)
        if stage.last is None or (between and not keeps):
            return []
        reads, writes = whose.get(leg.source, FIXED), whose.get(leg.target, FIXED)
        scenes.append(RecordedStage(stage, stage.last, reads, writes))
    return scenes if can_repeat(scenes) else []


def can_repeat(scenes: Sequence[RecordedStage]) -> bool:
    """Whether a call is nothing but what the kernel can do."""
    for scene in scenes:
        if any(load.phase.fills for load in scene.stage.loads) or len(scene.stage.loads) > 1:
            return False
        if len(scene.call.rounds) > MOST_ROUNDS:
            return False
        for round_ in scene.call.rounds:
            if any(kernel_code(c.op, c.dtype) is None for c in round_.combines):
                return False
    return True


class RecordedCall:
    """One way to repeat a call with one array: same dtype, shape and strides.

    Where the neighbours read this rank's arrays in place, they must also be the same arrays.
    """

    def __init__(
        self,
        scenes: Sequence[RecordedStage],
        source: AnyArray | None,
        target: AnyArray | None,
        word: int,
        meets: bool,
        waits: bool,
    ) -> None:
        world = scenes[0].stage.world
        assert world.kernels is not None
        self.scenes, self.world, self.word = tuple(scenes), world, word
        self.like = _likeness(source)
        self.out_like = _likeness(target)
        self.is_new_like = target is None or target.flags.c_contiguous
        flagged = {scene.reads for scene in scenes if scene.call.flag}
        self.same_source, self.same_out = LOCAL in flagged, OUT in flagged
        self.tables = [scene.stage.tables(scene.call) for scene in scenes]
        self.last = _weak(source), _weak(target)
        self.places = _place(source), _place(target)
        self.kept: list[AnyArray] = []
        self.at: list[int] = []
        """Of every operation, its scene."""
        ops = self._write(meets, waits)
        self.ops = (Operation * len(ops))(*ops)
        self.state = Script(
            operations=ctypes.addressof(self.ops),
            n_operations=len(ops),
            control=world.table,
            n=len(world.node),
            me=world.place,
            wait_ns=SLICE_NS,
        )
        self.pointer = ctypes.addressof(self.state)
        self.run_script = world.kernels.script
        self.version = world.version

    def _write(self, meets: bool, waits: bool) -> list[Operation]:
        ops: list[Operation] = []
        if meets:
            ops.append(Operation.meet_with(2 * self.word))
        for number, scene in enumerate(self.scenes):
            ops += self._scene(scene, self.tables[number])
            self.at += [number] * (len(ops) - len(self.at))
        if waits:
            ops.append(Operation.meet_with())
            self.at.append(len(self.scenes))
        return ops

    def _scene(self, scene: RecordedStage, tables: AddressTables) -> list[Operation]:
        """The operations of a stage."""
        world, call = self.world, scene.call
        bases = np.array([address_of(table) for table in tables], dtype=np.uintp)
        self.kept.append(bases)
        where = address_of(bases)
        ops: list[Operation] = []

        def copy(moves: CopyList, is_ahead: bool = False) -> None:
            if len(moves):
                ops.append(
                    Operation.copy(moves.pointer, where, is_ahead=is_ahead, streams=moves.streams)
                )

        if scene.stage.is_local:
            copy(call.rounds[0].copies)
            return ops
        flags = {rank: call.kinds[rank, 0] in (SHARED, PRIVATE) for rank in world.node}
        words = np.array([2 * self.word + flags[rank] for rank in world.node], dtype=np.uint64)
        self.kept.append(words)
        if call.flag:
            ops.append(Operation.describe(self._description(call, world.rank)))
        for number, round_ in enumerate(call.rounds):
            copy(round_.stage, is_ahead=True)
            if number == 0:
                said = 2 * self.word + call.flag
                ops.append(Operation.meet_with(said, address_of(words)))
                for rank in world.node:
                    if rank != world.rank and flags[rank]:
                        ops.append(Operation.check(self._description(call, rank)))
            else:
                ops.append(Operation.meet_with())
            copy(round_.copies)
            for rank, moves in round_.reads:
                ops.append(Operation.read(moves.pointer, where, world.pids[rank]))
            for combine in round_.combines:
                code = kernel_code(combine.op, combine.dtype)
                assert code is not None
                ops.append(Operation.combine(combine.moves.pointer, where, code))
        return ops

    def _description(self, call: StageRecord, rank: int) -> Description:
        """Where a rank describes its array, for even and odd meetings, and how it did."""
        rows = [board[:1] for board in self.world.boards[rank].descriptions]
        even, odd, same = map(address_of, (*rows, call.descriptions[rank]))
        return Description(even, odd, same, rows[0].nbytes)

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
            and self.world.version == self.version
        )

    def fits(self, local: Any, out: Any) -> bool:
        """Whether a call can go this way; ``out`` may be None where it would be new."""
        if self.world.version != self.version:
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

    def new(self) -> Any:
        """A new array for the result."""
        return None if self.out_like is None else np.empty(self.out_like[1], self.out_like[0])

    def point_at(self, local: Any, out: Any) -> None:
        """Take these arrays for the next run."""
        places = {LOCAL: local, OUT: out}
        for scene, tables in zip(self.scenes, self.tables, strict=True):
            bases = scene.stage.bases
            for whose, base in ((scene.writes, bases.target(0)), (scene.reads, bases.source(0))):
                array = places.get(whose)
                if array is not None:
                    tables[0][base] = tables[1][base] = address_of(array)
        self.last = _weak(local), _weak(out)
        self.places = _place(local), _place(out)

    def run(self, timeout_s: float | None) -> tuple[int, bool]:
        """Move; how many stages are done, and whether arrays may still be read in place."""
        world, state = self.world, self.state
        state.at, state.entered, state.seq = 0, 0, world.seq
        answer = self.run_script(self.pointer)
        if answer == kernels.ALL_SAME:
            world.seq = state.seq
            return len(self.scenes), False
        return self._go_on(answer, timeout_s)

    def _go_on(self, answer: int, timeout_s: float | None) -> tuple[int, bool]:
        """Wait where the script waits; leave it where it does not apply any more."""
        world, state = self.world, self.state
        while True:
            world.seq = state.seq
            if answer == kernels.ALL_SAME:
                return len(self.scenes), False
            if answer == kernels.REFUSED:
                raise TransferError("the system does not let this process read its neighbours")
            if answer in (kernels.CHANGED, kernels.DIFFERENT):
                return self._leave(self.at[state.at], timeout_s)
            answer = world.patiently(lambda: int(self.run_script(self.pointer)), timeout_s)

    def _leave(self, number: int, timeout_s: float | None) -> tuple[int, bool]:
        """End the stage that the script is in on the long way."""
        world = self.world
        if number == len(self.scenes):
            raise TransferError("ranks have lost step with each other")
        stage, call = self.scenes[number].stage, self.scenes[number].call
        if stage.is_local:
            raise Disagreement
        met = world.judge(kernels.DIFFERENT, 2 * self.word + call.flag)
        stage.take_over(self.tables[number][world.seq & 1])
        return number + 1, stage.go_on(met, call.flag, call.strides, timeout_s)


def _weak(array: Any) -> Any:
    """A reference that keeps no memory alive."""
    return _nothing if array is None else weakref.ref(array)


def _place(array: Any) -> int:
    return 0 if array is None else address_of(array)


def _nothing() -> None:
    return None


def _likeness(array: AnyArray | None) -> tuple[Any, ...] | None:
    return None if array is None else (array.dtype, array.shape, array.strides)
