"""The checker of memory graphs rejects one mutation for each of its rules; the cut equals brute force."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest

from redist.check.certify_memory import certify_memory, worst_bytes
from redist.check.memory_graphs import check_memory_graph
from redist.errors import MemoryCheckError
from redist.offload.compile import compile_memory, least_memory
from redist.program.memory_graph import Credit, MemoryGraph, MemoryPlace, Vertex
from redist.program.tasks import MemoryTask, MemoryTile, TaskList
from tests.offload.random_tasks import random_places, random_tasks
from tests.tiers import sample


def small_graph() -> MemoryGraph:
    """All kinds of vertices: 0 and 1 in a store, 2 fixed, 3 made and updated, 4 and 5 moves' results."""
    tiles = (
        MemoryTile(6, (1,), (1,)),
        MemoryTile(6, (1,), (1,)),
        MemoryTile(2, (0,), (0,), True),
        MemoryTile(4),
        MemoryTile(4),
        MemoryTile(4, (), (0,)),
    )
    tasks = (
        MemoryTask("a", (0, 2), (3,)),
        MemoryTask("b", (1,), (4,), lane="moves"),
        MemoryTask("c", (0, 4), (), (3,), staging_bytes=1),
        MemoryTask("d", (3, 1), (5,), lane="moves"),
        MemoryTask("e", (), (), (0,)),
        MemoryTask("f", (0,)),
        MemoryTask("g"),
    )
    places = (MemoryPlace("memory", 17), MemoryPlace("store", None, 1))
    graph = compile_memory(TaskList(tiles, tasks), places)
    assert {one.kind for one in graph.vertices} == {"run", "load", "store", "drop", "free"}
    return graph


GRAPH = small_graph()


def first(kind: str, good: Callable[[Vertex], object] = lambda _: True) -> int:
    return next(n for n, one in enumerate(GRAPH.vertices) if one.kind == kind and good(one))


def run_of(task: int) -> int:
    return next(n for n, one in enumerate(GRAPH.vertices) if one.task == task)


def changed(number: int, **fields: object) -> MemoryGraph:
    vertices = list(GRAPH.vertices)
    vertices[number] = replace(vertices[number], **fields)  # type: ignore[arg-type]
    return replace(GRAPH, vertices=tuple(vertices))


def without_edge(number: int, other: int) -> MemoryGraph:
    before = GRAPH.vertices[number].before
    assert other in before
    return changed(number, before=tuple(one for one in before if one != other))


def taken_from_another() -> MemoryGraph:
    """A credit whose giver has no edge to it."""
    number = first("load", lambda one: any(c.giver is not None for c in one.credits))
    credits = GRAPH.vertices[number].credits
    giver = next(c.giver for c in credits if c.giver is not None)
    return without_edge(number, giver)


def credit_twice() -> MemoryGraph:
    """Two vertices take the bytes of one giver."""
    takers = [
        n for n, one in enumerate(GRAPH.vertices) if any(c.giver is not None for c in one.credits)
    ]
    one, other = takers[0], takers[-1]
    giver = next(c.giver for c in GRAPH.vertices[one].credits if c.giver is not None)
    total = sum(c.n_bytes for c in GRAPH.vertices[other].credits)
    before = tuple(sorted({*GRAPH.vertices[other].before, giver}))
    return changed(other, credits=(Credit(giver, 0, total),), before=before)


def reader_edge_missing(kind: str) -> MemoryGraph:
    """A residency ends without waiting for one who reads it."""

    def readers(vertex: Vertex) -> list[int]:
        return [
            n
            for n in vertex.before
            if GRAPH.vertices[n].kind == "run" and set(vertex.ends) & set(GRAPH.vertices[n].reads)
        ]

    number = first(kind, readers)
    return without_edge(number, readers(GRAPH.vertices[number])[0])


def unclean_drop() -> MemoryGraph:
    """What was written (tile 0, by task e) is dropped instead of stored."""
    number = first("store", lambda one: one.updates)
    vertex = GRAPH.vertices[number]
    vertices = list(GRAPH.vertices)
    vertices[number] = replace(vertex, kind="drop", reads=vertex.updates, updates=())
    return replace(GRAPH, vertices=tuple(vertices))


def loaded_too_early() -> MemoryGraph:
    """A load that reads the copy in the store without waiting for who writes it."""
    tiles = (MemoryTile(4), MemoryTile(4), MemoryTile(4, (), (0,)))
    tasks = (
        MemoryTask("a", (), (0,)),
        MemoryTask("b", (), (1,), staging_bytes=4),
        MemoryTask("c", (1,)),
        MemoryTask("d", (0,), (2,)),
    )
    places = (MemoryPlace("memory", 8), MemoryPlace("store"))
    graph = compile_memory(TaskList(tiles, tasks), places)
    check_memory_graph(graph)
    number = next(n for n, one in enumerate(graph.vertices) if one.kind == "load")
    store = next(n for n, one in enumerate(graph.vertices) if one.kind == "store")
    vertices = list(graph.vertices)
    load = vertices[number]
    vertices[number] = replace(
        load,
        before=tuple(one for one in load.before if one != store),
        credits=tuple(replace(c, giver=None) if c.giver == store else c for c in load.credits),
    )
    return replace(graph, vertices=tuple(vertices), places=(MemoryPlace("memory", 16), places[1]))


