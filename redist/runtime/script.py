"""A call as one list of operations for the compiled kernel, written down after it ran once.

A repeated call with arrays like those of the call before then costs a few checks and one call into
C: stage, meet, look whether the neighbours' arrays are where they were, fetch, meet again.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.runtime import kernels
from redist.runtime.moves import Moves, address_of
from redist.runtime.program import READ, SHARED
from redist.runtime.reduce import kernel_code
from redist.runtime.stage import Call, Stage
from redist.runtime.world import SLICE_NS

Array = NDArray[Any]


class Script:
    """One way to repeat a call of a stage with one array: same dtype, shape and strides.

    Where the neighbours read this rank's array in place, it must also be the same array.
    """

    def __init__(
        self, stage: Stage, call: Call, source: Array | None, target: Array | None, word: int
    ) -> None:
        world = stage.world
        assert world.kernels is not None
        self.stage, self.world, self.call = stage, world, call
        self.said = 2 * word + call.flag
        flags = (call.kinds[rank, 0] in (SHARED, READ) for rank in world.node)
        self.words = np.array([2 * word + flag for flag in flags], dtype=np.uint64)
        self.like = _likeness(source)
        self.out_like = _likeness(target)
        self.is_new_like = target is None or target.flags.c_contiguous
        self.tables = stage.tables(call)
        self.last = _weak(source), _weak(target)
        self.bases = np.array([address_of(table) for table in self.tables], dtype=np.uintp)
        self.ops = self._write()
        table, ops = address_of(self.bases), address_of(self.ops)
        # As the structure `script` in kernels.c; the first three say where it stands.
        numbers = (0, 0, 0, ops, len(self.ops), table, world.table, len(world.node), world.place)
        self.state: NDArray[np.int64] = np.array([*numbers, SLICE_NS], dtype=np.int64)
        self.pointer = address_of(self.state)
        self.run_script = world.kernels.script
        self.version = world.version

    def _write(self) -> NDArray[np.int64]:
        world, call = self.world, self.call
        ops: list[tuple[int, int, int, int, int]] = []

        def copy(moves: Moves, ahead: int) -> None:
            if len(moves):
                rows, n = moves.pointer
                ops.append((kernels.COPY, rows, n, ahead, int(moves.streams)))

        for number, round_ in enumerate(call.rounds):
            copy(round_.stage, 1)
            words = address_of(self.words) if number == 0 else 0
            ops.append((kernels.MEET, self.said if number == 0 else 0, words, 0, 0))
            if number == 0:
                for rank in world.node:
                    if rank != world.rank and call.kinds[rank, 0] in (SHARED, READ):
                        rows = [board[:1] for board in world.boards[rank].descriptions]
                        even, odd, same = map(address_of, (*rows, call.descriptions[rank]))
                        ops.append((kernels.CHECK, even, odd, same, rows[0].nbytes))
            copy(round_.copies, 0)
            for rank, moves in round_.reads:
                places, n = moves.pointer
                ops.append((kernels.READ, places, n, world.pids[rank], 0))
            for combine in round_.combines:
                code = kernel_code(combine.op, combine.dtype)
                assert code is not None
                places, n = combine.moves.pointer
                ops.append((kernels.COMBINE, places, n, code, 0))
        if call.in_place:
            ops.append((kernels.MEET, 0, 0, 0, 0))
        return np.array(ops, dtype=np.int64)

    def is_again(self, local: Any, out: Any) -> bool:
        """Whether these are the very arrays of the last call, as they were."""
        return (
            local is not None
            and out is not None
            and self.last[0]() is local
            and self.last[1]() is out
            and (local.dtype, local.shape, local.strides) == self.like
            and (out.dtype, out.shape, out.strides) == self.out_like
            and self.world.version == self.version
        )

    def fits(self, local: Any, out: Any) -> bool:
        """Whether a call can go this way; ``out`` may be None where it would be new."""
        if self.like is None:
            good = local is None
        else:
            good = (
                type(local) is np.ndarray
                and (local.dtype, local.shape, local.strides) == self.like
                and (not self.call.flag or self.last[0]() is local)
            )
        if good and out is not None:
            good = (
                type(out) is np.ndarray
                and (out.dtype, out.shape, out.strides) == self.out_like
                and out.flags.writeable
                and (local is None or not np.may_share_memory(local, out))
            )
        return good and (out is not None or self.is_new_like) and self.world.version == self.version

    def new(self) -> Any:
        """A new array for the result."""
        return None if self.out_like is None else np.empty(self.out_like[1], self.out_like[0])

    def point_at(self, local: Any, out: Any) -> None:
        """Take these arrays for the next run."""
        tables = self.tables
        if local is not None:
            tables[0][1] = tables[1][1] = address_of(local)
        if out is not None:
            tables[0][0] = tables[1][0] = address_of(out)
        self.last = _weak(local), _weak(out)

    def run(self, timeout_s: float | None) -> bool:
        """Move; whether neighbours may still be reading arrays in place."""
        world, state = self.world, self.state
        if self.call.flag:
            self.stage.describe_again(self.call, (world.seq + 1) & 1)
        state[0], state[1], state[2] = 0, 0, world.seq
        answer = self.run_script(self.pointer)
        if answer == kernels.ALL_SAME:
            world.seq = int(state[2])
            return False
        return self._go_on(answer, timeout_s)

    def _go_on(self, answer: int, timeout_s: float | None) -> bool:
        """Wait where the script waits; leave it where it does not apply any more."""
        world, state = self.world, self.state
        while True:
            world.seq = int(state[2])
            if answer == kernels.ALL_SAME:
                return False
            if answer == kernels.REFUSED:
                raise TransferError(
                    "the system does not let this process read its neighbours any more"
                )
            if answer in (kernels.CHANGED, kernels.DIFFERENT):
                met = world.judge(kernels.DIFFERENT, self.said)
                self.stage.take_over(self.tables[world.seq & 1])
                return self.stage.go_on(met, self.call.flag, self.call.strides, timeout_s)
            answer = world.patiently(lambda: int(self.run_script(self.pointer)), timeout_s)


def _weak(array: Any) -> Any:
    """A reference that keeps no memory alive."""
    return _nothing if array is None else weakref.ref(array)


def _nothing() -> None:
    return None


def _likeness(array: Array | None) -> tuple[Any, ...] | None:
    return None if array is None else (array.dtype, array.shape, array.strides)
