"""What is wrong with a plan: each function returns the first fault in words, None if there is none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from redist.errors import CheckError, RedistError, StepError
from redist.plan.plan import Plan
from redist.plan.rules import type_after
from redist.plan.serial import plan_to_dict

if TYPE_CHECKING:
    from redist.runtime.simulator import Tiles


def replay_fault(plan: Plan) -> str | None:
    """What the checker finds wrong if it replays a plan."""
    from redist.check.replay import check_plan

    try:
        check_plan(plan)
    except CheckError as error:
        where = "the plan" if error.step is None else f"step {error.step + 1}"
        return f"{where}: {error.reason}"
    except RedistError as error:
        return f"the plan: {error}"
    return None


def figure_fault(plan: Plan, stored: str) -> str | None:
    """The first figure in the stored JSON of a plan that its steps do not add up to."""
    data = json.loads(stored)
    for name, value in plan_to_dict(plan).items():
        if name in data and data[name] != value and isinstance(value, (int, float)):
            return f"the plan: {name} is written as {data[name]}, but the steps make it {value}"
    return None


def step_fault(plan: Plan) -> str | None:
    """Why a plan makes no sense as a sequence of steps.

    >>> import redist
    >>> step_fault(redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=2))) is None
    True
    """
    here = plan.source
    for number, step in enumerate(plan.steps):
        try:
            after = type_after(step.action, here)
        except StepError as error:
            return f"step {number + 1}: {error}"
        if after != step.after:
            return f"step {number + 1} leads to {after}, the plan says {step.after}"
        here = after
    return None if here == plan.target else f"the plan ends in {here}, not in {plan.target}"


def value_fault(plan: Plan, before: Tiles, after: Tiles) -> str | None:
    """How the values after a run differ from the brute-force answer."""
    from redist.runtime.simulator import is_correct

    try:
        right = is_correct(plan, before, after)
    except RedistError as error:
        return str(error)
    return None if right else "the target stands for other values than the source"
