"""A memory graph as rows that the loop reads: what each vertex does, by whom, and what it makes ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from redist.errors import RequestError
from redist.program.memory_graph import MemoryGraph, Vertex
from redist.runtime.lanes.stores import TileStore

# Which of the vertices that are ready comes first.


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


HERE, LOAD, STORE, NOW = 0, 1, 2, 3
"""Who does a vertex: the calling thread, a thread that loads or stores, or whoever made it ready."""


@dataclass(frozen=True, slots=True)
class TaskWork:
    """What a task does.

    ``function`` is called with the tiles that the task reads, updates and makes, in this order; it fills
    those that it makes. If it ``gives``, those are not among the arguments: it returns the array that is
    made, or a tuple of several. If it ``starts``, it returns at once what is under way, with ``is_done()``
    and ``wait()``; what it gives is then the result of ``wait()``.
    """

    function: Callable[..., Any]
    gives: bool = False
    starts: bool = False


class VertexRow(NamedTuple):
    """One vertex. ``takes`` and ``returns`` are pairs of place and bytes, counted from beginning to end."""

    kind: str
    function: Callable[..., Any] | None
    inputs: tuple[int, ...]
    makes: tuple[int, ...]
    ends: tuple[int, ...]
    takes: tuple[tuple[int, int], ...]
    returns: tuple[tuple[int, int], ...]
    gives: bool
    starts: bool
    lane: str


class VertexTable:
    """Rows of all vertices, and who waits for whom."""

    def __init__(
        self,
        graph: MemoryGraph,
        work: Sequence[TaskWork],
        stores: Sequence[TileStore],
        policy: LanePolicy,
    ) -> None:
        if len(work) != len(graph.tasks.tasks) or len(stores) != len(graph.places) - 1:
            raise RequestError(
                f"cannot run {graph}: {len(work)} functions for {len(graph.tasks.tasks)} tasks, "
                f"{len(stores)} stores for {len(graph.places) - 1} places behind the first"
            )
        self.rows = [_row(graph, number, work, stores) for number in range(len(graph.vertices))]
        before = with_moves_in_order(graph)
        self.n_before = [len(one) for one in before]
        self.after: list[list[int]] = [[] for _ in before]
        for number, several in enumerate(before):
            for one in several:
                self.after[one].append(number)
        self.ranks = policy.ranks_of(graph, before)
        self.who = [_who(row, policy) for row in self.rows]
        self.by_rank = [0] * len(before)
        for number, rank in enumerate(self.ranks):
            self.by_rank[rank] = number
        self.order = [[n for n, one in enumerate(self.who) if one == who] for who in range(3)]
        """The vertices of each who, as listed."""


def with_moves_in_order(graph: MemoryGraph) -> list[tuple[int, ...]]:
    """What is before each vertex, and before each move the last one, whether or not the graph says so."""
    before = [one.before for one in graph.vertices]
    last = -1
    for number, one in enumerate(before):
        if graph.lane_of(number) == "moves":
            if last >= 0 and last not in one:
                before[number] = (*one, last)
            last = number
    return before


def _who(row: VertexRow, policy: LanePolicy) -> int:
    if row.kind in ("drop", "free"):
        return NOW
    if row.kind == "run" or row.starts or policy.is_synchronous:
        return HERE
    return LOAD if row.kind == "load" else STORE


def _row(
    graph: MemoryGraph, number: int, work: Sequence[TaskWork], stores: Sequence[TileStore]
) -> VertexRow:
    vertex = graph.vertices[number]
    takes = _bytes_by_place(graph, vertex.makes)
    returns = _bytes_by_place(graph, vertex.ends)
    function, gives, starts = None, False, False
    if vertex.task is not None:
        one = work[vertex.task]
        function, gives, starts = one.function, one.gives, one.starts
        staging = graph.tasks.tasks[vertex.task].staging_bytes
        if staging:
            takes[0] = takes.get(0, 0) + staging
            returns[0] = returns.get(0, 0) + staging
    elif vertex.kind in ("load", "store"):
        starts = stores[_far_place(graph, vertex) - 1].starts
    return VertexRow(
        vertex.kind,
        function,
        (*vertex.reads, *vertex.updates),
        vertex.makes,
        vertex.ends,
        tuple(takes.items()),
        tuple(returns.items()),
        gives,
        starts,
        graph.lane_of(number),
    )


def _far_place(graph: MemoryGraph, vertex: Vertex) -> int:
    return max(
        graph.residencies[one].place for one in (*vertex.reads, *vertex.updates, *vertex.makes)
    )


def _bytes_by_place(graph: MemoryGraph, residencies: Sequence[int]) -> dict[int, int]:
    out: dict[int, int] = {}
    for one in residencies:
        place = graph.residencies[one].place
        out[place] = out.get(place, 0) + graph.bytes_of(one)
    return out
