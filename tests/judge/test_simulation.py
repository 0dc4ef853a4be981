"""``redist.simulate``: what a run measures is what the plan says, and lies are found out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import redist
from redist.judge.simulation import check_size
from redist.plan.steps import Event

MESH = redist.Mesh(x=2, y=2)


def plan_of(source: str = "i32[8{x}, 6]", target: str = "i32[8, 6{y}]") -> redist.Plan:
    return redist.synthesize(source, target, mesh=MESH)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("i32[8{x}, 6]", "i32[8, 6{y}]"),
        ("f32[7{x,y}]", "f32[7]"),
        ("f32[8] sum{x}", "f32[8{y}]"),
        ("f32[8]", "f32[8]"),
        ("f32[0{x}]", "f32[0]"),
    ],
)
def test_a_right_plan_is_as_planned(source: str, target: str) -> None:
    plan = plan_of(source, target)
    report = redist.simulate(plan, seed=5)
    assert report.is_correct and report.is_as_planned and report.fault is None
    assert report.received_bytes == plan.received_bytes
    assert report.held_bytes <= plan.peak_bytes
    assert "result     correct (random data, seed 5)" in str(report).splitlines()


def test_given_arrays_arrive() -> None:
    plan = plan_of()
    whole = np.arange(48, dtype=np.int32).reshape(8, 6)
    tiles = {rank: whole[4 * (rank // 2) :][:4].copy() for rank in range(4)}
    report = redist.simulate(plan, tiles)
    assert report.is_as_planned and report.run is not None
    for rank, tile in report.run.tiles.items():
        assert np.array_equal(tile, whole[:, 3 * (rank % 2) :][:, :3])
    assert "(the given arrays)" in str(report)


def test_replicas_that_disagree_are_a_fault() -> None:
    tiles = {rank: np.full((4, 6), rank, np.int32) for rank in range(4)}
    report = redist.simulate(plan_of(), tiles)
    assert not report.is_correct and "replicas" in str(report.fault)
    assert "result     WRONG: " in str(report)


def test_arrays_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(redist.RedistError, match="rank 0 has int32"):
        redist.simulate(plan_of(), {rank: np.zeros((3, 6), np.int32) for rank in range(4)})


def test_figures_that_lie_are_found_out() -> None:
    plan = plan_of()
    (step,) = plan.steps
    less = redist.simulate(replace(plan, steps=(replace(step, received_bytes=1),)))
    assert less.is_correct and not less.is_as_planned
    assert "DIFFERS from the plan" in str(less)
    events = tuple(Event(e.what, 0, e.born, e.freed, e.at) for e in step.events)
    tight = redist.simulate(replace(plan, steps=(replace(step, events=events),)))
    assert tight.is_correct and not tight.is_as_planned
    assert "OVER the plan" in str(tight)


def test_steps_that_make_no_sense_are_not_run() -> None:
    plan, other = plan_of(), plan_of("i32[8{x}, 6]", "i32[8{y}, 6]")
    report = redist.simulate(replace(plan, steps=other.steps))
    assert report.run is None and not report.is_correct and not report.is_as_planned
    assert (report.received_bytes, report.held_bytes) == (0, 0)
    assert str(report).startswith("result     WRONG: the plan ends in ")


def test_what_is_too_large_is_refused_before_it_is_run() -> None:
    need = 2 * 4 * (4 * 6 + 8 * 3) * 4
    redist.simulate(plan_of(), max_bytes=need)
    with pytest.raises(redist.RequestError, match="smaller dims or raise max_bytes"):
        redist.simulate(plan_of(), max_bytes=need - 1)
    with pytest.raises(redist.RequestError, match="raise --max-memory"):
        check_size(plan_of(), need - 1, "--max-memory")
