"""Whatever is admitted, in whatever order: limits hold, nobody waits for ever, contents are as listed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from redist.check.admission import Moment, check_admission, check_run
from redist.check.certify_memory import certify_memory, within_bounds
from redist.errors import MemoryCheckError, NoPlanError, RequestError
from redist.offload.admission import Admission, content_edges
from redist.offload.compile import compile_memory
from redist.program.memory_graph import MemoryGraph, MemoryPlace, Residency, Vertex
from redist.program.tasks import MemoryTask, MemoryTile, TaskList
from tests.offload.random_tasks import random_places, random_tasks
from tests.tiers import sample

Asks = Callable[[Admission, int], bool]


def run_in_some_order(
    graph: MemoryGraph, rng: random.Random, asks: Asks = Admission.may_begin, at_once: int = 3
) -> list[Moment]:
    """A random run of a graph, as far as it comes: any vertex that is ready and admitted, several at once."""
    before, admission = content_edges(graph), Admission(graph)
    waits = [len(one) for one in before]
    after: list[list[int]] = [[] for _ in before]
    for number, several in enumerate(before):
        for one in several:
            after[one].append(number)
    ready = [number for number, n in enumerate(waits) if not n]
    running: list[int] = []
    moments: list[Moment] = []
    while ready or running:
        may = [one for one in ready if asks(admission, one)] if len(running) < at_once else []
        if may and (not running or rng.random() < 0.7):
            number = rng.choice(may)
            ready.remove(number)
            running.append(number)
            admission.begin(number)
            moments.append(("begin", number))
            continue
        if not running:
            return moments  # nobody may begin, and nothing is under way
        number = running.pop(rng.randrange(len(running)))
        admission.end(number)
        moments.append(("end", number))
        for one in after[number]:
            waits[one] -= 1
            if not waits[one]:
                ready.append(one)
    return moments


def graphs(seed: int, n_places: int, n: int) -> list[MemoryGraph]:
    """Random ones, with the bytes that were certified as their limits."""
    rng = random.Random(seed)
    found: list[MemoryGraph] = []
    while len(found) < n:
        tasks = random_tasks(rng, n_places=n_places)
        try:
            graph = compile_memory(tasks, random_places(rng, tasks, n_places))
        except NoPlanError:
            continue
        certificate = certify_memory(graph, admitted=content_edges(graph))
        assert certificate.verdict == "proved", certificate
        assert certificate.method.endswith("admission")
        found.append(within_bounds(graph, certificate.bound_bytes))
    return found


@pytest.mark.parametrize("n_places", [2, 3])
def test_every_run_ends_and_is_right(n_places: int) -> None:
    rng = random.Random(n_places)
    overtaken = 0
    for graph in graphs(n_places, n_places, sample(8, of=400)):
        for _ in range(4):
            moments = run_in_some_order(graph, rng, at_once=rng.choice((1, 3, 9)))
            check_run(graph, moments)
            order = [number for what, number in moments if what == "begin"]
            overtaken += order != sorted(order)
    assert overtaken > 5


def test_edges_are_those_of_credits_and_contents() -> None:
    for graph in graphs(7, 3, sample(8, of=400)):
        for vertex, kept in zip(graph.vertices, content_edges(graph), strict=True):
            givers = {one.giver for one in vertex.credits if one.giver is not None}
            assert set(vertex.before) == {*kept, *givers}


def careless(admission: Admission, vertex: int) -> bool:
    """Looks at the bytes of now alone."""
    return all(room.live + room.takes[vertex] <= room.limit for room in admission._rooms)


def hasty(admission: Admission, vertex: int) -> bool:
    """Counts on what those under way will give back, as if they had."""
    kept = [(room.live, room.limit) for room in admission._rooms]
    for room in admission._rooms:
        room.limit = 2**40
    good = admission.may_begin(vertex)
    for room, (_, limit) in zip(admission._rooms, kept, strict=True):
        room.limit = limit
    return good


def test_the_judge_rejects_those_who_do_not_look_ahead() -> None:
    rng = random.Random(3)
    said = {"careless": "", "hasty": ""}
    for graph in graphs(5, 2, 40):
        for name, asks in (("careless", careless), ("hasty", hasty)):
            try:
                check_run(graph, run_in_some_order(graph, rng, asks))
            except MemoryCheckError as error:
                said[name] = said[name] or error.reason
    assert "has begun, memory holds" in said["careless"]
    assert said["hasty"].startswith("memory holds")


def one_chain() -> MemoryGraph:
    """Two weights that pass through memory, and a value."""
    tiles = (
        *(MemoryTile(8, (1,), (1,)) for _ in range(2)),
        MemoryTile(4),
        MemoryTile(4, ends=(0,)),
    )
    tasks = TaskList(tiles, (MemoryTask("a", (0,), (2,)), MemoryTask("b", (1, 2), (3,))))
    return compile_memory(tasks, (MemoryPlace("memory", 18), MemoryPlace("disk")))


def test_the_judge_rejects_each_mutation_of_a_run() -> None:
    graph = one_chain()
    assert [one.kind for one in graph.vertices] == "load run drop load run drop free".split()
    right: list[Moment] = [(what, n) for n in range(7) for what in ("begin", "end")]
    check_run(graph, right)
    wrong: dict[str, list[Moment]] = {
        "1 vertices are not done": right[:-2],
        "it begins twice": [*right, ("begin", 6)],
        "it ends, and has not begun": right[:2] + right[3:],
        "residency": [right[0], right[2], right[1], *right[3:]],  # a task before its load has ended
        "has begun, memory holds": [right[0], ("begin", 3), right[1], ("end", 3), *right[2:6], *right[8:]],
    }  # fmt: skip
    for reason, moments in wrong.items():
        with pytest.raises(MemoryCheckError, match=reason):
            check_run(graph, moments)


def test_a_graph_is_admitted_with_all_edges_and_within_its_limits_alone() -> None:
    graph = one_chain()
    edges = content_edges(graph)
    check_admission(graph, edges)
    for number, kept in enumerate(edges):
        for one in kept:
            fewer = [*edges]
            fewer[number] = tuple(other for other in kept if other != one)
            with pytest.raises(MemoryCheckError):
                check_admission(graph, fewer)
    least = max(certify_memory(graph).bound_bytes[0] or 0, 0)
    assert least <= 18
    tight = within_bounds(graph, (15, None))
    with pytest.raises(MemoryCheckError, match="as listed, memory holds 16 bytes, limit 15"):
        check_admission(tight, edges)
    with pytest.raises(RequestError, match="as listed they hold 16 B of memory, limit 15 B"):
        Admission(tight)
    check_admission(replace(graph, places=(MemoryPlace("memory", 16), MemoryPlace("disk"))), edges)


def loads_ahead(limit: int | None, n_stores: int) -> int:
    """How many of four loads into the host's memory may overtake a task and stores that come before them."""
    n = 4
    tiles = (
        *(MemoryTile(2, (0,), (1,)) for _ in range(n_stores)),
        *(MemoryTile(2, (2,), (1, 2)) for _ in range(n)),
    )
    stays = [Residency(k, 0) for k in range(n_stores)]
    stays += [Residency(n_stores + k, 2) for k in range(n)]
    stays += [Residency(k, 1) for k in range(n_stores + n)]
    here = n_stores + n
    vertices = (
        Vertex("run", 0),
        *(Vertex("store", reads=(k,), makes=(here + k,), ends=(k,)) for k in range(n_stores)),
        *(
            Vertex("load", reads=(n_stores + k,), makes=(here + n_stores + k,), before=())
            for k in range(n)
        ),
    )
    places = MemoryPlace("gpu"), MemoryPlace("host", limit), MemoryPlace("file")
    tasks = TaskList(tiles, (MemoryTask("first"),))
    admission = Admission(MemoryGraph(tasks, places, tuple(stays), here, vertices))
    found = 0
    for vertex in range(1 + n_stores, 1 + n_stores + n):
        if admission.may_begin(vertex):
            admission.begin(vertex)
            found += 1
    return found


def test_a_quick_link_leaves_half_of_the_room_to_a_slow_one() -> None:
    """Loads of a file and stores of a GPU both fill the memory between them."""
    assert loads_ahead(None, 4) == loads_ahead(100, 4) == 4
    assert loads_ahead(16, 4) == 2  # stores take 8 bytes, and of 8 others loads have half
    assert loads_ahead(8, 0) == 4  # all of it where nobody else brings anything
