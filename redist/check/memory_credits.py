"""Judge the bytes of a memory graph: what is taken was given back before, and no byte is given twice.

So in every order live bytes are within the limits: each byte of a limit is handed on along edges.
"""

from __future__ import annotations

from collections.abc import Sequence

from redist.errors import MemoryCheckError
from redist.program.memory_graph import MemoryGraph


def must(good: bool, vertex: int | None, reason: str) -> None:
    """Reject a vertex for a reason, unless all is good."""
    if not good:
        raise MemoryCheckError(vertex, reason)


def check_credits(graph: MemoryGraph) -> None:
    """What is taken is covered by credits; they come from vertices before, and from none twice."""
    left = [place.limit_bytes for place in graph.places]
    for one in range(graph.n_given):
        place = graph.residencies[one].place
        limit = left[place]
        if limit is not None:
            left[place] = limit - graph.bytes_of(one)
    for where, limit in zip(graph.places, left, strict=True):
        must(limit is None or limit >= 0, None, f"more is given than the limit of {where.name}")
    gives: list[dict[int, int]] = []
    for number, vertex in enumerate(graph.vertices):
        takes = _sums(graph, vertex.makes)
        staging = 0 if vertex.task is None else graph.tasks.tasks[vertex.task].staging_bytes
        if staging:
            takes[0] = takes.get(0, 0) + staging
        for credit in vertex.credits:
            where = graph.places[credit.place]
            must(credit.n_bytes > 0, number, "a credit of no bytes")
            if credit.giver is None:
                limit = left[credit.place]
                if limit is not None:
                    limit -= credit.n_bytes
                    left[credit.place] = limit
                    must(limit >= 0, number, f"the limit of {where.name} gives more than it has")
            else:
                must(credit.giver in vertex.before, number, "a credit without its edge")
                has = gives[credit.giver]
                has[credit.place] = has.get(credit.place, 0) - credit.n_bytes
                enough = has[credit.place] >= 0
                must(enough, number, f"vertex {credit.giver} gives more than it had")
            takes[credit.place] = takes.get(credit.place, 0) - credit.n_bytes
        for at, n_bytes in takes.items():
            covered = n_bytes <= 0 or graph.places[at].limit_bytes is None
            must(covered, number, f"{n_bytes} bytes without credits")
        gives.append(_sums(graph, vertex.ends))
        if staging:
            gives[-1][0] = gives[-1].get(0, 0) + staging


def _sums(graph: MemoryGraph, residencies: Sequence[int]) -> dict[int, int]:
    """Bytes of residencies by place."""
    out: dict[int, int] = {}
    for one in residencies:
        place = graph.residencies[one].place
        out[place] = out.get(place, 0) + graph.bytes_of(one)
    return out
