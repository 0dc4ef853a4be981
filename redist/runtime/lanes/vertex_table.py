"""A memory graph as rows that the loop reads: what each vertex does, by whom, and what it makes ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from redist.errors import RequestError
from redist.offload.admission import Admission, content_edges
from redist.offload.clock import by_longest_path
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

    If it ``admits``, memory is granted by :mod:`~redist.offload.admission`: what is ready may begin wherever
    its bytes come from. Otherwise it waits for those who give it credits.
    """

    name: str = "longest path"
    seed: int = 0
    admits: bool = False

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
        """A number for every vertex, no two alike: of those that are ready, the least comes first."""
        out = list(range(len(graph.vertices)))
        match self.name:
            case "random":
                Random(self.seed).shuffle(out)
            case "longest path":
                out = by_longest_path(graph, before)
        return out


RUNS, LOADS, STORES, STARTED_LOADS, STARTED_STORES, NOW = range(6)
"""The queues in which vertices wait, each in an order of its own; what takes no time waits in none."""
HERE, LOAD, STORE = range(3)
"""Who serves them: the calling thread, threads that load, threads that store."""
SERVED: tuple[tuple[int, ...], ...] = ((RUNS, STARTED_LOADS, STARTED_STORES), (LOADS,), (STORES,))
SERVER = (HERE, LOAD, STORE, HERE, HERE)


SMALL = 256
"""What takes less than one of this many parts of the memory may as well have it early."""


@dataclass(frozen=True, slots=True)
class TaskWork:
    """What a task does.

    ``function`` is called with the tiles that the task reads, updates and makes, in this order; it fills
    those that it makes. If it ``gives``, those are not among the arguments: it returns the array that is
    made, or a tuple of several. If it ``starts``, it returns at once what is under way, with ``is_done()``
    and ``wait()``; what it gives is then the result of ``wait()``. If it ``queues``, too, what was started
    first is done first, as by a stream of a GPU, and ``made`` of what is under way has what it will give.
    """

    function: Callable[..., Any]
    gives: bool = False
    starts: bool = False
    queues: bool = False


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
    queues: bool


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
        before = content_edges(graph) if policy.admits else with_moves_in_order(graph)
        self.admission = Admission(graph) if policy.admits else None
        """At the beginning of a run; each takes a copy."""
        self.n_before = [len(one) for one in before]
        queues = policy.admits and not policy.is_synchronous
        self.is_ahead = [queues and row.queues for row in self.rows]
        """Whether a vertex may be started behind others that have been started, before those have ended."""
        limit = graph.places[0].limit_bytes
        self.is_small = [
            limit is None or SMALL * sum(n for place, n in row.takes if not place) <= limit
            for row in self.rows
        ]
        """Whether a vertex takes next to no memory."""
        self.time_ps = [graph.time_ps(number) for number in range(len(self.rows))]
        self.after: list[list[int]] = [[] for _ in before]
        self.behind: list[list[int]] = [[] for _ in before]
        """By vertex those that wait until it has ended, and those that wait until it has been started."""
        for number, several in enumerate(before):
            for one in several:
                is_queued = self.is_ahead[one] and self.is_ahead[number]
                (self.behind if is_queued else self.after)[one].append(number)
        self.ranks = policy.ranks_of(graph, before)
        self.queue = [_queue(row, policy) for row in self.rows]
        own = range(NOW, NOW + len(self.rows))
        started = STARTED_LOADS, STARTED_STORES
        self.streams = [
            queue if is_ahead or queue in started else at
            for is_ahead, queue, at in zip(self.is_ahead, self.queue, own, strict=True)
        ]
        """By vertex: those of one number are done in the order in which they were started."""
        self.by_rank = [0] * len(before)
        for number, rank in enumerate(self.ranks):
            self.by_rank[rank] = number
        self.order: list[list[int]] = [[] for _ in range(NOW + 1)]
        """The vertices of each queue, as listed."""
        for number, queue in enumerate(self.queue):
            self.order[queue].append(number)


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


def _queue(row: VertexRow, policy: LanePolicy) -> int:
    if row.kind in ("drop", "free"):
        return NOW
    if row.kind == "run" or policy.is_synchronous:
        return RUNS
    if row.kind == "load":
        return STARTED_LOADS if row.starts else LOADS
    return STARTED_STORES if row.starts else STORES


def _row(
    graph: MemoryGraph, number: int, work: Sequence[TaskWork], stores: Sequence[TileStore]
) -> VertexRow:
    vertex = graph.vertices[number]
    function, gives, starts, queues = None, False, False, False
    if vertex.task is not None:
        one = work[vertex.task]
        function, gives, starts, queues = one.function, one.gives, one.starts, one.queues
    elif vertex.kind in ("load", "store"):
        starts = stores[_far_place(graph, vertex) - 1].starts
    return VertexRow(
        vertex.kind,
        function,
        (*vertex.reads, *vertex.updates),
        vertex.makes,
        vertex.ends,
        tuple(graph.taken_bytes(number).items()),
        tuple(graph.returned_bytes(number).items()),
        gives,
        starts,
        graph.lane_of(number),
        queues,
    )


def _far_place(graph: MemoryGraph, vertex: Vertex) -> int:
    return max(
        graph.residencies[one].place for one in (*vertex.reads, *vertex.updates, *vertex.makes)
    )
