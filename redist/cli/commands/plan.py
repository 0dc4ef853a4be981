"""``redist plan``: find the best plan and print it."""

from __future__ import annotations

import argparse

from redist.cli.files import write_text
from redist.cli.request import CommandRequest
from redist.cli.status import OK


def run_plan(args: argparse.Namespace) -> int:
    """Print the plan; pictures are written first, so that a wrong file name prints nothing."""
    asked = CommandRequest.read(args)
    plan = asked.plan()
    if args.svg is not None:
        from redist.draw.picture import draw

        write_text(args.svg, draw(plan, asked.topology), "--svg")
    if args.html is not None:
        from redist.draw.page import make_page

        write_text(args.html, make_page(plan, asked.topology), "--html")
    print(plan.to_json() if args.json else plan)
    if args.explain and not args.json:
        print(f"\n{plan.explain()}")
    return OK
