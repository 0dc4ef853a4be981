"""From options to a plan, saying which option is wrong."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from redist.cli.status import UsageError
from redist.errors import RedistError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.plan.plan import Plan
from redist.plan.topology import FLAT, Topology
from redist.planner import synthesize
from redist.text.units import parse_bytes

MAX_DEVICES = 2**20
"""Larger meshes would only run out of memory."""

REQUEST_OPTIONS = ("mesh", "target_mesh", "limit", "objective", "strategy", "donate", "topology")


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """What the options ask for."""

    source: ArrayType
    target: ArrayType
    limit_bytes: int | None
    objective: str
    strategy: str
    donate: bool
    topology: Topology

    @staticmethod
    def read(args: argparse.Namespace) -> CommandRequest:
        """Read the options; the first that is wrong raises, named."""
        mesh = _mesh(args.mesh, "--mesh")
        target_mesh = mesh
        if args.target_mesh is not None:
            target_mesh = _mesh(args.target_mesh, "--target-mesh")
        source = _type(args.source, mesh, "SOURCE")
        target = _type(args.target, target_mesh, "TARGET")
        if (source.dtype, source.shape) != (target.dtype, target.shape):
            raise UsageError(
                f"TARGET: {target} is not the array of SOURCE {source}; "
                f"only the axes in braces may differ: expected {source.dtype} and {_sizes(source)}"
            )
        return CommandRequest(
            source,
            target,
            None if args.limit is None else bytes_of(args.limit, "--limit"),
            args.objective or "time",
            args.strategy or "auto",
            args.donate,
            FLAT if args.topology is None else _topology(args.topology),
        )

    def plan(self) -> Plan:
        """The best plan."""
        return synthesize(
            self.source,
            self.target,
            limit_bytes=self.limit_bytes,
            objective=self.objective,
            strategy=self.strategy,
            donate=self.donate,
            topology=self.topology,
        )


def bytes_of(text: str, option: str) -> int:
    """A number of bytes from an option."""
    try:
        return parse_bytes(text)
    except (RedistError, ValueError) as error:
        raise UsageError(f"{option}: {error}") from None


def _mesh(text: str, option: str) -> Mesh:
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


def _type(text: str, mesh: Mesh, what: str) -> ArrayType:
    try:
        return ArrayType.parse(text, mesh)
    except (RedistError, ValueError) as error:
        raise UsageError(f"{what}: {error}") from None


def _topology(name: str) -> Topology:
    try:
        return Topology.load(name)
    except (RedistError, ValueError) as error:
        raise UsageError(f"--topology: {error}") from None
