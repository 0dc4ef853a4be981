"""When moves happen: early, as soon as what they move is there.

All ranks make moves and exchanges in one total order. A *gap* is what a rank does between two of them, as
captured. A move may start in the gap in which the last rank has its source; in the new order, what starts in
an earlier gap comes first, and of one gap what was captured first. So every rank meets the others in the same
order, whatever it computes in between.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from redist.pgas.ghosts.tape import COLLECTIVE, Ref, Task, TaskKind, refs_in
from redist.pgas.ghosts.traffic import TileMover
from redist.pgas.watch.seam import Wait
from redist.runtime.ranks.world import Comm, world_of

ALWAYS = "always"
"""What ``prefetch`` says if moves within a node begin early, too, and small ones."""
EARLY_BYTES = 2**16
"""Moves of which a rank receives less are not begun early: handing them over costs as much."""


def begins_early(tasks: Sequence[Task], comm: Comm, prefetch: bool | str) -> list[bool]:
    """**Local.** Of moves and exchanges, in order: which are begun early; the same on all ranks."""
    far = bool(prefetch) and comm.size > 1 and not world_of(comm).one_node
    out = []
    for task in tasks:
        if task.kind not in COLLECTIVE:
            continue
        mover, is_early = task.function, prefetch == ALWAYS
        if task.kind is TaskKind.MOVE and far and not is_early:
            assert isinstance(mover, TileMover) and mover.prepared is not None
            plan = mover.prepared.plan
            is_early = plan.received_bytes >= EARLY_BYTES * plan.source.mesh.n_devices
        out.append(is_early and task.kind is TaskKind.MOVE)
    return out


def ready_gaps(tasks: Sequence[Task], roots: Mapping[int, int]) -> list[int]:
    """For every move and exchange, in order: the first gap in which this rank could start it.

    Exchanges stay where they are.
    """
    places = [place for place, task in enumerate(tasks) if task.kind in COLLECTIVE]
    return [
        bisect_right(places, ready) if tasks[place].kind is TaskKind.MOVE else number
        for number, (place, ready) in enumerate(
            zip(places, _ready_places(tasks, roots), strict=True)
        )
    ]


def start_key(gap: int, number: int, is_early: bool) -> tuple[int, int]:
    """By what moves and exchanges are put in order: the gap in which they start, then their number.

    >>> sorted([start_key(2, 2, False), start_key(0, 3, True), start_key(0, 1, True)])
    [(0, 1), (0, 3), (2, 2)]
    """
    return (gap if is_early else number), number


def start_early(
    tasks: Sequence[Task],
    roots: Mapping[int, int],
    gaps: Sequence[int],
    early: Sequence[bool],
    next_value: int,
) -> list[Task]:
    """The tasks with some moves begun where their sources are there, and waited for where they are needed.

    ``gaps``, and ``early``, which says of every move and exchange whether it is begun early, are those of
    all ranks.
    """
    together = [task for task in tasks if task.kind in COLLECTIVE]
    keys = [start_key(gap, i, early[i]) for i, gap in enumerate(gaps)]
    queue = sorted(range(len(together)), key=keys.__getitem__)
    ready = _ready_places(tasks, roots)
    order = _Order(next_value)
    at, gap = 0, 0
    for place, task in enumerate(tasks):
        is_collective = task.kind in COLLECTIVE
        # Begin, in order, what is there; at the end of a gap that is all which belongs into it.
        while at < len(queue) and early[queue[at]]:
            number = queue[at]
            if keys[number][0] > gap or ready[number] >= place:
                break
            order.start(together[number])
            at += 1
        if is_collective:
            if not early[gap]:
                assert queue[at] == gap
                order.run(task)
                at += 1
            gap += 1
        else:
            order.run(task)
    return order.end()


def _ready_places(tasks: Sequence[Task], roots: Mapping[int, int]) -> list[int]:
    """For every move and exchange: the place of the last task on this rank that its source needs."""
    made: dict[int, int] = {}
    written: dict[int, int] = {}
    out = []
    for place, task in enumerate(tasks):
        if task.kind in COLLECTIVE:
            needed = [made.get(n, -1) for n in refs_in(task.args)]
            needed += [written.get(root, -1) for root in task.reads]
            out.append(max(needed, default=-1))
        if task.out is not None:
            made[task.out] = place
            if roots.get(task.out) == task.out:
                written[task.out] = place
        for root in task.writes:
            written[root] = place
    return out


class _Order:
    """Tasks in the order in which they will run, as it grows."""

    def __init__(self, next_value: int) -> None:
        self._tasks: list[Task] = []
        self._next = next_value
        self._under_way: dict[int, tuple[Task, Task]] = {}
        """By the value that a move will give: the move, and the task that waits for it."""
        self._reading: dict[int, list[int]] = {}
        """By memory: the values whose moves may still read it."""

    def start(self, task: Task) -> None:
        """Begin a move."""
        mover: Any = task.function
        assert task.out is not None
        self._wait_for(refs_in(task.args))
        handle = Ref(self._next)
        self._next += 1
        begins = replace(mover, begins=True)
        begin = replace(task, kind=TaskKind.START, function=begins, out=handle.number)
        end = Task(TaskKind.WAIT, _end, (handle,), {}, task.out, (), (), task.node)
        self._tasks.append(begin)
        self._under_way[task.out] = task, end
        for root in task.reads:
            self._reading.setdefault(root, []).append(task.out)

    def run(self, task: Task) -> None:
        """Do anything else, once what it needs is there and nobody reads what it writes."""
        self._wait_for(refs_in((task.args, task.options)))
        for root in task.writes:
            self._wait_for(self._reading.pop(root, []))
        self._tasks.append(task)

    def _wait_for(self, values: Sequence[int]) -> None:
        for value in values:
            if value not in self._under_way:
                continue
            task, end = self._under_way.pop(value)
            last = self._tasks[-1]
            if last.kind is TaskKind.START and Ref(last.out or 0) == end.args[0]:
                self._tasks[-1] = task  # nothing happens meanwhile
            else:
                self._tasks.append(end)

    def end(self) -> list[Task]:
        """All tasks, and what is still to be waited for."""
        self._wait_for(list(self._under_way))
        return self._tasks


def _end(wait: Wait) -> Any:
    return wait()
