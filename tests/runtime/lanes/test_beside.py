"""What goes on beside a long task: stores, and the loads that they make room for."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from redist.check.certify_memory import certify_memory
from redist.pgas.programs.limited.report import tile_names, what_ran
from redist.program.memory_graph import Credit, MemoryGraph, MemoryPlace, Residency, Vertex
from redist.program.tasks import MemoryTask, MemoryTile, TaskList
from redist.runtime.lanes.loop import LaneSpan
from redist.runtime.lanes.run_graph import GraphRunner
from redist.runtime.lanes.stores import MemoryStore
from redist.runtime.lanes.vertex_table import LanePolicy, TaskWork

TILES = (
    MemoryTile(8, (0,), (1,), name="old"),
    MemoryTile(8, (1,), (1,), name="new"),
    MemoryTile(8, ends=(0,), name="made"),
)
TASKS = TaskList(TILES, (MemoryTask("long", makes=(2,)), MemoryTask("use", (1,), updates=(2,))))
PLACES = MemoryPlace("memory", 16), MemoryPlace("disk", None, 1)
STAYS = (Residency(0, 0), Residency(1, 1), Residency(2, 0), Residency(0, 1), Residency(1, 0))
GRAPH = MemoryGraph(
    TASKS,
    PLACES,
    STAYS,
    2,
    (
        Vertex("run", 0, makes=(2,), credits=(Credit(None, 0, 8),)),
        Vertex("store", reads=(0,), makes=(3,), ends=(0,)),
        Vertex("load", reads=(1,), makes=(4,), before=(1,), credits=(Credit(1, 0, 8),)),
        Vertex("run", 1, reads=(4,), updates=(2,), before=(0, 2)),
        Vertex("drop", reads=(1,), ends=(4,), before=(2, 3)),
    ),
)


def spans_by(policy: str) -> dict[str, LaneSpan]:
    """When each vertex ran; the long task takes half a second."""
    store = MemoryStore()
    given: dict[tuple[int, int], Any] = {
        (0, 0): np.arange(8, dtype=np.uint8),
        (1, 1): store.take(8),
    }
    given[1, 1][:] = 5

    def long(out: Any) -> None:
        time.sleep(0.5)
        out[:] = 1

    work = [TaskWork(long), TaskWork(lambda new, made: np.add(made, new, out=made))]
    runner = GraphRunner(
        GRAPH, work, [store], lambda _: np.empty(8, np.uint8), policy=LanePolicy(policy)
    )
    outcome = runner.run(given, checks=True, records=True)
    assert outcome.held[2, 0].tolist() == [6] * 8
    assert outcome.held[0, 1].tolist() == [*range(8)]
    assert outcome.peak_bytes[0] == 16
    assert sum(one.end_s - one.begin_s for one in outcome.spans if one.lane == "compute") >= 0.5
    names = tile_names(GRAPH)
    return {what_ran(GRAPH, span, names): span for span in outcome.spans}


def test_the_graph_is_good() -> None:
    assert certify_memory(GRAPH).verdict == "proved"


@pytest.mark.parametrize("policy", ["longest path", "in order"])
def test_a_load_begins_in_the_middle_of_a_long_task(policy: str) -> None:
    spans = spans_by(policy)
    assert spans["load new"].begin_s < spans["long"].end_s - 0.1
    assert spans["store old"].end_s <= spans["load new"].begin_s


def test_one_at_a_time_it_does_not() -> None:
    spans = spans_by("synchronous")
    assert spans["long"].end_s <= spans["store old"].begin_s
    assert spans["store old"].end_s <= spans["load new"].begin_s
