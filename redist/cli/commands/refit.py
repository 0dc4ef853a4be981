"""``redist refit``: plan how one side's weights come to another's layout."""

from __future__ import annotations

import argparse

from redist.cli.command import FAILED, OK, Commands, add_command
from redist.cli.files import write_text
from redist.errors import RedistError
from redist.text.columns import table
from redist.text.units import format_bytes

MOST_ROWS = 40
EPILOG = """\
A side is a TOML file, or the JSON of weights:

  # train.toml
  mesh = "dp=4"
  [types]                                     # the first pattern that matches a name counts
  "*.q_proj" = "{dp}, {}"
  "*" = ""                                    # every rank has it
  [shapes]
  "layers.{0..7}.q_proj" = "bf16[4096, 4096]"

example:
  redist refit train.toml serve.toml --limit 2GiB --svg refit.svg
"""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add the command with its arguments."""
    text = "plan how weights of one side come to the ranks, layouts and names of another"
    parser = add_command(commands, "refit", text, EPILOG)
    parser.add_argument("source", metavar="SOURCE", help="what has the weights")
    parser.add_argument("target", metavar="TARGET", help="what gets them")
    parser.add_argument(
        "--limit", metavar="BYTES", help="most that a rank sends and receives in a round"
    )
    parser.add_argument("--cast", action="store_true", help="allow other dtypes at the target")
    parser.add_argument("--topology", metavar="FILE", help="levels of the machine, as TOML")
    parser.add_argument(
        "--rank", type=int, metavar="N", help="also print what rank N receives and sends"
    )
    parser.add_argument("--json", metavar="FILE", help="write the plan")
    parser.add_argument("--svg", metavar="FILE", help="write a picture of the plan")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the plan with its certificate; 1 if that is refuted."""
    from redist.refits.plan import refit
    from redist.refits.weights_files import read_weights

    source, target = read_weights(args.source), read_weights(args.target)
    plan = refit(source, target, limit_bytes=args.limit, cast=args.cast, topology=args.topology)
    certificate = plan.certificate
    if args.svg is not None:
        write_text(args.svg, plan.svg(), "--svg")
    if args.json is not None:
        write_text(args.json, plan.to_json(), "--json")
    print(plan)
    if args.rank is not None:
        if args.rank not in plan.ranks:
            raise RedistError(f"cannot print runs: no side has rank {args.rank}")
        for sends, word, preposition in ((False, "receives", "from"), (True, "sends", "to")):
            print(f"\nrank {args.rank} {word}")
            print("\n".join(_runs(plan, args.rank, sends, preposition)))
    return OK if certificate.verdict == "proved" else FAILED


def _runs(plan: object, rank: int, sends: bool, preposition: str) -> list[str]:
    from redist.refits.plan import RefitPlan

    assert isinstance(plan, RefitPlan)
    runs = plan.runs(rank, sends=sends)
    own = plan.source if sends else plan.target
    head = ("round", preposition, "tensor", "offset", "blocks", "each", "step")
    rows = [
        (str(r["round"]), str(r["peer"]), own.stored[r["tensor"]], str(r["offset"]), str(r["count"]),
         format_bytes(int(r["bytes"])), str(r["step"]))
        for r in runs[:MOST_ROWS]
    ]  # fmt: skip
    lines = table([head, *rows], (2,), "  ")
    if len(runs) > MOST_ROWS:
        lines.append(f"  and {len(runs) - MOST_ROWS} more")
    return lines if rows else ["  nothing"]
