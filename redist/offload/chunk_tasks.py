"""The chunks of a task as tasks of their own, in an order that finds much of what it needs in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from redist.offload.chunks import Chunks
from redist.program.tasks import MemoryTask, MemoryTile, TaskList

Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ChunkBlock:
    """A part of an operand, by its number, or of the result (None): the indices that it holds."""

    operand: int | None
    box: Box


@dataclass(frozen=True, slots=True)
class ChunkedTask:
    """The tasks of chunks, and which block each of their tiles is."""

    tasks: TaskList
    blocks: tuple[ChunkBlock, ...]


def chunk_tasks(chunks: Chunks, store: int = 1, time_ps: int = 0) -> ChunkedTask:
    """Tasks of chunks whose operands lie in a store, and whose result goes there.

    The first chunk of a block of the result makes it, others update it. Every loop turns round at its end, so
    what was loaded last is needed first.

    >>> chunks = Chunks("mk,kn->mn", {"m": 4, "n": 4, "k": 4}, 8, {"m": 2, "n": 1, "k": 2})
    >>> [(task.reads, task.updates or task.makes) for task in chunk_tasks(chunks).tasks.tasks]
    [((0, 1), (2,)), ((3, 4), (2,)), ((5, 4), (6,)), ((7, 1), (6,))]
    """
    number_of: dict[tuple[int | None, Box], int] = {}
    tiles: list[MemoryTile] = []
    tasks: list[MemoryTask] = []
    each_ps = time_ps // chunks.n_chunks
    for at in _snake([chunks.counts[label] for label in chunks.kept + chunks.lost]):
        where = {
            label: chunks.ranges(label)[k]
            for label, k in zip(chunks.kept + chunks.lost, at, strict=True)
        }
        names = [*enumerate(chunks.terms), (None, chunks.kept)]
        keys = [(which, tuple(where[one] for one in term)) for which, term in names]
        is_new = keys[-1] not in number_of
        for key in keys:
            if key not in number_of:
                number_of[key] = len(tiles)
                tiles.append(_tile(key, chunks.itemsize, store))
        *reads, result = (number_of[key] for key in keys)
        made, updated = ((result,), ()) if is_new else ((), (result,))
        name = f"{chunks.notation} {at}"
        tasks.append(MemoryTask(name, tuple(reads), made, updated, time_ps=each_ps))
    blocks = tuple(ChunkBlock(which, box) for which, box in number_of)
    return ChunkedTask(TaskList(tuple(tiles), tuple(tasks)), blocks)


def _tile(key: tuple[int | None, Box], itemsize: int, store: int) -> MemoryTile:
    which, box = key
    size = prod(high - low for low, high in box) * itemsize
    return MemoryTile(size, () if which is None else (store,), (store,))


def _snake(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All places of nested loops, the last the innermost; every loop turns round at its end.

    >>> list(_snake([2, 3]))
    [(0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (1, 0)]
    """
    if not counts:
        yield ()
        return
    forward = True
    for first in range(counts[0]):
        inner = list(_snake(counts[1:]))
        for rest in inner if forward else reversed(inner):
            yield (first, *rest)
        forward = not forward
