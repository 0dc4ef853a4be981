"""Lists that ranks tell each other once: of which arguments their indices are made, and what to call them.

An inspection gives lists for reads at indices. Its indices are arguments, or made of some by functions of
integers, so the lists stay right for as long as these arguments do. A call that finds them kept does nothing
that only they needed::

    i -> (i + 1) % n -> inspect -> lists --.          first call, or another i
                              x ---------> read       every call
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.tape import Task, TaskKind, refs_in
from redist.pgas.programs.capture import Capture, union_of
from redist.runtime.ranks.world import Comm


@dataclass(frozen=True, slots=True, eq=False)
class MadeOf:
    """The arguments, by number, of which the indices of an inspection are made, and a key for how."""

    arguments: tuple[int, ...]
    key: Hashable


def kept_lists(tasks: Sequence[Task], captured: Capture, comm: Comm) -> dict[Task, MadeOf]:
    """**Collective.** The inspections whose lists stay right until an argument changes; all ranks agree."""
    inspections = [task for task in tasks if task.kind is TaskKind.INSPECT]
    if not union_of(comm, [bool(inspections)])[-1]:
        return {}
    place = {n: i for i, n in enumerate(captured.inputs) if n is not None}
    written = {root for task in captured.tasks for root in task.writes}
    said: set[tuple[int, int]] = set()
    for number, task in enumerate(inspections):
        used = {n for one in needed_for(tasks, {task}) for n in refs_in((one.args, one.options))}
        changed = any(n in place and captured.roots[n] in written for n in used)
        said |= {(number, place[n]) for n in used if n in place} | (
            {(number, -1)} if changed else set()
        )
    agreed = union_of(comm, sorted(said))
    out: dict[Task, MadeOf] = {}
    for number, task in enumerate(inspections):
        arguments = tuple(at for one, at in agreed if one == number)
        if -1 not in arguments:
            out[task] = MadeOf(arguments, _key(task, tasks, place))
    return out


def _key(task: Task, tasks: Sequence[Task], place: Mapping[int, int]) -> Hashable:
    """A key that other preparations have too where indices are arguments, moved or not; else a new one."""
    movers = {one.out: one for one in tasks if one.kind is TaskKind.MOVE}
    way: list[Any] = []

    def name(number: int) -> Hashable:
        moved: tuple[ArrayType, ...] = ()
        while number in movers:
            (move,), (source,) = movers[number].moves, movers[number].args
            moved, number = (*moved, move.target), -1 if source is None else source.number
        if number not in place:
            way.append(object())
            return way[-1]
        return place[number], moved

    exchanger: Any = task.function
    key: Hashable = exchanger.told(name)
    return key


def needed_for(tasks: Sequence[Task], ends: Collection[Task]) -> list[Task]:
    """**Local.** Some tasks, with all before them that they need, in order."""
    values: set[int] = set()
    memory: set[int] = set()
    left = []
    for task in reversed(tasks):
        if task in ends or task.out in values or any(root in memory for root in task.writes):
            values.update(refs_in((task.args, task.options)))
            memory.update(task.reads)
            left.append(task)
    return left[::-1]
