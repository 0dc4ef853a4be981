"""``redist check``: judge a stored plan, that of a refit, or a manifest of runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from redist.cli.command import FAILED, OK, Commands, UsageError, add_command
from redist.cli.files import name_text, plan_of, read_text, write_text
from redist.plan.plan import Plan
from redist.text.units import count_of, format_bytes, room_from

if TYPE_CHECKING:
    from redist.check.manifest import Manifest
    from redist.refits.plan import RefitPlan

EPILOG = """\
examples:
  redist plan "f32[64{x}, 64]" "f32[64, 64{x}]" --mesh x=8 --json > plan.json
  redist check plan.json
  redist check refit.json
  redist check manifest.jsonl --limit 2GiB

The plan of a refit is what 'redist refit --json' or plan.save() wrote. A manifest lists
buffers, boxes of tensors in them, and runs of bytes between them:
docs/how-to/judge-transfers.md.
"""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add the command with its arguments."""
    text = "judge a stored plan (replay it, prove its memory bound), a refit, or a manifest of runs"
    parser = add_command(commands, "check", text, EPILOG)
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a plan as JSON, a refit as JSON or .refit, or a manifest as JSON lines or .npz; - reads "
        "standard input",
    )
    parser.add_argument(
        "--limit",
        metavar="BYTES",
        help="most that a rank may send and receive in a round of a manifest",
    )
    parser.add_argument("--smt2", metavar="FILE", help="write the proof question as SMT-LIB text")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the verdict on a plan, and on its memory; or that on the runs of a refit, or of a manifest."""
    from redist.check.manifest import is_manifest, manifest_of, read_manifest
    from redist.refits.plan import RefitPlan
    from redist.refits.serial import is_refit

    if args.file.endswith(".refit"):
        return _check_refit(args, RefitPlan.load(args.file))
    if args.file.endswith((".npz", ".npy")):
        return _judge(args, read_manifest(Path(args.file)))
    text = read_text(args.file)
    if is_manifest(text):
        return _judge(args, manifest_of(text, name_text(args.file), Path(args.file).parent))
    if is_refit(text):
        return _check_refit(args, RefitPlan.from_json(text))
    _refuse_limit(args)
    return _check(plan_of(text, args.file), text, args.smt2)


def _refuse_limit(args: argparse.Namespace) -> None:
    if args.limit is not None:
        raise UsageError(f"--limit: {name_text(args.file)} is a plan, which has its own limit")


def _check_refit(args: argparse.Namespace, plan: RefitPlan) -> int:
    """The certificate, which looks at each kind of tensor, then the verdict on every run."""
    _refuse_limit(args)
    _refuse_smt2(args, "a refit")
    certificate, verdict = plan.certificate, plan.check()
    print(f"{certificate}\n{verdict}")
    return OK if certificate.verdict == "proved" and verdict.is_right else FAILED


def _refuse_smt2(args: argparse.Namespace, what: str) -> None:
    if args.smt2 is not None:
        raise UsageError(
            f"--smt2: {name_text(args.file)} is {what}, of which the solver proves nothing"
        )


def _judge(args: argparse.Namespace, manifest: Manifest) -> int:
    from redist.check.runs import check_runs

    _refuse_smt2(args, "a manifest")
    verdict = check_runs(*manifest, limit_bytes=room_from(args.limit, "--limit"))
    print(verdict)
    return OK if verdict.is_right else FAILED


def _check(plan: Plan, stored: str, smt2_file: str | None) -> int:
    from redist.judge.faults import figure_fault, replay_fault

    fault = replay_fault(plan) or figure_fault(plan, stored)
    if fault is not None:
        print(f"rejected   {fault}")
        return FAILED
    steps = count_of(len(plan.steps), "step") if plan.steps else "no step"
    print(f"accepted   {plan.source} -> {plan.target}: {steps} replayed")
    return _certify(plan, smt2_file)


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
