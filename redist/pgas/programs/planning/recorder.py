"""Note the calls of a program while it is captured: what each needs and makes, and in which types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from redist.errors import CaptureError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.pgas.ghosts.structures import found_in, replaced
from redist.pgas.ghosts.tape import Task, current_tape
from redist.pgas.tiles.arranging import ArrangedCall, Types, arranging
from redist.pgas.tiles.move import move
from redist.pgas.tiles.tiled import Tiled


@dataclass(frozen=True, slots=True, eq=False)
class ProgramCall:
    """A call: which values it needs and makes, the types it was done in, and the memory of each.

    Values are numbered as they come up; those that no call makes have negative numbers.
    """

    call: ArrangedCall
    node: int
    operands: tuple[int, ...]
    results: tuple[int, ...]
    types: Types
    """Of its operands when it was called."""
    wanted: Types
    """Of its operands when it was done."""
    made: Types
    operand_roots: tuple[int | None, ...]
    result_roots: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """The types that a plan has for a call: of operands, of what it makes, and in which others find that.

    ``chooses`` says that the function itself decides what it does with its operands.
    """

    name: str
    wanted: Types
    made: Types
    homes: Types
    chooses: bool


@dataclass(slots=True, eq=False)
class CallRecorder:
    """Notes calls, and has them done as functions would choose, or as a plan says."""

    plan: Sequence[PlannedCall] = ()
    held: Collection[tuple[int, int]] = ()
    """Operands that must not be moved, by call and place: their memory is written."""
    decisions: list[Any] = field(default_factory=list)
    calls: list[ProgramCall] = field(default_factory=list)
    sources: list[ArrayType] = field(default_factory=list)
    """Of values that no call makes, the types that they came in."""
    results: list[int | None] = field(default_factory=list)
    """The values that the program gives."""
    result_types: list[tuple[tuple[int, ...], DType]] = field(default_factory=list)
    _n_decided: int = 0
    _n_values: int = 0
    _numbers: dict[int, int] = field(default_factory=dict)
    _seen: list[Tiled] = field(default_factory=list)
    """Arrays with numbers: they stay, so that no other gets their place."""

    def call(self, call: ArrangedCall) -> Any:
        """**Local.** Do a call in the types that are chosen for it."""
        at = len(self.calls)
        operands = tuple(map(self._number, call.arrays))
        types = tuple(x.type for x in call.arrays)
        planned = self._planned(at, call)
        wanted, made = types, None
        if planned is not None:
            wanted, made = planned.wanted, None if planned.chooses else planned.made[0]
        elif call.choose is not None:
            wanted, made = call.choose(types)
        arrays = [
            x if (at, k) in self.held else move(x, t, asked=True)
            for k, (x, t) in enumerate(zip(call.arrays, wanted, strict=True))
        ]
        with arranging(None):
            result = call.run(arrays, made)
        given = found_in(result, (Tiled,))
        made_types = tuple(x.type for x in given)
        if planned is not None and made_types == planned.made:
            homes = iter(planned.homes)
            result = replaced(result, (Tiled,), lambda x: move(x, next(homes), asked=True))
            given = found_in(result, (Tiled,))
        tape = current_tape()
        node = 0 if tape is None else tape.current_node()
        results = tuple(self._new_number(x) for x in given)
        own = tuple(map(_root, call.arrays)), tuple(map(_root, given))
        done = tuple(x.type for x in arrays)
        self.calls.append(ProgramCall(call, node, operands, results, types, done, made_types, *own))
        return result

    def decide(self, make: Callable[[], Any]) -> Any:
        """**Local.** What was decided in the capture before, or is decided now."""
        self._n_decided += 1
        if self._n_decided > len(self.decisions):
            self.decisions.append(make())
        return self.decisions[self._n_decided - 1]

    def finish(self, result: Any) -> None:
        """**Local.** Note which values the program gives; None for one that no call was given or made."""
        arrays = found_in(result, (Tiled,))
        self.results = [self.number_of(x) for x in arrays]
        self.result_types = [(x.shape, x.type.dtype) for x in arrays]

    def sources_of(self, arrays: Sequence[Tiled]) -> list[int]:
        """The numbers of arrays that calls were given; those that none was given have none."""
        numbers = (self.number_of(x) for x in arrays)
        return [number for number in numbers if number is not None and number < 0]

    def without_arrays(self) -> CallRecorder:
        """**Local.** What was noted, for those who only read it: no array is kept."""
        calls = [
            replace(one, call=replace(one.call, arrays=(), run=_is_over, choose=None, key=None))
            for one in self.calls
        ]
        noted = self.sources, self.results, self.result_types
        return CallRecorder((), (), [], calls, *noted)

    def number_of(self, x: Tiled) -> int | None:
        """The number of an array that calls were given or made."""
        return self._numbers.get(id(x))

    def _planned(self, at: int, call: ArrangedCall) -> PlannedCall | None:
        if not self.plan:
            return None
        if at >= len(self.plan) or self.plan[at].name != call.name:
            raise CaptureError(f"cannot follow a plan: call {at} is {call.name}, not as before")
        return self.plan[at]

    def _number(self, x: Tiled) -> int:
        if id(x) not in self._numbers:
            self._numbers[id(x)] = ~len(self.sources)
            self.sources.append(x.type)
            self._seen.append(x)
        return self._numbers[id(x)]

    def _new_number(self, x: Tiled) -> int:
        self._numbers[id(x)] = self._n_values
        self._seen.append(x)
        self._n_values += 1
        return self._n_values - 1


def _is_over(arrays: Sequence[Tiled], made: ArrayType | None) -> Any:
    raise CaptureError("cannot repeat a call of a program whose layouts are decided")


def written_elsewhere(tasks: Sequence[Task], inputs: Sequence[int | None]) -> set[int]:
    """Memory that is written by another call than the one that made it, or that was there before."""
    makers: dict[int, int] = {number: -1 for number in inputs if number is not None}
    found: set[int] = set()
    for task in tasks:
        if task.out is not None:
            makers.setdefault(task.out, task.node)
        found.update(root for root in task.writes if makers.get(root) != task.node)
    return found


def calls_to_leave(
    calls: Sequence[ProgramCall], written: Collection[int]
) -> tuple[set[int], set[tuple[int, int]]]:
    """The calls that touch memory which is written, or are fixed; and which operands have such memory."""
    held = {
        (n, k)
        for n, one in enumerate(calls)
        for k, root in enumerate(one.operand_roots)
        if root in written
    }
    left = {
        n for n, one in enumerate(calls) if one.call.fixed or set(one.result_roots) & {*written}
    }
    return left | {n for n, _ in held}, held


def _root(x: Tiled) -> int | None:
    tile: Any = x.tile
    return None if tile is None else tile.root
