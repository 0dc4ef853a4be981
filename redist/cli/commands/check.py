"""``redist check``: judge a stored plan."""

from __future__ import annotations

import argparse

from redist.cli.command import FAILED, OK, Commands, add_command
from redist.cli.files import read_plan, write_text
from redist.plan.plan import Plan
from redist.text.units import format_bytes

EPILOG = """\
example:
  redist plan "f32[64{x}, 64]" "f32[64, 64{x}]" --mesh x=8 --json > plan.json
  redist check plan.json
"""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add the command with its arguments."""
    text = "judge a stored plan: replay every step, prove its memory bound"
    parser = add_command(commands, "check", text, EPILOG)
    parser.add_argument("file", metavar="FILE", help="a plan as JSON; - reads standard input")
    parser.add_argument("--smt2", metavar="FILE", help="write the proof question as SMT-LIB text")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print two verdicts: does every step do what it says, and does memory stay in its bound."""
    from redist.judge.faults import figure_fault, replay_fault

    plan, stored = read_plan(args.file)
    fault = replay_fault(plan) or figure_fault(plan, stored)
    if fault is not None:
        print(f"rejected   {fault}")
        return FAILED
    count = len(plan.steps)
    steps = "no step" if count == 0 else "1 step" if count == 1 else f"{count} steps"
    print(f"accepted   {plan.source} -> {plan.target}: {steps} replayed")
    return _certify(plan, args.smt2)


def _certify(plan: Plan, smt2_file: str | None) -> int:
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
    print(f"{certificate.verdict:<10} memory is at most {most}: {certificate.summary()}")
    return FAILED
