"""Loads run ahead: a layer's weights may be loaded while the layers before it compute."""

from __future__ import annotations

import heapq
import sys

import pytest

from redist.check.certify_memory import certify_memory
from redist.offload.compile import compile_memory, least_memory
from redist.program.memory_graph import MemoryGraph, MemoryPlace
from redist.program.tasks import MemoryTask, MemoryTile, TaskList
from tests.tiers import sample

WEIGHT, ACTIVATION = 12, 4


def forward(n_layers: int) -> TaskList:
    """y = w x for every layer; weights lie in the store."""
    tiles = [MemoryTile(WEIGHT, (1,), (1,), name=f"w{n}") for n in range(n_layers)]
    tiles += [MemoryTile(ACTIVATION, (0,), name="x")]
    tasks = []
    for n in range(n_layers):
        tasks.append(MemoryTask(f"layer {n}", (n, len(tiles) - 1), (len(tiles),), time_ps=24_000))
        tiles.append(MemoryTile(ACTIVATION, (), (0,) if n == n_layers - 1 else ()))
    return TaskList(tuple(tiles), tuple(tasks))


def forward_and_backward(n_layers: int, time_ps: int) -> TaskList:
    """Activations are needed again in the other direction, and weights are updated."""
    tiles = [MemoryTile(WEIGHT, (1,), (1,)) for _ in range(n_layers)]
    xs = list(range(n_layers, 2 * n_layers + 1))
    tiles += [MemoryTile(ACTIVATION, (0,)), *(MemoryTile(ACTIVATION) for _ in range(n_layers))]
    tasks = [
        MemoryTask(f"layer {n}", (n, xs[n]), (xs[n + 1],), time_ps=time_ps) for n in range(n_layers)
    ]
    gradient = xs[-1]
    for n in reversed(range(n_layers)):
        made = len(tiles)
        tiles.append(MemoryTile(ACTIVATION, (), (0,) if n == 0 else ()))
        tasks.append(MemoryTask(f"back {n}", (xs[n], gradient), (made,), (n,), time_ps=2 * time_ps))
        gradient = made
    return TaskList(tuple(tiles), tuple(tasks))


def waits_for(graph: MemoryGraph, number: int) -> set[int]:
    """All vertices that are before one, through others too."""
    found: set[int] = set()
    todo = [number]
    while todo:
        for one in graph.vertices[todo.pop()].before:
            if one not in found:
                found.add(one)
                todo.append(one)
    return found


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_weights_are_loaded_layers_ahead(ahead: int) -> None:
    """With room for so many more layers, a load waits for no layer of the last ``ahead``."""
    tasks = forward(12)
    least, _ = least_memory(tasks)
    places = (
        MemoryPlace("memory", least + ahead * (WEIGHT + ACTIVATION)),
        MemoryPlace("store", None, 1),
    )
    graph = compile_memory(tasks, places)
    assert certify_memory(graph).verdict == "proved"
    loads = {
        graph.residencies[one.makes[0]].tile: number
        for number, one in enumerate(graph.vertices)
        if one.kind == "load"
    }
    runs = {one.task: number for number, one in enumerate(graph.vertices) if one.kind == "run"}
    for layer, load in loads.items():
        before = waits_for(graph, load)
        for n in range(1, ahead + 1):
            assert runs.get(layer - n) not in before


def modelled_ps(graph: MemoryGraph, is_synchronous: bool = False) -> int:
    """The time of a run with a lane each for computing, moves, loads and stores; or one for all."""
    waits = [len(one.before) for one in graph.vertices]
    after: list[list[int]] = [[] for _ in waits]
    for number, one in enumerate(graph.vertices):
        for other in one.before:
            after[other].append(number)
    ready: dict[str, list[int]] = {}
    running: list[tuple[int, int, str]] = []
    now = 0

    def offer(number: int) -> None:
        lane = graph.lane_of(number)
        lane = "now" if lane == "now" else "all" if is_synchronous else lane
        heapq.heappush(ready.setdefault(lane, []), number)

    for number, n in enumerate(waits):
        if n == 0:
            offer(number)
    while True:
        for lane, queue in ready.items():
            while queue and (lane == "now" or all(other != lane for *_, other in running)):
                number = heapq.heappop(queue)
                heapq.heappush(running, (now + graph.time_ps(number), number, lane))
        if not running:
            return now
        now, number, _ = heapq.heappop(running)
        for other in after[number]:
            waits[other] -= 1
            if waits[other] == 0:
                offer(other)


@pytest.mark.parametrize(("times", "most"), [(2.0, 1.05), (1.5, 1.25)])
def test_loads_and_stores_hide_behind_computing(times: float, most: float) -> None:
    """24 layers there and back, memory of a few layers, computing that takes twice as long as all I/O."""
    tasks = forward_and_backward(24, time_ps=24)
    least, _ = least_memory(tasks)
    places = (MemoryPlace("memory", int(times * least)), MemoryPlace("store", None, 1000))
    graph = compile_memory(tasks, places)
    moved = sum(graph.moved_bytes.values())
    computing = sum(task.time_ps for task in tasks.tasks)
    assert moved < computing  # so it could all be hidden
    together, one_by_one = modelled_ps(graph), modelled_ps(graph, is_synchronous=True)
    assert one_by_one == computing + moved
    assert together <= most * computing < one_by_one


def calls_of_compiling(n_layers: int) -> tuple[int, int]:
    """How many functions are called to compile layers, and how many vertices that makes."""
    tasks = forward_and_backward(n_layers, time_ps=24)
    least, _ = least_memory(tasks)
    places = MemoryPlace("memory", 3 * least), MemoryPlace("store", None, 1)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        graph = compile_memory(tasks, places)
    finally:
        sys.setprofile(before)
    assert certify_memory(graph).verdict == "proved"
    return calls, len(graph.vertices)


def test_many_tasks_compile_in_work_that_grows_with_them() -> None:
    n = sample(1000, of=10_000)
    few, many = calls_of_compiling(n // 10), calls_of_compiling(n)
    assert many[1] > 9 * few[1]
    assert many[0] / many[1] < 1.3 * few[0] / few[1]  # calls a vertex: those of heaps grow slowly