def other_version() -> MemoryGraph:
    """Task d reads tile 3 as task a made it, because the update does not come before it."""
    a, c, d = run_of(0), run_of(2), run_of(3)
    swapped = [vertex.task for vertex in GRAPH.vertices]
    assert a < c < d and swapped.count(2) == 1
    tasks = list(GRAPH.tasks.tasks)
    tasks[2], tasks[3] = tasks[3], tasks[2]
    vertices = [
        replace(v, task={2: 3, 3: 2}.get(v.task, v.task)) if v.task is not None else v
        for v in GRAPH.vertices
    ]
    listed = TaskList(GRAPH.tasks.tiles, tuple(tasks))
    return replace(GRAPH, tasks=listed, vertices=tuple(vertices))


def swapped_moves() -> MemoryGraph:
    """The second move does not wait for the first."""
    return without_edge(run_of(3), run_of(1))


def fixed_leaves() -> MemoryGraph:
    residency = next(n for n, one in enumerate(GRAPH.residencies) if one.tile == 2)
    users = tuple(n for n, one in enumerate(GRAPH.vertices) if residency in one.reads)
    return replace(
        GRAPH, vertices=(*GRAPH.vertices, Vertex("free", ends=(residency,), before=users))
    )


def result_freed() -> MemoryGraph:
    made = GRAPH.vertices[run_of(3)].makes
    users = (run_of(3),)
    return replace(GRAPH, vertices=(*GRAPH.vertices, Vertex("free", ends=made, before=users)))


def used_after_its_end() -> MemoryGraph:
    free = first("free")
    ended = GRAPH.vertices[free].ends
    late = Vertex("free", ends=ended, before=tuple(range(len(GRAPH.vertices))))
    return replace(GRAPH, vertices=(*GRAPH.vertices, late))


def with_limit(limit_bytes: int) -> MemoryGraph:
    return replace(GRAPH, places=(MemoryPlace("memory", limit_bytes), GRAPH.places[1]))


LOAD, RUN = first("load"), run_of(0)
MUTATIONS: dict[str, tuple[Callable[[], MemoryGraph], str]] = {
    "a load without credits": (lambda: changed(LOAD, credits=()), "without credits"),
    "staging without credits": (
        lambda: changed(run_of(2), credits=()),
        "without credits",
    ),
    "a credit without its edge": (taken_from_another, "a credit without its edge"),
    "a credit used twice": (credit_twice, "gives more than it had"),
    "a limit one byte smaller": (
        lambda: with_limit(16),
        "the limit of memory gives more than it has",
    ),
    "more given than the limit": (lambda: with_limit(1), "more is given than the limit"),
    "an edge forward": (lambda: changed(LOAD, before=(LOAD,)), "is not before it"),
    "evict before a reader": (lambda: reader_edge_missing("store"), "may still be read"),
    "drop before a reader": (lambda: reader_edge_missing("drop"), "may still be read"),
    "free before a reader": (lambda: reader_edge_missing("free"), "may still be read"),
    "read before it is made": (
        lambda: without_edge(RUN, first("load")),
        "may not be written before it",
    ),
    "load before the store": (loaded_too_early, "may not be written before it"),
    "clean drop after a write": (unclean_drop, "this one is newer"),
    "another version": (other_version, "version 0 of a tile, not 1|version 1 of a tile, not 0"),
    "a task twice": (
        lambda: replace(GRAPH, vertices=(*GRAPH.vertices, GRAPH.vertices[run_of(6)])),
        "runs twice",
    ),
    "a task left out": (
        lambda: replace(GRAPH, vertices=GRAPH.vertices[: run_of(4)]),
        "tasks do not run",
    ),
    "a task on another tile": (
        lambda: changed(RUN, reads=GRAPH.vertices[RUN].reads[::-1]),
        "it reads other tiles",
    ),
    "a move overtakes": (swapped_moves, "a move may overtake"),
    "a fixed tile leaves": (fixed_leaves, "a fixed tile leaves memory"),
    "a result is not there": (result_freed, "is not in place 0 at the end"),
    "a result is not stored": (
        lambda: changed(first("store"), kind="free", reads=(), updates=()),
        "is not in place 1 at the end",
    ),
    "ended twice": (used_after_its_end, "has ended"),
    "a load to the wrong place": (
        lambda: changed(LOAD, kind="store"),
        "to another place than the next",
    ),
    "another kind": (lambda: changed(LOAD, kind="hope"), "there is no kind"),
    "a residency that is not": (lambda: changed(LOAD, reads=(99,)), "there is no residency"),
    "a task that is not": (lambda: changed(RUN, task=99), "there is no task"),
    "given from nowhere": (
        lambda: replace(GRAPH, n_given=GRAPH.n_given - 1),
        "other tiles are given",
    ),
}


