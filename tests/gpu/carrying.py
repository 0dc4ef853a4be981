"""The random problems of ``fuzz`` by one carrier, on a GPU or a pretended one.

As in ``mpirun -n 4 python -m tests.gpu.carrying --carrier nccl --pretend --transport mpi --n 30``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from redist.runtime import cuda_course
from redist.runtime.cuda_carriers import ByMessages, Carrier
from redist.runtime.cuda_choice import Choice
from redist.runtime.cuda_nccl import ByNccl, joined
from redist.runtime.world import World
from tests.gpu import doubles, fuzz, pretend
from tests.mpi.together import main

CARRIERS = ("pinned", "aware", "nccl")
CHOOSE = "choose"


def choosing(name: str, nccl: doubles.Nccl, used: list[Carrier]) -> Any:
    """In place of the choice by detection."""

    def choose(world: World, timeout_s: float | None, may_nccl: bool = True) -> Choice:
        carrier: Carrier = ByMessages(world, on_device=name == "aware")
        if name == "nccl":
            carrier = joined(world, timeout_s)
            assert isinstance(carrier, ByNccl) and carrier.communicator is nccl
            carrier.try_out(timeout_s)
        used.append(carrier)
        return Choice(carrier, ())

    return choose


def install(name: str, pretends: bool) -> Callable[[], bool]:
    """Let transfers of this process use a carrier; the function says whether they did."""
    nccl = doubles.Nccl(doubles.put_off if pretends else doubles.through_host)
    if pretends:
        pretend.install(f"gpu {MPI.COMM_WORLD.rank}", nccl)
    elif name == "nccl":
        import cupy

        cupy.cuda.nccl = nccl
    used: list[Carrier] = []
    setattr(cuda_course, CHOOSE, choosing(name, nccl, used))
    return lambda: bool(used) and (name != "nccl" or nccl.groups > 1)


def program() -> int:
    """0 if all ranks agree with the simulator, and the carrier was the one asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--carrier", choices=CARRIERS, required=True)
    parser.add_argument("--pretend", action="store_true")
    args, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    was_used = install(args.carrier, args.pretend)
    status = fuzz.program()
    if not was_used():
        print("WRONG the carrier was not used", flush=True)
        status = 1
    return status


if __name__ == "__main__":
    main(program)
