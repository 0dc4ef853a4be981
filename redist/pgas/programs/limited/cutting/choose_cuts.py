"""Choose which memories of a program lie in blocks, and along which dim each is cut.

A memory is cut along one dim, everywhere in the program; dims that share a label in some task are cut at the
same places. What some task needs as a whole stays whole.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redist.pgas.ghosts.tape import Ref, Task, TaskKind, refs_in
from redist.pgas.programs.capture import Capture
from redist.pgas.programs.limited.cutting.cut_rules import (
    CutRule,
    Label,
    Slot,
    dim_in_view,
    rule_of,
)
from redist.pgas.programs.limited.listing import ListedTasks
from redist.text.units import ceil_div

FILE_BLOCK = 4096
"""Blocks of arguments begin with a block of the file where that is cheap."""
Place = tuple[int, int]
"""A memory and one of its dims."""
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """An operand of a task: where it stands, its value, its memory, and the labels of their dims."""

    slot: Slot | None
    value: int
    memory: int
    labels: tuple[Label | None, ...]
    label_of: Mapping[int, Label]


@dataclass(frozen=True, slots=True, eq=False)
class CuttableTask:
    """A task with its rule; the operand without a slot is what it makes."""

    task: Task
    rule: CutRule
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Cuts:
    """The dim along which each memory is cut, and where."""

    dims: Mapping[int, int]
    ranges: Mapping[int, Ranges]

    def labels_of(self, one: CuttableTask) -> dict[Label, Ranges]:
        """The labels of a task that are cut, those of its result first."""
        found: dict[Label, Ranges] = {}
        for operand in one.operands:
            dim = self.dims.get(operand.memory)
            if dim is not None:
                found[operand.label_of[dim]] = self.ranges[operand.memory]
        order = [*(label for label in one.rule.kept if label in found)]
        return {label: found[label] for label in (*order, *(x for x in found if x not in order))}


@dataclass(slots=True)
class CutChooser:
    """What is known of a program before anything is cut."""

    listed: ListedTasks
    captured: Capture
    arguments: Mapping[int, int]
    """Arguments that may lie in blocks, by memory: the dim along which a block is in one piece."""
    whole: frozenset[int]
    """Memories that must be there as a whole at the end."""
    tasks: dict[Task, CuttableTask] = field(default_factory=dict)
    """Those that can be cut."""
    _stuck: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        shapes, made = self.captured.shapes, set(self.arguments)
        for task in self.listed.tasks:
            if task.kind is TaskKind.NEW and task.out is not None:
                made.add(task.out)
                continue
            rule = None if task.parts else rule_of(task, shapes)
            found = None if rule is None else self._with_operands(task, rule)
            if found is None:
                self._stuck |= {*task.reads, *task.writes}
                continue
            self.tasks[task] = found
            named = {operand.value for operand in found.operands}
            self._stuck |= {
                self.listed.bases.get(n, n)
                for n in refs_in((task.args, task.options))
                if n not in named
            }
            made |= {task.out} if task.kind is TaskKind.PURE and task.out is not None else set()
        inputs = {n for n in self.captured.inputs if n is not None} - set(self.arguments)
        self._stuck |= self.whole | inputs | (set(shapes) - made)

    def _with_operands(self, task: Task, rule: CutRule) -> CuttableTask | None:
        found: list[Operand] = []
        for slot, labels in rule.operands:
            ref = task.options[slot] if isinstance(slot, str) else task.args[slot]
            if isinstance(ref, Ref):
                found.append(self._operand(slot, ref.number, labels))
        if rule.written is None:
            if task.out is None or self.listed.bases.get(task.out) != task.out:
                return None
            found.append(self._operand(None, task.out, rule.kept))
        else:  # read and written in one way only
            written = next(one for one in found if one.slot == rule.written)
            same = [one for one in found if one.memory == written.memory]
            if any(one.value != written.value or one.labels != written.labels for one in same):
                return None
            if written.value != written.memory:
                return None
        return CuttableTask(task, rule, tuple(found))

    def _operand(self, slot: Slot | None, value: int, labels: Sequence[Label | None]) -> Operand:
        memory = self.listed.bases.get(value, value)
        shape, views = self.captured.shapes.get(memory, ()), self.listed.ways.get(value, ())
        label_of = {}
        for dim in range(len(shape)):
            there = dim_in_view(views, shape, dim)
            label = labels[there] if there is not None and there < len(labels) else None
            if label is not None:
                label_of[dim] = label
        return Operand(slot, value, memory, tuple(labels), label_of)

    @property
    def largest_bytes(self) -> int:
        """The largest memory that may be cut."""
        n_bytes = self.captured.n_bytes
        memories = {one.memory for task in self.tasks.values() for one in task.operands}
        return max((n_bytes.get(one, 0) for one in memories - self._stuck), default=0)

    def n_tasks(self, cuts: Cuts) -> int:
        """How many tasks there are if memories are cut so."""
        cut = (math.prod(map(len, cuts.labels_of(one).values())) for one in self.tasks.values())
        return len(self.listed.tasks) - len(self.tasks) + sum(cut)

    # Choosing

    def choose(self, block_bytes: int, most_blocks: int) -> Cuts:
        """**Local.** Cut what is larger than a block, as far as tasks allow it."""
        forbidden: set[Place] = set()
        while True:
            dims = self._dims(block_bytes, forbidden)
            wrong = self._refused(dims)
            if not wrong:
                return Cuts(dims, self._ranges(dims, block_bytes, most_blocks))
            forbidden |= wrong

    def _dims(self, block_bytes: int, forbidden: set[Place]) -> dict[int, int]:
        """Dims of large memories: arguments as they lie, results as the largest operand is cut."""
        n_bytes, shapes = self.captured.n_bytes, self.captured.shapes

        def is_large(memory: int) -> bool:
            return memory not in self._stuck and n_bytes.get(memory, 0) > block_bytes

        found = {
            memory: dim
            for memory, dim in self.arguments.items()
            if is_large(memory) and (memory, dim) not in forbidden and shapes[memory][dim] > 1
        }
        for cuttable in self.tasks.values():
            for operand in cuttable.operands:
                memory = operand.memory
                if memory in found or memory in self.arguments or not is_large(memory):
                    continue
                like = self._inherited(cuttable, operand, found)
                wanted, shape = ceil_div(n_bytes[memory], block_bytes), shapes[memory]
                fine = [dim for dim, n in enumerate(shape) if n >= wanted]
                for dim in (*(() if like is None else (like,)), *fine, *range(len(shape))):
                    if (memory, dim) not in forbidden and shape[dim] > 1:
                        found[memory] = dim
                        break
        return found

    def _inherited(
        self, one: CuttableTask, operand: Operand, dims: Mapping[int, int]
    ) -> int | None:
        """The dim of an operand that has the label along which the largest of the others is cut."""
        cut = [other for other in one.operands if other.memory in dims]
        cut.sort(key=lambda other: -self.captured.n_bytes.get(other.memory, 0))
        for other in cut:
            label = other.label_of.get(dims[other.memory])
            for dim, its in operand.label_of.items():
                if its == label:
                    return dim
        return None

    def _refused(self, dims: Mapping[int, int]) -> set[Place]:
        """Cuts that some task does not allow."""
        wrong: set[Place] = set()
        for one in self.tasks.values():
            rule = one.rule
            for operand in one.operands:
                dim = dims.get(operand.memory)
                if dim is None:
                    continue
                label = operand.label_of.get(dim)
                joins = rule.joined_by is not None or rule.adds is not None
                is_free = label not in rule.fixed and (joins or label not in rule.lost)
                if label is None or not is_free:
                    wrong.add((operand.memory, dim))
        return wrong

    def _ranges(
        self, dims: Mapping[int, int], block_bytes: int, most_blocks: int
    ) -> dict[int, Ranges]:
        """Where memories are cut: those that meet in a task at the same places."""
        leader: dict[Place, Place] = {}

        def find(place: Place) -> Place:
            while leader.setdefault(place, place) != place:
                place = leader[place]
            return place

        for one in self.tasks.values():
            by_label: dict[Label, Place] = {}
            for operand in one.operands:
                for dim, label in operand.label_of.items():
                    place = operand.memory, dim
                    leader[find(place)] = find(by_label.setdefault(label, place))
        groups: dict[Place, list[Place]] = defaultdict(list)
        for place in dims.items():
            groups[find(place)].append(place)
        out: dict[int, Ranges] = {}
        for places in groups.values():
            size = self.captured.shapes[places[0][0]][places[0][1]]
            largest = max(self.captured.n_bytes[memory] for memory, _ in places)
            count = max(1, min(size, most_blocks, ceil_div(largest, block_bytes)))
            each = ceil_div(size, count)
            for memory, _ in places:
                if memory in self.arguments:
                    row = max(1, self.captured.n_bytes[memory] // size)
                    whole = FILE_BLOCK // math.gcd(row, FILE_BLOCK)
                    each = each // whole * whole if each >= 2 * whole else each
            ranges = tuple((low, min(size, low + each)) for low in range(0, size, each))
            out |= {memory: ranges for memory, _ in places}
        return out
