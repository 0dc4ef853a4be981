"""What a program need not do: tasks that nothing needs, and tasks that give what another has given.

Moves are left out, or made once for several, only where all ranks agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from redist.pgas.ghosts.tape import COLLECTIVE, Ref, Task, TaskKind, refs_in
from redist.pgas.kinds import number_kind
from redist.pgas.structures import replaced

SMALL_BYTES = 4096
"""Constants up to this size are compared by value."""
NOTHING = -1
MADE_ONCE = (TaskKind.MOVE, TaskKind.INSPECT)
"""What all ranks do together, and once for several if all agree."""


def drop_dead(
    tasks: Sequence[Task],
    kept: Iterable[int],
    roots: Mapping[int, int],
    live: Iterable[int],
    needed_moves: Iterable[int] = (),
) -> list[Task]:
    """The tasks without those that nothing needs; ``live`` is memory that is looked at afterwards.

    Of moves and exchanges, counted in order, those in ``needed_moves`` stay in any case.
    """
    values = set(kept)
    memory = set(live) | {roots[value] for value in values if value in roots}
    stay, left = set(needed_moves), []
    number = sum(task.kind in COLLECTIVE for task in tasks)
    for task in reversed(tasks):
        is_needed = task.kind is TaskKind.EFFECT or task.out in values
        is_needed = is_needed or any(root in memory for root in task.writes)
        if task.kind in COLLECTIVE:
            number -= 1
            is_needed = is_needed or number in stay
        if is_needed:
            values.update(refs_in((task.args, task.options)))
            memory.update(task.reads)
            left.append(task)
    return left[::-1]


def needed_moves(
    tasks: Sequence[Task], kept: Iterable[int], roots: Mapping[int, int], live: Iterable[int]
) -> list[int]:
    """The moves and exchanges, by their number, that this rank needs."""
    left = {id(task) for task in drop_dead(tasks, kept, roots, live)}
    together = [task for task in tasks if task.kind in COLLECTIVE]
    return [number for number, task in enumerate(together) if id(task) in left]


def share_equal(
    tasks: Sequence[Task],
    kept: Iterable[int],
    roots: Mapping[int, int],
    allowed: Sequence[int] | None = None,
) -> tuple[list[Task], list[int]]:
    """The tasks whose results are not there already; for every move and inspection the first equal one.

    ``allowed`` has such a list that all ranks can do: they equal others only within it.
    """
    writers = Counter(root for task in tasks for root in task.writes)
    leaving = {roots[value] for value in kept if value in roots}
    same: dict[int, int] = {}
    known: dict[Hashable, int] = {}
    new_roots = {task.out: task for task in tasks if task.kind is TaskKind.NEW}
    dropped_new: set[int] = set()
    settled: set[int] = set()
    """New memory that has been written, all of it, by the one task that ever does."""
    out: list[Task] = []
    firsts: list[int] = []
    numbers: dict[int, int] = {}
    """Of moves and inspections, by the value that they give."""
    for task in tasks:
        is_move = task.kind in MADE_ONCE
        written = _fresh_target(task, new_roots, writers)
        fixed = all(writers[root] == 0 or root in settled or root == written for root in task.reads)
        settled.update(() if written is None else (written,))
        made = task.out if written is None else written
        key: Hashable = None
        if (task.kind is TaskKind.PURE or is_move or written is not None) and fixed:
            key = _key_of(task, same, written)
        if is_move:
            number = len(firsts)
            if allowed is not None:
                key = (key, allowed[number])
            firsts.append(number)
        if key is not None and made is not None:
            earlier = known.get(key)
            root = roots.get(made, made)
            is_fixed = writers[root] == (0 if written is None else 1)
            if earlier is not None and is_fixed and root not in leaving:
                same[made] = earlier
                if written is not None:
                    dropped_new.add(written)
                if is_move:
                    firsts[-1] = numbers[earlier]
                continue
            if earlier is None and is_fixed:
                known[key] = made
            if is_move:
                numbers[made] = firsts[-1]
        out.append(task)
    renamed = [_renamed(task, same, roots) for task in out if task.out not in dropped_new]
    return renamed, firsts


def _fresh_target(
    task: Task, new_roots: Mapping[int | None, Task], writers: Mapping[int, int]
) -> int | None:
    """The new memory that a task writes, if it alone does and all of it at once."""
    if task.kind is not TaskKind.WRITE or len(task.writes) != 1:
        return None
    (root,) = task.writes
    whole = task.options.get("out") == Ref(root) or (
        task.function is np.copyto and task.args[0] == Ref(root)
    )
    return root if whole and root in new_roots and writers[root] == 1 else None


def _key_of(task: Task, same: Mapping[int, int], written: int | None) -> Hashable:
    here = {**same, written: NOTHING} if written is not None else same
    named = tuple(sorted((name, frozen(one, here)) for name, one in task.options.items()))
    function: Hashable = task.function
    if task.kind is TaskKind.MOVE:
        function = tuple((move.source, move.target) for move in task.moves)
    elif task.kind is TaskKind.INSPECT:
        function = task.function.told(lambda number: here.get(number, number))  # type: ignore[attr-defined]
    return task.kind, function, frozen(task.args, here), named


def frozen(thing: Any, same: Mapping[int, int]) -> Hashable:
    """A key for an operand: equal for what gives equal results."""
    if isinstance(thing, Ref):
        return ("value", same.get(thing.number, thing.number))
    if type(thing) in (tuple, list):
        return (type(thing).__name__, *(frozen(one, same) for one in thing))
    if isinstance(thing, slice):
        return ("slice", *(frozen(one, same) for one in (thing.start, thing.stop, thing.step)))
    if isinstance(thing, (np.ndarray, np.generic)):
        if thing.nbytes > SMALL_BYTES or number_kind(thing.dtype) == "O":
            return ("object", id(thing))
        return ("array", str(thing.dtype), thing.shape, thing.tobytes())
    if isinstance(thing, (float, complex)):
        return (type(thing).__name__, repr(thing))
    try:
        hash(thing)
    except TypeError:
        return ("object", id(thing))
    return (type(thing).__name__, thing)


def _renamed(task: Task, same: Mapping[int, int], roots: Mapping[int, int]) -> Task:
    """A task with what stands for its operands, and for the memory that it reads."""
    if not any(number in same for number in (*refs_in((task.args, task.options)), *task.reads)):
        return task
    reads = tuple(roots.get(same.get(root, root), root) for root in task.reads)
    args, options = replaced(
        (task.args, task.options),
        (Ref,),
        lambda ref: Ref(same.get(ref.number, ref.number)),
        init=False,
    )
    return replace(task, args=args, options=options, reads=reads)
