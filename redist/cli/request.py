"""The request or the stored plan that a command line gives: its arguments, and how they are read."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from redist.cli.command import UsageError
from redist.cli.files import MAX_DEVICES, read_plan
from redist.errors import RedistError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.plan.request import OBJECTIVES, STRATEGIES, Request
from redist.plan.topology import Topology
from redist.planner import plan_request
from redist.text.units import limit_from, parse_bytes

NOTATION = """\
types:
  f32[1024, 512]                every device holds the whole array
  f32[1024{x}, 512{y}]          dim 0 is cut along mesh axis x, dim 1 along y
  f32[1024{x,y}, 512]           dim 0 is cut along x, then along y
  f32[1024{x}, 512] sum{y}      partial values: the sum along y is still to come
meshes:
  x=2,y=4                       8 devices in 2 rows of 4, played by ranks 0 to 7
  z=3@8  or  z=3@5;0;9          played by ranks 8, 9, 10  or by ranks 5, 0, 9
"""
MOST_RANKS = 4096
REQUEST_OPTIONS = ("mesh", "target_mesh", "limit", "objective", "strategy", "donate", "topology")


def add_request(parser: argparse.ArgumentParser, *, mesh_required: bool) -> None:
    """Add the options that describe a request; :func:`read_request` reads them."""
    parser.add_argument(
        "--mesh", metavar="AXES", required=mesh_required, help="the devices, such as x=2,y=4"
    )
    parser.add_argument("--target-mesh", metavar="AXES", help="other devices for the target")
    parser.add_argument("--limit", metavar="BYTES", help="peak of the worst device, such as 64MiB")
    parser.add_argument("--objective", choices=OBJECTIVES, help="what to minimise (default time)")
    parser.add_argument("--strategy", choices=STRATEGIES, help="steps to use (default auto)")
    parser.add_argument("--donate", action="store_true", help="free the source after step 1")
    parser.add_argument("--topology", metavar="FILE", help="how fast ranks reach each other (TOML)")


def add_plan_or_types(parser: argparse.ArgumentParser) -> None:
    """Add a stored plan, or two types with their options; :class:`GivenPlan` reads them."""
    parser.add_argument(
        "source", metavar="FILE|SOURCE", help="a plan as JSON (- reads standard input), or a type"
    )
    parser.add_argument("target", metavar="TARGET", nargs="?", help="the other type")
    add_request(parser, mesh_required=False)


def add_mpirun(parser: argparse.ArgumentParser) -> None:
    """Add the option that names an mpirun."""
    parser.add_argument("--mpi", metavar="MPIRUN", help="which mpirun to use")


def read_request(args: argparse.Namespace) -> Request:
    """Read the options; the first that is wrong raises, named."""
    mesh = read_mesh(args.mesh, "--mesh")
    target_mesh = mesh
    if args.target_mesh is not None:
        target_mesh = read_mesh(args.target_mesh, "--target-mesh")
    source = read_type(args.source, mesh, "SOURCE")
    target = read_type(args.target, target_mesh, "TARGET")
    if (source.dtype, source.shape) != (target.dtype, target.shape):
        raise UsageError(
            f"TARGET: {target} is not the array of SOURCE {source}; "
            f"only the axes in braces may differ: expected {source.dtype} and {_sizes(source)}"
        )
    return Request(
        source,
        target,
        read_limit(args.limit),
        args.objective or "time",
        args.strategy or "auto",
        args.donate,
        FLAT if args.topology is None else read_topology(args.topology),
    )


@dataclass(frozen=True, slots=True)
class GivenPlan:
    """A plan, the network it is for, and the JSON it was read from (None if it was found)."""

    plan: Plan
    topology: Topology
    stored: str | None

    @staticmethod
    def read(args: argparse.Namespace) -> GivenPlan:
        """Plan the request, or read the file; the first option that is wrong raises, named."""
        if args.target is not None:
            if args.mesh is None:
                raise UsageError(
                    "--mesh is missing; SOURCE and TARGET need it, such as --mesh x=2,y=4"
                )
            request = read_request(args)
            return GivenPlan(plan_request(request), request.topology, None)
        for name in REQUEST_OPTIONS:
            if getattr(args, name):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(
                    f"{option} goes with SOURCE and TARGET, but only {args.source!r} is given; "
                    "a stored plan needs no options, a request needs TARGET too"
                )
        plan, stored = read_plan(args.source)
        return GivenPlan(plan, FLAT, stored)


def read_bytes(text: str, option: str) -> int:
    """Read a number of bytes from an option."""
    try:
        return parse_bytes(text)
    except (RedistError, ValueError) as error:
        raise UsageError(f"{option}: {error}") from None


def read_limit(text: str | None) -> int | None:
    """Read the memory limit from ``--limit``; None where it is not given."""
    try:
        return limit_from(text, "--limit")
    except RedistError as error:
        raise UsageError(str(error) if "--limit" in str(error) else f"--limit: {error}") from None


def read_ranks(text: str, least: int = 1) -> int:
    """Read a number of ranks from ``-n``.

    >>> read_ranks("8")
    8
    """
    if not text.isdecimal() or not least <= int(text) <= MOST_RANKS:
        raise UsageError(f"-n: cannot use {text!r}; need {least} to {MOST_RANKS} ranks, such as 8")
    return int(text)


def read_mesh(text: str, option: str) -> Mesh:
    """Read a mesh from an option."""
    try:
        mesh = Mesh.parse(text)
        if mesh.n_devices <= MAX_DEVICES:
            return mesh
    except (RedistError, ValueError) as error:
        raise UsageError(f"{option}: {error}") from None
    except OverflowError:
        pass
    raise UsageError(
        f"{option}: {text!r} is too large; redist plans for up to {MAX_DEVICES} devices"
    )


def _sizes(t: ArrayType) -> str:
    return f"dims of {' x '.join(map(str, t.shape))}" if t.shape else "no dims"


def read_type(text: str, mesh: Mesh, what: str) -> ArrayType:
    """Read a type from an argument."""
    try:
        return ArrayType.parse(text, mesh)
    except (RedistError, ValueError) as error:
        raise UsageError(f"{what}: {error}") from None


def read_topology(name: str) -> Topology:
    """Read a topology from the file that an option names."""
    try:
        return Topology.load(name)
    except (RedistError, ValueError) as error:
        raise UsageError(f"--topology: {error}") from None
