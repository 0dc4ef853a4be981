"""``redist check``: judge a stored plan."""

from __future__ import annotations

import argparse
import json

from redist.cli.files import read_plan, write_text
from redist.cli.status import FAILED, OK
from redist.errors import CheckError, RedistError
from redist.plan.plan import Plan
from redist.plan.serial import plan_to_dict
from redist.text.units import format_bytes


def run_check(args: argparse.Namespace) -> int:
    """Print two verdicts: does every step do what it says, and does memory stay in its bound."""
    plan, text = read_plan(args.file)
    fault = replay_fault(plan) or figure_fault(plan, text)
    if fault is not None:
        print(f"rejected   {fault}")
        return FAILED
    count = len(plan.steps)
    steps = "no step" if count == 0 else "1 step" if count == 1 else f"{count} steps"
    print(f"accepted   {plan.source} -> {plan.target}: {steps} replayed")
    return _prove(plan, args.smt2)


def replay_fault(plan: Plan) -> str | None:
    """What the checker finds wrong when it replays a plan; None if nothing is."""
    from redist.check.replay import check_plan

    try:
        check_plan(plan)
    except CheckError as error:
        where = "the plan" if error.step is None else f"step {error.step + 1}"
        return f"{where}: {error.reason}"
    except RedistError as error:
        return f"the plan: {error}"
    return None


def figure_fault(plan: Plan, text: str) -> str | None:
    """The first figure in the file that the steps do not add up to."""
    stored = json.loads(text)
    for name, value in plan_to_dict(plan).items():
        if name in stored and stored[name] != value and isinstance(value, (int, float)):
            return f"the plan: {name} is written as {stored[name]}, but the steps make it {value}"
    return None


def _prove(plan: Plan, smt2_file: str | None) -> int:
    from redist.check.prove import certify, smt2

    if smt2_file is not None:
        write_text(smt2_file, smt2(plan), "--smt2")
    certificate = certify(plan)
    most = f"{certificate.bound} = {format_bytes(certificate.bound_bytes)}"
    if certificate.verdict == "proved":
        print(
            f"proved     memory is at most {most}, {certificate.summary().removeprefix('proved ')}"
        )
        return OK
    print(f"{certificate.verdict.ljust(10)} memory is at most {most}: {certificate.summary()}")
    return FAILED
