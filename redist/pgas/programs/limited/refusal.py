"""Say why a program does not fit: which operation needs most, and which arrays it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from redist.layout.array_type import ArrayType
from redist.offload.compile import least_memory
from redist.pgas.ghosts.tape import Task
from redist.pgas.ghosts.traffic import Exchanger, TileMover
from redist.pgas.programs.capture import Capture
from redist.pgas.programs.limited.fit import MemoryFitter
from redist.program.tasks import TaskList
from redist.text.units import count_of, format_beside, format_bytes

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
    node = fitter.captured.nodes[fitter.listed.tasks[number].task.node]
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
    made = {number: one.task for one in fitter.listed.tasks for number in one.makes}
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
    listed = sorted(found.items(), key=lambda one: (-one[0][0] * one[1], *one[0][1:]))
    words = [_counted(n, *one) for one, n in listed[:MOST_NAMED]]
    left = len(listed) - MOST_NAMED
    return ", and ".join([*words, *([f"{left} others"] if left > 0 else [])])


def _type_of(memory: int, task: Task, captured: Capture) -> ArrayType | None:
    """The type of what a task makes: that of its move, or the one of its call that lies so; None if none."""
    match task.function:
        case TileMover(move=moved):
            return moved.target
        case Exchanger(exchange=exchanged):
            return exchanged.target
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
