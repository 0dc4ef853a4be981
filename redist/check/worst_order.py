"""The most bytes that any order of a memory graph reaches in a place: one minimum cut, exactly.

Whatever is done at some moment, all that is before it is done: it is a closed set. Live bytes are what the
set took less what it gave back, so the worst moment is a closed set of largest weight, a minimum cut.
A vertex that takes and gives stands twice, begun and done: so vertices that run at once are covered.

The credits are a flow of that network. It starts from them, and what is left is little.
"""

from __future__ import annotations

from redist.check.flow import FlowNetwork
from redist.program.memory_graph import MemoryGraph, Vertex


def worst_bytes(graph: MemoryGraph, place: int) -> int:
    """**Local.** The most bytes of a place that are live at any moment of any order, or of vertices at once.

    >>> from redist.program.memory_graph import MemoryPlace, Residency, Vertex
    >>> from redist.program.tasks import MemoryTask, MemoryTile, TaskList
    >>> made = (MemoryTask("a", makes=(0,)), MemoryTask("b", makes=(1,)))
    >>> tasks = TaskList((MemoryTile(8), MemoryTile(5)), made)
    >>> stays = (Residency(0, 0), Residency(1, 0))
    >>> runs = (Vertex("run", 0, makes=(0,)), Vertex("run", 1, makes=(1,)))
    >>> loose = (*runs, Vertex("free", ends=(0,), before=(0,)))
    >>> worst_bytes(MemoryGraph(tasks, (MemoryPlace("memory"),), stays, 0, loose), 0)
    13
    """
    given = sum(
        graph.bytes_of(one) for one in range(graph.n_given) if graph.residencies[one].place == place
    )
    net = FlowNetwork()
    begun, done = [], []
    for vertex in graph.vertices:
        takes, gives = _weights(graph, vertex, place)
        begun.append(net.add(takes, 0 if takes else gives))
        if takes and gives:
            done.append(net.add(0, gives))
            net.join(done[-1], begun[-1], 0)
        else:
            done.append(begun[-1])
    for number, vertex in enumerate(graph.vertices):
        credits: dict[int, int] = {}
        for credit in vertex.credits:
            if credit.place == place and credit.giver is not None:
                credits[credit.giver] = credits.get(credit.giver, 0) + credit.n_bytes
        for one in vertex.before:
            net.join(begun[number], done[one], credits.get(one, 0))
    return given + net.supply - net.most_flow()


def _weights(graph: MemoryGraph, vertex: Vertex, place: int) -> tuple[int, int]:
    """The bytes of a place that a vertex takes, and those that it gives back."""
    takes = sum([graph.bytes_of(r) for r in vertex.makes if graph.residencies[r].place == place])
    gives = sum([graph.bytes_of(r) for r in vertex.ends if graph.residencies[r].place == place])
    staging = 0
    if place == 0 and vertex.task is not None:
        staging = graph.tasks.tasks[vertex.task].staging_bytes
    return takes + staging, gives + staging
