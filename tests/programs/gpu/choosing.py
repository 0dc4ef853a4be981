"""Which carrier ranks choose, for what they find; on pretended GPUs.

As in ``mpirun -n 3 python -m tests.programs.gpu.choosing``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mpi4py import MPI

import redist.runtime.cuda.transports.carrier_choice as choice
from redist.runtime.cuda.transports.carriers import AWARE, PINNED
from redist.runtime.cuda.transports.mpi_aware import Answer
from redist.runtime.ranks.world import world_of
from tests.fakes import nccl_doubles as doubles
from tests.fakes import pretended_cupy as pretend
from tests.programs.together import all_well, main

TIMEOUT_S = 30.0
NAME = "cuda_aware"


class Garbled(doubles.Nccl):
    """Its messages arrive as something else on the last rank."""

    def send(self, address: int, n: int, kind: int, peer: int, stream: int) -> None:
        """Of the receiving end."""
        last = peer == self.comm.size - 1
        super().send(address + (8 if last else 0), n, kind, peer, stream)


class Refusing(doubles.Nccl):
    """The last rank cannot join."""

    def NcclCommunicator(self, size: int, number: tuple[int, ...], rank: int) -> Any:
        """An error there."""
        if rank == size - 1:
            raise RuntimeError("no way")
        return super().NcclCommunicator(size, number, rank)


def wrong(world: Any, gpu: str, nccl: Any, aware: Answer, may: bool, want: Any) -> str | None:
    """What is wrong with a choice on this rank."""
    pretend.install(gpu, nccl)
    asked = []

    def ask(timeout_s: float) -> Answer:
        asked.append(timeout_s)
        return aware

    setattr(choice, NAME, ask)
    found = choice.choose(world, may)
    name, reasons = want
    if found.carrier.name != name:
        return f"{found.carrier.name}, not {name}: {found.refused}"
    if len(found.refused) != len(reasons):
        return f"refused {found.refused}, not {reasons}"
    for text, start in zip(found.refused, reasons, strict=True):
        if start not in text:
            return f"refused for {text!r}, not for {start!r}"
    first = world.rank == 0 and name != "NCCL"  # all are on one machine
    return None if len(asked) == first else f"the probe was run {len(asked)} times"


CHECKS = (
    "NCCL", "NCCL rather than aware MPI", "aware MPI without NCCL", "pinned memory", "aware MPI for few GPUs",
    "pinned memory for few GPUs", "no NCCL on one rank", "NCCL that refuses", "NCCL that garbles",
)  # fmt: skip


def program() -> int:
    """0 if every choice is the right one, the same on all ranks."""
    comm = MPI.COMM_WORLD
    world = world_of(comm, "auto", 1, TIMEOUT_S)
    last = comm.rank == comm.size - 1
    own, shared = f"gpu {comm.rank}", "gpu 0" if last else f"gpu {comm.rank}"
    yes, no = Answer(True, "it works"), Answer(False, "the probe died of SIGSEGV")
    few = f"{comm.size} ranks for {comm.size - 1} GPUs"

    def nccl(kind: type[doubles.Nccl] = doubles.Nccl) -> doubles.Nccl:
        return kind(doubles.put_off)

    none = SimpleNamespace(available=False)
    ill = f"rank {comm.size - 1}: cannot"
    some = nccl()  # made by all: it has a communicator
    cases: list[tuple[str, Any, Answer, bool, Any]] = [
        (own, nccl(), no, True, ("NCCL", [])),
        (own, nccl(), yes, True, ("NCCL", [])),
        (own, nccl(), yes, False, (AWARE, [])),
        (own, nccl(), no, False, (PINNED, ["died of SIGSEGV"])),
        (shared, nccl(), yes, True, (AWARE, [few])),
        (shared, nccl(), no, True, (PINNED, [few, "died of SIGSEGV"])),
        (own, none if last else some, no, True, (PINNED, [ill, "died"])),
        (own, nccl(Refusing), no, True, (PINNED, ["no way", "died"])),
        (own, nccl(Garbled), no, True, (PINNED, ["did not arrive as it was sent", "died"])),
    ]
    well = True
    for check, case in zip(CHECKS, cases, strict=True):
        said = wrong(world, *case[:3], *case[3:])
        well = all_well(comm, check, said) and well
    if well and comm.rank == 0:
        print(f"choices agree ({comm.size} ranks)", flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    main(program)
