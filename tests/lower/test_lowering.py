"""Calls of a plan do what the plan does: values and bytes, against the simulator's judge."""

from __future__ import annotations

import pytest

from redist import Mesh, synthesize
from redist.layout.array_type import ArrayType
from redist.lower.calls import Collect, Permute, Select, Swap, find_digits
from redist.lower.lowering import lower_plan
from redist.plan.request import Request
from redist.plan.steps import ReduceScatter
from redist.runtime.simulator import is_correct, random_tiles
from redist.synth.find import find_plan
from tests.lower.interpret import interpret
from tests.problems.problems import Problem, problems
from tests.tiers import sample


def is_of_one_mesh(problem: Problem) -> bool:
    a, b = problem.source, problem.target
    return a.mesh == b.mesh and a.is_even and b.is_even and 0 < a.global_elems <= 5000


@pytest.mark.parametrize("strategy", ["auto", "collectives", "no_permute", "direct"])
def test_calls_do_what_the_plan_does(strategy: str) -> None:
    checked = 0
    for number, problem in enumerate(problems(sample(50, of=1500), seed=7)):
        if not is_of_one_mesh(problem):
            continue
        plan = find_plan(Request(problem.source, problem.target, strategy=strategy))
        if not all(t.is_even for t in plan.types):
            continue
        tiles = random_tiles(problem.source, number)
        ranks = problem.source.mesh.rank_array().tolist()
        now = [tiles[rank].copy() for rank in ranks]
        done = 0
        for calls in lower_plan(plan):
            now, received = interpret(calls, now)
            starts = [0, *calls.step_ends[:-1]]
            for start, end in zip(starts, calls.step_ends, strict=True):
                n_bytes = sum(received[start:end]) * problem.source.dtype.itemsize
                step = plan.steps[done]
                assert n_bytes <= step.received_bytes, (str(problem), done)
                # Combined before it is gathered, a sum needs less than its step was priced at.
                assert n_bytes == step.received_bytes or isinstance(step.action, ReduceScatter)
                done += 1
        assert done == len(plan.steps)
        assert is_correct(plan, tiles, dict(zip(ranks, now, strict=True))), str(problem)
        checked += 1
    assert checked > 20


def calls_of(source: str, target: str, **options: object) -> list[object]:
    mesh = Mesh(x=2, y=4)
    plan = synthesize(source, target, mesh=mesh, **options)  # type: ignore[arg-type]
    return [call for run in lower_plan(plan) for call in run.calls]


@pytest.mark.parametrize("strategy", ["auto", "collectives", "direct"])
def test_axes_that_move_together_are_one_collective(strategy: str) -> None:
    ends = "f32[16{x,y}, 16]", "f32[16, 16{x,y}]"
    calls = calls_of(*ends, strategy=strategy, objective="bytes")
    assert not any(isinstance(call, Permute) for call in calls)
    swaps = [call for call in calls if isinstance(call, Swap)]
    assert [[axis.name for axis in swap.axes] for swap in swaps] == [["x", "y"]]


def test_nothing_is_arranged_where_blocks_lie_in_order() -> None:
    (call,) = calls_of("f32[16{x,y}]", "f32[16]", strategy="direct")
    assert isinstance(call, Collect)
    (call,) = calls_of("f32[16]", "f32[16{x,y}]")
    assert isinstance(call, Select)


def test_cuts_that_go_through_each_other_have_no_digits() -> None:
    mesh = Mesh(x=2, y=3)
    a, b = (ArrayType.parse(t, mesh) for t in ("f32[6{x}, 6{y}]", "f32[6{y}, 6{x}]"))
    assert find_digits([a, b]) is None
    plan = synthesize(a, b, strategy="direct")
    (run,) = lower_plan(plan)
    assert [type(call) for call in run.calls] == [Permute]
