"""Judge graphs and runs whose memory is granted by admission, without any code of those who grant it.

A graph may be run so if its list keeps the limits, one vertex after another, and its edges let everybody find
what the tasks say. A run was right if at each of its moments bytes were within the limits, whoever began had
its operands, and what had not begun could still be done as listed: this is asked anew, from the first vertex
on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from redist.check.memory_graphs import ContentCheck, check_moves, check_numbers, must
from redist.program.memory_graph import MemoryGraph

Moment = tuple[str, int]
"""``"begin"`` or ``"end"``, and which vertex."""


def check_admission(graph: MemoryGraph, before: Sequence[tuple[int, ...]]) -> None:
    """**Local.** Raise :class:`~redist.errors.MemoryCheckError` unless a graph may be run by admission.

    ``before`` are the edges that are kept: those of contents, and of moves.

    >>> from redist.program.memory_graph import MemoryPlace, Residency, Vertex
    >>> from redist.program.tasks import MemoryTask, MemoryTile, TaskList
    >>> tasks = TaskList((MemoryTile(8, ends=(0,)),), (MemoryTask("make", makes=(0,)),))
    >>> run = Vertex("run", 0, makes=(0,))
    >>> check_admission(MemoryGraph(tasks, (MemoryPlace("memory", 8),), (Residency(0, 0),), 0, (run,)), [()])
    >>> check_admission(MemoryGraph(tasks, (MemoryPlace("memory", 7),), (Residency(0, 0),), 0, (run,)), [()])
    Traceback (most recent call last):
    redist.errors.MemoryCheckError: vertex 0 of the memory graph is rejected: as listed, memory holds 8 bytes,
    limit 7
    """
    kept = _with_edges(graph, before)
    check_numbers(kept)
    _check_contents(kept)
    check_moves(kept)
    live = _live_at_first(graph)
    for number in range(len(graph.vertices)):
        _check_step(graph, live, number, "as listed, ")


def check_run(graph: MemoryGraph, moments: Iterable[Moment]) -> None:
    """**Local.** Raise unless a run was right that began and ended vertices at these moments."""
    n = len(graph.vertices)
    live = _live_at_first(graph)
    begun: list[int] = []
    ended: set[int] = set()
    seen: list[tuple[int, ...]] = [()] * n
    for what, number in moments:
        if what == "end":
            must(number in begun and number not in ended, number, "it ends, and has not begun")
            ended.add(number)
            _give_back(graph, live, number)
            continue
        must(number not in begun, number, "it begins twice")
        begun.append(number)
        seen[number] = tuple(sorted(ended))
        _take(graph, live, number, "")
        _check_rest(graph, live, set(begun) - ended, set(begun), number)
    missing = n - len(ended)
    must(not missing, None, f"{missing} vertices are not done")
    _check_contents(_in_order(graph, begun, seen))


def _check_rest(
    graph: MemoryGraph, live: Sequence[int], running: set[int], begun: set[int], number: int
) -> None:
    """What has not begun can be done as listed, once those under way have ended."""
    later = list(live)
    for one in running:
        _give_back(graph, later, one)
    for one in range(len(graph.vertices)):
        if one not in begun:
            _check_step(graph, later, one, f"if vertex {number} has begun, ")


def _check_step(graph: MemoryGraph, live: list[int], number: int, when: str) -> None:
    _take(graph, live, number, when)
    _give_back(graph, live, number)


def _take(graph: MemoryGraph, live: list[int], number: int, when: str) -> None:
    vertex = graph.vertices[number]
    for one in vertex.makes:
        live[graph.residencies[one].place] += graph.bytes_of(one)
    live[0] += _staging(graph, number)
    for place, n_bytes in zip(graph.places, live, strict=True):
        good = place.limit_bytes is None or n_bytes <= place.limit_bytes
        must(good, number, f"{when}{place.name} holds {n_bytes} bytes, limit {place.limit_bytes}")


def _give_back(graph: MemoryGraph, live: list[int], number: int) -> None:
    for one in graph.vertices[number].ends:
        live[graph.residencies[one].place] -= graph.bytes_of(one)
    live[0] -= _staging(graph, number)


def _staging(graph: MemoryGraph, number: int) -> int:
    task = graph.vertices[number].task
    return 0 if task is None else graph.tasks.tasks[task].staging_bytes


def _live_at_first(graph: MemoryGraph) -> list[int]:
    live = [0] * len(graph.places)
    for one in range(graph.n_given):
        live[graph.residencies[one].place] += graph.bytes_of(one)
    for place, n_bytes in zip(graph.places, live, strict=True):
        good = place.limit_bytes is None or n_bytes <= place.limit_bytes
        must(good, None, f"more is given than the limit of {place.name}")
    return live


def _with_edges(graph: MemoryGraph, before: Sequence[tuple[int, ...]]) -> MemoryGraph:
    """The graph with other edges, and no credits."""
    vertices = [
        replace(vertex, before=tuple(edges), credits=())
        for vertex, edges in zip(graph.vertices, before, strict=True)
    ]
    return replace(graph, vertices=tuple(vertices))


def _in_order(
    graph: MemoryGraph, order: Sequence[int], seen: Sequence[tuple[int, ...]]
) -> MemoryGraph:
    """The graph listed as it was run; before each vertex are those that had ended when it began."""
    place = {number: at for at, number in enumerate(order)}
    vertices = [
        replace(graph.vertices[n], before=tuple(sorted(place[one] for one in seen[n])), credits=())
        for n in order
    ]
    return replace(graph, vertices=tuple(vertices))


def _check_contents(graph: MemoryGraph) -> None:
    contents = ContentCheck(graph)
    for number, vertex in enumerate(graph.vertices):
        contents.check(number, vertex)
    contents.check_end()
