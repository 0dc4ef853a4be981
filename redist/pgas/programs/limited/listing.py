"""List the tasks of a captured program for a memory graph: a tile for every memory; views are no tasks.

A view is not a task of the graph: its memory may have left and come back elsewhere, so whoever uses it takes
it anew. What has no memory of its own (numbers, handles, nothing on a rank outside) is a tile of no bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redist.errors import CaptureError
from redist.pgas.ghosts.tape import Ref, Task, TaskKind, refs_in
from redist.pgas.ghosts.traffic import Exchanger, TileMover
from redist.pgas.joins.ein_kernel import EinKernel
from redist.pgas.memory import SHARED_FROM, TileMemory, counted_bytes, memory_for, root_of
from redist.pgas.programs.capture import Capture, ends_in
from redist.pgas.programs.limited.cutting.block_calls import FirstPart, NewBlock, NextPart
from redist.pgas.programs.passes.blocks import BlockedJoin
from redist.pgas.programs.passes.replay import write_replay
from redist.pgas.programs.prepare import MoveEnds
from redist.pgas.spill.spill_store import TileLayout
from redist.plan.rates import CPU
from redist.runtime.cuda.arrays import overlap
from redist.runtime.cuda.pinned_store import SeparateMemory, launched
from redist.runtime.lanes.vertex_table import TaskWork

# What tasks of a graph do when it runs: captured tasks, on arrays wherever these lie now.


NOTHING = np.empty(0, np.uint8)
"""The array of a tile of no bytes."""
IN_SEGMENTS = (NewBlock, FirstPart, TileMover)
"""What makes its result in shared memory; NumPy makes that of others, in memory of its own."""


class RunValues:
    """What one run knows beside the tiles of its graph: values without memory, and how tiles lie."""

    def __init__(self) -> None:
        self.plain: dict[int, Any] = {}
        self.layouts: dict[int, TileLayout] = {}
        """By tile."""
        self._apart: SeparateMemory | None = None

    def make_tile(self, tile: int) -> Any:
        """**Local.** Memory for a tile that comes back, as it lay before; threads call it."""
        layout = self.layouts.get(tile)
        if layout is None:
            return NOTHING
        if not layout.on_device:
            return layout.empty()
        if self._apart is None:
            self._apart = SeparateMemory()
        with self._apart:
            return layout.empty()

    def clear(self) -> None:
        """Forget everything."""
        self.plain.clear()
        self.layouts.clear()


def work_of(
    one: GraphTask,
    listed: ListedTasks,
    tile_of: Mapping[int, int],
    sizes: Mapping[int, int],
    staging_bytes: int,
    values: RunValues,
    on_device: bool = False,
) -> TaskWork:
    """**Local.** What a task does with the tiles that it reads and updates; it gives those that it makes.

    ``sizes`` has what memories count with. What NumPy allocates is counted too, so that it and dead
    segments never take more together than the plan says.
    """
    memory = memory_for(on_device)
    private_bytes = staging_bytes
    if one.task.kind is not TaskKind.NEW and not isinstance(one.task.function, IN_SEGMENTS):
        private_bytes += sum(sizes.get(number, 0) for number in one.makes)
    given = [*one.reads, *one.updates]
    plain = listed.plain
    names = [number if number != EFFECTS else None for number in given]
    replay = write_replay([*one.views, one.task, *one.parts], names, one.makes)
    is_exchange = isinstance(one.task.function, Exchanger)
    run = _granted(replay, staging_bytes, memory) if is_exchange else replay
    made = [(number, None if number in plain else tile_of[number]) for number in one.makes]
    plain_at = [(at, number) for at, number in enumerate(given) if number in plain]

    def work(*arrays: Any) -> tuple[Any, ...]:
        tiles = list(arrays)
        for at, number in plain_at:
            tiles[at] = values.plain[number]
        if private_bytes:
            memory.expect(private_bytes)
        found = run(*tiles)
        out = []
        for (number, tile), value in zip(made, found, strict=True):
            if tile is None:
                values.plain[number] = value
                out.append(NOTHING)
                continue
            own, layout = own_memory(value, arrays)
            values.layouts[tile] = layout
            memory.adopt(own, sizes.get(number, 0))
            out.append(own)
        return tuple(out)

    return launched(work, gives=True) if on_device else TaskWork(work, gives=True)


def _granted(replay: Callable[..., Any], n_bytes: int, memory: TileMemory) -> Callable[..., Any]:
    """An exchange with what it may take on the way."""

    def run(*tiles: Any) -> Any:
        with memory.granting(n_bytes):
            return replay(*tiles)

    return run


def own_memory(value: Any, given: Sequence[Any]) -> tuple[Any, TileLayout]:
    """**Local.** A result in memory of its own without gaps: itself, or a copy with its dims in their order.

    >>> x = np.zeros((4, 6))
    >>> own_memory(x, ())[0] is x, own_memory(x[:2], ())[0] is x[:2], own_memory(x, (x,))[0] is x
    (True, False, False)
    """
    layout = TileLayout.of(value)
    is_own = (
        layout is not None
        and counted_bytes(root_of(value).nbytes, layout.on_device)
        <= counted_bytes(value.nbytes, layout.on_device)
        and not any(overlap(value, one) for one in given if one is not NOTHING)
    )
    if not is_own:
        value = value.copy(order="K")
        layout = TileLayout.of(value)
    assert layout is not None
    return value, layout


# How many bytes every memory of a program counts with, what its tasks take on the way, and their times.


KNOWN_EXCHANGES = ("select", "fetch", "store", "take", "argmax", "argmin")
"""Exchanges that pass elements in rounds of any size: they take what they are granted."""
TIMES_TILES = 3
"""This many times the tiles of both ends are granted to them: a copy in order, and what is passed on."""


def memory_sizes(listed: ListedTasks, captured: Capture) -> dict[int, int]:
    """**Local.** By memory and value: what it counts with; as everywhere, the tile of the fullest rank."""
    worst: dict[int, int] = {}

    def at_least(number: int | None, n_bytes: int) -> None:
        if number is not None:
            worst[number] = max(n_bytes, worst.get(number, 0))

    for one in listed.tasks:
        task = one.task
        for move in task.moves:
            at_least(task.out, move.target.tile_bytes)
        if task.kind is TaskKind.NEW:
            at_least(task.out, task.args[2])
    for end in (*captured.ends, *ends_in(captured.result)):
        if end.tile is not None and listed.bases[end.tile] == end.tile:
            at_least(end.tile, end.type.tile_bytes)
    return {
        base: counted_bytes(
            max(captured.n_bytes.get(base, 0), worst.get(base, 0)), captured.on_device
        )
        for base in {*listed.bases.values()}
    }


def staging_of(
    one: GraphTask, captured: Capture, made_bytes: Mapping[int, int], peaks: Mapping[MoveEnds, int]
) -> int:
    """**Local.** What a task takes beside its operands and results, the same on all ranks if they meet.

    ``made_bytes`` has by node what its tasks make, ``peaks`` what the plans of moves take at their most. What
    an operation says that it needs has its results in it.
    """
    task = one.task
    match task.function:
        case TileMover(moves=(move,)):
            ends = move.source.tile_bytes + move.target.tile_bytes
            return max(0, peaks[move.source, move.target] - ends)
        case Exchanger():
            return granted_bytes(task.function, captured.rooms.get(task.node, 0))
        case BlockedJoin() | NewBlock() | FirstPart() | NextPart():
            return task.function.work_bytes
        case EinKernel():
            return task.function.work_bytes(captured.on_device)
    if task.kind is TaskKind.NEW:
        return 0
    return max(0, captured.rooms.get(task.node, 0) - made_bytes.get(task.node, 0))


def granted_bytes(exchanger: Exchanger, room_bytes: int) -> int:
    """What an exchange may take on the way: what its operation says, or enough for rounds of some size.

    Raises :class:`~redist.errors.CaptureError` for those that say nothing and take what they like.
    """
    what, source, target = exchanger.exchange
    if what in KNOWN_EXCHANGES:
        return TIMES_TILES * (source.tile_bytes + target.tile_bytes) + room_bytes + 2 * SHARED_FROM
    if room_bytes:
        return room_bytes + 2 * SHARED_FROM
    raise CaptureError(f"nothing is known of the memory that {what} takes on the way")


def task_times(
    listed: ListedTasks,
    sizes: Mapping[int, int],
    node_ps: Mapping[int, int],
    move_ps: Callable[[TileMover | Exchanger], int],
    byte_fs: int = CPU.byte_fs,
) -> list[int]:
    """**Local.** The modelled time of every task: that of its move, its call, or of touching its tiles.

    ``node_ps`` has what calls compute, which the last task of a call does.
    """
    last = {one.task.node: number for number, one in enumerate(listed.tasks)}
    out = []
    for number, one in enumerate(listed.tasks):
        function = one.task.function
        if isinstance(function, (TileMover, Exchanger)):
            out.append(move_ps(function))
            continue
        touched = sum(sizes.get(n, 0) for n in (*one.reads, *one.updates, *one.makes))
        time_ps = touched * byte_fs // 1000
        if last[one.task.node] == number:
            time_ps = max(time_ps, node_ps.get(one.task.node, 0))
        out.append(time_ps)
    return out


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
