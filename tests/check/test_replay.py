"""The checker accepts every plan and rejects every mutation of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from redist import ArrayType, CheckError, Mesh, Plan, synthesize
from redist.check.replay import check_plan
from redist.layout.axes import SubAxis
from redist.plan.request import Request
from redist.plan.steps import AllGather, AllPermute, AllReduce, AllToAll, Exchange, Slice, Step
from redist.synth.find import find_plan
from tests.problems.problems import problems
from tests.tiers import sample


def plans(n: int, seed: int) -> Iterator[Plan]:
    strategies = ("auto", "collectives", "no_permute", "direct")
    for i, problem in enumerate(problems(n, seed=seed)):
        yield find_plan(
            Request(
                problem.source,
                problem.target,
                strategy=strategies[i % 4],
                donate=i % 3 == 0,
                objective=("time", "bytes")[i % 2],
            )
        )


def rejected(plan: Plan) -> CheckError | None:
    try:
        check_plan(plan)
    except CheckError as error:
        return error
    return None


def with_step(plan: Plan, number: int, step: Step) -> Plan:
    return replace(plan, steps=(*plan.steps[:number], step, *plan.steps[number + 1 :]))


def test_every_plan_is_accepted():
    for plan in plans(sample(15, of=160), seed=21):
        check_plan(plan)


def test_dropped_steps_are_rejected():
    dropped = 0
    for plan in plans(sample(10, of=120), seed=22):
        for number in range(len(plan.steps)):
            steps = (*plan.steps[:number], *plan.steps[number + 1 :])
            assert rejected(replace(plan, steps=steps)), f"{plan}\nwithout step {number + 1}"
            dropped += 1
    assert dropped > sample(6, of=150)


def test_swapped_steps_are_rejected():
    swapped = 0
    for plan in plans(sample(20, of=200), seed=23):
        for number in range(len(plan.steps) - 1):
            steps = list(plan.steps)
            steps[number], steps[number + 1] = steps[number + 1], steps[number]
            error = rejected(replace(plan, steps=tuple(steps)))
            assert error is not None and error.step is not None
            swapped += 1
    assert swapped > sample(3, of=50)


def figure_mutations(plan: Plan, step: Step) -> Iterator[tuple[str, Step]]:
    yield "received", replace(step, received_bytes=step.received_bytes + plan.source.dtype.itemsize)
    low, high = step.received_range_bytes
    yield "received by the busiest", replace(step, received_range_bytes=(low, high + 1))
    yield "peak", replace(step, peak_bytes=step.peak_bytes - 1)
    yield "rounds", replace(step, rounds=step.rounds + 1)
    few, many = step.messages_range
    yield "messages", replace(step, messages_range=(few, many + 1))
    for i, event in enumerate(step.events):
        for name, changed in (
            ("larger", replace(event, n_bytes=event.n_bytes + 1)),
            ("born later", replace(event, born=event.born + 1)),
            ("freed later", replace(event, freed=event.freed + 1)),
            ("freed earlier", replace(event, freed=event.freed - 1)),
            ("elsewhere", replace(event, at="nowhere")),
        ):
            events = (*step.events[:i], changed, *step.events[i + 1 :])
            yield f"{event.what} {name}", replace(step, events=events)
        events = (*step.events[:i], *step.events[i + 1 :])
        yield f"no {event.what}", replace(step, events=events)


def test_altered_figures_are_rejected_at_their_step():
    altered = 0
    for plan in plans(sample(7, of=40), seed=24):
        for number, step in enumerate(plan.steps):
            for name, changed in figure_mutations(plan, step):
                error = rejected(with_step(plan, number, changed))
                assert error is not None, f"{plan}\nstep {number + 1}: {name}"
                assert error.step is not None and error.step <= number
                altered += 1
    assert altered > sample(76, of=500)


def action_mutations(step: Step) -> Iterator[Step]:
    action, after = step.action, step.after
    n_dims = after.ndim
    match action:
        case Slice(moves, op, pending) if moves:
            yield replace(step, action=Slice(moves[1:], op, pending))
            part, dim = moves[0]
            yield replace(
                step, action=Slice(((part, (dim + 1) % n_dims + 7), *moves[1:]), op, pending)
            )
            if n_dims > 1:
                moved = ((part, (dim + 1) % n_dims), *moves[1:])
                yield replace(step, action=Slice(moved, op, pending))
        case AllGather(moves):
            yield replace(step, action=AllGather(moves[1:]))
            yield replace(step, action=Slice(moves))
        case AllToAll(moves):
            yield replace(step, action=AllToAll(moves[1:]))
            block, old, new = moves[-1]
            yield replace(step, action=AllToAll((*moves, (block, new, old))))
        case AllPermute(to) | Exchange(to):
            if to.dims != ((),) * n_dims:
                wrong = to.with_dims(((),) * n_dims)
                yield replace(step, action=type(action)(wrong))
                yield replace(step, action=type(action)(wrong), after=wrong)
        case AllReduce(axes):
            first = axes[0]
            yield replace(step, action=AllReduce((SubAxis(first.name, first.pre, first.size * 2),)))
            yield replace(step, action=AllReduce(()))
        case _:
            return


def test_altered_actions_are_rejected():
    altered = 0
    for plan in plans(sample(10, of=150), seed=25):
        for number, step in enumerate(plan.steps):
            for changed in action_mutations(step):
                mutant = with_step(plan, number, changed)
                assert rejected(mutant) is not None, f"{plan}\n{changed.action}"
                altered += 1
    assert altered > sample(6, of=150)


def test_named_collectives_that_cannot_deliver_are_rejected():
    plan = synthesize("f32[10{x}]", "f32[10{x,y}]", mesh=Mesh(x=2, y=2))
    step = plan.steps[0]
    assert step.op == "exchange"
    sliced = replace(step, action=Slice(((SubAxis("y", 1, 2), 0),)))
    error = rejected(with_step(plan, 0, sliced))
    assert error is not None and error.step == 0 and "does not hold" in error.reason


def test_a_wrong_end_is_rejected():
    plan = synthesize("f32[8{x}, 8]", "f32[8, 8]", mesh=Mesh(x=2))
    error = rejected(replace(plan, target=plan.source))
    assert error is not None
    assert rejected(replace(plan, source=plan.target)) is not None
    assert rejected(replace(plan, lower_bound_bytes=0)) is not None
    assert rejected(replace(plan, limit_bytes=plan.peak_bytes - 1)) is not None
    check_plan(replace(plan, limit_bytes=plan.peak_bytes))


@pytest.mark.parametrize("donate", [False, True])
def test_stored_plans_are_judged_alike(donate):
    for problem in problems(sample(5, of=25), seed=26):
        plan = synthesize(problem.source, problem.target, donate=donate)
        again = Plan.from_json(plan.to_json())
        assert again == plan
        check_plan(again)


def test_a_third_mesh_is_rejected():
    """Who holds what is told by two meshes; a third with the same ranks would hide memory."""
    mesh, other = Mesh(a=2), Mesh({"c": 4}, ranks=[2, 3, 4, 5])
    plan = synthesize("f32[512{a}]", "f32[512{c}]", mesh=mesh, target_mesh=other)
    third = ArrayType.parse("f32[512]", Mesh(b=2))
    step = replace(plan.steps[0], action=Exchange(third), after=third)
    error = rejected(replace(plan, steps=(step, *plan.steps)))
    assert error is not None and error.step == 0 and "third mesh" in error.reason


def test_steps_that_the_strategy_forbids_are_rejected():
    plan = synthesize("f32[8{x}, 8{y}]", "f32[8{y}, 8{x}]", mesh=Mesh(x=2, y=4))
    assert plan.steps[0].op == "exchange"
    assert rejected(replace(plan, strategy="collectives")) is not None
    two = synthesize("f32[64{x}, 64{y}]", "f32[64, 64]", mesh=Mesh(x=2, y=4))
    assert len(two.steps) > 1
    assert rejected(replace(two, strategy="direct")) is not None


def test_a_slice_that_cuts_along_an_axis_and_makes_it_pending() -> None:
    """Every coordinate would keep all it has: the sum would be too large."""
    mesh = Mesh(x=2)
    plan = synthesize("i32[4]", "i32[4] sum{x}", mesh=mesh)
    (step,) = plan.steps
    x = SubAxis("x", 1, 2)
    wrong = replace(plan, steps=(replace(step, action=Slice(((x, 0),), "sum", (x,))),))
    error = rejected(wrong)
    assert error is not None
    assert "it cuts along an axis that it makes pending" in str(error)
