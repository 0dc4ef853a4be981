"""``redist plan``: find the best plan and print it."""

from __future__ import annotations

import argparse

from redist.cli.command import OK, Commands, add_command
from redist.cli.files import write_text
from redist.cli.request import NOTATION, add_request, read_request
from redist.lower.jax_text import to_jax_text
from redist.lower.mpi4py_text import to_mpi4py
from redist.lower.torch_text import to_torch_text
from redist.planner import plan_request

CODE = {"jax": to_jax_text, "mpi4py": to_mpi4py, "torch": to_torch_text}

EPILOG = f"""\
{NOTATION}
examples:
  redist plan "f32[4096{{x}}, 4096{{y}}]" "f32[4096{{y}}, 4096{{x}}]" --mesh x=2,y=4
  redist plan "bf16[8192{{x}}]" "bf16[8192{{z}}]" --mesh x=4 --target-mesh z=3@8
  redist plan "f32[64{{x}}, 64]" "f32[64, 64]" --mesh x=8 --limit 40KiB --json > plan.json
  redist plan "f32[64{{x}}, 64]" "f32[64, 64{{x}}]" --mesh x=8 --html plan.html
  redist plan "f32[64{{x}}, 64]" "f32[64, 64{{x}}]" --mesh x=8 --code mpi4py > move.py
"""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add the command with its arguments."""
    parser = add_command(commands, "plan", "find the best plan and print it", EPILOG)
    parser.add_argument("source", metavar="SOURCE", help="type of the array as it is")
    parser.add_argument("target", metavar="TARGET", help="type of the array as it should be")
    add_request(parser, mesh_required=True)
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="also print the alternatives that were considered (in the JSON anyway)",
    )
    parser.add_argument(
        "--code",
        choices=sorted(CODE),
        help="print a program that runs the plan with another system's collectives instead",
    )
    parser.add_argument("--svg", metavar="FILE", help="write a picture of the plan")
    parser.add_argument("--html", metavar="FILE", help="write a page: picture, plan, alternatives")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the plan; pictures are written first, so that a wrong file name prints nothing."""
    request = read_request(args)
    plan = plan_request(request)
    if args.svg is not None:
        write_text(args.svg, plan.svg(topology=request.topology), "--svg")
    if args.html is not None:
        write_text(args.html, plan.html(topology=request.topology), "--html")
    if args.code is not None:
        print(CODE[args.code](plan, request.topology), end="")
        return OK
    print(plan.to_json() if args.json else plan)
    if args.explain and not args.json:
        print(f"\n{plan.explain()}")
    return OK
