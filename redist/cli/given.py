"""The plan that a command line gives: asked for by SOURCE and TARGET, or stored in a file."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from redist.cli.files import read_plan
from redist.cli.request import REQUEST_OPTIONS, CommandRequest
from redist.cli.status import UsageError
from redist.plan.plan import Plan
from redist.plan.topology import FLAT, Topology


@dataclass(frozen=True, slots=True)
class Given:
    """A plan, the network it is for, and the text it was read from (None where it was found)."""

    plan: Plan
    topology: Topology
    text: str | None

    @staticmethod
    def read(args: argparse.Namespace) -> Given:
        """Plan the request, or read the file; the first option that is wrong raises, named."""
        if args.target is not None:
            if args.mesh is None:
                raise UsageError(
                    "--mesh is missing; SOURCE and TARGET need it, such as --mesh x=2,y=4"
                )
            asked = CommandRequest.read(args)
            return Given(asked.plan(), asked.topology, None)
        for name in REQUEST_OPTIONS:
            if getattr(args, name):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(
                    f"{option} goes with SOURCE and TARGET, but only {args.source!r} is given; "
                    "a stored plan needs no options, a request needs TARGET too"
                )
        plan, text = read_plan(args.source)
        return Given(plan, FLAT, text)
