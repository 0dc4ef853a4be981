"""When each vertex ran, for drawing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from redist.program.memory_graph import MemoryGraph


class LaneSpan(NamedTuple):
    """A vertex on its lane, in seconds since the graph began; frees take no time and are left out."""

    lane: str
    vertex: int
    begin_s: float
    end_s: float


def busy_s(spans: Iterable[LaneSpan]) -> dict[str, float]:
    """How long each lane worked, in all.

    >>> busy_s([LaneSpan("load", 0, 0.0, 1.5), LaneSpan("load", 2, 2.0, 2.5), LaneSpan("compute", 1, 1.5, 4)])
    {'load': 2.0, 'compute': 2.5}
    """
    out: dict[str, float] = {}
    for span in spans:
        out[span.lane] = out.get(span.lane, 0.0) + span.end_s - span.begin_s
    return out


def live_bytes(graph: MemoryGraph, spans: Iterable[LaneSpan]) -> tuple[tuple[float, int], ...]:
    """When what lies in the first place changes, and how many bytes are there from then on.

    Tiles count from the beginning of the vertex that makes them until they are freed, staging while its
    task runs. What takes no time is done when all before it is.
    """
    begins = {span.vertex: span.begin_s for span in spans}
    ends = {span.vertex: span.end_s for span in spans}
    changes: dict[float, int] = {0.0: 0}

    def change(at_s: float, n_bytes: int) -> None:
        changes[at_s] = changes.get(at_s, 0) + n_bytes

    def held(residencies: Iterable[int]) -> int:
        return sum(graph.bytes_of(r) for r in residencies if graph.residencies[r].place == 0)

    change(0.0, held(range(graph.n_given)))
    for number, vertex in enumerate(graph.vertices):
        done = ends.setdefault(number, max((ends[one] for one in vertex.before), default=0.0))
        begun = begins.get(number, done)
        staging = 0 if vertex.task is None else graph.tasks.tasks[vertex.task].staging_bytes
        change(begun, held(vertex.makes) + staging)
        change(done, -held(vertex.ends) - staging)
    times = sorted(changes)
    return tuple(zip(times, accumulate(changes[at_s] for at_s in times), strict=True))


def tile_names(graph: MemoryGraph) -> list[str]:
    """Every tile in words: its own name, or the task that makes it.

    >>> from redist.program.tasks import MemoryTask, MemoryTile, TaskList
    >>> tiles = MemoryTile(8, begins=(0,), name="argument 0"), MemoryTile(8)
    >>> tile_names(MemoryGraph(TaskList(tiles, (MemoryTask("exp (a.py:3)", (0,), (1,)),)), (), (), 0, ()))
    ['argument 0', 'the result of exp (a.py:3)']
    """
    makers = {tile: task.name for task in graph.tasks.tasks for tile in task.makes}
    return [
        tile.name or f"the result of {makers.get(number, '?')}"
        for number, tile in enumerate(graph.tasks.tiles)
    ]


def what_ran(graph: MemoryGraph, span: LaneSpan, names: Sequence[str]) -> str:
    """A span in words: the name of its task, or that of the tile which it copies."""
    vertex = graph.vertices[span.vertex]
    if vertex.task is not None:
        return graph.tasks.tasks[vertex.task].name
    return f"{vertex.kind} {names[graph.residencies[vertex.reads[0]].tile]}"
