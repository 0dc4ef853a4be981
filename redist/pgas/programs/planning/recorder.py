"""Note the calls of a captured program: what each needs and makes; and do them again, in other types."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from redist.arrange.layout_plan import LayoutPlan
from redist.errors import CaptureError
from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.tape import CapturedNode, Ref, Tape, Task, current_tape
from redist.pgas.memory import TileMemory
from redist.pgas.structures import found_in, replaced
from redist.pgas.tiles.arranging import ArrangedCall, Types, arranging, current_arranger
from redist.pgas.tiles.move import move
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.world import Comm


@dataclass(frozen=True, slots=True, eq=False)
class ProgramCall:
    """A call that was done: which values it needs and makes, the types it was done in, the memory of each.

    Values are numbered as they come up; those that no call makes of others have negative numbers.
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
    kinds: tuple[tuple[bool, Comm], ...]
    """Of its operands: whether they lie on GPUs, and their ranks."""


@dataclass(slots=True, eq=False)
class CallRecorder:
    """Notes the calls of a program, and does them again: the function itself runs once.

    Calls are done as functions would choose, or, if those noted ``before`` are done again, as a plan says.
    Then calls in ``left`` find their operands as before.
    """

    before: CallRecorder | None = None
    plan: LayoutPlan | None = None
    left: Collection[int] = ()
    held: Collection[tuple[int, int]] = ()
    """Operands that must not be moved, by call and place: their memory is written."""
    calls: list[ProgramCall] = field(default_factory=list)
    """Those that are planned: calls with operands."""
    steps: list[ProgramCall] = field(default_factory=list)
    """All calls in order, also those that make arrays of nothing."""
    sources: list[ArrayType] = field(default_factory=list)
    """Of values that no call makes of others, the types that they came in."""
    begins: dict[int, int] = field(default_factory=dict)
    """By value: which of the arrays that the program was given, or reaches, it is."""
    results: list[int | None] = field(default_factory=list)
    """The values that the program gives; None for one that no call was given or made."""
    result: Any = None
    """What the program gives, with references to values in the places of arrays."""
    nodes: list[CapturedNode] = field(default_factory=list)
    odd: str = ""
    """Why the calls cannot be done again; nothing if they can."""
    _n_tasks: int = 0
    """This many tasks belong to calls."""
    _n_values: int = 0
    _numbers: dict[int, int] = field(default_factory=dict)
    _seen: list[Tiled] = field(default_factory=list)
    """Arrays with numbers: they stay until the end, so that no other gets their place."""
    _given: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By array that no call has made: its number, and the call that was given it first."""

    def wants(self, memory: TileMemory) -> bool:
        """**Local.** Calls of a program are on arrays without values."""
        return memory.is_ghost

    def call(self, call: ArrangedCall, given: Sequence[Tiled]) -> Any:
        """**Local.** Do a call in the types that are chosen for it."""
        tape = self._tape_in_calls()
        tape.nodes[tape.current_node()].numbers += call.numbers
        at, types = len(self.calls), tuple(x.type for x in given)
        operands = tuple(self._number(x, call.name) for x in given)
        wanted, planned = self._chosen(at, call, types)
        arrays = [
            x if (at, k) in self.held else move(x, t, asked=True)
            for k, (x, t) in enumerate(zip(given, wanted, strict=True))
        ]
        with arranging(None):
            result = call.run(arrays, planned)
        made = tuple(x.type for x in found_in(result, (Tiled,)))
        if self.plan is not None and given and at not in self.left:
            result = self._at_home(at, result, made)
        found = found_in(result, (Tiled,))
        number = self._new_value if given else self._new_source
        one = ProgramCall(
            call, tape.current_node(), operands, tuple(map(number, found)),
            types, tuple(x.type for x in arrays), made, tuple(map(_root, given)),
            tuple(map(_root, found)), tuple((x.memory.on_device, x.comm) for x in given),
        )  # fmt: skip
        self.steps.append(one)
        if given:
            self.calls.append(one)
        self._n_tasks = len(tape.tasks)
        return result

    def again(self, *arrays: Tiled) -> Any:
        """**Local.** Do the calls again, on other arrays and by the arranger in force; what they give."""
        arranger, tape = current_arranger(), current_tape()
        assert arranger is not None and tape is not None
        if self.odd:
            raise CaptureError(self.odd)
        tape.nodes += [CapturedNode(node.name, node.line) for node in self.nodes]
        values = {number: arrays[at] for number, at in self.begins.items()}
        for one in self.steps:
            operands = [values[number] for number in one.operands]
            with tape.standing_in(one.node):
                made = arranger.call(one.call, operands)
            values.update(zip(one.results, found_in(made, (Tiled,)), strict=True))
        return replaced(self.result, (Ref,), lambda ref: values[ref.number])

    def finish(self, result: Any, arrays: Sequence[Tiled]) -> None:
        """**Local.** Note what the program gives, and which value each array is; let go the arrays."""
        tape = self._tape_in_calls()
        places = {id(x): at for at, x in enumerate(arrays)}
        for x, (first, name) in self._given.items():
            if x in places:
                self.begins[first] = places[x]
            else:
                self._is_odd(f"{name} is given an array that no call has made")

        def value(x: Tiled) -> Ref:
            number = self._numbers.get(id(x))
            if number is None and id(x) in places:
                number = ~(len(self.sources) + places[id(x)])
                self.begins[number] = places[id(x)]
            elif number is None:
                self._is_odd("it gives an array that no call has made")
            return Ref(0 if number is None else number)

        self.results = [self._numbers.get(id(x)) for x in found_in(result, (Tiled,))]
        self.result, self.nodes = replaced(result, (Tiled,), value, init=False), tape.nodes
        self._numbers, self._given, self._seen = {}, {}, []

    def _chosen(self, at: int, call: ArrangedCall, types: Types) -> tuple[Types, ArrayType | None]:
        """The types in which a call is done: of its operands, and of what it makes if that is known."""
        if self.before is not None and types:
            if at in self.left:
                return self.before.calls[at].types, None
            if self.plan is not None:
                value = self.before.calls[at].results
                return self.plan.wanted[at], None if call.form is None else self.plan.made[value[0]]
        return (types, None) if call.choose is None else call.choose(types)

    def _at_home(self, at: int, result: Any, made: Types) -> Any:
        """What a call has made, where a plan has others find it; as it is if other types were made."""
        assert self.before is not None and self.plan is not None
        values, plan = self.before.calls[at].results, self.plan
        if made != tuple(plan.made[value] for value in values):
            return result
        homes = map(plan.home, values)
        return replaced(result, (Tiled,), lambda x: move(x, next(homes), asked=True))

    def _tape_in_calls(self) -> Tape:
        """The tape; what was done since the last call is noted as odd: no call would do it again."""
        tape = current_tape()
        assert tape is not None
        if len(tape.tasks) > self._n_tasks:
            node = tape.nodes[tape.tasks[self._n_tasks].node]
            self._is_odd(f"{node} works on tiles between calls")
            self._n_tasks = len(tape.tasks)
        return tape

    def _is_odd(self, why: str) -> None:
        self.odd = self.odd or f"calls cannot be done again in other layouts: {why}"

    def _number(self, x: Tiled, name: str) -> int:
        if id(x) not in self._numbers:
            self._given[id(x)] = self._new_source(x), name
        return self._numbers[id(x)]

    def _new_source(self, x: Tiled) -> int:
        self.sources.append(x.type)
        return self._keep(x, -len(self.sources))

    def _new_value(self, x: Tiled) -> int:
        self._n_values += 1
        return self._keep(x, self._n_values - 1)

    def _keep(self, x: Tiled, number: int) -> int:
        self._seen.append(x)
        self._numbers[id(x)] = number
        return number


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
