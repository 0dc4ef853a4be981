"""Random memory graphs run on real arrays, by every policy: bit for bit as tasks run straight on."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from redist.check.certify_memory import certify_memory, within_bounds
from redist.errors import NoPlanError
from redist.offload.compile import compile_memory
from redist.program.memory_graph import MemoryGraph
from redist.runtime.lanes.run_graph import GraphRunner
from redist.runtime.lanes.spill_file import SpillFile
from redist.runtime.lanes.stores import MemoryStore
from redist.runtime.lanes.vertex_table import LanePolicy
from tests.fakes.troubled_store import TroubledStore
from tests.offload.random_tasks import random_places, random_tasks
from tests.runtime.lanes.array_tasks import (
    CountedTiles,
    give,
    scaled,
    scaled_places,
    work_of,
    wrong_results,
)
from tests.tiers import sample

GRAPHS = sample(3, of=500)
POLICIES = [
    LanePolicy(),
    LanePolicy("in order"),
    LanePolicy("synchronous"),
    *(LanePolicy("random", seed) for seed in range(20)),
    *(LanePolicy(name, admits=True) for name in ("longest path", "in order", "synchronous")),
    *(LanePolicy("random", seed, True) for seed in range(20)),
]


def graphs(seed: int, n_places: int) -> list[MemoryGraph]:
    rng = random.Random(seed)
    found: list[MemoryGraph] = []
    while len(found) < GRAPHS:
        tasks = random_tasks(rng, n_places=n_places)
        places = random_places(rng, tasks, n_places)
        try:
            graph = compile_memory(scaled(tasks), scaled_places(places))
        except NoPlanError:
            continue
        if graph.moved_bytes["store"]:
            found.append(graph)
    return found


def stores_for(n_places: int, folder: Path, rng: random.Random, delay_s: float) -> list[Any]:
    """Plain memory in the middle, now and then a file behind; some only start their copies."""
    inner: list[Any] = [MemoryStore() for _ in range(n_places - 1)]
    if rng.random() < 0.2:
        inner[-1] = SpillFile(folder)
    return [
        TroubledStore(one, delay_s, rng.randrange(99), starts=rng.random() < 0.3) for one in inner
    ]


@pytest.mark.parametrize("n_places", [2, 3])
def test_every_policy_gives_the_same_bits_within_the_certified_bytes(
    n_places: int, tmp_path: Path
) -> None:
    rng = random.Random(n_places)
    for graph in graphs(11 * n_places, n_places):
        bounds = certify_memory(graph).bound_bytes
        fixed = sum(one.size_bytes for one in graph.tasks.tiles if one.is_fixed)
        for policy in POLICIES:
            stores = stores_for(n_places, tmp_path, rng, 0.0)
            ran: list[int] = []
            tiles = CountedTiles(graph.tasks)
            work = work_of(graph.tasks, rng, tiles, ran)
            n_threads = rng.choice((1, 1, 3))
            granted = within_bounds(graph, bounds) if policy.admits else graph
            runner = GraphRunner(granted, work, stores, tiles, policy=policy, n_threads=n_threads)
            for _ in range(2):
                given = give(graph, stores)
                outcome = runner.run(given, checks=True)
                assert not wrong_results(graph, stores, outcome.held)
                for peak, bound in zip(outcome.peak_bytes, bounds, strict=True):
                    assert bound is None or peak <= bound
                assert tiles.peak_bytes + fixed <= outcome.peak_bytes[0]
                moves = [n for n in ran if graph.tasks.tasks[n].lane == "moves"]
                assert moves == sorted(moves)
                ran.clear()
                held: Any = None
                for (tile, place), held in outcome.held.items():
                    if place and not (place in graph.tasks.tiles[tile].begins and held is None):
                        stores[place - 1].give(held)
                del outcome, held
                assert not tiles.live_bytes
                tiles.peak_bytes = 0
            assert [store.n_spaces for store in stores] == [0] * len(stores)
            for store in stores:
                store.close()
    assert not list(tmp_path.iterdir())


def test_a_fixed_order_and_delays_change_nothing(tmp_path: Path) -> None:
    rng = random.Random(3)
    for graph in graphs(5, 2)[: sample(2, of=30)]:
        names = "longest path", "in order", "synchronous"
        for policy in [
            LanePolicy(name, admits=admits) for name in names for admits in (False, True)
        ]:
            stores = stores_for(2, tmp_path, rng, 2e-4)
            tiles = CountedTiles(graph.tasks)
            work = work_of(graph.tasks, rng, tiles)
            runner = GraphRunner(graph, work, stores, tiles, policy=policy)
            outcome = runner.run(give(graph, stores), checks=True, records=True)
            assert not wrong_results(graph, stores, outcome.held)
            timed = {n for n in range(len(graph.vertices)) if graph.lane_of(n) != "now"}
            assert {span.vertex for span in outcome.spans} == timed
            if policy.is_fixed:
                for lane in ("load", "store"):
                    begun = sorted((s.begin_s, s.vertex) for s in outcome.spans if s.lane == lane)
                    assert [vertex for _, vertex in begun] == sorted(v for _, v in begun)
            if policy.is_synchronous:
                ends = sorted((s.begin_s, s.end_s) for s in outcome.spans)
                assert all(a[1] <= b[0] for a, b in pairwise(ends)), "two vertices ran at once"
            for store in stores:
                store.close()
