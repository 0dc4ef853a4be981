"""Fit a program on all ranks alike: what other arrays leave, and moves by plans that have room."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redist.errors import NoPlanError
from redist.offload.compile import least_memory
from redist.pgas.ghosts.tape import Task, TaskKind
from redist.pgas.ghosts.traffic import BatchMover
from redist.pgas.memory import GRAIN, TileMemory, memory_for
from redist.pgas.programs.agree import most_of
from redist.pgas.programs.limited.arguments import ArgumentTile, argument_tiles, held_elsewhere
from redist.pgas.programs.limited.fit import CutFitter, FittedProgram
from redist.pgas.programs.limited.places import FarPlaces, RunLimit
from redist.pgas.programs.limited.refusal import what_needs_most
from redist.pgas.programs.prepare import MoveEnds
from redist.pgas.spill.memory_limit import count_small, why_held
from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.seam import plan_move
from redist.runtime.lanes.file_io import BLOCK_BYTES
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm
from redist.text.units import format_bytes

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
        if not isinstance(task.function, BatchMover):
            out += [task] if id(task) not in gone else []
            continue
        assert task.out is not None
        for at, mover in enumerate(task.function.movers):
            part = parts.get((task.out, at))
            value = next_value if part is None or part.out is None else part.out
            next_value += part is None
            gone |= {id(part)} if part is not None else set()
            given: Any = task.args[at]
            out.append(
                Task(
                    TaskKind.MOVE, mover, (given,), {}, value, task.reads if given else (), (),
                    task.node, False, mover.move,
                )
            )  # fmt: skip
    return out


def peaks_of(tasks: Sequence[Task], comm: Comm) -> MovePeaks:
    """**Collective.** What the moves of a program take at their most: by the best plan, and at least."""
    best: dict[MoveEnds, int] = {}
    least: dict[MoveEnds, int] = {}
    for task in tasks:
        move = task.move
        if move is None or (move.source, move.target) in best:
            continue
        ends = move.source, move.target
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

    @property
    def memory(self) -> TileMemory:
        """The memory that it works in."""
        return memory_for(self.far.on_device)

    def arguments(self, arrays: Sequence[Tiled]) -> list[ArgumentTile]:
        """**Local.** The tiles that this rank has of the arguments."""
        return argument_tiles(arrays, self.fitter.captured, self.far)

    def held_elsewhere(self, arrays: Sequence[Tiled]) -> int:
        """**Local.** What global arrays hold that are no arguments."""
        return held_elsewhere(self.arguments(arrays), self.memory)

    def left_bytes(self, arrays: Sequence[Tiled]) -> int:
        """**Local.** What other arrays leave of the limit."""
        return self.limit.limit_bytes - self.held_elsewhere(arrays)

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
            f"{', and '.join(_first(named))}, cannot be put away: {why}"
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


def _first(named: Sequence[str]) -> list[str]:
    """The first of several names, and how many others there are.

    >>> _first(["a", "b", "c", "d", "e"])
    ['a', 'b', 'c', '2 others']
    """
    left = len(named) - MOST_PINNED
    return [*named[:MOST_PINNED], *([f"{left} others"] if left > 0 else [])]
