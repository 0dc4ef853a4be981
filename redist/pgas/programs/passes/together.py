"""Small moves that do not need each other become one operation: ranks meet once for all of them.

It happens where the last of them was; what is computed from the others waits until then. What is computed
for those that come later goes before it.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from redist.pgas.ghosts.tape import COLLECTIVE, Ref, Task, TaskKind, refs_in
from redist.pgas.ghosts.traffic import TileMover

BATCH_BYTES = 2**18
"""Moves up to this size go together with others: larger ones gain nothing by it."""
MOST_TOGETHER = 16


def needed_before(tasks: Sequence[Task], roots: Mapping[int, int]) -> list[int]:
    """For every move and exchange, in order: how many of them must be over before it, on this rank."""
    return [
        needed
        for task, needed in zip(tasks, _needs(tasks, roots), strict=True)
        if task.kind in COLLECTIVE
    ]


def join_moves(
    tasks: Sequence[Task], roots: Mapping[int, int], needed: Sequence[int], next_value: int
) -> list[Task]:
    """The tasks with small moves that follow each other, and need not, as one operation.

    ``needed`` is that of all ranks, so all ranks join the same moves.
    """
    groups = _groups(tasks, needed)
    group_of = {id(task): group for group in groups for task in group}
    first_of = {id(group[0]): number for number, group in _numbered(tasks, groups)}
    needs = _needs(tasks, roots)
    out: list[Task] = []
    later: list[Task] = []
    first: int | None = None
    for task, last_needed in zip(tasks, needs, strict=True):
        group = group_of.get(id(task))
        if group is None:
            (out if first is None or last_needed <= first else later).append(task)
            continue
        first = first_of.get(id(task), first)
        if task is group[-1]:
            out += [*_joined(group, next_value), *later]
            next_value += 1
            later, first = [], None
    return out


def _numbered(
    tasks: Sequence[Task], groups: Sequence[Sequence[Task]]
) -> list[tuple[int, Sequence[Task]]]:
    """The groups, each with the number of its first move among all moves and exchanges."""
    together = [id(task) for task in tasks if task.kind in COLLECTIVE]
    return [(together.index(id(group[0])), group) for group in groups]


def _needs(tasks: Sequence[Task], roots: Mapping[int, int]) -> list[int]:
    """For every task, how many moves and exchanges must be over before it: up to the last it needs.

    It needs those that its operands come from, and those after which memory may be read or written.
    What has effects needs all before it.
    """
    made: dict[int, int] = {}
    wrote: dict[int, int] = {}
    read: dict[int, int] = {}
    out, over = [], 0
    for task in tasks:
        needed = [made.get(n, 0) for n in refs_in((task.args, task.options))]
        needed += [wrote.get(root, 0) for root in (*task.reads, *task.writes)]
        needed += [read.get(root, 0) for root in task.writes]
        own = over if task.kind is TaskKind.EFFECT else max(needed, default=0)
        out.append(own)
        if task.kind in COLLECTIVE:
            over += 1
            own = over
        for root in task.reads:
            read[root] = max(read.get(root, 0), own)
        for root in task.writes:
            wrote[root] = own
        if task.out is not None:
            made[task.out] = own
            if roots.get(task.out) == task.out:
                wrote[task.out] = own
    return out


def _groups(tasks: Sequence[Task], needed: Sequence[int]) -> list[list[Task]]:
    """Runs of moves none of which needs another."""
    groups: list[list[Task]] = []
    first = 0
    for number, task in enumerate(task for task in tasks if task.kind in COLLECTIVE):
        if not _is_small(task):
            groups.append([])
        elif groups and needed[number] <= first and _goes_with(groups[-1], task):
            groups[-1].append(task)
        else:
            first = number
            groups.append([task])
    return [group for group in groups if len(group) > 1]


def _goes_with(group: Sequence[Task], task: Task) -> bool:
    """Whether a move may join others: of the same ranks, in the same memory, and not too many."""
    if not group or len(group) >= MOST_TOGETHER:
        return False
    one, other = group[0].function, task.function
    assert isinstance(one, TileMover) and isinstance(other, TileMover)
    return one.comm == other.comm and one.memory is other.memory


def _is_small(task: Task) -> bool:
    if task.kind is not TaskKind.MOVE:
        return False
    (move,) = task.moves
    return max(move.source.tile_bytes, move.target.tile_bytes) <= BATCH_BYTES


def _joined(group: Sequence[Task], number: int) -> list[Task]:
    """One task for several moves, and one for each of their tiles."""
    first: Any = group[0].function
    mover = replace(first, moves=tuple(task.moves[0] for task in group))
    reads = tuple(dict.fromkeys(root for task in group for root in task.reads))
    args = tuple(task.args[0] for task in group)
    node = group[0].node
    whole = Task(TaskKind.BATCH, mover, args, {}, number, reads, (), node)
    parts = [
        Task(TaskKind.PURE, operator.getitem, (Ref(number), at), {}, task.out, (), (), task.node)
        for at, task in enumerate(group)
    ]
    return [whole, *parts]
