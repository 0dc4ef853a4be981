"""The theorem of memory graphs speaks of what the checker demands and the simulator runs."""

from __future__ import annotations

import random
from itertools import pairwise, product

from proofs.evidence.memory_runs import run_in_some_order
from proofs.theorems.memory_graph import holds, small_graph, wrong_order
from redist.check.certify_memory import worst_bytes
from redist.check.memory_graphs import check_memory_graph
from redist.offload.compile import compile_memory
from redist.program.memory_graph import MemoryGraph
from tests.offload.random_tasks import random_places, random_tasks
from tests.tiers import sample


def test_the_small_graph_is_right_for_all_sizes() -> None:
    for a, b, c in product((1, 2, 5), repeat=3):
        graph = small_graph({"a_bytes": a, "b_bytes": b, "c_bytes": c})
        check_memory_graph(graph)
        assert worst_bytes(graph, 0) <= max(a, b) + c
        assert not wrong_order(graph, tries=10)


def test_the_invariant_holds_at_every_moment_of_a_run() -> None:
    """Live, idle and left bytes as the theorem counts them, in random orders of random graphs."""
    rng = random.Random(5)
    for _ in range(sample(10, of=200)):
        tasks = random_tasks(rng)
        graph = compile_memory(tasks, random_places(rng, tasks))
        for moment, following in pairwise(moments(graph, rng)):
            assert holds(*moment) and holds(*following)
            assert moment[3] == following[3] >= following[0]
        run_in_some_order(graph, rng)


def moments(graph: MemoryGraph, rng: random.Random) -> list[tuple[int, int, int, int]]:
    """Live, idle and spent bytes of the first place and its limit, along a random order of vertices."""
    limit = graph.places[0].limit_bytes
    assert limit is not None
    live = sum(graph.bytes_of(r) for r in range(graph.n_given) if not graph.residencies[r].place)
    idle, spent = 0, live
    out = [(live, idle, spent, limit)]
    done: set[int] = set()
    while len(done) < len(graph.vertices):
        ready = [
            n
            for n, one in enumerate(graph.vertices)
            if n not in done and done.issuperset(one.before)
        ]
        number = rng.choice(ready)
        vertex = graph.vertices[number]
        mine = [credit for credit in vertex.credits if credit.place == 0]
        from_limit = sum(credit.n_bytes for credit in mine if credit.giver is None)
        from_done = sum(credit.n_bytes for credit in mine if credit.giver is not None)
        live, idle, spent = live + from_limit + from_done, idle - from_done, spent + from_limit
        out.append((live, idle, spent, limit))
        back = sum(graph.bytes_of(r) for r in vertex.ends if not graph.residencies[r].place)
        if vertex.task is not None:
            back += graph.tasks.tasks[vertex.task].staging_bytes
        live, idle = live - back, idle + back
        out.append((live, idle, spent, limit))
        done.add(number)
    return out
