"""What programs keep of their arguments from one call to the next: moved copies, and lists of inspections.

An inspection gives lists for reads at indices, which ranks tell each other once. Its indices are arguments,
or made of some by functions of integers, so the lists stay right for as long as these arguments do. A call
that finds them kept does nothing that only they needed::

    i -> (i + 1) % n -> inspect -> lists --.          first call, or another i
                              x ---------> read       every call

All of it is made of arguments as they were, and found by them and their versions. Where somebody may write
to an argument without a word, as after ``a.local``, copies are not kept. Lists are: the indices of which they
are made are compared, which costs less than to tell them once more.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.tape import Task, TaskKind, refs_in
from redist.pgas.keeper import FAR_BYTES
from redist.pgas.programs.capture import Capture, same_or_unknown, union_of
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.runtime.elements.inspected import Inspection
from redist.runtime.ranks.world import Comm

# Which moves and inspections of a program give what can be kept.


def kept_moves(tasks: Sequence[Task], captured: Capture, comm: Comm) -> dict[Task, int]:
    """**Collective.** Moves of arguments as given, which the program does not change; which each moves."""
    written = {root for task in captured.tasks for root in task.writes}
    leaving = {captured.roots[n] for n in captured.kept if n in captured.roots}
    place = {n: i for i, n in enumerate(captured.inputs) if n is not None}
    moves = [task for task in tasks if task.kind is TaskKind.MOVE]
    said: list[int | None] = []
    for task in moves:
        source = task.args[0]
        free = not {*task.reads, task.out} & written and task.out not in leaving
        number = place.get(source.number, -1) if source is not None else None
        said.append(number if free else -1)
    found = same_or_unknown(comm, said)
    return {
        task: number
        for task, number in zip(moves, found, strict=True)
        if number is not None and number >= 0
    }


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


# What is kept: copies and lists, found by arguments as they are now.


KeptTile = tuple[Tile | None]
"""A moved copy of an argument; the tile is None on a rank that has none."""
KeptLists = tuple[Inspection, dict[int, Tile | None]]
"""An inspection, and what the tiles had in them that may be written unseen, each with its place."""


def _copy_key(array: Tiled, target: ArrayType) -> Any:
    return id(array), array.version, array.type, target


def kept_copy(array: Tiled, target: ArrayType) -> KeptTile | None:
    """**Local.** The copy of an argument as it is now that was moved to a type, if it is kept."""
    found: KeptTile | None = None if array.is_shared else FAR_BYTES.get(_copy_key(array, target))
    return found


def keep_copy(array: Tiled, target: ArrayType, tile: Tile | None) -> None:
    """**Local.** Keep a moved copy for as long as the array lives, unless others may write to it unseen."""
    if array.is_shared:
        return
    key = _copy_key(array, target)
    if FAR_BYTES.put(key, (tile,), 0 if tile is None else tile.nbytes):
        _let_go_with([array], target, key)


def _lists_key(arrays: Sequence[Tiled], way: Hashable) -> Any:
    return tuple((id(one), one.version, one.type) for one in arrays), way


def kept_inspection(arrays: Sequence[Tiled], way: Hashable) -> Inspection | None:
    """**Local.** The lists for indices made in a way of arguments as they are now, if kept."""
    found: KeptLists | None = FAR_BYTES.get(_lists_key(arrays, way))
    if found is None:
        return None
    lists, seen = found
    for at, one in enumerate(arrays):
        if one.is_shared and not (at in seen and _alike(one.tile, seen[at])):
            return None
    return lists


def keep_inspection(arrays: Sequence[Tiled], way: Hashable, lists: Inspection) -> None:
    """**Local.** Keep lists while the arrays live, with copies of those that may be written unseen."""
    seen = {
        at: None if one.tile is None else one.tile.copy()
        for at, one in enumerate(arrays)
        if one.is_shared and not one.memory.on_device
    }
    key = _lists_key(arrays, way)
    n_bytes = lists.n_bytes + sum(tile.nbytes for tile in seen.values() if tile is not None)
    if FAR_BYTES.put(key, (lists, seen), n_bytes):
        _let_go_with(arrays, way, key)


def _alike(tile: Tile | None, seen: Tile | None) -> bool:
    if tile is None or seen is None:
        return tile is seen
    return np.array_equal(tile, seen)


_KEYS: dict[int, dict[Any, Any]] = {}
"""By array: what is kept of it, by the type that it was moved to, or the way indices are made."""


def _let_go_with(arrays: Sequence[Tiled], what: Hashable, key: Any) -> None:
    """**Local.** Keep something no longer once one of its arrays has died or changed."""
    for array in arrays:
        keys = _KEYS.get(id(array))
        if keys is None:
            keys = _KEYS[id(array)] = {}
            weakref.finalize(array, _drop_all, id(array)).atexit = False
        before = keys.get(what)
        if before is not None and before != key:
            FAR_BYTES.drop(before)
        keys[what] = key


def _drop_all(array: int) -> None:
    for key in _KEYS.pop(array, {}).values():
        FAR_BYTES.drop(key)
