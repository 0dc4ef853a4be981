"""Which of the vertices that are ready comes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from redist.errors import RequestError
from redist.program.memory_graph import MemoryGraph

POLICIES = ("longest path", "in order", "synchronous", "random")


@dataclass(frozen=True, slots=True)
class LanePolicy:
    """How a lane chooses among the vertices that are ready.

    ================ =============================================================================
    ``longest path``  that from which the modelled way to the end is longest; of equals the first
    ``in order``      the next of its lane in the list of the graph, or nothing if that is not ready
    ``synchronous``   the next in the list of the graph; all by the calling thread, one at a time
    ``random``        any, by ``seed``: for tests
    ================ =============================================================================
    """

    name: str = "longest path"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.name not in POLICIES:
            raise RequestError(f"cannot choose by {self.name!r}: known are {', '.join(POLICIES)}")

    @property
    def is_fixed(self) -> bool:
        """Whether each lane keeps the order of the list."""
        return self.name in ("in order", "synchronous")

    @property
    def is_synchronous(self) -> bool:
        """Whether the calling thread does all, one at a time."""
        return self.name == "synchronous"

    def ranks_of(self, graph: MemoryGraph, before: Sequence[Sequence[int]]) -> list[int]:
        """A number for every vertex, no two alike: of those that are ready, the least comes first.

        >>> from redist.program.tasks import MemoryTask, TaskList
        >>> from redist.program.memory_graph import MemoryPlace, Vertex
        >>> times = (1, 2, 5)
        >>> tasks = TaskList((), tuple(MemoryTask(f"{t}", time_ps=t) for t in times))
        >>> runs = Vertex("run", 0), Vertex("run", 1), Vertex("run", 2, before=(1,))
        >>> graph = MemoryGraph(tasks, (MemoryPlace("memory"),), (), 0, runs)
        >>> LanePolicy().ranks_of(graph, [one.before for one in runs])
        [2, 0, 1]
        """
        n = len(graph.vertices)
        match self.name:
            case "random":
                out = list(range(n))
                Random(self.seed).shuffle(out)
                return out
            case "longest path":
                longest = longest_paths_ps(graph, before)
                order = sorted(range(n), key=lambda number: (-longest[number], number))
                out = [0] * n
                for rank, number in enumerate(order):
                    out[number] = rank
                return out
            case _:
                return list(range(n))


def longest_paths_ps(graph: MemoryGraph, before: Sequence[Sequence[int]]) -> list[int]:
    """The modelled time of the longest way from every vertex to the end, itself included."""
    after = [0] * len(graph.vertices)
    for number in range(len(graph.vertices) - 1, -1, -1):
        after[number] += graph.time_ps(number)
        for one in before[number]:
            after[one] = max(after[one], after[number])
    return after
