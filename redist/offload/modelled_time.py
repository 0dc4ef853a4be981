"""The modelled time of a memory graph: lanes work side by side, each in the order of the list."""

from __future__ import annotations

from redist.program.memory_graph import MemoryGraph


def modelled_ps(graph: MemoryGraph) -> int:
    """**Local.** When the last vertex ends; tasks and moves share a lane, loads and stores have one each.

    >>> from redist.offload.compile import compile_memory
    >>> from redist.program.memory_graph import MemoryPlace
    >>> from redist.program.tasks import MemoryTask, MemoryTile, TaskList
    >>> tiles = (*(MemoryTile(8, begins=(1,), ends=(1,)) for _ in range(3)), MemoryTile(8, ends=(0,)))
    >>> added = (MemoryTask(f"add {n}", (n,), updates=(3,), time_ps=100) for n in (1, 2))
    >>> tasks = TaskList(tiles, (MemoryTask("copy", (0,), (3,), time_ps=100), *added))
    >>> limits = 16, 24
    >>> [modelled_ps(compile_memory(tasks, (MemoryPlace("memory", n), MemoryPlace("disk", None, 10000))))
    ...  for n in limits]
    [540, 380]
    """
    ends: list[int] = []
    free = {"here": 0, "load": 0, "store": 0}
    for number, vertex in enumerate(graph.vertices):
        lane = graph.lane_of(number)
        who = lane if lane in free else "here"
        begin = max((ends[one] for one in vertex.before), default=0)
        if lane != "now":
            begin = max(begin, free[who])
            free[who] = begin + graph.time_ps(number)
        ends.append(begin + graph.time_ps(number))
    return max(ends, default=0)
