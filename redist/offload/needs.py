"""Which tasks must stand before which, in any order of a list of tasks."""

from __future__ import annotations

from redist.program.tasks import TaskList


def tasks_before(listed: TaskList) -> list[tuple[int, ...]]:
    """For every task the tasks that it needs done: makers, updates and earlier readers of its tiles, moves.

    >>> from redist.program.tasks import MemoryTask, MemoryTile
    >>> tasks = (MemoryTask("make", makes=(0,)), MemoryTask("read", (0,)), MemoryTask("add", updates=(0,)))
    >>> tasks_before(TaskList((MemoryTile(8),), tasks))
    [(), (0,), (0, 1)]
    """
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    last_move: int | None = None
    out: list[tuple[int, ...]] = []
    for number, task in enumerate(listed.tasks):
        needs = {writer[tile] for tile in (*task.reads, *task.updates) if tile in writer}
        for tile in task.updates:
            needs.update(readers.pop(tile, ()))
        for tile in task.reads:
            readers.setdefault(tile, []).append(number)
        for tile in (*task.updates, *task.makes):
            writer[tile] = number
        if task.lane == "moves":
            needs |= set() if last_move is None else {last_move}
            last_move = number
        out.append(tuple(sorted(needs)))
    return out