def test_the_graph_is_accepted() -> None:
    check_memory_graph(GRAPH)
    assert certify_memory(GRAPH).verdict == "proved"


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_rejected(name: str) -> None:
    mutate, reason = MUTATIONS[name]
    with pytest.raises(MemoryCheckError, match=reason):
        check_memory_graph(mutate())
    certificate = certify_memory(mutate())
    assert certificate.verdict == "refuted" and certificate.reason


def worst_by_brute_force(graph: MemoryGraph, place: int) -> int:
    """The most bytes over all sets of vertices that may be begun, and of those that are done among them."""
    n = len(graph.vertices)
    given = sum(
        graph.bytes_of(r) for r in range(graph.n_given) if graph.residencies[r].place == place
    )

    def bytes_in(residencies: tuple[int, ...]) -> int:
        return sum(graph.bytes_of(r) for r in residencies if graph.residencies[r].place == place)

    def staging(vertex: Vertex) -> int:
        if place or vertex.task is None:
            return 0
        return graph.tasks.tasks[vertex.task].staging_bytes

    worst = given
    for done in _closed_sets(graph, n):
        ready = [
            v
            for v in range(n)
            if v not in done and all(b in done for b in graph.vertices[v].before)
        ]
        live = given + sum(
            bytes_in(graph.vertices[v].makes) - bytes_in(graph.vertices[v].ends) for v in done
        )
        begun = [bytes_in(graph.vertices[v].makes) + staging(graph.vertices[v]) for v in ready]
        worst = max(worst, live + sum(begun))  # all that may run at once, does
    return worst


def _closed_sets(graph: MemoryGraph, n: int) -> list[frozenset[int]]:
    return [
        frozenset(chosen)
        for size in range(n + 1)
        for chosen in combinations(range(n), size)
        if all(b in chosen for v in chosen for b in graph.vertices[v].before)
    ]


def test_the_cut_is_what_brute_force_finds() -> None:
    rng = random.Random(3)
    found = 0
    while found < sample(30, of=600):
        n_places = rng.choice((2, 2, 3))
        tasks = random_tasks(rng, most=4, n_places=n_places)
        two = n_places == 2
        graph = compile_memory(tasks, random_places(rng, tasks) if two else _three(tasks))
        if not 2 <= len(graph.vertices) <= 9:
            continue
        found += 1
        loose = _with_fewer_edges(graph, rng)
        for one in (graph, loose):
            for place in range(n_places):
                assert worst_bytes(one, place) == worst_by_brute_force(one, place)


def _three(tasks: TaskList) -> tuple[MemoryPlace, ...]:
    least, _ = least_memory(tasks)
    return MemoryPlace("gpu", least), MemoryPlace("host", 60), MemoryPlace("disk")


def _with_fewer_edges(graph: MemoryGraph, rng: random.Random) -> MemoryGraph:
    vertices = [
        replace(one, before=tuple(b for b in one.before if rng.random() < 0.7))
        for one in graph.vertices
    ]
    return replace(graph, vertices=tuple(vertices))


def test_the_cut_is_what_scipy_finds() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    csgraph = pytest.importorskip("scipy.sparse.csgraph")
    rng = random.Random(4)
    for _ in range(sample(5, of=100)):
        tasks = random_tasks(rng, most=40)
        graph = compile_memory(tasks, random_places(rng, tasks))
        n = len(graph.vertices)
        caps = [[0] * (2 * n + 2) for _ in range(2 * n + 2)]
        total = 0
        for number, vertex in enumerate(graph.vertices):
            staging = 0 if vertex.task is None else tasks.tasks[vertex.task].staging_bytes
            here = [sum(graph.bytes_of(r) for r in part if graph.residencies[r].place == 0)
                    for part in (vertex.makes, vertex.ends)]  # fmt: skip
            total += here[0] + staging
            caps[2 * n][number] = here[0] + staging
            caps[n + number][2 * n + 1] = here[1] + staging
            caps[n + number][number] = 10**6
            for one in vertex.before:
                caps[number][n + one] = 10**6
        flow = csgraph.maximum_flow(sparse.csr_matrix(caps, dtype="int32"), 2 * n, 2 * n + 1)
        given = sum(
            graph.bytes_of(r) for r in range(graph.n_given) if not graph.residencies[r].place
        )
        assert worst_bytes(graph, 0) == given + total - flow.flow_value


def test_a_graph_without_any_one_of_its_edges_is_rejected() -> None:
    rng = random.Random(6)
    removed = 0
    for _ in range(sample(5, of=100)):
        tasks = random_tasks(rng, most=12)
        graph = compile_memory(tasks, random_places(rng, tasks))
        for number, vertex in enumerate(graph.vertices):
            for edge in vertex.before:
                vertices = list(graph.vertices)
                before = tuple(one for one in vertex.before if one != edge)
                vertices[number] = replace(vertex, before=before)
                with pytest.raises(MemoryCheckError):
                    check_memory_graph(replace(graph, vertices=tuple(vertices)))
                removed += 1
    assert removed > sample(45, of=1000)
