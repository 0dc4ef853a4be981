"""The moves of a program within a limit: one by one, by plans that leave room for what else is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redist.errors import NoPlanError
from redist.pgas.ghosts.tape import Task, TaskKind
from redist.pgas.ghosts.traffic import BatchMover
from redist.pgas.programs.prepare import MoveEnds
from redist.pgas.watch.seam import plan_move
from redist.runtime.ranks.world import Comm


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
