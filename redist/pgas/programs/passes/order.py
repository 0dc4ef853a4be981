"""When moves happen: small ones together, far ones early, in one order on all ranks.

Small moves that do not need each other become one operation: ranks meet once for all of them. So do reads of
one array by lists, of any size, between which it is not written. It happens
where the last of them was; what is computed from the others waits until then, and what is computed for those
that come later goes before it.

All ranks make moves and exchanges in one total order. A *gap* is what a rank does between two of them, as
captured. A move may start in the gap in which the last rank has its source; in the new order, what starts in
an earlier gap comes first, and of one gap what was captured first. So every rank meets the others in the same
order, whatever it computes in between.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from redist.pgas.ghosts.tape import COLLECTIVE, Ref, Task, TaskKind, refs_in
from redist.pgas.ghosts.traffic import Exchanger, TileMover
from redist.pgas.watch.seam import READ, Wait
from redist.runtime.passing import joined

# What goes together.


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
    tasks: Sequence[Task],
    roots: Mapping[int, int],
    needed: Sequence[int],
    next_value: int,
    sources: Sequence[int | None] = (),
) -> list[Task]:
    """The tasks with small moves that follow each other, and need not, as one operation; so with reads.

    ``needed`` and ``sources`` are those of all ranks, so all ranks join the same moves and reads.
    """
    groups = _groups(tasks, needed, sources)
    group_of = {id(task): group for group in groups for task in group}
    together = (task for task in tasks if task.kind in COLLECTIVE)
    number_of = {id(task): number for number, task in enumerate(together)}
    needs = _needs(tasks, roots)
    out: list[Task] = []
    later: list[Task] = []
    first: int | None = None
    for task, last_needed in zip(tasks, needs, strict=True):
        group = group_of.get(id(task))
        if group is None:
            (out if first is None or last_needed <= first else later).append(task)
            continue
        if task is group[0]:
            first = number_of[id(task)]
        if task is group[-1]:
            out += [*_joined(group, next_value), *later]
            next_value += 1
            later, first = [], None
    return out


def _needs(tasks: Sequence[Task], roots: Mapping[int, int]) -> list[int]:
    """For every task, how many moves and exchanges must be over before it: up to the last it needs.

    It needs those that its operands come from, and those after which memory may be read or written.
    What has effects needs all before it. Lists of an inspection count as there as soon as their indices are:
    inspections stay in their places, before all reads that are put off.
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
            own = own if task.kind is TaskKind.INSPECT else over
        for root in task.reads:
            read[root] = max(read.get(root, 0), own)
        for root in task.writes:
            wrote[root] = own
        if task.out is not None:
            made[task.out] = own
            if roots.get(task.out) == task.out:
                wrote[task.out] = own
    return out


def read_sources(tasks: Sequence[Task]) -> list[int | None]:
    """For every move and exchange, in order: of a read the first that is of the same array; else -1.

    None for a read of which this rank has no tile.
    """
    found: list[int | None] = []
    firsts: dict[int, int] = {}
    for number, task in enumerate(task for task in tasks if task.kind in COLLECTIVE):
        of: Any = task.function
        if not _is_read(task):
            found.append(-1)
        elif of.args[0].number is None:
            found.append(None)
        else:
            found.append(firsts.setdefault(task.args[0].number, number))
    return found


def _groups(
    tasks: Sequence[Task], needed: Sequence[int], sources: Sequence[int | None]
) -> list[list[Task]]:
    """Runs of moves none of which needs another, and of reads of one array."""
    groups: list[list[Task]] = []
    first = 0
    read: int | None = None
    """What the reads of the last group are of."""
    for number, task in enumerate(task for task in tasks if task.kind in COLLECTIVE):
        if (
            task.kind is TaskKind.INSPECT and needed[number] <= first
        ):  # it stays before what is put off
            continue
        source = sources[number] if sources else None
        if _is_read(task):
            joins = groups and source is not None and source == read and needed[number] <= first
            if joins and len(groups[-1]) < MOST_TOGETHER and _is_alike(groups[-1][0], task):
                groups[-1].append(task)
            else:
                first, read = number, source
                groups.append([task])
            continue
        read = None
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
    if _is_read(group[0]):
        return False
    one, other = group[0].function, task.function
    assert isinstance(one, TileMover) and isinstance(other, TileMover)
    return one.comm == other.comm and one.memory is other.memory


def _is_read(task: Task) -> bool:
    return (
        task.kind is TaskKind.EXCHANGE
        and isinstance(task.function, Exchanger)
        and task.function.exchange.what == READ
    )


def _is_alike(one: Task, other: Task) -> bool:
    """Whether two reads are of one type, in units of one width."""
    (x, _, _, width), (y, _, _, other_width) = (task.function.args for task in (one, other))  # type: ignore[attr-defined]
    return bool(x.type == y.type and width == other_width)


@dataclass(frozen=True, slots=True, eq=False)
class ReadTogether:
    """Several reads of one array by lists: values pass in one exchange, at most a message for two ranks.

    Lists are joined when they are seen first.
    """

    tasks: tuple[Task, ...]
    _joined: list[Any] = field(default_factory=list)

    def __call__(self, *tiles: Any) -> None:
        """**Collective.** Fill all results."""
        lists, outs, at = [], [], 0
        first: Any = self.tasks[0].function
        for task in self.tasks:
            n = len(task.args)
            x, out, own, width = task.function.values(tiles[at : at + n])  # type: ignore[attr-defined]
            lists += own
            outs += out
            at += n
        if not self._joined or any(a is not b for a, b in zip(self._joined[0], lists, strict=True)):
            self._joined[:] = lists, joined(lists)
        first.run((x, tuple(outs), (self._joined[1],), width))


def _is_small(task: Task) -> bool:
    if task.kind is not TaskKind.MOVE:
        return False
    (move,) = task.moves
    return max(move.source.tile_bytes, move.target.tile_bytes) <= BATCH_BYTES


def _joined(group: Sequence[Task], number: int) -> list[Task]:
    """One task for several moves, and one for each of their tiles; or one for several reads."""
    if _is_read(group[0]):
        args = tuple(arg for task in group for arg in task.args)
        reads, writes = (
            tuple(dict.fromkeys(root for some in several for root in some))
            for several in zip(*((task.reads, task.writes) for task in group), strict=True)
        )
        together = ReadTogether(tuple(group))
        return [Task(TaskKind.EXCHANGE, together, args, {}, None, reads, writes, group[0].node)]
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


# What begins early.


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
