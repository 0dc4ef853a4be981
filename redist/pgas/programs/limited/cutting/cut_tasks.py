"""Write the tasks of a program anew for memories that lie in blocks."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from redist.pgas.ghosts.tape import Ref, Task, TaskKind, refs_in
from redist.pgas.programs.capture import Capture
from redist.pgas.programs.limited.cutting.block_calls import FirstPart, NewBlock, NextPart, Region
from redist.pgas.programs.limited.cutting.choose_cuts import (
    CutChooser,
    Cuts,
    CuttableTask,
    Operand,
    Ranges,
)
from redist.pgas.programs.limited.cutting.cut_rules import Label, LabelRanges, view_of_block
from redist.pgas.programs.limited.listing import ListedTasks, is_view, list_tasks


@dataclass(frozen=True, slots=True, eq=False)
class CutProgram:
    """Tasks on blocks, with what a capture knows of their values; the blocks of every memory that is cut."""

    listed: ListedTasks
    captured: Capture
    cuts: Cuts
    blocks: Mapping[int, Sequence[int]]
    argument_blocks: Mapping[int, Sequence[int]]
    """Those of arguments."""


def cut_tasks(chooser: CutChooser, cuts: Cuts) -> CutProgram:
    """**Local.** The tasks of a program with some memories in blocks; those of one task share its time."""
    writer, before = _Writer(chooser, cuts), chooser.listed
    for task in before.tasks:
        writer.write(task)
    writer.look(before.views_of([*before.ways]))
    captured = replace(
        chooser.captured, roots=writer.roots, shapes=writer.shapes, n_bytes=writer.n_bytes
    )
    inputs, blocks = chooser.captured.inputs, writer.blocks
    given = {memory: blocks[memory] for memory in inputs if memory in blocks}
    there = [one for several in given.values() for one in several]
    listed = list_tasks(writer.out, captured, there)
    return CutProgram(listed, captured, cuts, blocks, given)


class _Writer:
    """Writes tasks one after another, with numbers for blocks and for views of them."""

    def __init__(self, chooser: CutChooser, cuts: Cuts) -> None:
        captured = chooser.captured
        self.chooser, self.cuts, self.captured = chooser, cuts, captured
        self.roots, self.shapes = dict(captured.roots), dict(captured.shapes)
        self.n_bytes = dict(captured.n_bytes)
        self.out: list[Task] = []
        self.blocks: dict[int, list[int]] = {}
        known = [*captured.roots, *(task.out or 0 for task in captured.tasks)]
        known += [task.out or 0 for one in chooser.listed.tasks for task in (one, *one.parts)]
        self._next = count(1 + max(known, default=0))
        self._new: dict[int, Task] = {}
        """By memory: the task that would make all of it, without values."""
        self._there: set[int] = set()
        """Blocks that have been made."""
        self._views: dict[Any, int] = {}
        self._looked: set[Task] = set()
        for memory, ranges in cuts.ranges.items():
            self.blocks[memory] = [self._block(memory, low, high) for low, high in ranges]
            if memory in chooser.arguments:
                self._there.update(self.blocks[memory])

    def _block(self, memory: int, low: int, high: int) -> int:
        number, dim = next(self._next), self.cuts.dims[memory]
        shape = self.captured.shapes[memory]
        self.roots[number] = number
        self.shapes[number] = (*shape[:dim], high - low, *shape[dim + 1 :])
        self.n_bytes[number] = self.captured.n_bytes[memory] // shape[dim] * (high - low)
        return number

    def look(self, views: Sequence[Task]) -> None:
        """Write views of memories that are whole, each once."""
        bases, dims = self.chooser.listed.bases, self.cuts.dims
        for view in views:
            if view not in self._looked and bases[view.args[0].number] not in dims:
                self.out.append(view)
                self._looked.add(view)

    def write(self, task: Task) -> None:
        """Write a task, or those on blocks in its place."""
        self.look(task.views)
        if task.kind is TaskKind.NEW and task.out is not None and task.out in self.cuts.dims:
            self._new[task.out] = task
            return
        one = self.chooser.tasks.get(task)
        labels = {} if one is None else self.cuts.labels_of(one)
        if one is None or not labels:
            self.out += [task, *task.parts]
            return
        before = len(self.out)
        seen: set[Any] = set()
        for index in _snake([len(ranges) for ranges in labels.values()]):
            self._write_block(one, dict(zip(labels, index, strict=True)), labels, seen)
        made = [
            at for at, part in enumerate(self.out) if at >= before and not is_view(part, self.roots)
        ]
        for at in made:
            self.out[at] = replace(self.out[at], time_ps=task.time_ps // len(made))

    def _write_block(
        self,
        one: CuttableTask,
        index: Mapping[Label, int],
        labels: Mapping[Label, Ranges],
        seen: set[Any],
    ) -> None:
        """The task of one block of every label that is cut."""
        box = {label: labels[label][at] for label, at in index.items()}
        rule, task = one.rule, one.task
        if rule.within is not None:
            task = rule.within(task, box)
        made: Operand | None = None
        args, options = list(task.args), dict(task.options)
        for operand in one.operands:
            if operand.slot in (rule.written, None):
                made = operand
                continue
            ref = Ref(self._part(operand, box, index))
            if isinstance(operand.slot, str):
                options[operand.slot] = ref
            else:
                args[operand.slot] = ref
        assert made is not None
        target, region = self._target(made, box, index)
        key = target, tuple((one.start, one.stop) for one in region)
        is_first = key not in seen
        seen.add(key)
        if not is_first and rule.adds is not None:
            task = rule.adds(task)
        task = replace(task, args=tuple(args), options=options)
        if rule.written is None:
            self._make(one, task, target, region, is_first)
        else:
            self._change(one, task, made, target, region, is_first)

    def _make(
        self, one: CuttableTask, task: Task, target: int, region: Region, is_first: bool
    ) -> None:
        """A task that makes its result: of a block, or of a part of what others make other parts of."""
        is_all = all(part == slice(None) for part in region)
        part_bytes = self._bytes_of(target, region) + _work_bytes(task.function)
        if target not in self._there:
            self._there.add(target)
            function = task.function
            if not is_all:
                function = FirstPart(function, self.shapes[target], region, part_bytes)
            self._put(replace(task, function=function, out=target), TaskKind.PURE)
            return
        joined_by = None if is_first else one.rule.joined_by
        function = NextPart(task.function, joined_by, part_bytes)
        into = Ref(self._slice(target, region, task.node))
        args = (into, *task.args)
        self._put(replace(task, function=function, args=args, out=None), TaskKind.WRITE, target)

    def _change(
        self,
        one: CuttableTask,
        task: Task,
        made: Operand,
        target: int,
        region: Region,
        is_first: bool,
    ) -> None:
        """A task that writes memory: that of a block, which it makes if nobody has."""
        slot = one.rule.written
        new = self._new.get(made.memory)
        if target not in self._there and new is not None:
            self._there.add(target)
            _, dtype, _ = new.args
            given = self.shapes[target], dtype, self.n_bytes[target]
            args, options = task.args, {k: v for k, v in task.options.items() if k != slot}
            function = task.function
            if slot == 0:
                args = args[1:]
            call = NewBlock(
                new.function, given, function, slot == "out", region, _work_bytes(function)
            )
            made_by = replace(
                task, function=call, args=args, options=options, out=target, is_scalar=False
            )
            self._put(made_by, TaskKind.PURE)
            return
        into = Ref(self._slice(target, region, task.node))
        if isinstance(slot, str) and not is_first and one.rule.joined_by is not None:
            part_bytes = self._bytes_of(target, region) + _work_bytes(task.function)
            function = NextPart(task.function, one.rule.joined_by, part_bytes)
            options = {name: value for name, value in task.options.items() if name != slot}
            task = replace(task, function=function, args=(into, *task.args), options=options)
        elif isinstance(slot, str):
            task = replace(task, options={**task.options, slot: into})
        else:
            task = replace(task, args=(into, *task.args[1:]))
        self._put(task, TaskKind.WRITE, target)

    def _put(self, task: Task, kind: TaskKind, written: int | None = None) -> None:
        refs = dict.fromkeys(refs_in((task.args, task.options)))
        reads = tuple(dict.fromkeys(self.roots[n] for n in refs if n in self.roots))
        writes = () if written is None else (self.roots[written],)
        self.out.append(replace(task, kind=kind, reads=reads, writes=writes))

    # Operands

    def _target(
        self, made: Operand, box: LabelRanges, index: Mapping[Label, int]
    ) -> tuple[int, Region]:
        """What a task makes or writes: a block or all of it, and the region of that."""
        dim = self.cuts.dims.get(made.memory)
        own = None if dim is None else made.label_of[dim]
        target = made.memory if own is None else self.blocks[made.memory][index[own]]
        return target, self._region(made, box, own)

    def _region(self, operand: Operand, box: LabelRanges, own: Label | None) -> Region:
        return tuple(
            slice(*box[label])
            if label is not None and label in box and label != own
            else slice(None)
            for label in operand.labels
        )

    def _part(self, operand: Operand, box: LabelRanges, index: Mapping[Label, int]) -> int:
        """The value of an operand for a block: views of a block, sliced along what else is cut."""
        dim = self.cuts.dims.get(operand.memory)
        if dim is None:
            return self._slice(operand.value, self._region(operand, box, None), None)
        own = operand.label_of[dim]
        at = index[own]
        number = self.blocks[operand.memory][at]
        shape, n = self.captured.shapes[operand.memory], self.shapes[number][dim]
        for view in self.chooser.listed.ways.get(operand.value, ()):
            key = "view", number, id(view)
            changed, shape, dim = view_of_block(view, shape, dim, n)
            if key not in self._views:
                self._views[key] = self._view(changed, number, changed.args[1:])
            number = self._views[key]
        return self._slice(number, self._region(operand, box, own), None)

    def _slice(self, number: int, region: Region, node: int | None) -> int:
        if all(part == slice(None) for part in region):
            return number
        key = "part", number, tuple((one.start, one.stop) for one in region)
        if key not in self._views:
            like = Task(TaskKind.PURE, operator.getitem, (), {}, None, (), (), node or 0)
            self._views[key] = self._view(like, number, (region,))
        return self._views[key]

    def _view(self, like: Task, operand: int, rest: Sequence[Any]) -> int:
        """A view of a value; its number."""
        number, root = next(self._next), self.roots[operand]
        self.roots[number] = root
        args = (Ref(operand), *rest)
        self.out.append(replace(like, args=args, out=number, reads=(root,), is_scalar=False))
        return number

    def _bytes_of(self, target: int, region: Region) -> int:
        size = self.n_bytes.get(target, 0)
        for part, n in zip(region, self.shapes.get(target, ()), strict=False):
            if part != slice(None):
                size = size // max(1, n) * (part.stop - part.start)
        return size


def _work_bytes(function: Any) -> int:
    """What a function says that it takes on the way."""
    found = getattr(function, "work_bytes", 0)
    return found(False) if callable(found) else found


def _snake(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All places of nested loops, the last the innermost; every loop turns round at its end.

    What was loaded last is so needed first.

    >>> list(_snake([2, 3]))
    [(0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (1, 0)]
    """
    if not counts:
        yield ()
        return
    forward = True
    for first in range(counts[0]):
        inner = list(_snake(counts[1:]))
        for rest in inner if forward else reversed(inner):
            yield (first, *rest)
        forward = not forward
