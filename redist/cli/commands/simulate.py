"""``redist simulate``: run a plan on data, without the machine it is for."""

from __future__ import annotations

import argparse

from redist.cli.command import FAILED, OK, Commands, UsageError, add_command
from redist.cli.request import NOTATION, GivenPlan, add_plan_or_types, read_bytes

EPILOG = f"""\
{NOTATION}
examples:
  redist simulate plan.json --seed 7
  redist simulate "i32[10{{x}}, 7]" "i32[10, 7{{x}}]" --mesh x=3
"""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add the command with its arguments."""
    text = "run a plan on random data and compare with the right answer"
    parser = add_command(commands, "simulate", text, EPILOG)
    add_plan_or_types(parser)
    parser.add_argument("--seed", metavar="N", default="0", help="seed of the data (default 0)")
    parser.add_argument(
        "--max-memory",
        metavar="BYTES",
        default="2GiB",
        help="refuse to hold more than this, all devices together (default 2GiB)",
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the plan, compare with the brute-force answer, print what was measured."""
    from redist.judge.simulation import check_size, simulate

    seed = _read_seed(args.seed)
    given = GivenPlan.read(args)
    most_bytes = read_bytes(args.max_memory, "--max-memory")
    check_size(given.plan, most_bytes, "--max-memory")
    report = simulate(given.plan, seed=seed, topology=given.topology, max_bytes=most_bytes)
    print(report)
    return OK if report.is_as_planned else FAILED


def _read_seed(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise UsageError(f"--seed: cannot use {text!r}; need a whole number >= 0, such as 7")
    return int(text)
