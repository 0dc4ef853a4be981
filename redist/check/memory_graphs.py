"""Judge a memory graph: in every order, bytes stay within the limits and tasks find what they need.

It walks through the vertices and looks at direct edges only, so it takes linear time. What holds for the
vertices as listed and has its edges holds in every order that the edges allow.
"""

from __future__ import annotations

from itertools import pairwise

from redist.check.memory_contents import ContentCheck
from redist.check.memory_credits import check_credits, must
from redist.program.memory_graph import KINDS, MemoryGraph


def check_memory_graph(graph: MemoryGraph) -> None:
    """**Local.** Raise :class:`~redist.errors.MemoryCheckError` unless every order keeps limits and contents.

    >>> from redist.program.memory_graph import Credit, MemoryPlace, Residency, Vertex
    >>> from redist.program.tasks import MemoryTask, MemoryTile, TaskList
    >>> tasks = TaskList((MemoryTile(8, ends=(0,)),), (MemoryTask("make", makes=(0,)),))
    >>> run = Vertex("run", 0, makes=(0,), credits=(Credit(None, 0, 8),))
    >>> check_memory_graph(MemoryGraph(tasks, (MemoryPlace("memory", 8),), (Residency(0, 0),), 0, (run,)))
    >>> check_memory_graph(MemoryGraph(tasks, (MemoryPlace("memory", 7),), (Residency(0, 0),), 0, (run,)))
    Traceback (most recent call last):
    redist.errors.MemoryCheckError: vertex 0 of the memory graph is rejected: the limit of memory gives more
    than it has
    """
    _check_numbers(graph)
    check_credits(graph)
    contents = ContentCheck(graph)
    for number, vertex in enumerate(graph.vertices):
        contents.check(number, vertex)
    contents.check_end()
    _check_moves(graph)


def _check_numbers(graph: MemoryGraph) -> None:
    """Numbers name what there is, and edges point back, so that there is no circle."""
    n, n_places, n_tiles = len(graph.residencies), len(graph.places), len(graph.tasks.tiles)
    must(0 <= graph.n_given <= n, None, "more is given than there is")
    for one in graph.residencies:
        must(0 <= one.tile < n_tiles, None, f"there is no tile {one.tile}")
        must(0 <= one.place < n_places, None, f"there is no place {one.place}")
    given = [(one.tile, one.place) for one in graph.residencies[: graph.n_given]]
    begins = [(t, p) for t, tile in enumerate(graph.tasks.tiles) for p in tile.begins]
    must(sorted(given) == sorted(begins), None, "other tiles are given than begin somewhere")
    for number, vertex in enumerate(graph.vertices):
        must(vertex.kind in KINDS, number, f"there is no kind {vertex.kind!r}")
        if vertex.kind == "run":
            known = vertex.task is not None and 0 <= vertex.task < len(graph.tasks.tasks)
            must(known, number, f"there is no task {vertex.task}")
        else:
            must(vertex.task is None, number, "only a run has a task")
        if vertex.before:
            least, most = min(vertex.before), max(vertex.before)
            must(least >= 0 and most < number, number, f"vertex {most} is not before it")
        used = (*vertex.reads, *vertex.updates, *vertex.makes, *vertex.ends)
        if used:
            must(min(used) >= 0 and max(used) < n, number, f"there is no residency {max(used)}")
        for credit in vertex.credits:
            must(0 <= credit.place < n_places, number, f"there is no place {credit.place}")


def _check_moves(graph: MemoryGraph) -> None:
    """Every move has the one before it in the list among its edges."""
    tasks = graph.tasks.tasks
    at = {vertex.task: number for number, vertex in enumerate(graph.vertices)}
    moves = [at[number] for number, task in enumerate(tasks) if task.lane == "moves"]
    for one, other in pairwise(moves):
        must(one in graph.vertices[other].before, other, "a move may overtake the one before it")
