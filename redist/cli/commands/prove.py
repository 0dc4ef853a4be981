"""``redist prove``: the certificate of one plan, in words that a user understands."""

from __future__ import annotations

import argparse
import json

from redist.cli.command import FAILED, OK, UNKNOWN, Commands, add_command
from redist.cli.files import write_text
from redist.cli.request import NOTATION, GivenPlan, add_plan_or_types

EPILOG = f"""\
{NOTATION}
examples:
  redist prove "f32[4096{{x}}, 4096{{y}}]" "f32[4096{{y}}, 4096{{x}}]" --mesh x=2,y=4
  redist prove "f32[1000{{x}}, 7]" "f32[1000, 7{{x}}]" --mesh x=3 --donate --smt2 queries.smt2
  redist prove plan.json --json

exit status: 0 proved, 1 refuted or rejected, 4 unknown: the solver gave up;
2 and 3 as for every command.
"""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add the command with its arguments."""
    text = "say in words what is certain about a plan's memory and traffic, and why"
    parser = add_command(commands, "prove", text, EPILOG)
    add_plan_or_types(parser)
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    parser.add_argument("--smt2", metavar="FILE", help="write the queries to Z3 as SMT-LIB text")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print what is bounded, by how much, for which sizes and how it was shown."""
    from redist.check.prove import smt2
    from redist.judge.proof import prove

    given = GivenPlan.read(args)
    proof = prove(given.plan, topology=given.topology, stored=given.stored)
    if args.smt2 is not None and proof.certificate is not None:
        write_text(args.smt2, smt2(given.plan), "--smt2")
    print(json.dumps(proof.to_dict(), indent=1) if args.json else proof)
    return {"proved": OK, "unknown": UNKNOWN}.get(proof.verdict, FAILED)
