"""Certify a memory graph: judge it, and find out the most bytes that any order reaches."""

from __future__ import annotations

from redist.check.memory_graphs import check_memory_graph
from redist.check.worst_order import worst_bytes
from redist.errors import MemoryCheckError
from redist.program.memory_certificate import MemoryCertificate
from redist.program.memory_graph import MemoryGraph


def certify_memory(graph: MemoryGraph, *, exact: bool = True) -> MemoryCertificate:
    """**Local.** What was shown: that no order of a memory graph exceeds a limit, and how near orders come.

    With ``exact`` the worst order is found by a minimum cut; without, the credits prove the limit alone, in
    linear time. A graph that the checker rejects is ``refuted``, with the reason.

    >>> from redist.program.memory_graph import Credit, MemoryPlace, Residency, Vertex
    >>> from redist.program.tasks import MemoryTask, MemoryTile, TaskList
    >>> tasks = TaskList((MemoryTile(8, ends=(0,)),), (MemoryTask("make", makes=(0,)),))
    >>> run = Vertex("run", 0, makes=(0,), credits=(Credit(None, 0, 8),))
    >>> graph = MemoryGraph(tasks, (MemoryPlace("memory", 10),), (Residency(0, 0),), 0, (run,))
    >>> print(certify_memory(graph))
    proved for every order: 8 B of 10 B (credits and minimum cut)
    >>> print(certify_memory(graph, exact=False))
    proved for every order: at most 10 B of 10 B (credits)
    """
    limits = tuple(place.limit_bytes for place in graph.places)
    method = "credits and minimum cut" if exact else "credits"
    try:
        check_memory_graph(graph)
    except MemoryCheckError as error:
        nothing = (None,) * len(limits)
        return MemoryCertificate("refuted", nothing, limits, False, "credits", str(error))
    bounds = limits
    if exact:
        bounds = tuple(
            None if limit is None else worst_bytes(graph, place)
            for place, limit in enumerate(limits)
        )
        for bound, limit in zip(bounds, limits, strict=True):
            assert bound is None or limit is None or bound <= limit, "credits prove more than is so"
    return MemoryCertificate("proved", bounds, limits, exact, method)
