"""A clock over a memory graph: how long it would take if every vertex took its modelled time.

Lanes work side by side, as :mod:`redist.runtime.lanes` has them: tasks and moves share one, loads and stores
have one for each place behind the first. What ends makes others ready, and room for them. There is no
contention between lanes, and the work of the host is not counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from redist.offload.admission import Admission, content_edges
from redist.program.memory_graph import MemoryGraph

# Of the vertices that are ready, that first which most depends on.


def longest_paths_ps(graph: MemoryGraph, before: Sequence[Sequence[int]]) -> list[int]:
    """The modelled time of the longest way from every vertex to the end, itself included."""
    after = [0] * len(graph.vertices)
    for number in range(len(graph.vertices) - 1, -1, -1):
        after[number] += graph.time_ps(number)
        for one in before[number]:
            after[one] = max(after[one], after[number])
    return after


def by_longest_path(graph: MemoryGraph, before: Sequence[Sequence[int]]) -> list[int]:
    """A number for every vertex, no two alike: the least has the longest way to the end; of equals the first.

    >>> from redist.program.tasks import MemoryTask, TaskList
    >>> from redist.program.memory_graph import MemoryPlace, Vertex
    >>> tasks = TaskList((), tuple(MemoryTask(f"{t}", time_ps=t) for t in (1, 2, 5)))
    >>> runs = Vertex("run", 0), Vertex("run", 1), Vertex("run", 2, before=(1,))
    >>> graph = MemoryGraph(tasks, (MemoryPlace("memory"),), (), 0, runs)
    >>> by_longest_path(graph, [one.before for one in runs])
    [2, 0, 1]
    """
    longest = longest_paths_ps(graph, before)
    order = sorted(range(len(longest)), key=lambda number: (-longest[number], number))
    out = [0] * len(order)
    for rank, number in enumerate(order):
        out[number] = rank
    return out


@dataclass(frozen=True, slots=True)
class ClockedRun:
    """What a run would take; ``waited_ps`` of it no task ran while something was loaded or stored.

    >>> ClockedRun(100, 70, 20).waited_share
    0.2
    """

    time_ps: int
    work_ps: int
    waited_ps: int

    @property
    def waited_share(self) -> float:
        """The part of the time that was lost waiting for memory."""
        return self.waited_ps / self.time_ps if self.time_ps else 0.0


TRIED = 4
"""Of those that are ready on a lane, so many are asked whether they are admitted, as runs do it."""
WORK = ("run", 0)
"""The lane of tasks and moves."""


def clock(graph: MemoryGraph, *, admits: bool = True) -> ClockedRun:
    """**Local.** Run a graph by the clock: memory by admission, as programs run, or by its credits.

    >>> from redist.offload.compile import compile_memory
    >>> from redist.program.memory_graph import MemoryPlace
    >>> from redist.program.tasks import MemoryTask, MemoryTile, TaskList
    >>> tiles = (*(MemoryTile(8, begins=(1,), ends=(1,)) for _ in range(3)), MemoryTile(8, ends=(0,)))
    >>> added = (MemoryTask(f"add {n}", (n,), updates=(3,), time_ps=100) for n in (1, 2))
    >>> tasks = TaskList(tiles, (MemoryTask("copy", (0,), (3,), time_ps=100), *added))
    >>> places = (MemoryPlace("memory", limit) for limit in (16, 24))
    >>> graphs = [compile_memory(tasks, (place, MemoryPlace("disk", None, 10000))) for place in places]
    >>> [clock(graph) for graph in graphs]
    [ClockedRun(time_ps=540, work_ps=300, waited_ps=240), ClockedRun(time_ps=380, work_ps=300, waited_ps=80)]
    """
    return _Clock(graph, admits).run()


class _Clock:
    """One run by the clock."""

    def __init__(self, graph: MemoryGraph, admits: bool) -> None:
        self.graph = graph
        before = content_edges(graph) if admits else [one.before for one in graph.vertices]
        self.admission = Admission(graph) if admits else None
        n = len(before)
        self.ranks = by_longest_path(graph, before)
        self.by_rank = [0] * n
        for number, rank in enumerate(self.ranks):
            self.by_rank[rank] = number
        self.lane = [self._lane_of(number) for number in range(n)]
        self.open = [len(one) for one in before]
        self.after: list[list[int]] = [[] for _ in before]
        for number, several in enumerate(before):
            for one in several:
                self.after[one].append(number)
        lanes = dict.fromkeys(one for one in self.lane if one is not None)
        self.heaps: dict[tuple[str, int], list[int]] = {lane: [] for lane in lanes}

    def _lane_of(self, number: int) -> tuple[str, int] | None:
        vertex, residencies = self.graph.vertices[number], self.graph.residencies
        if vertex.kind == "run":
            return WORK
        if vertex.kind not in ("load", "store"):
            return None
        used = (*vertex.reads, *vertex.updates, *vertex.makes)
        return vertex.kind, max(residencies[one].place for one in used)

    def run(self) -> ClockedRun:
        """The time until the last vertex ends."""
        now = work = waited = 0
        running: list[tuple[int, int]] = []
        busy: set[tuple[str, int]] = set()
        self._ready([number for number, n in enumerate(self.open) if not n])
        while True:
            while (number := self._next(busy)) is not None:
                lane = self.lane[number]
                assert lane is not None
                busy.add(lane)
                heapq.heappush(running, (now + self.graph.time_ps(number), number))
            if not running:
                assert not any(self.heaps.values()), "nobody may begin"
                return ClockedRun(now, work, waited)
            then, number = heapq.heappop(running)
            work += then - now if WORK in busy else 0
            waited += 0 if WORK in busy else then - now
            now = then
            lane = self.lane[number]
            assert lane is not None
            busy.remove(lane)
            if self.admission is not None:
                self.admission.end(number)
            self._ready(self._freed(number))

    def _next(self, busy: set[tuple[str, int]]) -> int | None:
        """A vertex that begins now, on a lane that is free."""
        for lane, heap in self.heaps.items():
            if lane in busy or not heap:
                continue
            number = self._best(lane, heap)
            if number is None:
                continue
            if heap[0] == self.ranks[number]:
                heapq.heappop(heap)
            else:
                heap.remove(self.ranks[number])
                heapq.heapify(heap)
            if self.admission is not None:
                self.admission.begin(number)
            return number
        return None

    def _best(self, lane: tuple[str, int], heap: list[int]) -> int | None:
        best, admission = self.by_rank[heap[0]], self.admission
        if admission is None or admission.may_begin(best):
            return best
        tried = [self.by_rank[one] for one in heapq.nsmallest(TRIED, heap[: 2**TRIED - 1])]
        first = admission.first
        if self.lane[first] == lane and not self.open[first]:
            tried.append(first)
        return next((one for one in tried if admission.may_begin(one)), None)

    def _freed(self, number: int) -> list[int]:
        """Those that waited for a vertex alone."""
        out = []
        for one in self.after[number]:
            self.open[one] -= 1
            if not self.open[one]:
                out.append(one)
        return out

    def _ready(self, numbers: list[int]) -> None:
        """Hand vertices to their lanes; those that take no time are done."""
        while numbers:
            number = numbers.pop()
            lane = self.lane[number]
            if lane is not None:
                heapq.heappush(self.heaps[lane], self.ranks[number])
                continue
            if self.admission is not None:
                self.admission.begin(number)
                self.admission.end(number)
            numbers += self._freed(number)


# Whether loads beside the work pay, or everything one at a time is quicker.
#
# Ranks that compute on fewer cores than they are overlap each other: while one waits for its file, another
# computes. What lanes and threads cost then buys nothing.


COPY_PS = 60_000_000
"""What a load or store costs its rank in processor time if a thread does it beside the work, more than if the
calling thread does it: 60 us. Where nothing is computed it is 26 us; else threads meet at Python's lock."""


@dataclass(frozen=True, slots=True)
class CrowdedNode:
    """Ranks that share the cores of a node.

    >>> crowded, alone = CrowdedNode(4, 2), CrowdedNode(1, 2)
    >>> busy = 375 * 10**9, 170 * 10**9, 700             # computes 375 ms, loads 170 ms by 700 copies
    >>> crowded.overlaps(*busy), alone.overlaps(*busy)
    (False, True)
    """

    n_ranks: int
    n_cores: int

    def times_ps(self, work_ps: int, copies_ps: int, n_copies: int) -> tuple[int, int]:
        """The modelled times of a rank that copies beside its work, and of one that does one at a time."""
        share = max(1.0, self.n_ranks / max(1, self.n_cores))
        dear = work_ps + n_copies * COPY_PS
        beside = max(share * dear, copies_ps)
        one_by_one = max(share * work_ps, work_ps + copies_ps)
        return int(beside), int(one_by_one)

    def overlaps(self, work_ps: int, copies_ps: int, n_copies: int) -> bool:
        """Whether copies beside the work take less time."""
        beside, one_by_one = self.times_ps(work_ps, copies_ps, n_copies)
        return beside < one_by_one
