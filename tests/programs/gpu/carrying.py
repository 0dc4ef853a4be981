"""The random problems of ``fuzz`` by one carrier, on a GPU or a pretended one.

As in ``mpirun -n 4 python -m tests.programs.gpu.carrying --carrier nccl --pretend --transport mpi --n 30``.
``--real`` is NCCL itself, between ranks that share a GPU. With ``--round-bytes 256`` even the smallest data
passes in rounds, through two halves of staging.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from redist.runtime.cuda.transports import carrier_choice
from redist.runtime.cuda.transports import ipc as cuda_peers
from redist.runtime.cuda.transports.carrier_choice import Choice
from redist.runtime.cuda.transports.carriers import ByMessages, Carrier
from redist.runtime.cuda.transports.nccl import ByNccl, join
from redist.runtime.host import staging
from redist.runtime.ranks.world import World
from tests.fakes import nccl_doubles as doubles
from tests.fakes import pretended_cupy as pretend
from tests.programs.gpu import fuzz
from tests.programs.gpu.real_nccl import Passed, let_ranks_share
from tests.programs.together import all_well, main

CARRIERS = ("pinned", "aware", "nccl")
CHOOSE, CARRY = "choose", "carry"
CHECKS = (*fuzz.CHECKS, CARRY)


def in_small_rounds(n_bytes: int) -> None:
    """Let staging of this process be halved always, and rounds be no larger than this."""
    for name, value in {"ROUND_BYTES": n_bytes, "LEAST_HALF_BYTES": 1}.items():
        assert hasattr(staging, name)
        setattr(staging, name, value)


def watched(carrier: Carrier, shapes: list[tuple[int, int]]) -> Carrier:
    """The same, noting how many rounds it takes through how many parts of staging."""
    real = carrier.carry

    def carry(rounds: Any, room: Any, tables: Any, *more: Any) -> None:
        shapes.append((len(rounds), len(tables)))
        real(rounds, room, tables, *more)

    setattr(carrier, CARRY, carry)
    return carrier


def choosing(name: str, nccl: doubles.Nccl, shapes: list[tuple[int, int]]) -> Any:
    """In place of the choice by detection."""

    def choose(world: World, may_nccl: bool = True) -> Choice:
        carrier: Carrier = ByMessages(world, on_device=name == "aware")
        if name == "nccl":
            carrier = join(world)
            assert isinstance(carrier, ByNccl) and carrier.communicator is nccl
            carrier.try_out()
        return Choice(watched(carrier, shapes), ())

    return choose


def watching(shapes: list[tuple[int, int]]) -> Any:
    """The choice by detection, which must be NCCL."""

    def choose(world: World, may_nccl: bool = True) -> Choice:
        found = carrier_choice.choose(world, may_nccl)
        assert isinstance(found.carrier, ByNccl), found.refused
        return Choice(watched(found.carrier, shapes), ())

    return choose


@dataclass(frozen=True)
class Installed:
    """A carrier that transfers of this process use: its NCCL, and rounds and halves of every stage."""

    name: str
    nccl: doubles.Nccl | Passed
    shapes: list[tuple[int, int]]

    def wrong(self, halves: int) -> str:
        """What is wrong with how it was used, if it was to have so many halves."""
        if not self.shapes or (
            self.name == "nccl" and self.nccl.groups + len(self.nccl.gathers) < 2
        ):
            return "the carrier was not used"
        n = sum(rounds > 1 and parts == halves for rounds, parts in self.shapes)
        return "" if n or halves == 1 else f"never {halves} halves: {set(self.shapes)}"


def install(name: str, pretends: bool, real: bool = False) -> Installed:
    """Let transfers of this process use a carrier: pretended, a double of NCCL, or the ``real`` one."""
    shapes: list[tuple[int, int]] = []
    if real:
        setattr(cuda_peers, CHOOSE, watching(shapes))
        return Installed(name, let_ranks_share(), shapes)
    nccl = doubles.Nccl(doubles.put_off if pretends else doubles.through_host)
    if pretends:
        pretend.install(f"gpu {MPI.COMM_WORLD.rank}", nccl)
    elif name == "nccl":
        import cupy

        cupy.cuda.nccl = nccl
    setattr(cuda_peers, CHOOSE, choosing(name, nccl, shapes))
    return Installed(name, nccl, shapes)


def program() -> int:
    """0 if all ranks agree with the simulator, and the carrier was the one asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--carrier", choices=CARRIERS, required=True)
    parser.add_argument("--pretend", action="store_true")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--round-bytes", type=int)
    args, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    installed = install(args.carrier, args.pretend, args.real)
    if args.round_bytes is not None:
        in_small_rounds(args.round_bytes)
    status = fuzz.program()
    wrong = installed.wrong(1 if args.round_bytes is None else 2)
    return status if all_well(MPI.COMM_WORLD, CARRY, wrong or None) else 1


if __name__ == "__main__":
    main(program)
