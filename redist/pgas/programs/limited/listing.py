"""List the tasks of a captured program for a memory graph: a tile for every memory; views are no tasks.

A view is not a task of the graph: its memory may have left and come back elsewhere, so whoever uses it takes
it anew. What has no memory of its own (numbers, handles, nothing on a rank outside) is a tile of no bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redist.pgas.ghosts.tape import Ref, Task, TaskKind, refs_in
from redist.pgas.programs.capture import Capture

EFFECTS = -1
"""The memory that stands for the order of effects."""


@dataclass(slots=True, eq=False)
class GraphTask:
    """A task of the graph: a captured one, with those that take its results apart, and views that it takes.

    ``reads``, ``updates`` and ``makes`` are memories by the value that each was first, and values without.
    """

    task: Task
    parts: list[Task] = field(default_factory=list)
    views: list[Task] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    makes: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class ListedTasks:
    """Tasks of a graph in order; of values that look at memory which one, and by which views."""

    tasks: tuple[GraphTask, ...]
    bases: Mapping[int, int]
    ways: Mapping[int, tuple[Task, ...]]
    plain: frozenset[int]
    """Values without memory."""

    def views_of(self, values: Sequence[int]) -> list[Task]:
        """The tasks that take views, each once, in order."""
        found = {id(task): task for value in values for task in self.ways.get(value, ())}
        return list(found.values())


def list_tasks(tasks: Sequence[Task], captured: Capture, blocks: Sequence[int] = ()) -> ListedTasks:
    """**Local.** The tasks of a program as tasks of a graph; ``blocks`` of arguments are there before it."""
    bases = {number: number for number in (*captured.inputs, *blocks) if number is not None}
    ways: dict[int, tuple[Task, ...]] = {}
    plain: set[int] = set()
    makers: dict[int, GraphTask] = {}
    listed: list[GraphTask] = []
    for task in tasks:
        out = task.out
        if is_view(task, captured.roots):
            assert out is not None
            operand = task.args[0].number
            bases[out] = bases[operand]
            ways[out] = (*ways.get(operand, ()), task)
            continue
        whole = _whole_of(task, plain)
        if whole is not None:
            makers[whole].parts.append(task)
        else:
            listed.append(GraphTask(task))
        if out is not None:
            makers[out] = listed[-1]
            if out in captured.roots:
                bases[out] = out
            else:
                plain.add(out)
    found = ListedTasks(tuple(listed), bases, ways, frozenset(plain))
    _name_memory(found)
    return found


def is_view(task: Task, roots: Mapping[int, int]) -> bool:
    """Whether a task only looks at memory in another way; an element that is taken out is a copy.

    >>> view = Task(TaskKind.PURE, operator.getitem, (Ref(0), slice(2)), {}, 1, (0,), (), 0)
    >>> element = Task(TaskKind.PURE, operator.getitem, (Ref(0), 3), {}, 2, (0,), (), 0, is_scalar=True)
    >>> is_view(view, {0: 0, 1: 0, 2: 0}), is_view(element, {0: 0, 1: 0, 2: 0})
    (True, False)
    """
    out = task.out
    if task.kind is not TaskKind.PURE or out is None or roots.get(out, out) == out:
        return False
    if not (task.is_scalar and task.function is operator.getitem):
        return True
    key = task.args[1]
    return any(one is Ellipsis for one in (key if isinstance(key, tuple) else (key,)))


def _whole_of(task: Task, plain: set[int]) -> int | None:
    """The value of which a task takes one of several results; None if it is anything else."""
    if task.kind is not TaskKind.PURE or task.function is not operator.getitem:
        return None
    whole = task.args[0]
    return whole.number if isinstance(whole, Ref) and whole.number in plain else None


def _name_memory(found: ListedTasks) -> None:
    """Say of every task which memories and values it reads, updates and makes."""
    used = {number for one in found.tasks for number in refs_in((one.task.args, one.task.options))}
    for one in found.tasks:
        task = one.task
        refs = list(dict.fromkeys(refs_in((task.args, task.options))))
        one.views = found.views_of(refs)
        memory = dict.fromkeys(found.bases.get(number, number) for number in refs)
        one.updates = [found.bases.get(root, root) for root in task.writes]
        if task.kind is TaskKind.EFFECT:
            one.updates.append(EFFECTS)
        one.reads = [number for number in memory if number not in one.updates]
        outs = [part.out for part in one.parts if part.out is not None]
        if task.out is not None and not (one.parts and task.out not in used):
            outs.insert(0, task.out)
        one.makes = outs
