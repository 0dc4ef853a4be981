"""The clock of memory graphs: bounds that every run keeps, and what room for loading ahead is worth."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from redist.check.certify_memory import certify_memory, within_bounds
from redist.errors import NoPlanError
from redist.offload.admission import content_edges
from redist.offload.clock import CrowdedNode, clock, longest_paths_ps
from redist.offload.compile import compile_memory, least_memory
from redist.program.memory_graph import MemoryPlace
from redist.program.tasks import MemoryTask, MemoryTile, TaskList
from tests.offload.random_tasks import random_places, random_tasks
from tests.tiers import sample


def slow(places: Sequence[MemoryPlace]) -> tuple[MemoryPlace, ...]:
    """The same places, a byte of which takes as long as tasks do."""
    return tuple(replace(one, byte_fs=1000 * one.byte_fs) for one in places)


@pytest.mark.parametrize("n_places", [2, 3])
def test_no_run_is_shorter_than_a_lane_or_longer_than_one_at_a_time(n_places: int) -> None:
    rng = random.Random(n_places)
    for _ in range(sample(30, of=500)):
        tasks = random_tasks(rng, n_places=n_places)
        try:
            graph = compile_memory(tasks, slow(random_places(rng, tasks, n_places)))
        except NoPlanError:
            continue
        bounds = certify_memory(graph).bound_bytes
        work = sum(one.time_ps for one in tasks.tasks)
        total = sum(graph.time_ps(number) for number in range(len(graph.vertices)))
        for admits in (False, True):
            found = clock(within_bounds(graph, bounds), admits=admits)
            assert work == found.work_ps <= found.time_ps <= total
            assert found.waited_ps == found.time_ps - found.work_ps
            before = content_edges(graph) if admits else [one.before for one in graph.vertices]
            assert found.time_ps >= max(longest_paths_ps(graph, before), default=0)


def layers(n: int, n_stay: int, task_ps: int) -> TaskList:
    """Layers whose value is twice a weight: the first weights stay, others come from a store."""
    tiles = [MemoryTile(4, (0,), (0,)) for _ in range(n_stay)]
    tiles += [MemoryTile(4, (1,), (1,)) for _ in range(n - n_stay)]
    tiles += [MemoryTile(8, (0,)), *(MemoryTile(8) for _ in range(n))]
    tiles[-1] = replace(tiles[-1], ends=(0,))
    tasks = [MemoryTask(f"{k}", (k, n + k), (n + k + 1,), time_ps=task_ps) for k in range(n)]
    return TaskList(tuple(tiles), tuple(tasks))


def test_one_weight_fewer_in_memory_may_be_quicker() -> None:
    """Loads hide behind computing only if there is room for them before they are needed."""
    byte_fs, limit = 200_000, 4 * 8 + 2 * 8 + 4
    times = {}
    for n_stay in (0, 4, 8):
        tasks = layers(12, n_stay, 1000)
        assert least_memory(tasks)[0] <= limit
        places = MemoryPlace("memory", limit), MemoryPlace("disk", None, byte_fs)
        times[n_stay] = clock(compile_memory(tasks, places)).time_ps
    assert min(times, key=lambda n: times[n]) == 4, times


def test_what_is_admitted_is_quicker_than_what_waits_for_credits() -> None:
    """Over random graphs together: some lose, because the best of a lane is not the best of all."""
    rng = random.Random(4)
    waits = {True: 0, False: 0}
    for _ in range(sample(40, of=400)):
        tasks = random_tasks(rng)
        graph = compile_memory(tasks, slow(random_places(rng, tasks)))
        for admits in waits:
            waits[admits] += clock(graph, admits=admits).waited_ps
    assert waits[True] < waits[False]


def test_crowded_ranks_load_one_at_a_time_where_that_is_quicker() -> None:
    """The stored figures: 4 ranks on 2 cores, 0.375 s of computing, 0.17 s of loading, 0.05 s for threads."""
    n_copies = 50 * 10**9 // 60_000_000
    work_ps, copies_ps = 375 * 10**9, 170 * 10**9
    beside, one_by_one = CrowdedNode(4, 2).times_ps(work_ps, copies_ps, n_copies)
    assert beside > one_by_one == 750 * 10**9
    beside, one_by_one = CrowdedNode(1, 2).times_ps(work_ps, copies_ps, n_copies)
    assert beside < one_by_one == 545 * 10**9
    for ranks in (
        1,
        2,
    ):  # enough cores: never slower beside, if copies take longer than their threads
        assert CrowdedNode(ranks, 2).overlaps(work_ps, copies_ps, n_copies)
    assert CrowdedNode(4, 2).overlaps(work_ps, 3 * work_ps, n_copies)  # loads that nobody hides
