"""Compile tasks into a memory graph: the order with the least to load and store, within the limits."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from redist.errors import NoPlanError, RequestError
from redist.offload.credits import give_credits
from redist.offload.least_limit import least_memory, no_plan
from redist.offload.walks import best_walk
from redist.program.memory_graph import MemoryGraph, MemoryPlace
from redist.program.tasks import TaskList


def compile_memory(listed: TaskList, places: Sequence[MemoryPlace]) -> MemoryGraph:
    """**Local.** The memory graph of tasks that keeps the limit of every place in every order of it.

    Tasks work in the first place; others are stores, each behind the one before. Raises
    :class:`~redist.errors.NoPlanError` if a limit is too small; its ``least_bytes`` would do.

    >>> from redist.program.tasks import MemoryTask, MemoryTile
    >>> tiles = (*(MemoryTile(8, begins=(1,), ends=(1,)) for _ in range(3)), MemoryTile(8, ends=(0,)))
    >>> added = (MemoryTask(f"add {n}", (n,), updates=(3,)) for n in (1, 2))
    >>> tasks = TaskList(tiles, (MemoryTask("copy", (0,), (3,)), *added))
    >>> print(compile_memory(tasks, (MemoryPlace("memory", 24), MemoryPlace("disk"))))
    3 tasks, 3 loads (24 B), 0 stores (0 B), 3 frees; memory 24 B, disk unlimited
    >>> compile_memory(tasks, (MemoryPlace("memory", 15), MemoryPlace("disk")))
    Traceback (most recent call last):
    redist.errors.NoPlanError: cannot keep 3 tasks within 15 bytes of memory: task 0 ('copy') works on
    16 bytes at once; give 16 bytes, or cut the task into smaller ones
    """
    _refuse_places(listed, places)
    limit = places[0].limit_bytes
    least, why = least_memory(listed)
    if limit is not None and limit < least:
        if len(places) == 1:  # nothing can leave, so more is needed
            raise no_plan(listed, places)
        raise NoPlanError(
            f"cannot keep {len(listed.tasks)} tasks within {limit} bytes of {places[0].name}: {why} "
            f"at once; give {least} bytes, or cut the task into smaller ones",
            least,
        )
    slack = 0 if limit is None else limit - least
    with _uncollected():
        found = best_walk(listed, places, slack)
        if found is None:
            raise no_plan(listed, places)
        return give_credits(listed, places, found.events)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no circles of garbage meanwhile: there are none, and many objects to look at."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _refuse_places(listed: TaskList, places: Sequence[MemoryPlace]) -> None:
    if not places:
        raise RequestError("cannot compile tasks: there is no place for tiles")
    for number, tile in enumerate(listed.tiles):
        if max((*tile.begins, *tile.ends), default=0) >= len(places):
            raise RequestError(
                f"cannot compile tasks: tile {number} lies in place {max((*tile.begins, *tile.ends))}; "
                f"there are {len(places)}"
            )
