"""Fit a program on all ranks alike: what other arrays leave, and moves by plans that have room."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from redist.errors import NoPlanError
from redist.layout.array_type import ArrayType
from redist.offload.compile import least_memory
from redist.pgas.ghosts.tape import Task, TaskKind
from redist.pgas.ghosts.traffic import Exchanger
from redist.pgas.memory import GRAIN, TileMemory, memory_for
from redist.pgas.programs.capture import Capture, most_of
from redist.pgas.programs.limited.fit import CutFitter, FittedProgram, MemoryFitter
from redist.pgas.programs.limited.places import (
    ArgumentState,
    ArgumentTile,
    FarPlaces,
    RunLimit,
    argument_tiles,
    beside,
    state_of,
)
from redist.pgas.programs.prepare import MoveEnds
from redist.pgas.spill.memory_limit import count_small, why_held
from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.seam import plan_move
from redist.program.tasks import TaskList
from redist.runtime.lanes.spill_file import BLOCK_BYTES
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm
from redist.text.units import count_of, format_beside, format_bytes

# Say why a program does not fit: which operation needs most, and which arrays it holds.


SMALL = 1000
"""Arrays that take one of this many parts of the largest are not named."""
MOST_NAMED = 4
"""This many kinds of arrays are named."""


def what_needs_most(
    fitter: MemoryFitter, listed: TaskList, types: Mapping[int, ArrayType], limit_bytes: int
) -> str:
    """**Local.** The operation that needs most at once, its line, and the arrays that it holds, in words.

    ``types`` are those of arguments, by memory.
    """
    least = least_memory(listed)[0]
    at_once = f"{format_beside(least, limit_bytes)} at once"
    sizes = [tile.size_bytes for tile in listed.tiles]
    fixed = {number for number, tile in enumerate(listed.tiles) if tile.is_fixed}
    held = sum(sizes[number] for number in fixed)
    needs = [
        held + task.staging_bytes + sum(sizes[n] for n in task.tiles if n not in fixed)
        for task in listed.tasks
    ]
    memories = {tile: memory for memory, tile in fitter.tile_of.items()}
    if not needs or max(needs) < least:
        end = sum(tile.size_bytes for tile in listed.tiles if 0 in tile.ends)
        what = "its results need" if end == least else "its arguments need"
        there = [n for n, tile in enumerate(listed.tiles) if 0 in tile.ends]
        named = _named(fitter, [memories[n] for n in there], types)
        return f"{what} {at_once}: {named}"
    number = needs.index(max(needs))
    task = listed.tasks[number]
    own = [memories[tile] for tile in task.tiles]
    parts = [_named(fitter, own, types)]
    others = sum(sizes[n] for n in fixed if n not in task.tiles)
    if task.staging_bytes:
        parts.append(f"{format_bytes(task.staging_bytes)} on the way")
    if others:
        parts.append(f"{format_bytes(others)} of other arguments, which stay in memory")
    named = ", and ".join(part for part in parts if part)
    node = fitter.captured.nodes[fitter.listed.tasks[number].node]
    name = f"{node.name} ({node.line})"
    name = name if task.name == name else f"{name}: {task.name}"
    return f"{name} needs {at_once}: {named}"


def _named(fitter: MemoryFitter, memories: list[int], types: Mapping[int, ArrayType]) -> str:
    """Arrays by type, how often each is there, and what one takes; the largest first."""
    found: Counter[tuple[int, str, bool]] = Counter()
    whole = {
        block: memory
        for memory, blocks in (fitter.cut.blocks.items() if fitter.cut else ())
        for block in blocks
    }
    listed = fitter.listed
    made = {number: task for task in listed.tasks for number in listed.makes_of(task)}
    most = max((fitter.sizes.get(memory, 0) for memory in memories), default=0)
    for memory in memories:
        size = fitter.sizes.get(memory, 0)
        if size < most // SMALL:
            continue
        root, task = whole.get(memory, memory), made.get(memory)
        t = types.get(root)
        if t is None and task is not None:
            t = _type_of(root, task, fitter.captured)
        shape = fitter.captured.shapes.get(root, ())
        text = f"an array of shape {shape}" if t is None else str(t)
        found[size, text, root != memory] += 1
    kinds = sorted(found.items(), key=lambda one: (-one[0][0] * one[1], *one[0][1:]))
    return ", and ".join(_first([_counted(n, *one) for one, n in kinds], MOST_NAMED))


def _type_of(memory: int, task: Task, captured: Capture) -> ArrayType | None:
    """The type of what a task makes: that of its move, or the one of its call that lies so; None if none."""
    if task.moves:
        return task.moves[0].target
    if isinstance(task.function, Exchanger):
        return task.function.exchange.target
    n_bytes, shape = captured.n_bytes.get(memory, 0), captured.shapes.get(memory)
    kinds = [t for t in reversed(captured.nodes[task.node].types) if t.tile_bytes >= n_bytes]
    return min(kinds, key=lambda t: (t.tile_shape != shape, t.tile_bytes), default=None)


def _counted(n: int, size_bytes: int, text: str, is_block: bool) -> str:
    """Arrays of a kind, and what one takes.

    >>> _counted(2, 2**19, "f64[4000{x}, 4000]", True), _counted(1, 2**20, "f64[8]", False)
    ('2 blocks of f64[4000{x}, 4000], 512 KiB each', '1 array f64[8], 1 MiB')
    """
    what = f"{count_of(n, 'block')} of {text}" if is_block else f"{count_of(n, 'array')} {text}"
    return f"{what}, {format_bytes(size_bytes)}{' each' if n > 1 else ''}"


# The moves of a program within a limit: one by one, by plans that leave room for what else is there.


@dataclass(frozen=True, slots=True)
class MovePeaks:
    """What plans take at their most, by the types that they move between: the best, and the least of all."""

    best: Mapping[MoveEnds, int]
    least: Mapping[MoveEnds, int]

    def within(self, limit_bytes: int) -> dict[MoveEnds, int | None]:
        """The limits to plan with, if each may take this much: None where the best plan does not take more.

        >>> peaks = MovePeaks({("a", "b"): 10, ("b", "c"): 90}, {("a", "b"): 5, ("b", "c"): 30})
        >>> peaks.within(20)
        {('a', 'b'): None, ('b', 'c'): 30}
        """
        return {
            ends: None if peak <= limit_bytes else max(self.least[ends], limit_bytes)
            for ends, peak in self.best.items()
        }


def single_moves(tasks: Sequence[Task], next_value: int) -> list[Task]:
    """The tasks with moves that the program makes as one operation each by itself."""
    parts = {
        (task.args[0].number, task.args[1]): task
        for task in tasks
        if task.kind is TaskKind.PURE and len(task.args) == 2 and hasattr(task.args[0], "number")
        if isinstance(task.args[1], int)
    }
    out: list[Task] = []
    gone: set[int] = set()
    for task in tasks:
        if task.kind is not TaskKind.BATCH:
            out += [task] if id(task) not in gone else []
            continue
        assert task.out is not None
        whole: Any = task.function
        for at, move in enumerate(task.moves):
            part = parts.get((task.out, at))
            value = next_value if part is None or part.out is None else part.out
            next_value += part is None
            gone |= {id(part)} if part is not None else set()
            given: Any = task.args[at]
            mover, reads = replace(whole, moves=(move,)), task.reads if given else ()
            out.append(Task(TaskKind.MOVE, mover, (given,), {}, value, reads, (), task.node))
    return out


def peaks_of(tasks: Sequence[Task], comm: Comm) -> MovePeaks:
    """**Collective.** What the moves of a program take at their most: by the best plan, and at least."""
    best: dict[MoveEnds, int] = {}
    least: dict[MoveEnds, int] = {}
    for task in tasks:
        for move in task.moves:
            ends = move.source, move.target
            if ends in best:
                continue
            best[ends] = plan_move(*ends, comm, None).peak_bytes
            try:
                least[ends] = plan_move(*ends, comm, 1).peak_bytes
            except NoPlanError as error:
                least[ends] = error.least_bytes
    return MovePeaks(best, least)


MOST_PINNED = 3
"""This many arguments are named that cannot be put away for one reason."""


@dataclass(frozen=True, slots=True)
class AgreedFit:
    """How a program fits on all ranks, as they find out together."""

    name: str
    comm: Comm
    limit: RunLimit
    fitter: CutFitter
    peaks: MovePeaks
    far: FarPlaces
    passing: set[int] = field(default_factory=set)
    """Arguments that are another array in every call."""

    @property
    def memory(self) -> TileMemory:
        """The memory that it works in."""
        return memory_for(self.far.on_device)

    def arguments(self, arrays: Sequence[Tiled]) -> list[ArgumentTile]:
        """**Local.** The tiles that this rank has of the arguments."""
        tiles = argument_tiles(arrays, self.fitter.captured, self.far)
        new = self.passing
        return [replace(one, is_new=True) if one.number in new else one for one in tiles]

    def state(self, arrays: Sequence[Tiled]) -> tuple[ArgumentState, int]:
        """**Local.** Where the arguments lie and what they take, and what other arrays leave of the limit."""
        found, counted = state_of(arrays, self.fitter.captured, self.far)
        return found, self.limit.limit_bytes - beside(counted, self.memory)

    def unlimited_bytes(self, arrays: Sequence[Tiled]) -> int:
        """**Local.** What this rank would take without a limit."""
        return self.fitter.whole.unlimited_bytes(self.arguments(arrays), self.peaks.best)

    def note_new(self, arrays: Sequence[Tiled], away: Mapping[int, int]) -> None:
        """**Local.** Note which arguments were put ``away`` for an earlier call, and are in memory now."""
        here = [one.number for one in self.arguments(arrays) if not one.place]
        self.passing.update(number for number in here if number in away)

    def held_elsewhere(self, arrays: Sequence[Tiled]) -> int:
        """**Local.** What global arrays hold that are no arguments."""
        return self.limit.limit_bytes - self.left_bytes(arrays)

    def left_bytes(self, arrays: Sequence[Tiled]) -> int:
        """**Local.** What other arrays leave of the limit."""
        return self.state(arrays)[1]

    def look(self, arrays: Sequence[Tiled]) -> tuple[FittedProgram, int]:
        """**Collective.** How it would fit now, and the least limit that would do; nothing is changed."""
        fitted, _, _ = self.choose_plans(arrays)
        least = self.held_elsewhere(arrays)
        try:
            self.fitter.fit(self.arguments(arrays), self.peaks.least, 0, self.far)
        except NoPlanError as error:
            least += error.least_bytes
        return fitted, most_of(self.comm, [least])[0]

    def begins_with(self, arrays: Sequence[Tiled]) -> int:
        """**Collective.** What is held before it begins: without a folder no layouts need less."""
        here = sum(one.size_bytes for one in self.arguments(arrays) if not one.place)
        return most_of(self.comm, [self.held_elsewhere(arrays) + here])[0]

    def choose_plans(
        self, arrays: Sequence[Tiled]
    ) -> tuple[FittedProgram, dict[MoveEnds, int], dict[MoveEnds, int | None]]:
        """**Collective.** A graph that fits on all ranks, the peaks of moves, and the limits of their plans.

        Moves go by their best plans if these fit, else by those that take what is left, or the least.
        """
        best, least = dict(self.peaks.best), dict(self.peaks.least)
        for collect in (lambda: None, gc.collect):  # ranks have different garbage
            collect()
            count_small(self.memory)
            arguments, budget = self.arguments(arrays), self.left_bytes(arrays)
            fitted, needed = self._try(arguments, best, budget)
            if not needed:
                return fitted, best, dict.fromkeys(best)
        smallest, needed = self._try(arguments, least, budget)
        if needed:
            raise self.limit.refusal(self.name, needed, self.why(arrays, needed))
        fixed = sum(one.size_bytes for one in arguments if not one.may_leave)
        left = -most_of(self.comm, [fixed - budget + 2 * GRAIN])[0]
        limits = self.peaks.within(left)
        tight = {ends: best[ends] if one is None else one for ends, one in limits.items()}
        fitted, needed = self._try(arguments, tight, budget)
        return (smallest, least, dict(least)) if needed else (fitted, tight, limits)

    def why(self, arrays: Sequence[Tiled], needed_bytes: int) -> str:
        """**Collective.** What needs most on the rank that needs most, and who holds what, in words.

        Without a folder each operation may fit and the order that was found not: it needs ``needed_bytes``.
        """
        arguments = self.arguments(arrays)
        types = {one.memory: arrays[one.number].type for one in arguments}
        fitter, listed = self.fitter.smallest(arguments, self.peaks.least, self.far)
        outside = self.held_elsewhere(arrays)
        held = [f"{format_bytes(outside)} are held by arrays outside"] if outside else []
        least = least_memory(listed)[0] + outside
        most = what_needs_most(fitter, listed, types, self.limit.limit_bytes)
        if least <= self.limit.limit_bytes:
            most = (
                f"each operation fits, but the order found needs {format_bytes(needed_bytes)}, because "
                f"results wait for operations after them; the largest: {most}"
            )
        here = least, "; ".join([most, *held, *self._pinned(arrays, arguments)])
        return max(gather(self.comm, here, TIMEOUT_S))[1]

    def _pinned(self, arrays: Sequence[Tiled], arguments: Sequence[ArgumentTile]) -> list[str]:
        """**Local.** The arguments that could be put away if nobody else held them, the largest first."""
        if not self.far.leave_to:
            return []
        pinned = [one for one in arguments if not one.place and not one.may_leave]
        pinned = [one for one in pinned if one.size_bytes >= BLOCK_BYTES]
        pinned.sort(key=lambda one: (-one.size_bytes, one.number))
        by_reason: dict[str, list[str]] = {}
        for one in pinned:
            named = (
                f"argument {one.number}, {arrays[one.number].type} ({format_bytes(one.size_bytes)})"
            )
            by_reason.setdefault(why_held(arrays[one.number]), []).append(named)
        return [
            f"{', and '.join(_first(named, MOST_PINNED))}, cannot be put away: {why}"
            for why, named in by_reason.items()
        ]

    def _try(
        self, arguments: Sequence[ArgumentTile], peaks: dict[MoveEnds, int], budget: int
    ) -> tuple[Any, int]:
        """**Collective.** The graph, and the least limit with which all ranks fit: 0 if they do."""
        needed, fitted = 0, None
        try:
            fitted = self.fitter.fit(arguments, peaks, budget, self.far)
        except NoPlanError as error:
            needed = error.least_bytes + self.limit.limit_bytes - budget
        return fitted, most_of(self.comm, [needed])[0]


def _first(named: Sequence[str], most: int) -> list[str]:
    """The first of several names, and how many others there are.

    >>> _first(["a", "b", "c", "d", "e"], 3)
    ['a', 'b', 'c', '2 others']
    """
    left = len(named) - most
    return [*named[:most], *([f"{left} others"] if left > 0 else [])]
