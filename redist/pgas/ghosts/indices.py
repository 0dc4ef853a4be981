"""What indices are made of: ranks tell each other once which elements they ask for, so they must stay.

Indices are arguments, or made of arguments by functions of integers, wherever these lie::

    i                            an argument                               fixed
    (i + 1) % n, i[::2], i.to()  functions, slices and moves of integers   fixed
    a.get(i), a[i]               elements that are read in the same run    not fixed
    floor(x).astype(int)         made of numbers that are no integers      not fixed
    i += 1, then a.get(i)        an argument that the program has changed  not fixed
"""

from __future__ import annotations

from collections.abc import Sequence

from redist.pgas.ghosts.tape import Tape, Task, TaskKind, refs_in
from redist.pgas.kinds import number_kind

FIXED = (TaskKind.PURE, TaskKind.NEW, TaskKind.WRITE, TaskKind.MOVE, TaskKind.BATCH)
"""Tasks whose results depend on their operands only, and not on which elements these name."""
SLICES = "select"
"""The exchange by which slices pass between ranks."""


def why_not_fixed(tape: Tape, numbers: Sequence[int]) -> str:
    """**Local.** Why indices with these numbers may be others in a later call of the same arguments.

    Nothing if they are not.
    """
    makers: dict[int, Task] = {}
    writers: dict[int, list[Task]] = {}
    for task in tape.tasks:
        if task.out is not None:
            makers[task.out] = task
        for root in task.writes:
            writers.setdefault(root, []).append(task)
    seen: set[int] = set()
    left = list(numbers)
    while left:
        number = left.pop()
        if number in seen:
            continue
        seen.add(number)
        dtype = tape.dtypes.get(number)
        maker, root = makers.get(number), tape.roots.get(number, number)
        if dtype is not None and number_kind(dtype) not in "iub":
            where = "an argument" if maker is None else _said(tape, maker)
            return f"its index depends on values of {dtype}, of {where}"
        if root in writers and root not in makers:
            return f"its index is an argument that {_said(tape, writers[root][0])} has changed"
        tasks = [*([] if maker is None else [maker]), *writers.get(root, ())]
        for task in tasks:
            if task.kind not in FIXED and not _is_slice(task):
                return f"its index depends on what {_said(tape, task)} finds in the same run"
            left += refs_in((task.args, task.options))
        left += [root] if root != number else []
    return ""


def _said(tape: Tape, task: Task) -> str:
    node = tape.nodes[task.node]
    return f"{node.name} ({node.line})"


def _is_slice(task: Task) -> bool:
    exchange = getattr(task.function, "exchange", None)
    return task.kind is TaskKind.EXCHANGE and exchange is not None and exchange.what == SLICES
