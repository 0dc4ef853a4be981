"""List the tasks of a captured program for a memory graph: a tile for every memory; views are no tasks.

A view is not a task of the graph: its memory may have left and come back elsewhere, so whoever uses it takes
it anew. What has no memory of its own (numbers, handles, nothing on a rank outside) is a tile of no bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
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
from redist.pgas.programs.passes.casts import RoundedProduct
from redist.pgas.programs.passes.replay import write_replay
from redist.pgas.programs.prepare import MoveEnds
from redist.pgas.spill.spill_store import TileLayout
from redist.pgas.watch.seam import INSPECT
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
    task: Task,
    listed: ListedTasks,
    tile_of: Mapping[int, int],
    staging_bytes: int,
    values: RunValues,
    on_device: bool = False,
) -> TaskWork:
    """**Local.** What a task does with the tiles that it reads and updates; it gives those that it makes.

    What NumPy allocates is counted too, so that it and dead segments never take more together than the plan
    says.
    """
    memory, sizes, makes = memory_for(on_device), listed.sizes, listed.makes_of(task)
    private_bytes = staging_bytes
    if task.kind is not TaskKind.NEW and not isinstance(task.function, IN_SEGMENTS):
        private_bytes += sum(sizes.get(number, 0) for number in makes)
    given = [*task.reads, *task.writes]
    plain = listed.plain
    names = [number if number != EFFECTS else None for number in given]
    replay = write_replay([*task.views, task, *task.parts], names, makes)
    is_exchange = isinstance(task.function, Exchanger)
    run = _granted(replay, staging_bytes, memory) if is_exchange else replay
    made = [(number, None if number in plain else tile_of[number]) for number in makes]
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
    root = root_of(value)
    is_own = (
        layout is not None
        and (
            root is value
            or counted_bytes(root.nbytes, layout.on_device)
            <= counted_bytes(value.nbytes, layout.on_device)
        )
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


def _memory_sizes(
    tasks: Sequence[Task], bases: Mapping[int, int], captured: Capture
) -> dict[int, int]:
    """**Local.** By memory and value: what it counts with; as everywhere, the tile of the fullest rank."""
    worst: dict[int, int] = {}

    def at_least(number: int | None, n_bytes: int) -> None:
        if number is not None:
            worst[number] = max(n_bytes, worst.get(number, 0))

    for task in tasks:
        for move in task.moves:
            at_least(task.out, move.target.tile_bytes)
        if task.kind is TaskKind.NEW:
            at_least(task.out, task.args[2])
    for end in (*captured.ends, *ends_in(captured.result)):
        if end.tile is not None and bases[end.tile] == end.tile:
            at_least(end.tile, end.type.tile_bytes)
    return {
        base: counted_bytes(
            max(captured.n_bytes.get(base, 0), worst.get(base, 0)), captured.on_device
        )
        for base in {*bases.values()}
    }


def staging_of(
    task: Task, captured: Capture, made_bytes: Mapping[int, int], peaks: Mapping[MoveEnds, int]
) -> int:
    """**Local.** What a task takes beside its operands and results, the same on all ranks if they meet.

    ``made_bytes`` has by node what its tasks make, ``peaks`` what the plans of moves take at their most. What
    an operation says that it needs has its results in it.
    """
    match task.function:
        case TileMover(moves=(move,)):
            ends = move.source.tile_bytes + move.target.tile_bytes
            return max(0, peaks[move.source, move.target] - ends)
        case Exchanger():
            return granted_bytes(task.function, captured.rooms.get(task.node, 0))
        case BlockedJoin() | NewBlock() | FirstPart() | NextPart() | RoundedProduct():
            return task.function.work_bytes
        case EinKernel():
            return task.function.work_bytes(captured.on_device)
    if task.kind is TaskKind.NEW:
        return 0
    own: int = getattr(task.function, "work_bytes", 0)  # blocks in f32
    return max(own, captured.rooms.get(task.node, 0) - made_bytes.get(task.node, 0))


def granted_bytes(exchanger: Exchanger, room_bytes: int) -> int:
    """What an exchange may take on the way: what its operation says, or enough for rounds of some size.

    Raises :class:`~redist.errors.CaptureError` for those that say nothing and take what they like.
    """
    what, source, target = exchanger.exchange
    if (
        what == "halo"
    ):  # only what is around tiles is passed on, and the room is for what comes after
        return target.tile_bytes - source.tile_bytes + 2 * SHARED_FROM
    if what == INSPECT:
        raise CaptureError(
            f"how long lists for {source} are is known only when ranks have told each other "
            f"({exchanger.line}); its elements are asked for in rounds"
        )
    if what in KNOWN_EXCHANGES:
        return TIMES_TILES * (source.tile_bytes + target.tile_bytes) + room_bytes + 2 * SHARED_FROM
    if room_bytes:
        return room_bytes + 2 * SHARED_FROM
    raise CaptureError(f"nothing is known of the memory that {what} takes on the way")


EFFECTS = -1
"""The memory that stands for the order of effects."""


@dataclass(frozen=True, slots=True, eq=False)
class ListedTasks:
    """Tasks of a graph in order; of values that look at memory which one, and by which views.

    Tasks read, write and make memories, by the value that each was first, and values without.
    """

    tasks: tuple[Task, ...]
    bases: Mapping[int, int]
    ways: Mapping[int, tuple[Task, ...]]
    plain: frozenset[int]
    """Values without memory."""
    apart: frozenset[int | None]
    """Those that are taken apart, and not needed otherwise."""
    sizes: Mapping[int, int]
    """By memory: what it counts with."""

    def makes_of(self, task: Task) -> tuple[int, ...]:
        """What a task makes: its result, or what that is taken apart to."""
        outs = (one.out for one in (task, *task.parts))
        return tuple(out for out in outs if out is not None and out not in self.apart)

    def views_of(self, values: Sequence[int]) -> tuple[Task, ...]:
        """The tasks that take views, each once, in order."""
        return tuple(dict.fromkeys(task for value in values for task in self.ways.get(value, ())))


def list_tasks(tasks: Sequence[Task], captured: Capture, blocks: Sequence[int] = ()) -> ListedTasks:
    """**Local.** The tasks of a program as tasks of a graph; ``blocks`` of arguments are there before it."""
    bases = {number: number for number in (*captured.inputs, *blocks) if number is not None}
    ways: dict[int, tuple[Task, ...]] = {}
    plain: set[int] = set()
    parts: dict[int | None, list[Task]] = {}
    listed: list[Task] = []
    for task in tasks:
        out = task.out
        if is_view(task, captured.roots):
            assert out is not None
            operand = task.args[0].number
            bases[out] = bases[operand]
            ways[out] = (*ways.get(operand, ()), task)
            continue
        if out is not None and out in captured.roots:
            bases[out] = out
        elif out is not None:
            plain.add(out)
        whole = _whole_of(task, parts)
        if whole is not None:
            parts[whole].append(task)
            continue
        listed.append(task)
        if out in plain:
            parts[out] = []
    used = {number for task in listed for number in refs_in((task.args, task.options))}
    apart = frozenset(number for number, some in parts.items() if some and number not in used)
    sizes = _memory_sizes(listed, bases, captured)
    found = ListedTasks((), bases, ways, frozenset(plain), apart, sizes)
    named = [_with_memory(task, found, parts.get(task.out, ())) for task in listed]
    return replace(found, tasks=tuple(named))


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


def _whole_of(task: Task, known: Collection[int | None]) -> int | None:
    """The value of which a task takes one of several results; None if it is anything else."""
    if task.kind is not TaskKind.PURE or task.function is not operator.getitem:
        return None
    whole = task.args[0]
    return whole.number if isinstance(whole, Ref) and whole.number in known else None


def _with_memory(task: Task, found: ListedTasks, parts: Sequence[Task]) -> Task:
    """A task with the memories and values that it reads and writes, its views and its parts."""
    refs = tuple(dict.fromkeys(refs_in((task.args, task.options))))
    writes = dict.fromkeys(found.bases.get(root, root) for root in task.writes)
    if task.kind is TaskKind.EFFECT:
        writes[EFFECTS] = None
    memory = dict.fromkeys(found.bases.get(number, number) for number in refs)
    reads = tuple(number for number in memory if number not in writes)
    return replace(
        task, reads=reads, writes=tuple(writes), views=found.views_of(refs), parts=tuple(parts)
    )
