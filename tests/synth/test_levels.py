"""Plans on two levels: slow links are crossed as rarely as can be."""

from __future__ import annotations

import numpy as np
import pytest

import redist
from redist import Mesh, synthesize
from redist.layout.axes import SubAxis
from redist.plan.schedule import make_schedule
from redist.plan.steps import AllReduce, Slice
from redist.plan.topology import Level, Topology
from redist.plan.traffic import flow

TWO_LEVELS = Topology((Level("node", 8, 10**6, 10**5), Level("net", None, 10**6, 10**6)))


def entries_per_node(plan: redist.Plan, topology: Topology, node: int) -> int:
    """How often any element enters any node, at most."""
    counts: dict[int, np.ndarray] = {}
    before = plan.source
    for step in plan.steps:
        if not isinstance(step.action, (Slice, AllReduce)):
            have, need = flow(step.action, before, step.after)
            schedule = make_schedule(have, need, topology)
            for at in np.flatnonzero(schedule.level == 1):
                where = int(need.ranks[schedule.receiver[at]]) // node
                seen = counts.setdefault(where, np.zeros(before.shape, dtype=int))
                lo, hi = schedule.lo[at], schedule.hi[at]
                seen[tuple(slice(lo[i], hi[i]) for i in range(before.ndim))] += 1
        before = step.after
    return max((int(seen.max()) for seen in counts.values()), default=0)


@pytest.mark.parametrize(
    ("mesh", "source", "target"),
    [
        ("x=8,y=8", "f64[512{x,y}, 128]", "f64[512, 128]"),
        ("x=8,y=8", "f64[512{x}, 128{y}]", "f64[512, 128]"),
        ("x=8,y=8", "f64[512{x}, 128]", "f64[512, 128]"),
        ("x=4,y=4,z=4", "f64[65536{z,x,y}]", "f64[65536]"),
        ("x=64", "f64[512, 256{x}]", "f64[512, 256]"),
        ("x=16,y=4", "f64[64{y}, 64, 64{x}]", "f64[64, 64, 64]"),
    ],
)
def test_replicating_plans_cross_nodes_once_and_beat_direct_exchange(mesh, source, target):
    plans = [
        synthesize(source, target, mesh=Mesh.parse(mesh), topology=TWO_LEVELS, strategy=strategy)
        for strategy in ("auto", "direct")
    ]
    assert entries_per_node(plans[0], TWO_LEVELS, 8) == 1
    assert 2 * plans[0].time_ps <= plans[1].time_ps


def test_small_arrays_use_fewer_messages_than_direct():
    for source, target in (
        ("f32[2048{x,y}, 8]", "f32[2048, 8]"),
        ("f32[512{x,y}, 32]", "f32[512, 32{x,y}]"),
    ):
        ends = [
            synthesize(source, target, mesh=Mesh(x=8, y=8), topology=TWO_LEVELS, strategy=s)
            for s in ("auto", "direct")
        ]
        assert ends[0].source.tile_bytes == 1024
        assert ends[0].messages < ends[1].messages


def test_reductions_on_two_levels_go_near_first():
    plan = synthesize(
        "f32[1024, 64] sum{x,y}", "f32[1024, 64]", mesh=Mesh(x=8, y=8), topology=TWO_LEVELS
    )
    assert [step.op for step in plan.steps] == ["reduce_scatter", "all_reduce", "all_gather"]
    assert [step.group for step in plan.steps] == [8, 8, 8]
    assert plan.types[1].pending_axes == (SubAxis("x", 1, 8),)


def test_sums_added_up_in_a_node_go_to_their_place_at_once():
    """No third step brings them there: links carry the least that must enter a node."""
    shared = Level("net", None, 10**9, 8 * 10**6, link_fs=8 * 10**6)
    links = Topology((Level("node", 2, 2 * 10**7, 10**5), shared))
    plan = synthesize("f64[65536] sum{x}", "f64[65536{x}]", mesh=Mesh(x=8), topology=links)
    assert [step.op for step in plan.steps] == ["reduce_scatter", "reduce_scatter"]
    assert plan.types[1].pending_axes == (SubAxis("x", 1, 4),)
